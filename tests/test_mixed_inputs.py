"""Doubtful inputs of several kinds in one file: each is read rightly and counted, and none hides another."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import polars as pl
import pytest

import draws
import kernelscope as ks
import nsys_database
import nvprof_database
from events import V100
from kernelscope.check import check

Event = dict[str, Any]

_FIRST, _EVERY = 1_000.5, 100
"""When the GPU starts to work, and how often it does, us."""
_NPU = 7 << 10 | 1 << 5
"""What torch_npu makes of a process, to which it adds the device."""
_ODD = (
    R"C:\work\{}.py(12): run",
    '{{"device": "cpu", "n": {}}}(12): run',
    'torch\\nn\\{}.py: "x"',
    'a "{}" b',
)
"""Names as they stand in files of writers who escape nothing."""
_LABELS: tuple[Callable[[Event, int], Event], ...] = (
    lambda event, rank: {**event, "pid": f"[TP{rank:02}-DP00] {event['pid']}"},
    lambda event, rank: {**event, "pid": f"rank{rank}: {event['pid']}"},
)
_OTHER_MERGES: tuple[Callable[[Event, int], Event], ...] = (
    lambda event, rank: {**event, "pid": event["pid"] + 10_000 * rank},
    lambda event, rank: {**event, "args": {**event["args"], "rank": rank}},
)


class Work(NamedTuple):
    """An operator and the GPU work that it launches, us."""

    op: str
    name: str
    device: int
    stream: int
    start: float
    dur: float
    doubt: str
    recorded: Event
    """What is written in place of ``ts`` and ``dur``."""


def drawn(random: Random, kinds: set[str], *, streams: int) -> list[Work]:
    """The works of a rank; the last two of each stream are what they seem."""
    works: list[Work] = []
    for device in range(random.randint(1, 2)):
        for stream in random.sample(range(3, 30), random.randint(1, streams)):
            count = random.randint(6, 9)
            untimed = random.randrange(count - 2)
            for place in range(count):
                number = len(works)
                doubt, recorded = "", {}
                if "untimed" in kinds and place == untimed:
                    doubt, recorded = "untimed", random.choice(({"ts": 0, "dur": 0}, {"ts": 10**14}))
                elif "impossible" in kinds and place < count - 2 and random.random() < 0.3:
                    doubt, recorded = "impossible", {"dur": random.choice((3_000, 10**7))}
                is_odd = "unescaped" in kinds and random.random() < 0.4
                op = random.choice(_ODD).format(number) if is_odd else f"aten::mm{number}"
                start, dur = _FIRST + _EVERY * place, random.randint(1, 60)
                works.append(Work(op, f"gemm{number}", device, stream, start, dur, doubt, recorded))
    return works


def recorded(work: Work) -> Event:
    return {"ts": work.start, "dur": work.dur, **work.recorded}


def kineto(works: list[Work]) -> list[Event]:
    events: list[Event] = []
    for number, work in enumerate(works, 1):
        host = {"ph": "X", "pid": 83, "tid": 100 * work.device + work.stream}
        gpu = {"ph": "X", "pid": work.device, "tid": work.stream, **recorded(work)}
        op, ids = {"External id": number}, {"External id": number, "correlation": number}
        place = {"device": work.device, "stream": work.stream}
        events += [
            {**host, "cat": "cpu_op", "name": work.op, "ts": work.start - 30, "dur": 20, "args": op},
            {**host, "cat": "cuda_runtime", "name": "launch", "ts": work.start - 20, "dur": 5, "args": ids},
            {**gpu, "cat": "kernel", "name": work.name, "args": {**ids, **place}},
        ]
    return events


def npu(works: list[Work]) -> list[Event]:
    """What torch_npu writes: processes say what they are, and arrows lead to the work."""
    events: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "Ascend Hardware"}}
        for pid in sorted({_NPU | work.device for work in works})
    ]
    for number, work in enumerate(works, 1):
        host = {"pid": 83, "tid": 100 * work.device + work.stream, "ts": work.start - 30}
        on_npu = {"pid": _NPU | work.device, "tid": work.stream, **recorded(work)}
        arrow = {"name": "async_npu", "cat": "async_npu", "id": number}
        task = {"Task Type": "AI_CORE", "Stream Id": work.stream}
        end = {key: on_npu[key] for key in ("pid", "tid", "ts")}
        events += [
            {"ph": "X", "cat": "cpu_op", "name": work.op, "dur": 20, **host},
            {"ph": "s", **arrow, **host},
            {"ph": "f", "bp": "e", **arrow, **end},
            {"ph": "X", "name": work.name, "args": task, **on_npu},
        ]
    return events


def legacy(works: list[Work]) -> list[Event]:
    """What PyTorch 1.4 to 1.8 writes: streams are not recorded."""
    events: list[Event] = []
    for number, work in enumerate(works, 1):
        host = {"pid": "CPU functions", "tid": 10 + work.device, "ts": work.start - 30}
        on_gpu = {"pid": "CUDA functions", "tid": work.device, **recorded(work)}
        arrow = {"name": work.op, "cat": "cpu_to_cuda", "id": number, "args": {}}
        end = {key: on_gpu[key] for key in ("pid", "tid", "ts")}
        events += [
            {"ph": "X", "name": work.op, "dur": 20, "args": {}, **host},
            {"ph": "s", **arrow, **host},
            {"ph": "f", **arrow, **end},
            {"ph": "X", "name": work.name, "args": {}, **on_gpu},
        ]
    return events


_WRITERS = {"kineto": kineto, "npu": npu, "legacy": legacy}


class File(NamedTuple):
    text: str
    ranks: list[list[Work]]
    names: Counter[str]
    """How often each name is written."""


def file_of(random: Random, writer: str) -> File:
    kinds = {kind for kind in ("impossible", "untimed", "unescaped", "merged") if random.random() < 0.7}
    is_legacy = writer == "legacy"
    if is_legacy:
        kinds -= {"impossible"}
    count = random.randint(2, 3) if "merged" in kinds else 1
    merges = _LABELS if writer != "kineto" else (*_LABELS, *_OTHER_MERGES)
    ranks = [drawn(random, kinds, streams=1 if is_legacy else 2) for _ in range(count)]
    if is_legacy:
        # Work is called like its operator.
        ranks = [[work._replace(name=work.op) for work in works] for works in ranks]
    merge = random.choice(merges) if count > 1 else lambda event, _rank: event
    events = [merge(event, rank) for rank, works in enumerate(ranks) for event in _WRITERS[writer](works)]
    random.shuffle(events)
    names = [event["name"] for event in events]
    for place, event in enumerate(events):
        event["name"] = f"@{place}@"
    spaces = random.choice(({}, {"separators": (",", ":")}, {"indent": 1}))
    devices = [{**V100, "id": device} for device in range(2)]
    document = events if is_legacy else {"deviceProperties": devices, "traceEvents": events}
    text = json.dumps(document, **spaces)
    for place, name in enumerate(names):
        text = text.replace(f"@{place}@", name)
    return File(text, ranks, Counter(names))


def expected(works: list[Work]) -> list[tuple[Any, ...]]:
    """Name, device, start and end in ns, and operator of each work that has a time."""
    rows = []
    for work in works:
        if work.doubt == "untimed":
            continue
        end = work.start + work.dur
        if work.doubt == "impossible":
            later = (
                other.start
                for other in works
                if (other.device, other.stream) == (work.device, work.stream)
                and other.doubt != "untimed"
                and other.start > work.start
            )
            end = min(later)
        rows.append((work.name, work.device, round(1_000 * work.start), round(1_000 * end), work.op))
    return sorted(rows)


def found(trace: ks.Trace) -> list[tuple[Any, ...]]:
    ops = trace.ops.select(op_row="row", op=pl.col("name").cast(pl.String))
    end = pl.col("start_ns") + pl.col("dur_ns")
    works = trace.gpu_ops.with_columns(pl.col("name").cast(pl.String)).join(ops, on="op_row", how="left")
    return sorted(works.select("name", "device", "start_ns", end.alias("end_ns"), "op").rows())


def told(trace: ks.Trace) -> dict[str, int]:
    rows = trace.diagnostics.group_by(pl.col("code").cast(pl.String)).agg(pl.col("count").sum())
    return dict(rows.rows())


def read(random: Random, folder: Path, text: str, *, is_cut: bool = False) -> ks.Trace:
    """What is read of a text in a file, packed or not."""
    path = folder / random.choice(("trace.json", "trace.json.gz"))
    data = text.encode()
    data = gzip.compress(data) if path.suffix == ".gz" else data
    path.write_bytes(data[: random.randrange(len(data) // 2, len(data) - 2)] if is_cut else data)
    return ks.read(path)


@pytest.mark.parametrize("writer", _WRITERS)
@pytest.mark.parametrize("seed", range(draws.count(7, 500)))
def test_each_kind_is_read_and_counted(tmp_path: Path, writer: str, seed: int) -> None:
    random = draws.random("mixed inputs", writer, seed)
    file = file_of(random, writer)
    trace = read(random, tmp_path, file.text)
    parts = trace.parts or [trace]
    assert len(parts) == len(file.ranks)
    for part, works in zip(parts, file.ranks, strict=True):
        assert found(part) == expected(works)
    assert (trace.meta.seen, trace.meta.dropped) == (trace.meta.kept, 0)
    works = [work for works in file.ranks for work in works]
    doubts = Counter(work.doubt for work in works)
    counted = told(trace)
    assert counted.get("impossible_duration", 0) == doubts["impossible"]
    assert counted.get("untimed_work", 0) == doubts["untimed"]
    odd = sum(count for name, count in file.names.items() if '"' in name or "\\" in name)
    assert counted.get("bad_escape", 0) + counted.get("repaired_event", 0) == odd
    assert not [verdict for verdict in check(trace) if verdict.faults]


@pytest.mark.parametrize("writer", _WRITERS)
@pytest.mark.parametrize("seed", range(draws.count(7, 500)))
def test_a_cut_file_is_read_up_to_the_cut(tmp_path: Path, writer: str, seed: int) -> None:
    random = draws.random("cut mixed inputs", writer, seed)
    file = file_of(random, writer)
    trace = read(random, tmp_path, file.text, is_cut=True)
    assert trace.meta.seen == trace.meta.kept + trace.meta.dropped > 0
    counted = told(trace)
    works = [work for works in file.ranks for work in works]
    doubts = Counter(work.doubt for work in works)
    assert counted.get("impossible_duration", 0) <= doubts["impossible"]
    assert not [verdict for verdict in check(trace) if verdict.faults and not verdict.of_file]


@pytest.mark.parametrize("writer", [nsys_database.Database, nvprof_database.Database])
@pytest.mark.parametrize("seed", range(draws.count(5, 200)))
def test_each_kind_in_a_database(tmp_path: Path, writer: Callable[[Path], Any], seed: int) -> None:
    random = draws.random("mixed databases", writer.__module__, seed)
    works = drawn(random, {"impossible", "untimed"}, streams=2)
    path = tmp_path / "report.sqlite"
    database = writer(path)
    for number, work in sorted(enumerate(works, 1), key=lambda _: random.random()):
        start, dur = work.recorded.get("ts", work.start), work.recorded.get("dur", work.dur)
        where = {"deviceId": work.device, "streamId": work.stream, "correlation": number}
        start, end = round(1_000 * start), round(1_000 * (start + dur))
        database.kernel(*random.choice(((start, end), (None, end))) if not start else (start, end), **where)
        database.call(round(1_000 * work.start) - 20_000, round(1_000 * work.start), correlation=number)
    if writer is nsys_database.Database and random.random() < 0.5:
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        database.connection.execute(f"ALTER TABLE {kernels} RENAME TO {kernels}_V2")
    trace = ks.read(database.close())
    # Databases know no operators, and these write one name.
    assert sorted(row[1:-1] for row in found(trace)) == sorted(row[1:-1] for row in expected(works))
    assert trace.gpu_ops["launch_row"].null_count() == 0
    doubts = Counter(work.doubt for work in works)
    counted = told(trace)
    assert counted.get("impossible_duration", 0) == doubts["impossible"]
    assert counted.get("untimed_work", 0) == doubts["untimed"]
    assert not [verdict for verdict in check(trace) if verdict.faults]
    data = path.read_bytes()
    path.write_bytes(data[: random.randrange(len(data) // 2, len(data))])
    cut = ks.read(path)
    assert cut.meta.seen == cut.meta.kept + cut.meta.dropped
    assert not cut.diagnostics.filter(severity="lost").is_empty()
    assert not [verdict for verdict in check(cut) if verdict.faults and not verdict.of_file]
