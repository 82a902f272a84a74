"""What ``kernelscope demo`` writes, and the answers it knows to be right."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import _traceparse
from kernelscope.cli import main
from kernelscope.compat import pyprof

Run = Callable[..., subprocess.CompletedProcess[str]]
Demo = tuple[ks.Trace, dict[str, Any]]
PARTS = ks.analysis.CATEGORIES


def _write(
    folder: Path, *, layout: str = "native", ranks: int = 1, seed: int = 0, gzip: bool = False
) -> list[Path]:
    written = _traceparse.write_demo(
        folder, size_bytes=5_000_000, ranks=ranks, seed=seed, layout=layout, gzip=gzip, truth=True
    )
    return [trace for trace, *_ in written]


def _truth(trace: Path) -> dict[str, Any]:
    return json.loads((trace.parent / f"{trace.name.split('.')[0]}.truth.json").read_text())


@pytest.fixture(scope="module", params=_traceparse.demo_layouts())
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Rank 1 of a job of two, and its truth."""
    path = _write(tmp_path_factory.mktemp("demo"), layout=request.param, ranks=2)[1]
    return ks.read(path, strict=True), _truth(path)


def test_every_event_is_in_its_table(demo: Demo) -> None:
    trace, truth = demo
    assert trace.meta.seen == trace.meta.kept == truth["events"]
    assert (trace.meta.rank, trace.meta.world_size) == (1, 2)
    for name, rows in truth["tables"].items():
        assert trace.tables[name].height == rows, name


def test_steps(demo: Demo) -> None:
    trace, truth = demo
    columns = ["step", "host_start_ns", "host_dur_ns", "start_ns", "total_ns", *PARTS]
    # Communication is also the host inside c10d calls.
    steps = [step | step["parts_with_collective_ops"] for step in truth["steps"]]
    assert trace.steps.select(columns).to_dicts() == [{c: step[c] for c in columns} for step in steps]


def test_steps_without_communication(tmp_path: Path) -> None:
    path = _write(tmp_path)[0]
    columns = ["step", "start_ns", "total_ns", *PARTS]
    expected = [{column: step[column] for column in columns} for step in _truth(path)["steps"]]
    assert ks.read(path).steps.select(columns).to_dicts() == expected
    assert all(sum(step[part] for part in PARTS) == step["total_ns"] for step in expected)


@pytest.mark.parametrize("kind", ["kernel", "memcpy", "memset"])
def test_gpu_work(demo: Demo, kind: str) -> None:
    trace, truth = demo
    work = trace.gpu_ops.filter(pl.col("kind").cast(pl.String) == kind)
    ours = work.group_by(pl.col("name").cast(pl.String)).agg(calls=pl.len(), total_ns=pl.col("dur_ns").sum())
    assert {name: {"calls": calls, "total_ns": ns} for name, calls, ns in ours.rows()} == truth[f"{kind}s"]


def test_launches(demo: Demo) -> None:
    trace, truth = demo
    ours = trace.launches.group_by(pl.col("name").cast(pl.String)).agg(
        calls=pl.len(), total_ns=pl.col("dur_ns").sum()
    )
    expected = {name: (row["calls"], row["total_ns"]) for name, row in truth["launches"].items()}
    assert {name: (calls, ns) for name, calls, ns in ours.rows()} == expected


def test_operators(demo: Demo) -> None:
    trace, truth = demo
    columns = ["calls", "host_total_ns", "host_self_ns", "device_total_ns", "device_self_ns"]
    table = ks.analysis.op_table(trace, by=("name",))
    ours = {row["name"]: {c: row[c] for c in columns} for row in table.to_dicts()}
    expected = {name: {c: row[c] for c in columns} for name, row in truth["ops"].items()}
    assert ours == expected


def test_links(demo: Demo) -> None:
    trace, truth = demo
    work = trace.gpu_ops
    launched = work.filter(pl.col("launch_row").is_not_null())
    assert work.height - launched.height == truth["gpu_ops_without_launch"]
    assert launched["op_row"].drop_nulls().len() == truth["gpu_ops_with_op"]
    assert launched["op_row"].null_count() == truth["gpu_ops_without_op"]
    assert work["link"].null_count() == 0
    # Autograd wraps each backward node in an evaluate_function of the same sequence number.
    assert trace.ops["forward_row"].drop_nulls().n_unique() == truth["forward_backward_pairs"]


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    first, again, other = (
        _write(tmp_path / name, seed=seed)[0] for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first.read_bytes() == again.read_bytes() != other.read_bytes()


def test_compressed_holds_the_same(tmp_path: Path) -> None:
    plain, packed = _write(tmp_path / "plain")[0], _write(tmp_path / "packed", gzip=True)[0]
    assert packed.stat().st_size < plain.stat().st_size / 5
    left, right = ks.read(plain), ks.read(packed)
    assert right.meta.compression == "gzip"
    for name, frame in left.tables.items():
        assert right.tables[name].equals(frame), name


def test_command_writes_a_folder(cli: Run, tmp_path: Path) -> None:
    done = cli("demo", "--size", "1MB", "--ranks", "2", "--truth", "--out", "job")
    assert (done.returncode, done.stderr) == (0, "")
    names = {path.name for path in (tmp_path / "job").iterdir()}
    assert names == {f"rank{rank}.{end}" for rank in (0, 1) for end in ("pt.trace.json", "truth.json")}
    assert "job/rank1.pt.trace.json" in done.stdout


@pytest.mark.parametrize(("name", "compression"), [("one.json", "none"), ("one.json.gz", "gzip")])
def test_command_writes_a_file(cli: Run, tmp_path: Path, name: str, compression: str) -> None:
    assert cli("demo", "--size", "1MB", "--truth", "--out", f"new/{name}").returncode == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {name, "one.truth.json"}
    assert ks.read(tmp_path / "new" / name).meta.compression == compression


USAGE = ["--ranks 2 --out a.json", "--size big", "--seed -1", "--layout pretty", "--ranks 9999"]


@pytest.mark.parametrize("arguments", USAGE)
def test_usage(cli: Run, arguments: str) -> None:
    done = cli("demo", *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_unknown_layout() -> None:
    with pytest.raises(ks.errors.InvalidArgumentError, match="native, key-per-line"):
        _write(Path("unused"), layout="pretty")


def test_place_that_cannot_be_written(cli: Run, tiny: Path) -> None:
    done = cli("demo", "--size", "1MB", "--out", tiny / "folder")
    assert (done.returncode, done.stdout) == (1, "")
    assert str(tiny) in done.stderr


def test_a_job_with_faults(tmp_path: Path) -> None:
    """From eight ranks on something is wrong with the job, and the truth of each rank still holds."""
    _traceparse.write_demo(
        tmp_path, size_bytes=1_000_000, ranks=16, seed=2, layout="native", gzip=False, truth=True
    )
    faults = json.loads((tmp_path / "cluster.truth.json").read_text())
    assert len(faults["clock_offsets_ns"]) == faults["ranks"] == 16
    late = faults["late_data_loader"]["rank"]
    for rank in (0, late, faults["slow_rank"]["rank"], faults["slow_link"]["ranks"][0]):
        path = tmp_path / f"rank{rank}.pt.trace.json"
        trace, truth = ks.read(path, strict=True), _truth(path)
        for name, rows in truth["tables"].items():
            assert trace.tables[name].height == rows, (rank, name)
        columns = ["step", "host_start_ns", "host_dur_ns", "start_ns", "total_ns", *PARTS]
        steps = [step | step["parts_with_collective_ops"] for step in truth["steps"]]
        assert trace.steps.select(columns).to_dicts() == [{c: step[c] for c in columns} for step in steps]


def demo_database(folder: Path, *arguments: str) -> tuple[Path, dict[str, Any]]:
    """The database, and its truth."""
    assert main(["demo", "--truth", "--out", str(folder), *arguments]) == 0
    (truth,) = folder.glob("*.truth.json")
    (database,) = (path for path in folder.iterdir() if path != truth)
    return database, json.loads(truth.read_text())


@pytest.fixture(scope="module")
def nsys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return demo_database(tmp_path_factory.mktemp("nsys"), "--kind", "nsys", "--ranks", "2", "--size", "3MB")


@pytest.fixture(scope="module")
def nvprof(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return demo_database(tmp_path_factory.mktemp("nvprof"), "--kind", "nvprof", "--size", "2MB")


def totals(frame: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """Calls and time by name."""
    named = frame.with_columns(pl.col("name").cast(pl.String))
    grouped = named.group_by("name").agg(pl.len(), pl.col("dur_ns").sum())
    return {name: (calls, total) for name, calls, total in grouped.iter_rows()}


def said(table: dict[str, dict[str, int]], time: str = "total_ns") -> dict[str, tuple[int, int]]:
    return {name: (row["calls"], row[time]) for name, row in table.items()}


@pytest.mark.parametrize("kind", ["nsys", "nvprof"])
def test_every_process_is_as_it_was_made(kind: str, request: pytest.FixtureRequest) -> None:
    path, truth = request.getfixturevalue(kind)
    trace = ks.read(path, strict=True)
    assert (trace.meta.format, trace.meta.file_bytes) == (kind, truth["file_bytes"])
    assert len(truth["processes"]) == (2 if kind == "nsys" else 1)
    for process in truth["processes"]:
        of_process = pl.col("pid") == process["pid"]
        kernels = trace.gpu_ops.filter(of_process & (pl.col("kind") == "kernel"))
        assert totals(kernels) == said(process["kernels"])
        assert totals(trace.launches.filter(of_process)) == said(process["launches"])
        operators = trace.ranges.filter(of_process & pl.col("op_id").is_not_null())
        assert totals(operators) == said(process["ops"], "host_total_ns")
        assert trace.ranges.filter(of_process).height == process["ranges"]


@pytest.mark.parametrize("kind", ["nsys", "nvprof"])
def test_work_is_linked_to_the_operator_that_launched_it(kind: str, request: pytest.FixtureRequest) -> None:
    path, truth = request.getfixturevalue(kind)
    trace = ks.read(path)
    for process in truth["processes"]:
        work = trace.gpu_ops.filter(pl.col("pid") == process["pid"])
        assert work["launch_row"].null_count() == process["gpu_ops_without_launch"]
        ranges = trace.ranges.select(range_row="row", op="name", is_operator=pl.col("op_id").is_not_null())
        linked = work.join(ranges, on="range_row").filter("is_operator")
        by_op = linked.group_by(pl.col("op").cast(pl.String)).agg(pl.len(), pl.col("dur_ns").sum())
        found = {name: (count, total) for name, count, total in by_op.iter_rows()}
        expected = {
            name: (row["gpu_ops"], row["device_self_ns"])
            for name, row in process["ops"].items()
            if row["gpu_ops"]
        }
        assert found == expected


def test_steps_are_found(nsys: tuple[Path, dict[str, Any]]) -> None:
    path, truth = nsys
    steps = ks.read(path).steps
    expected = [step["step"] for step in truth["processes"][0]["steps"]]
    assert steps["step"].drop_nulls().unique().sort().to_list() == expected


def test_graphs_are_there(nsys: tuple[Path, dict[str, Any]]) -> None:
    trace = ks.read(nsys[0])
    nodes = trace.gpu_ops.filter(pl.col("graph_id").is_not_null())
    assert nodes.height > 10
    assert nodes["launch_row"].n_unique() < nodes.height


def test_pyprof_explains_every_kernel_of_an_operator(nsys: tuple[Path, dict[str, Any]]) -> None:
    table = pyprof.pyprof_table(ks.read(nsys[0]))
    products = table.filter(pl.col("op").is_in(["mm", "addmm", "bmm", "linear"]))
    assert products.height > 10
    assert products["flops"].null_count() == 0
    assert set(table["dir"].unique()) == {"fprop", "bprop"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "nvprof", "--ranks", "2"], "ranks must be 1"),
        (["--kind", "nsys", "--gzip"], "--gzip"),
    ],
)
def test_what_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["demo", "--out", str(tmp_path / "d"), "--size", "1MB", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_file_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "mine.sqlite"
    assert main(["demo", "--kind", "nsys", "--size", "1MB", "--out", str(out)]) == 0
    assert "1 processes" in capsys.readouterr().out or out.exists()
    assert [path.name for path in out.parent.iterdir()] == ["mine.sqlite"]
