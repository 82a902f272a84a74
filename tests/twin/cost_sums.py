"""Which operators GPU work counts for, and the sums of their costs.

What an operator computes and moves is said by models, which have their own tests; here the rows of
``costs`` are given, and what is added up from them is checked.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from slow_reader import Row
from twin.figures import Figures, Rows, duration, grouped, share

KNOWN = ("exact", "estimate", "unknown_dtype")
Cost = dict[str, Any]


class Owned:
    """The GPU work of each operator that counts: the innermost of those around the launch."""

    def __init__(self, rows: Rows, costs: list[Cost]) -> None:
        self.rows, self.costs = rows, {cost["op_row"]: cost for cost in costs}
        parents = {op["row"]: op["parent_row"] for op in rows["ops"]}
        self.owner: dict[int, int] = {}
        for work in rows["gpu_ops"]:
            at = work["op_row"]
            while at is not None and at not in self.costs:
                at = parents[at]
            if at is not None:
                self.owner[work["row"]] = at
        self.works = grouped(
            (work for work in rows["gpu_ops"] if work["row"] in self.owner),
            lambda work: self.owner[work["row"]],
        )
        self.taken = {row: sum(map(duration, works)) for row, works in self.works.items()}

    def part(self, work: Row) -> float:
        """The share of its operator's cost that a piece of work has."""
        owner = self.owner[work["row"]]
        return duration(work) / self.taken[owner] if self.taken[owner] else 1 / len(self.works[owner])


def costs(owned: Owned) -> Figures:
    """By operator, the time and number of its works."""
    return {
        row: {
            "device_ns": sum(duration(work) for work in owned.works.get(row, ())),
            "kernels": len(owned.works.get(row, ())),
        }
        for row in owned.costs
    }


def roofline(owned: Owned, *by: str) -> Figures:
    """``by`` takes columns of costs and of GPU work, ``kernel`` being its name."""
    sums: dict[Any, dict[str, Any]] = {}
    callers: defaultdict[Any, set[int]] = defaultdict(set)
    for work in owned.rows["gpu_ops"]:
        if work["row"] not in owned.owner:
            continue
        cost = owned.costs[owned.owner[work["row"]]]
        values = {**work, **cost, "kernel": work["name"], "kind": work["kind"]}
        key = tuple(values[name] for name in by)
        callers[key].add(cost["op_row"])
        names = ("kernels", "device_ns", "known_ns", "estimate_ns")
        figures = sums.setdefault(key, dict.fromkeys(names, 0))
        taken, part = duration(work), owned.part(work)
        figures["kernels"] += 1
        figures["device_ns"] += taken
        figures["known_ns"] += taken if cost["status"] in KNOWN else 0
        figures["estimate_ns"] += taken if cost["status"] == "estimate" else 0
        for name in ("flops", "bytes_read", "bytes_written"):
            if cost[name] is not None:
                figures[name] = figures.get(name, 0.0) + cost[name] * part
    return {key: {**figures, "calls": len(callers[key])} for key, figures in sums.items()}


def cost_coverage(owned: Owned) -> Figures:
    states = ("exact", "estimate", "unknown_dtype", "missing_shape", "unknown_op")
    found: Figures = {state: {"operators": 0, "device_ns": 0} for state in states}
    for row, cost in owned.costs.items():
        found[cost["status"]]["operators"] += 1
        found[cost["status"]]["device_ns"] += sum(map(duration, owned.works.get(row, ())))
    linked = sum(figures["device_ns"] for figures in found.values())
    total = sum(map(duration, owned.rows["gpu_ops"]))
    found["unlinked"] = {"operators": None, "device_ns": total - linked}
    for state, figures in found.items():
        of_linked = share(100.0 * figures["device_ns"], linked)
        figures["linked_pct"] = None if state == "unlinked" else of_linked
        figures["device_pct"] = share(100.0 * figures["device_ns"], total)
    return found


def steps_of(rows: Rows) -> dict[int, int | None]:
    """The place in the table of steps of each work's step, by the row of the work.

    Of several steps of its number it is the one in which its launch begins, else in whose time it begins
    itself, and of these the last that began.
    """
    steps, calls = list(enumerate(rows["steps"])), {call["row"]: call for call in rows["launches"]}
    found: dict[int, int | None] = {}
    for work in rows["gpu_ops"]:
        alike = [(place, step) for place, step in steps if step["step"] == work["step"]]
        call = calls.get(work["launch_row"])
        begin, lasts = ("start_ns", "total_ns") if call is None else ("host_start_ns", "host_dur_ns")
        at = (call or work)["start_ns"]
        inside = [(s[begin], place) for place, s in alike if s[begin] <= at <= s[begin] + s[lasts]]
        places = [place for _, place in sorted(inside)] if len(alike) > 1 else [place for place, _ in alike]
        found[work["row"]] = places[-1] if places else None
    return found


def efficiency(owned: Owned) -> Figures:
    """By the place of each whole step in order of time: its FLOPs, its GPU time, how much has a known cost.

    The GPU time of a step is that of all its work, also of what no operator launched.
    """
    steps, places = owned.rows["steps"], steps_of(owned.rows)
    marked: list[int | None] = [
        place for place, step in enumerate(steps) if not step["is_partial"] and step["step"] is not None
    ]
    marked.sort(key=lambda place: (steps[place or 0]["start_ns"], steps[place or 0]["step"]))
    found: Figures = {}
    for order, at in enumerate(marked or [None]):
        works = [work for work in owned.rows["gpu_ops"] if at is None or places[work["row"]] == at]
        total = sum(map(duration, works))
        known, flops, again = 0, None, 0.0
        for work in works:
            cost = owned.costs.get(owned.owner.get(work["row"]))
            if cost is None:
                continue
            known += duration(work) if cost["status"] in KNOWN and cost["flops"] is not None else 0
            if cost["flops"] is not None:
                flops = (flops or 0.0) + cost["flops"] * owned.part(work)
                again += cost["flops"] * owned.part(work) * (cost["phase"] == "recompute")
        number = None if at is None else steps[at]["step"]
        figures = {"device_ns": total, "flops": flops, "known_pct": share(100.0 * known, total)}
        figures["recompute_flops"] = None if flops is None else again
        found[order] = {"step": number, **figures}
    return found


def counters(rows: Rows) -> Figures:
    """By the row of the range of each kernel: its launch, what was measured, and the counters."""
    ranges = [row for row in rows["counters"] if row["category"] == "cuda_profiler_range"]
    launches = sorted(
        (call for call in rows["launches"] if call["name"].startswith("cudaLaunchKernel")),
        key=lambda call: (call["start_ns"], call["row"]),
    )
    found: Figures = {}
    order = sorted(grouped(ranges, lambda row: (row["start_ns"], row["row"])).items())
    if len(order) != len(launches):
        return {}
    for ((_, row), values), launch in zip(order, launches, strict=True):
        measured = {value["counter"]: value["value"] for value in values}
        flops = None
        for name, value in measured.items():
            for kind, each in (("fma", 2), ("mul", 1), ("add", 1)):
                if name in [f"smsp__sass_thread_inst_executed_op_{t}{kind}_pred_on.sum" for t in "fhd"]:
                    flops = (flops or 0.0) + each * value
        moved = [measured[f"dram__bytes_{way}.sum"] for way in ("read", "write")
                 if f"dram__bytes_{way}.sum" in measured]  # fmt: skip
        found[row] = {
            **measured,
            "launch_row": launch["row"],
            "op_row": launch["op_row"],
            "measured_flops": flops,
            "measured_bytes": sum(moved) if moved else measured.get("dram__bytes.sum"),
        }
    return found
