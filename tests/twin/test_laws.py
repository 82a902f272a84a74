"""Laws between two traces: written otherwise, a trace has the same answers; its parts add up to it.

Laws about one trace are in :mod:`kernelscope.check`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from math import isclose
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings

import draws
import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.report import views
from oracles.traces import TRACES, load_json, need
from twin import drawn, transformed
from twin.transformed import Document

NAMES = ("mi250-minitoy-rocm", "eager-b200-rank0of8", "sampled-rank0of128", "qwen1.5-0.5b-h100")
SOME = draws.count(6, 200)
"""How many drawn traces are written otherwise: each takes several readings."""
# Numbers of the recorder.
_IDS = (
    "pid", "tid", "stream", "correlation", "external_id", "python_id", "python_parent_id", "track", "label",
)  # fmt: skip
Answers = dict[str, list[dict[str, Any]]]


def document_of(name: str) -> Document:
    return load_json(need(TRACES / f"{name}.json.gz"))


def read(document: Document, folder: Path, write: Callable[[Document, Path], Path]) -> ks.Trace:
    return ks.read(write(document, folder / "trace.json"))


def answers(trace: ks.Trace, *, without: tuple[str, ...] = ()) -> Answers:
    """Every answer that reports show and folders hold, without some columns, in any order."""
    found: Answers = {}
    for name, frame in views.frames(trace, more=True).items():
        kept = [column for column in frame.columns if column not in without]
        found[name] = sorted(frame.select(kept).to_dicts(), key=_key) if kept else []
    return found


def _key(row: dict[str, Any]) -> str:
    return json.dumps({name: _plain(value) for name, value in row.items()}, default=str)


def _plain(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def same(found: Answers, expected: Answers) -> None:
    assert set(found) == set(expected)
    for name, rows in expected.items():
        assert len(found[name]) == len(rows), name
        for one, other in zip(found[name], rows, strict=True):
            different = {key for key, value in other.items() if not _is_close(one[key], value)}
            assert not different, (name, {key: (one[key], other[key]) for key in different})


def _is_close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=1e-9) or one != one
    return bool(one == other)


@pytest.mark.parametrize("name", NAMES)
def test_layouts_change_nothing(name: str, tmp_path: Path) -> None:
    document = document_of(name)
    first, *others = transformed.LAYOUTS
    expected = answers(read(document, tmp_path, first))
    for write in others:
        same(answers(read(document, tmp_path, write)), expected)


@pytest.mark.parametrize("name", NAMES)
def test_ids_change_nothing(name: str, tmp_path: Path) -> None:
    document = document_of(name)
    expected, renamed = (
        answers(read(each, tmp_path, transformed.write_compact), without=_IDS)
        for each in (document, transformed.other_ids(document))
    )
    same(renamed, expected)


def sums(trace: ks.Trace) -> dict[str, dict[Any, Any]]:
    """Answers that neither the order nor the time of recording changes."""
    tables = {
        "kernels": analysis.kernel_table(trace).select("name", "calls", "total_ns", "min_ns", "max_ns"),
        "gpus": analysis.temporal_breakdown(trace).select(pl.col("device"), pl.col("^.*_ns$")),
        "summary": analysis.gpu_summary(trace).select("device", "busy_ns", "kernels"),
        "launches": analysis.launch_summary(trace).select("call", "works", "cpu_dur_ns_sum", "short"),
        "steps": analysis.step_breakdown(trace).drop("start_ns", "name"),
        "queues": analysis.queue_summary(trace).select("device", "stream", "changes", "max"),
        "idle": analysis.idle_summary(trace, by=("device",)).select("device", "idle_ns", "gaps"),
    }
    return {name: {row[0]: row[1:] for row in table.rows()} for name, table in tables.items()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", [transformed.shuffled, transformed.later])
def test_order_and_time_change_no_sums(
    name: str, change: Callable[[Document], Document], tmp_path: Path
) -> None:
    document = document_of(name)
    expected = sums(read(document, tmp_path, transformed.write_compact))
    assert sums(read(change(document), tmp_path, transformed.write_compact)) == expected


def covered(trace: ks.Trace, *, nested: bool) -> Counter[Any]:
    """Times that parts of a trace add up to: each moment counts once, or each work as long as it runs.

    A cut changes own times of calls that are not ``nested``, but overlap in part. Where it goes between a
    work and its launch, what an operator says of the work is lost.
    """
    found: Counter[Any] = Counter()
    for row in analysis.temporal_breakdown(trace).to_dicts():
        for kind in ("compute_ns", "communication_ns", "memory_ns"):
            found[kind if nested else "active", row["device"]] += row[kind]
    for name, total in analysis.kernel_table(trace).select("name", "total_ns").iter_rows():
        found["kernel", name] += total
    table = analysis.op_table(trace, annotations=True, collapse=False)
    for name, total, own in table.select("name", "host_total_ns", "host_self_ns").iter_rows():
        found["host", name] += total
        found["own", name] += own if nested else 0
    for row in analysis.comm_comp_overlap(trace).to_dicts():
        found["exposed", row["device"]] += (row["exposed_ns"] or 0) if nested else 0
    return +found


def parts_add_up(document: Document, folder: Path, *, nested: bool) -> None:
    slices = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    if not slices:
        return
    start = min(event["ts"] for event in slices)
    stop = max(event["ts"] + event["dur"] for event in slices)
    middle = round(start + (stop - start) * 0.4)
    parts = [
        covered(
            read(transformed.clipped(document, *window), folder, transformed.write_compact), nested=nested
        )
        for window in ((start, stop), (start, middle), (middle, stop))
    ]
    assert parts[1] + parts[2] == parts[0]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "eager-b200-rank0of8"])
def test_two_windows_add_up(name: str, tmp_path: Path) -> None:
    document = document_of(name)
    # Floats keep nanoseconds of small times only.
    first = min(event["ts"] for event in document["traceEvents"] if event.get("ph") == "X")
    for event in document["traceEvents"]:
        if event.get("ph") == "X":
            event["ts"] = round((event["ts"] - first) * 8) / 8
            event["dur"] = round(event["dur"] * 8) / 8
    parts_add_up(document, tmp_path, nested=True)


@settings(max_examples=SOME)
@given(events=drawn.traces())
# A window of it leaves out what makes a work impossible.
@example(events=drawn.draw(Random(772_934_033_303_508_224)))
def test_drawn_traces_written_otherwise(events: Events) -> None:
    document: Document = {"schemaVersion": 1, "deviceProperties": events.devices}
    document["traceEvents"] = events.events
    chosen = Random(len(events.events))
    with TemporaryDirectory() as name:
        folder = Path(name)
        trace = read(document, folder, transformed.write_compact)
        expected = answers(trace)
        write = chosen.choice(transformed.LAYOUTS[1:])
        same(answers(read(document, folder, write)), expected)
        renamed = read(transformed.other_ids(document), folder, transformed.write_compact)
        same(answers(renamed, without=_IDS), answers(trace, without=_IDS))
        for change in (transformed.shuffled, transformed.later):
            assert _known(read(change(document), folder, transformed.write_compact)) == _known(trace)
        parts_add_up(transformed.believed(document), folder, nested=False)


def _known(trace: ks.Trace) -> dict[str, dict[Any, Any]]:
    """Where several events happen at once, their order decides which of them a gap ends with."""
    found = sums(trace)
    return {name: found[name] for name in ("kernels", "gpus", "summary", "launches", "queues")}


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_does_not_differ_from_itself(name: str, tmp_path: Path) -> None:
    trace = read(document_of(name), tmp_path, transformed.write_compact)
    for table in (
        analysis.diff_operators(trace, trace, costs=False),
        analysis.diff_kernels(trace, trace, costs=False),
    ):
        for column in (column for column in table.columns if column.endswith(("_delta", "_delta_ns"))):
            assert table[column].drop_nulls().eq(0).all(), column
