"""Utilisation over time, against adding up by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from events import Events
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelscope import analysis
from kernelscope.analysis.gpu.timeline import sm_segments
from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 60), st.sampled_from([0.25, 0.5, 2.0])),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(KERNELS, st.integers(1, 40))
def test_stretches_add_up_to_what_ran(
    tmp_path_factory: pytest.TempPathFactory, kernels: list[tuple[int, int, float]], parts: int
) -> None:
    events = Events()
    for number, (start, dur, blocks) in enumerate(kernels):
        events.kernel("k", start, dur, number + 1, **{"blocks per SM": blocks})
    trace = events.read(tmp_path_factory.mktemp("load"))
    table = analysis.gpu_timeline(trace, parts=parts)
    busy, full = {}, {}
    for start, dur, blocks in kernels:
        for moment in range(start, start + dur):
            busy[moment] = 1
            full[moment] = full.get(moment, 0) + blocks
    assert table.height <= parts or not busy
    assert (table["utilisation"] * table["dur_ns"]).sum() / 1000 == pytest.approx(len(busy))
    blocks = sum(min(1, value) for value in full.values())
    assert (table["sm_efficiency"] * table["dur_ns"]).sum() / 1000 == pytest.approx(blocks)
    if table.height:
        assert table["utilisation"].max() <= 1 + 1e-9
        ends = (table["start_ns"] + table["dur_ns"]).to_list()
        assert ends[:-1] == table["start_ns"].to_list()[1:]


def test_without_launch_sizes_only_utilisation_is_known(tmp_path: Path) -> None:
    events = Events({"id": 0})
    events.kernel("k", 10, 50, 1)
    events.kernel("k", 110, 50, 2)
    trace = events.read(tmp_path)
    table = analysis.gpu_timeline(trace)
    assert (table.height, table["sm_efficiency"].null_count()) == (15, 15)
    assert sm_segments(trace).is_empty()


def test_a_trace_without_kernels_has_no_stretches(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 10)
    trace = events.read(tmp_path)
    assert analysis.gpu_timeline(trace).is_empty()
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        analysis.gpu_timeline(trace, parts=0)
