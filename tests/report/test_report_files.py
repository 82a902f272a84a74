"""Reports in files: JSON, CSV, Parquet; tables, stacks and traces for other tools."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kernelscope as ks
from demo_jobs import read_job, write_job
from kernelscope import _traceparse, analysis
from kernelscope.errors import InvalidArgumentError
from kernelscope.report import FORMATS, render
from kernelscope.report.conversion import TARGETS, convert
from kernelscope.report.perfetto.added_events import CATEGORY
from round_trips import differences

ANSWERS = {
    "steps",
    "breakdown",
    "gpu_metrics",
    "gpu_metric_timeline",
    *(f"gpu_metrics_by_{place}" for place in ("kernel", "op", "range", "step")),
    "serving",
    "serving_by_batch",
    "training_phases",
    "training_micro_batches",
    "training_recomputed",
    "fsdp_units",
    "fsdp_steps",
    "ops",
    "ops_by_shape",
    "kernels",
    "ranges",
    "annotations",
    "kernels_by_op",
    "kernel_categories",
    "gpus",
    "gpu_time",
    "overlap",
    "idle",
    "idle_hosts",
    "launches_by_call",
    "queues",
    "gpu_metrics_by_host_range",
    "gpu_use_over_time",
    "communication_over_time",
    "kernel_durations",
    "nccl_ranges",
    "waiting_calls",
    "copies",
    "recommendations",
    "overview",
    "modules",
    "memory",
    "memory_peak",
    "memory_by_op",
    "kernels_by_launch",
    "step_bounds",
    "best_changes",
    "op_kernels",
    "gpu_timeline",
    "missing_views",
    "doubts",
    "unlinked",
    "diagnostics",
}


@pytest.fixture
def trace(tiny: Path) -> ks.Trace:
    return ks.read(tiny)


def files_in(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_json(trace: ks.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    render(trace, format="json")
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert list(document)[1:7] == ["trace", "doubts", "steps", "breakdown", "ops", "kernels"]
    assert document["trace"]["rank"] == 3
    assert document["trace"]["tables"]["gpu_ops"] == 1
    assert document["ops"] == analysis.op_table(trace).to_dicts()
    assert document["kernels"][0]["name"] == "gemm[bold]"
    parts = document["breakdown"][0]
    assert sum(parts[c] for c in analysis.CATEGORIES) == parts["total_ns"]


def test_json_writes_what_json_cannot_as_null(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text('{"schemaVersion": 1, "odd": NaN, "half": "\\ud800", "traceEvents": []}')
    out = tmp_path / "report.json"
    render(ks.read(path), format="json", out=out)
    text = out.read_bytes().decode("utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_folder(trace: ks.Trace, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / "new" / "report"
    render(trace, format=suffix, out=str(out))
    expected = {f"{name}.{suffix}" for name in ANSWERS} | {"trace.json"}
    if suffix == "parquet":
        expected |= {f"tables/{name}.parquet" for name in trace.tables}
    assert files_in(out) == expected
    read = pl.read_csv if suffix == "csv" else pl.read_parquet
    assert_frame_equal(read(out / f"ops.{suffix}"), analysis.op_table(trace), check_dtypes=suffix != "csv")
    assert json.loads((out / "trace.json").read_text())["rank"] == 3


def test_parquet_holds_every_table(trace: ks.Trace, tmp_path: Path) -> None:
    render(trace, format="parquet", out=tmp_path / "out")
    for name, table in trace.tables.items():
        assert_frame_equal(pl.read_parquet(tmp_path / "out" / "tables" / f"{name}.parquet"), table)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_the_same_twice(trace: ks.Trace, tmp_path: Path, form: str) -> None:
    for out in (tmp_path / "a", tmp_path / "b"):
        render(trace, format=form, out=out)
    if form in ("text", "json"):
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        return
    for name in files_in(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_a_folder_keeps_its_other_files(trace: ks.Trace, tmp_path: Path) -> None:
    out = tmp_path / "report"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    (out / "ops.csv").write_text("old")
    render(trace, format="csv", out=out)
    assert (out / "mine.txt").read_text() == "keep"
    assert (out / "ops.csv").read_text().startswith("name,calls")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_failure_leaves_the_old_results(
    trace: ks.Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    out = tmp_path / "report"
    render(trace, format=form, out=out)
    before = {name: (out / name).read_bytes() for name in files_in(out)}
    written: list[Any] = []

    def fail_at_the_third(self: pl.DataFrame, path: Path, **options: Any) -> None:
        written.append(path)
        if len(written) == 3:
            raise OSError("no space left on device")
        path.write_text("new")

    monkeypatch.setattr(pl.DataFrame, f"write_{form}", fail_at_the_third)
    with pytest.raises(OSError, match="no space"):
        render(trace, format=form, out=out)
    assert {name: (out / name).read_bytes() for name in files_in(out)} == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_file_is_replaced_at_once(trace: ks.Trace, tmp_path: Path) -> None:
    target = tmp_path / "real.json"
    target.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(target)
    render(trace, format="json", out=link)
    assert link.is_symlink()
    assert json.loads(target.read_text())["schema_version"] == 1


def test_a_device_is_written_to(trace: ks.Trace) -> None:
    render(trace, out=Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize(
    "options",
    [
        {"format": "pdf"},
        {"format": "csv"},
        {"format": "parquet"},
        {"top": 0},
        {"format": "csv", "out": "a file"},
        {"format": "json", "out": "a folder"},
    ],
)
def test_bad_options_are_refused(trace: ks.Trace, tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "a file").write_text("old")
    (tmp_path / "a folder").mkdir()
    if "out" in options:
        options = {**options, "out": tmp_path / options["out"]}
    with pytest.raises(InvalidArgumentError):
        render(trace, **options)
    assert (tmp_path / "a file").read_text() == "old"


HOSTILE = '<b>"quoted" \\back\\ \n\t\x01 \u202e \u2028 é 🚀'


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps of a transformer in training, with Python frames, memory and flows."""
    return write_job(tmp_path_factory.mktemp("demo"), size_bytes=2_000_000, seed=5)[0]


def written(trace: ks.Trace, out: Path) -> list[dict[str, Any]]:
    convert(trace, "perfetto", out)
    return json.loads(out.read_text())["traceEvents"]


@pytest.mark.parametrize("layout", _traceparse.demo_layouts())
def test_every_event_comes_back(tmp_path: Path, layout: str) -> None:
    (trace,) = read_job(tmp_path, seed=2, layout=layout)
    events = written(trace, tmp_path / "perfetto.json")
    again = ks.read(tmp_path / "perfetto.json", strict=True)
    assert differences(trace, again) == []
    added = [event for event in events if event.get("cat") == CATEGORY]
    assert len(events) - len(added) == trace.meta.kept
    assert again.meta.kept == len(events)
    for key in ("rank", "world_size", "base_time_ns", "flags", "versions", "host", "properties"):
        assert getattr(again.meta, key) == getattr(trace.meta, key), key


@pytest.mark.slow
def test_parts_are_put_together(demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = ks.read(demo)
    whole = written(trace, tmp_path / "whole.json")
    monkeypatch.setattr("kernelscope.report.perfetto.writing._PART_ROWS", 97)
    assert written(trace, tmp_path / "parts.json") == whole


def test_arguments_that_nobody_knows_and_hostile_names_are_kept(tmp_path: Path) -> None:
    args = {
        "External id": 1,
        HOSTILE: [HOSTILE, {"deep": [None, 1.5, True]}],
        "stream": "not a number",
        "x": 1e300,
    }
    event = {"ph": "X", "cat": "cpu_op", "name": HOSTILE, "pid": 'Sp"ans', "tid": 7, "ts": 0.001, "dur": 1e6}
    thread = {"pid": 1, "tid": 1}
    counter = {**thread, "ph": "C", "name": "c", "ts": 2, "args": {"": 1, "b": 0.1, "bad": "high", "n": None}}
    span = {**thread, "ph": "b", "cat": "mine", "name": "async", "ts": 3, "id": "0xff", "extra": [1]}
    unnamed = {**thread, "ph": "i", "ts": 5, "s": "g"}
    events = [event | {"args": args}, counter, span, unnamed]
    source = tmp_path / "odd.json"
    source.write_text(json.dumps({"schemaVersion": 1, "mine": {"k": HOSTILE}, "traceEvents": events}))
    trace = ks.read(source)
    events = written(trace, tmp_path / "perfetto.json")
    assert differences(trace, ks.read(tmp_path / "perfetto.json")) == []
    assert events[0]["name"] == HOSTILE
    assert {key: events[0]["args"][key] for key in args} == args
    assert events[0]["pid"] == 'Sp"ans'
    assert events[1]["args"] == counter["args"]
    assert (events[2]["id"], events[2]["args"]) == ("0xff", {"extra": [1]})
    assert json.loads((tmp_path / "perfetto.json").read_text())["mine"] == {"k": HOSTILE}


def test_deep_values_are_kept(tmp_path: Path) -> None:
    deep = "[" * 200 + "]" * 200
    fields = '"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2'
    event = f'{{{fields}, "args": {{"x": {deep}}}}}'
    source = tmp_path / "deep.json"
    source.write_text(
        f'{{"pi": 3.14159265358979312, "meta": {"[" * 100 + "]" * 100}, "traceEvents": [{event}]}}'
    )
    trace = ks.read(source)
    assert trace.extra_args["value"].to_list() == [deep]
    convert(trace, "perfetto", tmp_path / "perfetto.json")
    again = ks.read(tmp_path / "perfetto.json")
    assert differences(trace, again) == []
    assert again.meta.properties == trace.meta.properties


def test_damaged_events_are_valid_now(tmp_path: Path) -> None:
    source = tmp_path / "damaged.json"
    source.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a"b", "pid": 1, "tid": 1, "ts": 1, "dur": 2,'
        ' "args": {"x": nan}}, {"ph": "X", "cat": "cpu_op", "name": "lost", "pid": 1, "tid": 1, "dur": 2},'
        ' {"ph": "X", "cat": "cpu_op", "name": "c", "pid": 1, "tid": 1, "ts": 5, "dur": 2},'
    )
    trace = ks.read(source)
    assert trace.meta.dropped >= 1
    written(trace, tmp_path / "perfetto.json")
    assert differences(trace, ks.read(tmp_path / "perfetto.json", strict=True)) == []


def _added(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The ends of the arrows that were added under a name."""
    return [e for e in events if e.get("cat") == CATEGORY and e["name"] == name and e["ph"] in "sf"]


def test_arrows_are_added_only_where_there_are_none(demo: Path, tmp_path: Path) -> None:
    trace = ks.read(demo)
    recorded = trace.flows.filter(pl.col("category") == "ac2g")["id"]
    arrows = _added(written(trace, tmp_path / "a.json"), "launch")
    linked = trace.gpu_ops.filter(pl.col("launch_row").is_not_null())
    assert recorded.len() > 0
    # Of the kernels of one launch only the first has a recorded arrow that viewers draw.
    several = linked.filter(pl.len().over("correlation") > 1)
    assert set(linked["correlation"]) <= set(recorded)
    assert len(arrows) == 2 * several.height > 0
    # Without the recorded ones, every launch gets an arrow to its work, from and to where these begin.
    bare = dataclasses.replace(trace, flows=trace.flows.clear())
    events = written(bare, tmp_path / "b.json")
    added = _added(events, "launch")
    starts = {e["id"]: e for e in added if e["ph"] == "s"}
    ends = {e["id"]: e for e in added if e["ph"] == "f"}
    assert len(starts) == len(ends) == linked.height
    calls = {(e["tid"], e["ts"]) for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
    work = {
        (e["pid"], e["tid"], e["ts"])
        for e in events
        if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    }
    assert {(e["tid"], e["ts"]) for e in starts.values()} <= calls
    assert {(e["pid"], e["tid"], e["ts"]) for e in ends.values()} <= work
    assert len(_added(events, "gradient")) > 10


def test_curves_of_utilisation_and_memory(demo: Path, tmp_path: Path) -> None:
    trace = ks.read(demo)
    events = written(trace, tmp_path / "perfetto.json")
    curve = [e for e in events if e["ph"] == "C" and e["name"] == "GPU 0 utilization"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    start, end = min(e["ts"] for e in kernels), max(e["ts"] + e["dur"] for e in kernels)
    # The area under the curve is the time in which a kernel runs.
    ends = [*(e["ts"] for e in curve[1:]), end]
    area = sum(e["args"]["percent"] / 100 * (until - e["ts"]) for e, until in zip(curve, ends))
    busy, reach = 0.0, start
    for kernel in sorted(kernels, key=lambda e: e["ts"]):
        busy += max(0.0, kernel["ts"] + kernel["dur"] - max(reach, kernel["ts"]))
        reach = max(reach, kernel["ts"] + kernel["dur"])
    assert area == pytest.approx(busy, rel=1e-3)
    assert curve[0]["ts"] == start
    memory = [e for e in events if e["ph"] == "C" and "memory" in e["name"]]
    assert len(memory) == trace.memory["total_allocated_bytes"].drop_nulls().len() > 0
    assert set(memory[0]["args"]) == {"allocated bytes", "reserved bytes"}


def test_traces_with_nothing_in_them(tmp_path: Path) -> None:
    source = tmp_path / "empty.json"
    source.write_text('{"traceEvents": []}')
    trace = ks.read(source)
    paths = convert(trace, TARGETS, tmp_path / "all")
    assert json.loads((tmp_path / "all/perfetto.json").read_text())["traceEvents"] == []
    assert [path.name for path in paths] == ["parquet", "arrow", "perfetto.json", "folded"]


def test_tables_as_files(demo: Path, tmp_path: Path) -> None:
    trace = ks.read(demo)
    ks.convert(trace, ["parquet", "arrow", "folded"], str(tmp_path))
    for name, frame in trace.tables.items():
        assert pl.read_parquet(tmp_path / f"parquet/{name}.parquet").equals(frame), name
        assert pl.read_ipc(tmp_path / f"arrow/{name}.arrow").equals(frame), name
    assert json.loads((tmp_path / "arrow/trace.json").read_text())["format"] == "kineto"
    folded = (tmp_path / "folded/op.self_cuda.folded").read_text().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded) == trace.gpu_ops["dur_ns"].sum()


def test_databases_too(tmp_path: Path) -> None:
    path = tmp_path / "demo.sqlite"
    _traceparse.write_demo_database(path, kind="nsys", size_bytes=1_000_000, ranks=1, seed=1)
    trace = ks.read(path)
    events = written(trace, tmp_path / "perfetto.json")
    by_category = {
        cat: sum(e.get("cat") == cat for e in events) for cat in ("kernel", "cuda_runtime", "nvtx", "cpu_op")
    }
    assert by_category["kernel"] == trace.gpu_ops.filter(pl.col("kind") == "kernel").height > 0
    # Ranges that are operators, too, are written as these.
    operators = trace.ops.filter(~pl.col("is_annotation")).height
    assert by_category["cpu_op"] == operators > 0
    assert by_category["nvtx"] >= trace.ranges.height - trace.ops.height > 0
    arrows = [e for e in _added(events, "launch") if e["ph"] == "s"]
    assert len(arrows) == trace.gpu_ops["launch_row"].drop_nulls().len()
    assert ks.read(tmp_path / "perfetto.json").gpu_ops.height == trace.gpu_ops.height


def test_command(cli: Callable[..., subprocess.CompletedProcess[str]], demo: Path, tmp_path: Path) -> None:
    done = cli("convert", demo, "--to", "parquet,perfetto", "--out", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [str(tmp_path / "out/parquet"), str(tmp_path / "out/perfetto.json")]
    single = cli("convert", demo, "--to", "perfetto", "--out", tmp_path / "one.json")
    assert single.stdout.strip() == str(tmp_path / "one.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "out/perfetto.json").read_bytes()
    named = cli("convert", demo, "--to", "perfetto,folded")
    assert named.stdout.splitlines() == ["rank0.perfetto.json", "rank0.folded"]
    assert (tmp_path / "rank0.perfetto.json").read_bytes() == (tmp_path / "one.json").read_bytes()
    wrong = cli("convert", demo, "--to", "csv", "--out", tmp_path / "x")
    assert wrong.returncode == 2
    assert "the targets of a conversion are parquet, arrow, perfetto, folded, not csv" in wrong.stderr


def test_nonsense_is_refused(demo: Path, tmp_path: Path) -> None:
    trace = ks.read(demo)
    for to in ("csv", [], ["parquet", "svg"]):
        with pytest.raises(InvalidArgumentError, match="targets of a conversion"):
            convert(trace, to, tmp_path / "x")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgumentError, match="is a file"):
        convert(trace, "parquet", tmp_path / "file")
    with pytest.raises(InvalidArgumentError, match="is a folder"):
        convert(trace, "perfetto", tmp_path)
