"""What recommendations say: the figures of the general rules found anew, and what binds those of all others.

A saving is at most the wall time of what it changes, in whole steps: of gaps that a GPU idled in, or of the
works that are cited.
"""

from __future__ import annotations

from typing import Any

from slow_reader import Interval, Row, end, intersect, length, subtract, union
from twin.figures import Figures, Rows, grouped, kind_of, share, spans

GAPS = {"launch_bound", "host_busy", "synchronising_calls", "gpu_idle"}
"""Rules about gaps of a GPU, each about others of them."""
SAME_GAPS = {"serving_without_graphs", "tiny_kernels"}
"""Rules about gaps that ``launch_bound`` is about, too."""
WORKS = {
    "off_tensor_cores", "layout_conversions", "elementwise_chains", "small_grids", "pageable_copies",
    "exposed_copies", "exposed_communication", "below_attainable", "attention_not_fused",
}  # fmt: skip
"""Rules about works of a GPU that could take less time."""
AT_LEAST = {"ddp_backend"}
BELOW = {"low_utilisation", "exposed_communication"}
_DATA, _COMMUNICATION, _BUSY, _HIDDEN, _EXPOSED = 0.05, 0.1, 0.5, 0.5, 0.05
_HIGH, _MEDIUM, _LEAST = 0.2, 0.05, 0.005
Advice = list[dict[str, Any]]


class Steps:
    """The whole steps of a trace, or all of a trace without steps."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.whole = [step for step in rows["steps"] if not step["is_partial"]]
        self.total_ns = sum(step["total_ns"] for step in self.whole)
        self.spans = union([(step["start_ns"], step["start_ns"] + step["total_ns"]) for step in self.whole])
        self.numbers = {step["step"] for step in self.whole}

    def covers(self, row: Row) -> bool:
        return self.numbers == {None} or (row["step"] is not None and row["step"] in self.numbers)

    def worst(self, name: str) -> tuple[int, int | None]:
        """What the GPU has of a part that has most of it, and which GPU that is."""
        whole = [step for step in self.rows["gpu_steps"] or self.rows["steps"] if not step["is_partial"]]
        of_gpus = grouped(whole, lambda step: step.get("device"))
        sums = {device: sum(step[name] for step in steps) for device, steps in of_gpus.items()}
        device = max(
            sorted(sums, key=lambda at: -1 if at is None else at), key=sums.__getitem__, default=None
        )
        return sums.get(device, 0), device

    def said(self, device: int | None) -> int | None:
        """A GPU where several work, else none."""
        several = len({work["device"] for work in self.rows["gpu_ops"]} - {None}) > 1
        return device if several else None

    def idle_ns(self, device: int | None) -> int:
        """Between the first and the last work of a GPU."""
        works = [work for work in self.rows["gpu_ops"] if work["device"] == device]
        if not works:
            return 0
        extent: Interval = (min(work["start_ns"] for work in works), max(map(end, works)))
        return length(intersect(subtract([extent], spans(works)), self.spans))

    def busy_ns(self, works: list[Row]) -> int:
        """What works cover of the steps."""
        return length(intersect(spans(works), self.spans))


def general(steps: Steps, summary: Figures, overlaps: Figures) -> dict[Any, dict[str, Any]]:
    """By rule and GPU: the advice of the rules whose figures are sums that other answers have.

    ``summary`` is that of the GPUs, ``overlaps`` that of communication by GPU and step.
    """
    found: dict[Any, dict[str, Any]] = {}
    waited, device = steps.worst("dataloader_ns")
    if (value := share(waited, steps.total_ns) or 0.0) > _DATA:
        found["data_loading", steps.said(device)] = {"value": value, "saving_ns": waited}
    exposed, device = steps.worst("communication_ns")
    if (value := share(exposed, steps.total_ns) or 0.0) > _COMMUNICATION:
        communicates = [work for work in steps.rows["gpu_ops"] if work["is_communication"]]
        cited = [work for work in communicates if work["device"] == device and steps.covers(work)]
        found["communication", steps.said(device)] = {"value": value, "cited": len(cited)}
    little = {
        device: gpu["utilisation"]
        for device, gpu in summary.items()
        if gpu["kernels"] and gpu["utilisation"] is not None and gpu["utilisation"] < _BUSY
    }
    if little:
        device = next(iter(little)) if len(little) == 1 else None
        found["low_utilisation", device] = {"value": min(little.values()), "saving_ns": None}
    for device, members in grouped(overlaps.items(), lambda pair: pair[0][0]).items():
        counted = [figures for (_, step), figures in members if steps.covers({"step": step})]
        total, both = (sum(row[name] for row in counted) for name in ("communication_ns", "overlap_ns"))
        if (share(total - both, steps.total_ns) or 0.0) > _EXPOSED and both / total < _HIDDEN:
            found["exposed_communication", device] = {"value": both / total}
    return found


def hold(steps: Steps, advice: Advice) -> None:
    """Asserts what binds all advice about one trace."""
    works = {work["row"]: work for work in steps.rows["gpu_ops"]}
    ids = {row["id"] for row in advice}
    for row in advice:
        saving, value = row["saving_ns"], row["value"]
        beyond = value < row["threshold"] if row["id"] in BELOW else value > row["threshold"]
        assert beyond or (row["id"] in AT_LEAST and value == row["threshold"]), row
        assert row["saving_share"] == (None if saving is None else share(saving, steps.total_ns)), row
        assert row["same_cause_as"] in ids | {None}, row
        assert len(row["rows"]) == min(row["cited"], 100) == len(set(row["rows"])), row
        if saving is None:
            continue
        assert 0 <= saving <= steps.total_ns, row
        if row["id"] in GAPS | SAME_GAPS:
            assert saving <= steps.idle_ns(row["device"]), row
        cited = [works[number] for number in row["rows"] if number in works]
        if row["id"] in WORKS and len(cited) == row["cited"]:
            assert {work["device"] for work in cited} == {row["device"]}, row
            assert saving <= steps.busy_ns(cited), row
        if row["id"] == "communication":
            every = [work for work in works.values() if kind_of(work) == "communication"]
            parts = grouped(every, lambda work: work["device"]).values()
            assert saving <= max(map(steps.busy_ns, parts), default=steps.total_ns), row
    for device, members in grouped(advice, lambda row: row["device"]).items():
        apart = [row["saving_ns"] for row in members if row["id"] in GAPS]
        assert sum(apart) <= steps.idle_ns(device)
