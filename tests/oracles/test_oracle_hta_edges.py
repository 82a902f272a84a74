"""Single edges that the unit tests of HolisticTraceAnalysis ask for, and the events of its paths.

Rows are its event numbers. Where an edge does not decide, the event that it leads from takes longer here, and
the one that it leads to must follow.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from traces import ORACLES, TRACES, load_json, need, read

import kernelscope as ks
from kernelscope.analysis.dependencies.graph import Dependencies, dependencies
from kernelscope.analysis.dependencies.segments import segments
from kernelscope.analysis.grouping import positions
from kernelscope.compat import hta

US = 1000
FORWARD = "[param|pytorch.model.alex_net|0|0|0|measure|forward]"
PATHS: dict[str, tuple[str, tuple[str, int | None]]] = {
    "simple_add": ("simple-add-critical-path", (FORWARD, 1)),
    "alexnet": ("alexnet-critical-path", (FORWARD, 1)),
    "event_sync_multi": ("event-sync-multi-stream", ("", None)),
    "nccl_step0": ("a100-nccl-rank0of2-2024", ("ProfilerStep", 0)),
}


def graph_of(name: str) -> tuple[ks.Trace, Dependencies]:
    trace = read(need(TRACES / f"{name}.json.gz"))
    return trace, dependencies(trace)


def place(graph: Dependencies, row: int) -> int:
    """The position of the event with a number."""
    return int(positions(graph.events["row"], pl.Series([row], dtype=pl.UInt32))[0])


def into(graph: Dependencies, row: int, before_us: int) -> list[tuple[int, str, float]]:
    """The path to the start of an event from some time before: row, edge and length in us of each segment."""
    at = place(graph, row)
    start_ns = int(graph.times["start_ns"][at])
    path = segments(graph, graph.replay, [(start_ns - before_us * US, start_ns)], [at])
    return path.select("row", "edge", pl.col("dur_ns") / US).rows()


def moved_us(graph: Dependencies, row: int) -> pl.DataFrame:
    """By how much each event starts and ends later if one takes 10 ms longer."""
    at = place(graph, row)
    start_ns, end_ns = graph.times.row(at)
    by = pl.repeat(1.0, graph.events.height, eager=True).scatter(at, 1 + 10_000 * US / (end_ns - start_ns))
    ones = pl.repeat(1.0, graph.events.height, eager=True)
    replay = graph.graph.replay(pl.DataFrame({"own": by, "waiting": ones}))
    later = pl.DataFrame(replay.times())
    return pl.select(start=(later["start_ns"] - graph.times["start_ns"]) / US,
                     end=(later["end_ns"] - graph.times["end_ns"]) / US)  # fmt: skip


def assert_follows(graph: Dependencies, source: int, target: int) -> None:
    """An event starts no earlier than another one ends."""
    ended = graph.times["end_ns"][place(graph, source)]
    started = graph.times["start_ns"][place(graph, target)]
    assert moved_us(graph, source)["start"][place(graph, target)] >= 10_000 - (started - ended) / US


def test_an_operator_its_child_and_its_launch() -> None:
    trace, graph = graph_of("simple-add-critical-path")
    relu, clamp, launch = 286, 287, 1005
    [(following, start_ns)] = (
        trace.ops.filter(pl.col("start_ns") >= graph.times["end_ns"][place(graph, relu)])
        .sort("start_ns")
        .select("row", "start_ns")
        .head(1)
        .rows()
    )
    before_us = (start_ns - int(graph.times["start_ns"][place(graph, relu)])) // US
    path = [part for part in into(graph, following, before_us) if part[0] in (relu, clamp, launch)]
    assert path == [
        (relu, "host", 15),
        (clamp, "host", 14),
        (launch, "host", 17),
        (clamp, "host", 15),
        (relu, "host", 32),
    ]


def test_a_kernel_waits_for_its_launch_and_for_the_one_before() -> None:
    trace, graph = graph_of("simple-add-critical-path")
    transform, product = 1051, 1067
    assert into(graph, transform, 100)[-1] == (transform, "launch", 27)
    # It starts 7 us after the kernel before. Pauses of a busy stream are shorter, so the launch decides.
    assert into(graph, product, 100)[-1] == (product, "launch", 17)
    works = trace.gpu_ops.sort("start_ns")
    before = (pl.col("start_ns") + pl.col("dur_ns")).shift(1).over("stream")
    pauses = works.select(pl.col("start_ns") - before).to_series().drop_nulls()
    assert pauses.quantile(0.3) == 2 * US
    assert moved_us(graph, transform)["start"][place(graph, product)] == pytest.approx(10_000 - 7, abs=7)
    # Whatever is faster on the GPU, no kernel starts before its launch.
    is_kernel = graph.events["kind"] == "kernel"
    ones = pl.repeat(1.0, graph.events.height, eager=True)
    none = pl.DataFrame({"own": ones * (~is_kernel).cast(pl.Float64), "waiting": ones})
    starts = pl.DataFrame(graph.graph.replay(none).times())["start_ns"]
    calls = positions(graph.events["row"], trace.gpu_ops["launch_row"])
    assert (starts.tail(trace.gpu_ops.height) >= starts.gather(calls)).all()


def test_a_device_synchronisation_waits_for_the_last_kernel() -> None:
    _, graph = graph_of("simple-add-critical-path")
    last, synchronisation = 1275, 1281
    ended, waiting = (graph.times["end_ns"][place(graph, row)] for row in (last, synchronisation))
    idle_us = (waiting - ended) / US
    assert moved_us(graph, last)["end"][place(graph, synchronisation)] >= 10_000 - idle_us


def test_a_stream_waits_for_an_event_of_another() -> None:
    _, graph = graph_of("alexnet-critical-path")
    transform, elementwise = 1109, 1161
    assert_follows(graph, transform, elementwise)


def test_an_event_is_of_the_stream_that_it_was_recorded_on() -> None:
    trace, graph = graph_of("event-sync-multi-stream")
    product, memset = 24, 84
    assert_follows(graph, product, memset)
    # Not for the kernel that was launched last, on a third stream.
    [other] = trace.gpu_ops.filter(correlation=57)["row"]
    assert moved_us(graph, other)["start"][place(graph, memset)] == 0


@pytest.mark.parametrize("name", PATHS)
def test_events_on_the_path(name: str) -> None:
    """Events with nearly all of the time of each path are on the other one, too."""
    file, chosen = PATHS[name]
    [path] = [
        found
        for suffix in ("json", "json.gz")
        if (found := ORACLES / f"hta/special/cp_graph_{name}.{suffix}").exists()
    ] or [need(ORACLES / f"hta/special/cp_graph_{name}.json")]
    answer: dict[str, Any] = load_json(path)
    events = {node: event for node, event, *_ in answer["nodes"]}
    theirs = {events[node] for node in answer["critical_path_nodes"]}
    trace = read(need(TRACES / f"{file}.json.gz"))
    ours = hta.critical_path(trace, *chosen)
    # What only this one has are returns of calls that wait, and in simple_add 0.5 ms of the host beside a
    # kernel: the host waits after the GPU has ended, so that this kernel holds up nothing.
    apart = ours.filter(~pl.col("event_idx").is_in(sorted(theirs)))["duration"].sum()
    assert apart < 0.013 * ours["duration"].sum()
    shared = theirs & set(ours["event_idx"].drop_nulls())
    assert len(shared) >= 0.96 * len(theirs)
