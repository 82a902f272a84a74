"""An engine whose replays are known: every node is found in each recorder's style, and unmarked steps are."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import _traceparse
from kernelscope.analysis import communication, serving_throughput, step_breakdown
from kernelscope.check import check
from kernelscope.cli.main import main
from kernelscope.errors import InvalidArgumentError

STEPS = 40
RECORDERS = ("serving-cuda.json", "serving-rocm.json", "serving-nsys.sqlite")


def written(folder: Path, *, seed: int, marks: bool = True) -> dict[str, tuple[Path, dict[str, Any]]]:
    files = _traceparse.write_demo_serving(folder, steps=STEPS, seed=seed, marks=marks)
    return {path.name: (path, json.loads(truth)) for path, truth in files}


@pytest.mark.slow
@pytest.mark.parametrize("recorder", RECORDERS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_replayed_kernel_is_found(tmp_path: Path, recorder: str, seed: int) -> None:
    path, truth = written(tmp_path, seed=seed)[recorder]
    trace = ks.read(path)
    ops = trace.captured_ops.select(
        captured_op_row="row", op=pl.col("name").cast(pl.String), dims=pl.col("input_dims").cast(pl.String)
    )
    found = trace.gpu_ops.select("start_ns", "stream", "captured_op_row", "match").join(
        ops, on="captured_op_row", how="inner"
    )
    said = {(start, stream): (op, json.loads(dims)) for start, stream, _, _, op, dims in found.iter_rows()}
    true = {(start, stream): (op, dims) for start, stream, op, dims in truth["nodes"]}
    assert len(true) > 500
    # What is matched is a replay, and what is a replay is matched.
    assert said == true
    assert found["match"].is_in(["exact", "inferred"]).all()
    if recorder.endswith(".sqlite"):
        assert (found["match"] == "exact").all()
    assert not [verdict for verdict in check(trace) if verdict.faults]


def test_every_payload_is_read(tmp_path: Path) -> None:
    path, truth = written(tmp_path, seed=1)["serving-nsys.sqlite"]
    trace = ks.read(path)
    told = trace.collectives.filter(pl.col("source") == "gpu_op")
    starts = trace.gpu_ops.select("row", "start_ns").join(told, on="row", how="inner")
    assert dict(starts.select("start_ns", "bytes").rows()) == dict(truth["messages"])
    assert told["group_size"].unique().to_list() == [truth["ranks"]]
    assert told["reduction"].unique().to_list() == ["Sum"]
    messages = communication([trace], by="message_bytes").drop_nulls("message_bytes")
    assert messages["calls"].sum() == len(truth["messages"])
    assert messages["bus_bytes_per_s"].null_count() == 0


@pytest.mark.parametrize("recorder", RECORDERS)
def test_steps_have_phase_and_tokens(tmp_path: Path, recorder: str) -> None:
    path, truth = written(tmp_path, seed=1)[recorder]
    trace = ks.read(path)
    steps = trace.steps.select("host_start_ns", pl.col("phase").cast(pl.String), "requests", "tokens").rows()
    assert steps == [
        (step["start_ns"], step["phase"], step["requests"], step["tokens"]) for step in truth["steps"]
    ]
    throughput = serving_throughput(trace)
    decode = [step for step in truth["steps"] if step["phase"] == "decode"]
    row = throughput.row(by_predicate=pl.col("phase") == "decode", named=True)
    assert (row["steps"], row["tokens_sum"]) == (len(decode), sum(step["tokens"] for step in decode))
    assert row["tokens_per_s"] == pytest.approx(row["tokens_sum"] * 1e9 / row["total_ns"])
    assert row["ns_per_token"] * row["tokens_sum"] == pytest.approx(row["total_ns"])
    curve = serving_throughput(trace, by=("phase", "requests"))
    assert curve["steps"].sum() == STEPS
    with pytest.raises(InvalidArgumentError, match="by='step'"):
        serving_throughput(trace, by=("step",))


@pytest.mark.parametrize("recorder", RECORDERS)
def test_unmarked_steps_of_an_engine_are_found(tmp_path: Path, recorder: str) -> None:
    path, truth = written(tmp_path, seed=1, marks=False)[recorder]
    trace = ks.read(path, step_range="found")
    starts = set(trace.steps["host_start_ns"].to_list())
    assert trace.steps["confidence"].is_between(0.5, 1.0).all()
    # Each decode step is a period. Of prompts that come one after another the engine says nothing.
    launches = trace.launches.filter(pl.col("name").cast(pl.String).str.contains("GraphLaunch"))
    assert len(starts) >= launches.height == sum(step["phase"] == "decode" for step in truth["steps"])
    breakdown = step_breakdown(trace, include_partial=True)
    assert breakdown.height == trace.steps.height


@pytest.mark.slow
def test_unmarked_steps_of_training_are_found(tmp_path: Path) -> None:
    main(["demo", "--size", "6MB", "--seed", "3", "--out", str(tmp_path / "marked.json")])
    document = json.loads((tmp_path / "marked.json").read_text())
    events = document["traceEvents"]
    document["traceEvents"] = [
        event for event in events if not str(event.get("name", "")).startswith("ProfilerStep#")
    ]
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(document))
    marked, found = ks.read(tmp_path / "marked.json"), ks.read(bare, step_range="found")
    period = marked.steps["host_start_ns"].diff().median()
    assert found.steps["host_start_ns"].diff().median() == pytest.approx(period, rel=0.01)
    assert abs(found.steps.height - marked.steps.height) <= 1
    assert found.steps["confidence"].is_between(0.8, 1.0).all()
    assert marked.steps["confidence"].null_count() == marked.steps.height
    # Nothing is found unless it is asked for, and nothing where launches have no order.
    assert ks.read(bare).steps["step"].to_list() == [None]
    kernels = [event for event in document["traceEvents"] if event.get("cat") == "kernel"]
    names = [event["name"] for event in kernels]
    random.Random(5).shuffle(names)
    for event, name in zip(kernels, names, strict=True):
        event["name"] = name
    bare.write_text(json.dumps(document))
    with pytest.raises(InvalidArgumentError, match="no reliable periods"):
        ks.read(bare, step_range="found")


def test_steps_by_a_regular_expression(tmp_path: Path) -> None:
    path, truth = written(tmp_path, seed=1)["serving-cuda.json"]
    steps = ks.read(path, step_range=r"/^execute_\d+_context_0/").steps
    assert steps.height == sum(step["phase"] == "decode" for step in truth["steps"])
    with pytest.raises(InvalidArgumentError, match="not a regular expression for steps"):
        ks.read(path, step_range="/(/")


def test_the_command_writes_all_recorders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "engine"
    main(["demo", "--kind", "serving", "--truth", "--out", str(folder)])
    assert {path.name for path in folder.iterdir()} == {
        *RECORDERS, "serving-cuda.truth.json", "serving-rocm.truth.json", "serving-nsys.truth.json",
    }  # fmt: skip
    assert "serving-nsys.sqlite" in capsys.readouterr().out
    assert main(["demo", "--kind", "serving", "--ranks", "2", "--out", str(folder)]) == 2
