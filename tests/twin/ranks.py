"""What is asked of many ranks, asked of one trace: a rank, or one for each GPU that communicates in it.

What a collective is (its kind, group and message) is given, since that is read from its arguments and has its
own tests, and so is how far clocks are off; which calls are one collective, and all times, are found here.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from slow_reader import COMMUNICATION_OP, Interval, Row, end, intersect, length, subtract
from twin.figures import Figures, Rows, duration, grouped, mean, quantile, share, spans
from twin.gpu import comm_comp_overlap, temporal_breakdown

SAID = (
    "kind", "name", "group", "group_size", "sequence", "comms_id", "dtype", "message_bytes", "peer", "pid",
)  # fmt: skip
"""What is given of a call, by its row."""
SAID_ON_HOST = ("issued_ns", "step")
"""What is given of one that the host runs, too: when and in which step it was called."""
WAITING = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"}
PASSED_ON = {"send", "recv", "send_recv"}
_CUT = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
STEP_VALUES = ("total_ns", "own_ns", "compute_ns", "launch_ns", "data_ns", "network_ns", "wait_ns")


def calls_of(rows: Rows, said: dict[int, Row], shifts: dict[int, int], rank: int | None) -> list[Row]:
    """The calls that communicate, with their rank; ``rank`` is the one that the trace records, if it does."""
    kernels = [work for work in rows["gpu_ops"] if work["kind"] == "kernel"]
    computing = grouped((work for work in kernels if not work["is_communication"]), lambda w: w["device"])
    busy: dict[Any, list[Interval]] = {device: spans(works) for device, works in computing.items()}
    anywhere = spans(work for work in kernels if not work["is_communication"])
    found = [_call(work, said, busy.get(work["device"], [])) for work in kernels if work["is_communication"]]
    hosts = [_call({**op, "device": None}, said, anywhere) for op in rows["ops"] if op["row"] in said]
    for call in hosts:
        call.update({name: said[call["row"]][name] for name in SAID_ON_HOST})
    if not any(computing.values()):
        _expose_on_host(hosts, rows["ops"])
    found += hosts
    _give_ranks(found, rank)
    found = [call for call in found if call["rank"] is not None]
    for call in found:
        call["at_ns"] = call["start_ns"] - shifts[call["rank"]]
    _match(found)
    return found


def _call(event: Row, said: dict[int, Row], computing: list[Interval]) -> Row:
    taken = duration(event)
    hidden = length(intersect([(event["start_ns"], end(event))], computing)) if taken else 0
    kept = {name: event[name] for name in ("row", "start_ns", "device", "step")}
    told = {name: said[event["row"]][name] for name in SAID}
    return {**kept, **told, "issued_ns": None, "dur_ns": taken, "exposed_ns": taken - hidden}


def _expose_on_host(calls: list[Row], ops: list[Row]) -> None:
    """Without a GPU operators hide what the host communicates; of several calls at a time the last counts."""
    parents = {op["parent_row"] for op in ops}
    leaves = [op for op in ops if op["row"] not in parents and not op["is_annotation"]]
    computing = spans(op for op in leaves if not COMMUNICATION_OP.match(op["name"] or ""))
    for call in calls:
        order = (call["start_ns"], call["row"])
        later = spans(other for other in calls if (other["start_ns"], other["row"]) > order)
        own = subtract(spans([call]), later)
        call["exposed_ns"] = length(subtract(own, computing))


def _give_ranks(calls: list[Row], rank: int | None) -> None:
    """Each process and GPU that communicates is a rank, where several do and the trace records none."""
    places = {(call["pid"], call["device"]) for call in calls if call["device"] is not None}
    if rank is not None or len(places) < 2:
        for call in calls:
            call["rank"] = rank or 0
        return
    ordered = sorted(places, key=lambda place: (place[0] is None, place))
    numbers = {place: number for number, place in enumerate(ordered)}
    for call in calls:
        of_process = [number for (pid, _), number in numbers.items() if pid == call["pid"]]
        first = min(of_process, default=None)
        call["rank"] = first if call["device"] is None else numbers[call["pid"], call["device"]]


def _order(call: Row) -> tuple[int, int]:
    return (call["at_ns"] if call["issued_ns"] is None else call["issued_ns"], call["row"])


def _match(calls: list[Row]) -> None:
    """By process group and number; where one of a group has none, by the place in the step."""

    def line(call: Row) -> Any:
        passed_on = call["kind"] in PASSED_ON
        channel = call["kind"] if call["group"] is None or passed_on else None
        if passed_on and call["peer"] is not None:
            is_first = str(call["rank"]) == call["peer"].partition("-")[0]
            channel = "both" if call["kind"] == "send_recv" else is_first == (call["kind"] == "send")
        return call["group"], call["peer"], channel

    for name, members in grouped(calls, line).items():
        numbers = ("sequence", "comms_id")
        by = next((name for name in numbers if all(call[name] is not None for call in members)), "order")
        if members[0]["peer"] is not None:
            by = "order"
        for of_rank in grouped(members, lambda call: call["rank"]).values():
            places: defaultdict[Any, int] = defaultdict(int)
            for call in sorted(of_rank, key=_order):
                key = call["step" if by == "order" else by]
                call["instance"] = (name, key, places[key])
                call["matched_by"] = by
                places[key] += 1
    for members in grouped(calls, lambda call: call["instance"]).values():
        shortest = min(call["dur_ns"] for call in members)
        for call in members:
            kinds = WAITING if call["device"] is not None else WAITING | PASSED_ON
            waits = call["kind"] in kinds and len(members) > 1
            call["ranks_seen"] = len(members)
            call["wait_ns"] = call["dur_ns"] - shortest if waits else None


def _is_unknown(call: Row) -> bool:
    """Whether it is not known which of the rank's groups the call is of."""
    return (call["group"] or "").startswith("unknown (rank ")


def rank_calls(calls: list[Row]) -> Figures:
    """By rank and row."""
    names = ("dur_ns", "wait_ns", "exposed_ns", "ranks_seen", "matched_by", "step", "kind")
    found: Figures = {}
    for call in calls:
        waited = call["exposed_ns"] if _is_unknown(call) else min(call["wait_ns"] or 0, call["exposed_ns"])
        figures = {**{name: call[name] for name in names}, "start_ns": call["at_ns"]}
        found[call["rank"], call["row"]] = {**figures, "exposed_wait_ns": waited}
    return found


def _bus_factor(kind: str | None, ranks: int | None) -> float | None:
    if kind is None or ranks is None or ranks < 1 or kind in ("barrier", "send_recv"):
        return None
    if kind == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if kind in _CUT else 1.0


def collective_instances(calls: list[Row]) -> Figures:
    """By what tells a collective apart."""
    found: Figures = {}
    for key, members in grouped(calls, lambda call: call["instance"]).items():
        members.sort(key=lambda call: (call["at_ns"], call["rank"]))
        several = len(members) > 1
        waits = [call["wait_ns"] for call in members if call["wait_ns"] is not None]
        sizes = [call["message_bytes"] for call in members if call["message_bytes"] is not None]
        size, transfer = max(sizes, default=None), min(call["dur_ns"] for call in members)
        first = {
            name: next((call[name] for call in members if call[name] is not None), None)
            for name in ("kind", "name", "group", "group_size", "dtype", "step", "peer")
        }
        rate = size * 1e9 / transfer if size is not None and transfer else None
        factor = _bus_factor(first["kind"], first["group_size"])
        alike: bool | None = len({call["kind"] for call in members}) == 1
        # Whether sizes may differ, only the kind says.
        if alike and len({call["message_bytes"] for call in members}) > 1:
            alike = None if members[0]["kind"] is None else members[0]["kind"] == "all_to_all"
        found[key] = {
            **first,
            "message_bytes": size,
            "ranks_seen": len(members),
            "start_ns": members[0]["at_ns"],
            "first_rank": members[0]["rank"],
            "last_rank": members[-1]["rank"],
            "skew_ns": members[-1]["at_ns"] - members[0]["at_ns"] if several else None,
            "transfer_ns": transfer,
            "total_ns": sum(call["dur_ns"] for call in members),
            "wait_ns": sum(waits) if several and waits else None,
            "exposed_ns": sum(call["exposed_ns"] for call in members),
            "algorithm_bytes_per_s": rate,
            "bus_bytes_per_s": None if rate is None or factor is None else rate * factor,
            "agrees": alike,
        }
    return found


def communication(instances: Figures, *by: str) -> Figures:
    found: Figures = {}
    for key, members in grouped(instances.values(), lambda row: tuple(row[name] for name in by)).items():
        times = [row["transfer_ns"] for row in members]
        skews = [row["skew_ns"] for row in members if row["skew_ns"] is not None]
        waits = [row["wait_ns"] for row in members if row["wait_ns"] is not None]
        rates = {
            name: [row[name] for row in members if row[name] is not None]
            for name in ("algorithm_bytes_per_s", "bus_bytes_per_s")
        }
        lacking = [row["group_size"] for row in members if row["ranks_seen"] < (row["group_size"] or 0)]
        found[key] = {
            "collectives": len(members),
            "calls": sum(row["ranks_seen"] for row in members),
            "total_ns": sum(row["total_ns"] for row in members),
            "wait_ns": sum(waits) if waits else None,
            "exposed_ns": sum(row["exposed_ns"] for row in members),
            "bytes": sum(row["message_bytes"] or 0 for row in members),
            "transfer_p50_ns": float(median(times)),
            "transfer_p90_ns": float(quantile(times, 0.9) or 0),
            "transfer_max_ns": max(times),
            "skew_p50_ns": float(median(skews)) if skews else None,
            "skew_max_ns": max(skews, default=None),
            **{name: median(values) if values else None for name, values in rates.items()},
            "bus_bytes_per_s_min": min(rates["bus_bytes_per_s"], default=None),
            "incomplete": len(lacking),
        }
    return found


def collective_stragglers(calls: list[Row]) -> Figures:
    sums: defaultdict[int, dict[str, int]] = defaultdict(
        lambda: dict.fromkeys(("collectives", "times_last", "times_first", "held_up_ns", "waited_ns"), 0)
    )
    waiting = [call for call in calls if call["wait_ns"] is not None]
    for members in grouped(waiting, lambda call: call["instance"]).values():
        members.sort(key=lambda call: (call["at_ns"], call["rank"]))
        waited = sum(call["wait_ns"] for call in members)
        for call in members:
            figures = sums[call["rank"]]
            figures["collectives"] += 1
            figures["waited_ns"] += call["wait_ns"]
            figures["times_first"] += call["rank"] == members[0]["rank"]
            if call["rank"] == members[-1]["rank"]:
                figures["times_last"] += 1
                figures["held_up_ns"] += waited - call["wait_ns"]
    return dict(sums)


def rank_steps(rows: Rows, calls: list[Row], rank: int) -> Figures:
    """By number of the step; a rank that stands for a part of the trace has none."""
    if len({call["rank"] for call in calls}) > 1:
        return {}
    found: Figures = {}
    whole = [step for step in rows["steps"] if not step["is_partial"]]
    firsts = {step["step"]: step for step in sorted(whole, key=lambda step: step["start_ns"], reverse=True)}
    on_gpu = ("kernel_ns", "memcpy_ns", "memset_ns", "communication_ns")
    if not any(step[part] for step in firsts.values() for part in on_gpu):
        return {(rank, number): _on_host(step, calls) for number, step in firsts.items()}
    for step in firsts.values():
        idle = step["runtime_ns"] + step["cpu_exec_ns"] + step["other_ns"]
        found[rank, step["step"]] = {
            "start_ns": step["start_ns"],
            "total_ns": step["total_ns"],
            "compute_ns": step["kernel_ns"] + step["memcpy_ns"] + step["memset_ns"],
            "launch_ns": idle,
            "data_ns": step["dataloader_ns"],
            "network_ns": step["communication_ns"],
            # Nobody else is there to be waited for.
            "wait_ns": 0,
            "own_ns": step["total_ns"],
        }
    return found


def _on_host(step: Row, calls: list[Row]) -> Row:
    """The parts of a step of a rank without GPU work."""
    own = [call for call in calls if call["step"] == step["step"] and call["device"] is None]
    works = step["total_ns"] - step["dataloader_ns"]
    communication = min(sum(call["exposed_ns"] for call in own), works)
    waits = min(sum(call["exposed_ns"] for call in own if _is_unknown(call)), communication)
    return {
        "start_ns": step["start_ns"],
        "total_ns": step["total_ns"],
        "compute_ns": works - communication,
        "launch_ns": 0,
        "data_ns": step["dataloader_ns"],
        "network_ns": communication - waits,
        "wait_ns": waits,
        "own_ns": step["total_ns"] - waits,
    }


def step_pace(rows: Rows, steps: Figures, shift: int) -> Figures:
    """By rank, step and start, of all whole steps."""
    whole = [step for step in rows["steps"] if not step["is_partial"]] if steps else []
    whole.sort(key=lambda step: step["start_ns"])
    starts = [step["start_ns"] - shift for step in whole]
    rank = next(iter(steps), (0,))[0]
    after = [*starts[1:], None] if starts else []
    found: Figures = {}
    for step, start, later in zip(whole, starts, after, strict=True):
        of_number = [at for each, at in zip(whole, starts, strict=True) if each["step"] == step["step"]]
        found[rank, step["step"], start] = {
            "period_ns": None if later is None else later - start,
            # From the step's own start: a float does not hold an epoch time to the nanosecond.
            "behind_ns": float(-median(at - start for at in of_number)),
        }
    return found


def rank_quantiles(steps: Figures, by: str) -> Figures:
    place = ("rank", "step").index(by)
    found: Figures = {}
    for key, members in grouped(steps.items(), lambda pair: pair[0][place]).items():
        for part in STEP_VALUES:
            values = [figures[part] for _, figures in members]
            found[key, part] = {"count": len(values), "mean_ns": mean(values)} | {
                f"q{100 * at:g}": float(quantile(values, at) or 0) for at in _QUANTILES
            }
    return found


def name_quantiles(rows: Rows) -> Figures:
    """The times of GPU work by name."""
    found: Figures = {}
    for name, works in grouped(rows["gpu_ops"], lambda work: work["name"]).items():
        values = [work["dur_ns"] for work in works if work["dur_ns"] is not None]
        found[name] = {"count": len(values), "sum": sum(values), "mean": mean(values)} | {
            f"q{100 * at:g}": quantile([float(value) for value in values], at) for at in _QUANTILES
        }
    return found


def rank_gpu_time(rows: Rows, rank: int) -> Figures:
    overlaps = comm_comp_overlap(rows, "device")
    found: Figures = {}
    for device, parts in temporal_breakdown(rows).items():
        both = overlaps.get((device,), dict.fromkeys(("communication_ns", "overlap_ns"), 0))
        found[rank, device] = {
            **{name: parts[name] for name in ("span_ns", "compute_ns", "memory_ns", "idle_ns")},
            "exposed_ns": parts["communication_ns"],
            "communication_ns": both["communication_ns"],
            "overlap_ns": both["overlap_ns"],
            "overlap": share(both["overlap_ns"], both["communication_ns"]),
        }
    return found
