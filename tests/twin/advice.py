"""What recommendations say: the figures of the general rules found anew, and what binds all others."""

from __future__ import annotations

from typing import Any

from slow_reader import Interval, Row, end, intersect, length, subtract, union
from twin.figures import Figures, Rows, grouped, share, spans

AT_LEAST = {"ddp_backend"}
BELOW = {"low_utilisation", "exposed_communication"}
_DATA, _COMMUNICATION, _BUSY, _HIDDEN, _EXPOSED = 0.05, 0.1, 0.5, 0.5, 0.05
_LEAST = 0.005
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
        found["data_loading", steps.said(device)] = {"value": value}
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
    ids = {row["id"] for row in advice}
    for row in advice:
        value = row["value"]
        beyond = value < row["threshold"] if row["id"] in BELOW else value > row["threshold"]
        assert beyond or (row["id"] in AT_LEAST and value == row["threshold"]), row
        assert row["same_cause_as"] in ids | {None}, row
        assert len(row["rows"]) == min(row["cited"], 100) == len(set(row["rows"])), row
    hold_savings(advice, steps.total_ns)


def hold_savings(advice: Advice, total_ns: int) -> None:
    """Asserts that savings lie between nothing and all steps, each after those above it and all together."""
    remaining: dict[str, int] = {}
    for row in advice:
        saving = row["saving_ns"]
        assert row["saving_share"] == (None if saving is None else share(saving, total_ns)), row
        assert (row["remaining_ns"] is None) == (saving is None or row["same_cause_as"] is not None), row
        if saving is None:
            continue
        assert 0 <= saving <= total_ns, row
        assert ("off the critical path" in row["evidence"]) >= (saving < _LEAST * total_ns), row
        if row["same_cause_as"] is None:
            # The first one has nothing above it, and the GPUs of one rule have one saving.
            assert row["remaining_ns"] == remaining.setdefault(row["id"], row["remaining_ns"]), row
            assert len(remaining) > 1 or row["remaining_ns"] == saving, row
    assert 0 <= sum(remaining.values()) <= total_ns
    order = [("high", "medium", "low").index(row["severity"]) for row in advice]
    assert order == sorted(order)
