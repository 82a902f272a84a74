"""Memory: lifetimes, curves, peaks and who held them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import draws
from events import V100, Events
from kernelscope import analysis
from kernelscope.analysis.memory.curve import memory_timeline
from kernelscope.analysis.memory.records import AllocatorRecords
from kernelscope.errors import InvalidArgumentError


class Memory(Events):
    """Events with records that have addresses and totals, as recorders since 2021 write them."""

    def __init__(self, *devices: dict[str, Any]) -> None:
        super().__init__(*devices)
        self.totals: dict[int, int] = {}

    def record(self, ts: float, address: int, size: int, *, gpu: int = 0, reserved: int = 4096) -> None:
        self.totals[gpu] = self.totals.get(gpu, 0) + size
        args = {"Addr": address, "Bytes": size, "Device Type": 1, "Device Id": gpu}
        totals = {"Total Allocated": self.totals[gpu], "Total Reserved": reserved}
        event = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": 7}
        self.events.append(event | {"ts": ts, "args": args | totals})


def test_an_allocation_ends_with_the_next_free_of_its_address(tmp_path: Path) -> None:
    events = Memory()
    events.op("aten::empty", 0, 3)
    events.record(1, 0xA, 100)
    events.record(5, 0xA, -100)
    events.record(6, 0xA, 50)
    events.record(7, 0xB, -30)
    table = analysis.memory_allocations(events.read(tmp_path))
    columns = ("address", "bytes", "alloc_ns", "free_ns", "lifetime_ns", "state", "op")
    assert table.select(columns).rows() == [
        (0xA, 100, 1_000, 5_000, 4_000, "freed", "aten::empty"),
        (0xA, 50, 6_000, None, None, "open", None),
        (0xB, 30, None, 7_000, None, "older", None),
    ]


def test_one_address_on_two_gpus_is_two_allocations(tmp_path: Path) -> None:
    events = Memory(V100, V100 | {"id": 1})
    events.record(1, 0xA, 100, gpu=0)
    events.record(2, 0xA, 200, gpu=1)
    events.record(3, 0xA, -100, gpu=0)
    events.record(4, 0xA, -200, gpu=1)
    trace = events.read(tmp_path)
    exact = analysis.memory_allocations(trace)
    assert exact.select("device", "bytes", "lifetime_ns").rows() == [
        ("GPU0", 100, 2_000),
        ("GPU1", 200, 2_000),
    ]
    # Where an address stands for all devices, the first allocation seems lost and a free comes from nowhere.
    mixed = analysis.memory_allocations(trace, pairing="address")
    assert mixed["state"].to_list() == ["open", "freed", "older"]


def test_the_peak_is_held_by_whoever_had_not_freed_it(tmp_path: Path) -> None:
    events = Memory()
    events.totals[0] = 1000
    for start, name in ((0, "aten::mm"), (10, "aten::add"), (20, "aten::mm")):
        events.op(name, start, 5)
    events.record(1, 0xA, 100)
    events.record(11, 0xB, 70)
    events.record(12, 0xA, -100)
    events.record(21, 0xC, 300)
    events.record(22, 0xB, -70)
    trace = events.read(tmp_path)
    held = analysis.memory_peak(trace)
    assert held.select("op", "bytes", "allocations", "is_older").rows() == [
        (None, 1000, None, True),
        ("aten::mm", 300, 1, False),
        ("aten::add", 70, 1, False),
    ]
    assert held["share"].sum() == pytest.approx(1)
    summary = analysis.memory_summary(trace).row(0, named=True)
    assert (summary["peak_bytes"], summary["peak_ns"], summary["start_bytes"]) == (1370, 21_000, 1000)
    assert (summary["open_bytes"], summary["open_allocations"], summary["end_bytes"]) == (300, 1, 1300)
    assert (summary["fragmentation_bytes"], summary["peak_reserved_bytes"]) == (4096 - 1070, 4096)
    assert summary["peak_share"] == pytest.approx(1370 / V100["totalGlobalMem"])


def test_figures_that_were_not_recorded_are_unknown(tmp_path: Path) -> None:
    events = Events()
    events.memory(1, 64, device_type=1)
    events.memory(2, -24, device_type=1)
    trace = events.read(tmp_path)
    curve = analysis.memory_timeline(trace)
    assert curve.select("allocated_bytes", "reserved_bytes", "source").rows() == [
        (64, None, "summed"),
        (40, None, "summed"),
    ]
    summary = analysis.memory_summary(trace).row(0, named=True)
    unknown = ("peak_share", "peak_reserved_bytes", "fragmentation_bytes", "start_bytes", "open_bytes")
    assert {summary[column] for column in unknown} == {None}
    assert analysis.memory_allocations(trace).is_empty()
    assert analysis.memory_peak(trace).is_empty()


def test_a_trace_without_memory_has_empty_tables_of_full_schema(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 10)
    trace = events.read(tmp_path)
    memory = Memory()
    memory.op("aten::mm", 0, 10)
    memory.record(1, 0xA, 100)
    (tmp_path / "full").mkdir()
    full = memory.read(tmp_path / "full")
    for question in (
        "memory_summary",
        "memory_timeline",
        "memory_allocations",
        "memory_peak",
        "memory_table",
    ):
        ask = getattr(analysis, question)
        assert ask(trace).is_empty()
        assert ask(full).height == 1
        assert ask(trace).schema == ask(full).schema


def test_a_failure_is_counted_and_is_no_allocation(tmp_path: Path) -> None:
    events = Memory()
    events.record(1, 0xA, 100)
    events.events.append(events.events[-1] | {"name": "[OutOfMemory]", "ts": 2})
    summary = analysis.memory_summary(events.read(tmp_path)).row(0, named=True)
    assert (summary["failures"], summary["allocations"]) == (1, 1)


def test_operators_count_what_those_inside_allocate(tmp_path: Path) -> None:
    events = Memory()
    events.op("aten::linear", 0, 20)
    events.op("aten::mm", 5, 10)
    events.record(2, 0xA, 10)
    events.record(6, 0xB, 100)
    events.record(7, 0xA, -10)
    events.record(20, 0xC, 7)
    trace = events.read(tmp_path)
    assert analysis.memory_table(trace).drop("device").rows() == [
        ("aten::mm", 1, 90, 90, 1, 1, 100, 100),
        ("aten::linear", 1, 100, 10, 2, 1, 110, 10),
    ]
    late = analysis.memory_table(trace, start_ns=6_000, end_ns=6_500)
    assert late.select("name", "increase_bytes").rows() == [("aten::mm", 100), ("aten::linear", 100)]


@pytest.mark.slow
@settings(max_examples=draws.count(60, 1_200))
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(-1000, 1000)), min_size=1, max_size=300),
    st.integers(4, 60),
)
def test_a_thinned_curve_keeps_its_ends_and_extremes(
    tmp_path_factory: pytest.TempPathFactory, points: list[tuple[int, int]], most: int
) -> None:
    events = Memory()
    for ts, size in sorted(points):
        events.record(ts, 0xA, size or 1)
    trace = events.read(tmp_path_factory.mktemp("curve"))
    whole, thin = memory_timeline(trace), memory_timeline(trace, max_points=most)
    assert thin.height <= max(most, 4)
    assert thin.join(whole, on="row", how="semi").equals(thin)
    extremes = [pl.col("allocated_bytes").min().alias("least"), pl.col("allocated_bytes").max().alias("most")]
    assert thin.select(extremes).equals(whole.select(extremes))
    assert (thin["row"][0], thin["row"][-1]) == (whole["row"][0], whole["row"][-1])


def test_too_few_points_are_refused(tmp_path: Path) -> None:
    events = Memory()
    events.record(1, 0xA, 100)
    with pytest.raises(InvalidArgumentError, match="at least 4"):
        analysis.memory_timeline(events.read(tmp_path), max_points=3)


@pytest.mark.slow
@settings(max_examples=draws.count(60, 1_200))
@given(st.data())
def test_an_allocation_belongs_to_the_innermost_operator_that_runs(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    spans = data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=25))
    times = data.draw(st.lists(st.integers(0, 100), min_size=1, max_size=15))
    events = Memory()
    for start, dur in spans:
        events.op(f"aten::op{start}", start, dur)
    for place, ts in enumerate(times):
        events.record(ts, 0x100 + place, 8)
    trace = events.read(tmp_path_factory.mktemp("ops"))
    records = AllocatorRecords(trace)
    rows = records.frame.select("start_ns", records.owners).rows()
    # The tree says which operator is inside which; of those that run, the one that no other is inside of.
    ops = {row["row"]: row for row in trace.ops.to_dicts()}
    for time, found in rows:
        running = {r for r, op in ops.items() if op["start_ns"] <= time < op["start_ns"] + op["dur_ns"]}
        innermost = {r for r in running if not any(_inside(ops, other, r) for other in running - {r})}
        assert (found in innermost) if running else (found is None)


def _inside(ops: dict[int, dict[str, Any]], row: int, other: int) -> bool:
    while row is not None:
        row = ops[row]["parent_row"]
        if row == other:
            return True
    return False
