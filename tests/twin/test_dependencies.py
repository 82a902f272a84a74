"""Graphs of dependencies beside their twin: the same replays, and the same critical paths."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import draws
import kernelscope as ks
from kernelscope import _traceparse, analysis
from kernelscope.analysis.dependencies import graph
from kernelscope.analysis.dependencies.graph import dependencies
from oracles.traces import TRACES, need
from twin.dependencies import Graph, Host, Wait, Work

CASES = draws.count(1_000, 20_000)


Events = tuple[
    list[Host], dict[int, int], list[Work], list[Wait], list[tuple[int, bool]], list[tuple[int, int]]
]


def drawn(random: Random) -> Events:
    """Events of up to three threads and three streams, over a few hundred microseconds."""
    moment = lambda most=400_000: random.randrange(0, most, random.choice((1, 500, 10_000)))  # noqa: E731
    threads = random.randint(1, 3)
    host = [Host(random.randrange(threads), moment(), moment(random.choice((2_000, 50_000, 200_000))),
                 random.random() < 0.5)
            for _ in range(random.randint(0, 10))]  # fmt: skip
    callers = {at: 0 for at, event in enumerate(host) if event.track and random.random() < 0.7}
    works = []
    for _ in range(random.randint(0, 8)):
        launch = random.randrange(len(host)) if host and random.random() < 0.8 else None
        since = host[launch].start if launch is not None and random.random() < 0.9 else 0
        late = moment(random.choice((5_000, 60_000, 300_000)))
        works.append(Work(random.randrange(3), since + late, moment(random.choice((3_000, 90_000))), launch,
                          random.random() < 0.3))  # fmt: skip
    waits = []
    for call in sorted(random.sample(range(len(host)), random.randint(0, len(host) // 2))):
        on = random.choice((None, 0, 1, 2))
        until = random.choice((None, random.randrange(len(host))))
        stream = random.choice((None, None, 0, 1, 2))
        if stream is None or on is not None:
            waits.append(Wait(call, on, until, stream, random.random() < 0.7))
    others = random.sample(range(len(host)), random.randint(0, len(host) // 2))
    events = [(call, random.random() < 0.5) for call in others]
    handed = [tuple(random.sample(range(len(host)), 2)) for _ in range(random.randint(0, 3)) if len(host) > 1]
    return host, callers, works, waits, events, handed


def in_rust(
    host: list[Host],
    callers: dict[int, int],
    works: list[Work],
    waits: list[Wait],
    events: list[tuple[int, bool]],
    handed: list[tuple[int, int]],
) -> _traceparse.DependencyGraph:
    def frame(rows: list[dict[str, Any]], **schema: Any) -> pl.DataFrame:
        return pl.DataFrame(rows, schema=schema)

    number, time = pl.UInt32, pl.Int64
    return _traceparse.DependencyGraph(
        frame(
            [{"row": at, "track": e.track, "start_ns": e.start, "dur_ns": e.dur,
              "is_operator": e.is_operator, "class": 0}
             for at, e in enumerate(host)],
            row=number, track=time, start_ns=time, dur_ns=time, is_operator=pl.Boolean, **{"class": pl.UInt8},
        ),
        frame([{"event": at, "track": track} for at, track in callers.items()], event=number, track=time),
        frame(
            [{"row": at, "stream": w.stream, "process": 0, "start_ns": w.start, "dur_ns": w.dur,
              "launch": w.launch, "is_copy": w.is_copy} for at, w in enumerate(works)],
            row=number, stream=number, process=number, start_ns=time, dur_ns=time, launch=number,
            is_copy=pl.Boolean,
        ),
        frame(
            [{"process": 0, **wait._asdict()} for wait in waits],
            process=number, call=number, on=number, until=number, stream=number, only_waits=pl.Boolean,
        ),
        frame([{"call": call, "is_wait": wait} for call, wait in events], call=number, is_wait=pl.Boolean),
        frame([{"event": event, "call": call} for event, call in handed], event=number, call=number),
    )  # fmt: skip


def test_a_real_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of resnet50, for which HolisticTraceAnalysis finds no path."""
    asked: list[pl.DataFrame] = []

    def building(*frames: pl.DataFrame) -> _traceparse.DependencyGraph:
        asked.extend(frames)
        return _traceparse.DependencyGraph(*frames)

    trace = ks.read(need(TRACES / "resnet50-v100-2021.json.gz"))
    monkeypatch.setattr(graph, "_traceparse", SimpleNamespace(DependencyGraph=building))
    found = analysis.critical_path(trace, 6)
    host, callers, works, waits, others, handed = asked
    assert works["process"].n_unique() == 1
    twin = Graph(
        [Host(*row) for row in host.select("track", "start_ns", "dur_ns", "is_operator").rows()],
        dict(callers.rows()),
        [Work(*row) for row in works.select("stream", "start_ns", "dur_ns", "launch", "is_copy").rows()],
        [Wait(*row) for row in waits.select("call", "on", "until", "stream", "only_waits").rows()],
        others.select("call", "is_wait").rows(),
        handed.rows(),
    )
    every = [1.0] * (host.height + works.height)
    times = twin.replay(every, every)
    assert all(times[node] == twin.at(node) for node in times)
    row = trace.steps.filter(step=6).row(0, named=True)
    path = twin.path(times, row["start_ns"], row["start_ns"] + row["total_ns"])
    assert found.select("start_ns", "dur_ns", "edge").rows() == [
        (start, dur, edge) for start, dur, _, edge in path
    ]
    # Without loading data.
    loads = trace.ops.select((pl.col("activity") == "data_loading").fill_null(value=False)).to_series()
    inside = dependencies(trace).within(
        pl.concat([loads, pl.repeat(False, len(every) - loads.len(), eager=True)])
    )
    own = [0.0 if gone else 1.0 for gone in inside.to_list()]
    replay = dependencies(trace).graph.replay(pl.DataFrame({"own": own, "waiting": every}))
    times = twin.replay(own, every)
    expected = [(times[event, 0], times[event, 1]) for event in range(len(every))]
    assert pl.DataFrame(replay.times()).rows() == expected


@pytest.mark.parametrize("part", range(10))
def test_drawn_graphs(part: int) -> None:
    compared = 0
    for case in range(CASES // 10):
        random = draws.random("dependencies", part, case)
        events = drawn(random)
        host, _, works, *_ = events
        graph = in_rust(*events)
        if pl.DataFrame(graph.size())["cut"].item():
            # Circles are cut where replaying gets stuck, which depends on the order of replaying.
            continue
        twin = Graph(*events)
        count = len(host) + len(works)
        every = [[1.0] * count] * 3
        changed = [[random.choice(by) for _ in range(count)] for by in ((0, 0.5, 1, 1.5), *[(0, 0.5, 1)] * 2)]
        for own, waiting, gap in (every, changed):
            factors = {"own": own, "waiting": waiting, "gap": gap}
            replay = graph.replay(pl.DataFrame(factors, schema=dict.fromkeys(factors, pl.Float64)))
            times = twin.replay(own, waiting, gap)
            assert pl.DataFrame(replay.times()).rows() == [
                (times[event, 0], times[event, 1]) for event in range(count)
            ], (part, case)
            window = (random.randrange(-10_000, 300_000), random.randrange(300_000, 900_000))
            path = pl.DataFrame(replay.critical_paths([window], []))
            names = pl.Series(graph.edge_names(), dtype=pl.String)[path["edge"]]
            found = path.select("start_ns", "dur_ns", "event", names.alias("edge")).rows()
            assert found == twin.path(times, *window), (part, case)
        freed, phases = (
            [random.random() < 0.3 for _ in range(count)],
            [random.randrange(2) for _ in range(count)],
        )
        changes = {"own": every[0], "waiting": every[0], "freed": freed, "phase": phases}
        schema = {"own": pl.Float64, "waiting": pl.Float64, "freed": pl.Boolean, "phase": pl.UInt32}
        replay = graph.replay(pl.DataFrame(changes, schema=schema))
        twin.free(freed, phases)
        times = twin.replay(*every)
        assert pl.DataFrame(replay.times()).rows() == [
            (times[event, 0], times[event, 1]) for event in range(count)
        ], (part, case)
        compared += 1
    assert compared > CASES // 10 * 0.8
