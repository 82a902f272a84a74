"""GPU operations without a usable correlation id: their calls by external id, kind and order."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.check import LAWS

CALLS = {"kernel": "hipLaunchKernel", "memcpy": "hipMemcpyWithStream", "memset": "hipMemsetAsync"}
CATEGORIES = {"kernel": "kernel", "memcpy": "gpu_memcpy", "memset": "gpu_memset"}


class Recording(Events):
    """Operators, calls and GPU operations of external ids; each is named by its number."""

    def operator(self, number: int, start: float, *, tid: int = 7) -> None:
        self.add("cpu_op", f"op {number}", start, 50, tid=tid, args={"External id": number})

    def started(self, name: str, number: int, start: float, *, tid: int = 7, **args: Any) -> None:
        self.add("cuda_runtime", name, start, 2, tid=tid, args={"External id": number, **args})

    def ran(self, kind: str, number: int, start: float, *, device: int = 0, **args: Any) -> None:
        recorded = {"External id": number, "device": device, "stream": 1, **args}
        self.add(CATEGORIES[kind], f"{kind} {number}", start, 10, pid=device, tid=1, args=recorded)


def links(trace: ks.Trace) -> list[tuple[str, float | None, str | None, str]]:
    """Each GPU operation with the start of its call in us, its operator and how it was linked."""
    for law in LAWS:
        assert not list(law.find(trace)), law.statement
    calls = trace.launches.select(launch_row="row", called=pl.col("start_ns") / 1000)
    ops = trace.ops.select(op_row="row", op=pl.col("name").cast(pl.String))
    found = trace.gpu_ops.join(calls, on="launch_row", how="left").join(ops, on="op_row", how="left")
    return found.sort("start_ns").select(pl.col("name").cast(pl.String), "called", "op", "link").rows()


@pytest.mark.parametrize("shared", [None, 0, 17])
def test_calls_are_found_by_id_kind_and_order(shared: int | None, tmp_path: Path) -> None:
    recorded = {} if shared is None else {"correlation": shared}
    events = Recording()
    events.operator(130, 0)
    events.operator(131, 100)
    # Two kernels and a copy of one operator, the copy started between the kernels.
    events.started(CALLS["kernel"], 130, 5)
    events.started(CALLS["memcpy"], 130, 10)
    events.started(CALLS["kernel"], 130, 15)
    events.started(CALLS["kernel"], 131, 105)
    # They ran on two devices.
    events.ran("kernel", 130, 300, device=1, **recorded)
    events.ran("kernel", 130, 200, **recorded)
    events.ran("memcpy", 130, 400, **recorded)
    events.ran("kernel", 131, 500, **recorded)
    # Of this copy the operator is known, but no call starts a copy for it.
    events.ran("memcpy", 131, 600, **recorded)
    trace = events.read(tmp_path)
    order = "external_id_order"
    assert links(trace) == [
        ("kernel 130", 5.0, "op 130", order),
        ("kernel 130", 15.0, "op 130", order),
        ("memcpy 130", 10.0, "op 130", order),
        ("kernel 131", 105.0, "op 131", order),
        ("memcpy 131", None, "op 131", "gpu_external_id"),
    ]
    counts = dict(trace.diagnostics.select("code", "count").iter_rows())
    assert counts["launch_by_external_id"] == 4
    assert counts.get("launch_outside_trace", 0) == (1 if shared else 0)


def test_other_counts_match_nothing(tmp_path: Path) -> None:
    events = Recording()
    events.operator(130, 0)
    for start in (5, 10, 15):
        events.started(CALLS["kernel"], 130, start)
    # A replayed graph is no launch of a kernel, and another kind none of this one.
    events.started("hipGraphLaunch", 130, 20)
    events.started(CALLS["memset"], 130, 25)
    events.ran("kernel", 130, 200)
    events.ran("kernel", 130, 300)
    events.ran("memcpy", 130, 400)
    found = links(events.read(tmp_path))
    assert {(called, op, link) for _, called, op, link in found} == {(None, "op 130", "gpu_external_id")}


def test_a_recorded_correlation_id_counts(tmp_path: Path) -> None:
    events = Recording()
    events.operator(130, 0)
    events.operator(131, 100)
    events.started(CALLS["kernel"], 130, 5, correlation=1)
    events.started(CALLS["kernel"], 131, 105, correlation=2)
    # The id leads to the call of the other operator; and one to no call, which no other operation has.
    events.ran("kernel", 130, 200, correlation=2)
    events.ran("kernel", 131, 300, correlation=9)
    assert links(events.read(tmp_path)) == [
        ("kernel 130", 105.0, "op 131", "external_id"),
        ("kernel 131", None, "op 131", "gpu_external_id"),
    ]


@pytest.mark.parametrize("seed", range(8))
def test_groups_match_in_order_if_their_counts_agree(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    events = Recording()
    expected: list[tuple[str, float | None]] = []
    moment = 10_000
    for number in range(1, 30):
        tid = random.choice((7, 8))
        events.operator(number, 100 * number, tid=tid)
        kind = random.choice(tuple(CALLS))
        calls = sorted(random.sample(range(48), random.randint(1, 4)))
        agrees = random.random() < 0.7
        for start in calls:
            events.started(CALLS[kind], number, 100 * number + start, tid=tid)
        for place in range(len(calls) + (0 if agrees else random.choice((-1, 1)))):
            moment += 20
            events.ran(kind, number, moment, device=random.randint(0, 1))
            expected.append((f"{kind} {number}", 100.0 * number + calls[place] if agrees else None))
    random.shuffle(events.events)
    assert [(name, called) for name, called, *_ in links(events.read(tmp_path))] == expected


def test_idle_time_is_not_blamed_on_a_launch_that_was_not_recorded(tmp_path: Path) -> None:
    events = Recording()
    for number in range(1, 40):
        events.operator(number, 1_000 * number)
        # The call is missing, but the operator is known.
        events.ran("kernel", number, 1_000 * number + 500)
    advice = analysis.recommendations(events.read(tmp_path))
    (idle,) = advice.filter(id="gpu_idle")["evidence"].to_list()
    assert "with an unknown launch" in idle
    assert "not recorded" not in " ".join(advice["evidence"].to_list())
