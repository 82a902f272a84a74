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


def _write(folder: Path, **options: Any) -> list[Path]:
    defaults = {"size_bytes": 5_000_000, "ranks": 1, "seed": 0, "layout": "native", "gzip": False}
    asked: dict[str, Any] = {**defaults, **options}
    written = _traceparse.write_demo(folder, truth=True, **asked)
    return [trace for trace, *_ in written]


def _truth(trace: Path) -> dict[str, Any]:
    return json.loads(trace.with_name(f"{trace.name.split('.')[0]}.truth.json").read_text())


def _totals(frame: pl.DataFrame) -> dict[str, tuple[int, int]]:
    """Calls and time by name."""
    grouped = frame.group_by(pl.col("name").cast(pl.String)).agg(pl.len(), pl.col("dur_ns").sum())
    return {name: (calls, total) for name, calls, total in grouped.iter_rows()}


def _expected(table: dict[str, dict[str, int]], time: str = "total_ns") -> dict[str, tuple[int, int]]:
    return {name: (row["calls"], row[time]) for name, row in table.items()}


def _check_tables_and_steps(trace: ks.Trace, truth: dict[str, Any]) -> None:
    for name, rows in truth["tables"].items():
        assert trace.tables[name].height == rows, (truth["rank"], name)
    columns = ["step", "host_start_ns", "host_dur_ns", "start_ns", "total_ns", *PARTS]
    assert trace.steps.select(columns).to_dicts() == [
        {c: step[c] for c in columns} for step in truth["steps"]
    ]


@pytest.fixture(scope="module", params=_traceparse.demo_layouts())
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Rank 1 of a job of two, and its truth."""
    path = _write(tmp_path_factory.mktemp("demo"), layout=request.param, ranks=2)[1]
    return ks.read(path, strict=True), _truth(path)


def test_every_event_is_in_its_table(demo: Demo) -> None:
    trace, truth = demo
    assert trace.meta.seen == trace.meta.kept == truth["events"]
    assert (trace.meta.rank, trace.meta.world_size) == (1, 2)
    _check_tables_and_steps(trace, truth)


def test_steps_without_communication(tmp_path: Path) -> None:
    path = _write(tmp_path)[0]
    columns = ["step", "start_ns", "total_ns", *PARTS]
    expected = [{column: step[column] for column in columns} for step in _truth(path)["steps"]]
    assert ks.read(path).steps.select(columns).to_dicts() == expected
    assert all(sum(step[part] for part in PARTS) == step["total_ns"] for step in expected)


def test_gpu_work_and_launches(demo: Demo) -> None:
    trace, truth = demo
    for kind in ("kernel", "memcpy", "memset"):
        work = trace.gpu_ops.filter(pl.col("kind").cast(pl.String) == kind)
        assert _totals(work) == _expected(truth[f"{kind}s"])
    assert _totals(trace.launches) == _expected(truth["launches"])


def test_operators(demo: Demo) -> None:
    trace, truth = demo
    columns = ["calls", "host_total_ns", "host_self_ns", "device_total_ns", "device_self_ns"]
    table = ks.analysis.op_table(trace, by=("name",))
    ours = {row["name"]: {c: row[c] for c in columns} for row in table.to_dicts()}
    assert ours == {name: {c: row[c] for c in columns} for name, row in truth["ops"].items()}


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


def test_a_job_with_faults(tmp_path: Path) -> None:
    """From eight ranks on something is wrong with the job, and the truth of each rank still holds."""
    paths = _write(tmp_path, size_bytes=1_000_000, ranks=16, seed=2)
    faults = json.loads((tmp_path / "cluster.truth.json").read_text())
    assert len(faults["clock_offsets_ns"]) == faults["ranks"] == 16
    late = faults["late_data_loader"]["rank"]
    for rank in (0, late, faults["slow_rank"]["rank"], faults["slow_link"]["ranks"][0]):
        _check_tables_and_steps(ks.read(paths[rank], strict=True), _truth(paths[rank]))


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


USAGE = [
    ("--ranks 2 --out a.json", "--out must be a folder"),
    ("--size big", "--size"),
    ("--seed -1", "--seed"),
    ("--layout pretty", "--layout"),
    ("--ranks 9999", "ranks"),
    ("--kind nvprof --ranks 2", "ranks must be 1"),
    ("--kind nsys --gzip", "--gzip"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE)
def test_usage(cli: Run, arguments: str, message: str) -> None:
    done = cli("demo", *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_layout() -> None:
    with pytest.raises(ks.errors.InvalidArgumentError, match="native, key-per-line"):
        _write(Path("unused"), layout="pretty")


def test_place_that_cannot_be_written(cli: Run, tiny: Path) -> None:
    done = cli("demo", "--size", "1MB", "--out", tiny / "folder")
    assert (done.returncode, done.stdout) == (1, "")
    assert str(tiny) in done.stderr


def _database(tmp_path_factory: pytest.TempPathFactory, kind: str, *arguments: str) -> Demo:
    """The trace of a database, and the truth."""
    folder = tmp_path_factory.mktemp(kind)
    assert main(["demo", "--truth", "--kind", kind, "--out", str(folder), *arguments]) == 0
    (truth,) = folder.glob("*.truth.json")
    (database,) = (path for path in folder.iterdir() if path != truth)
    return ks.read(database, strict=True), json.loads(truth.read_text())


@pytest.fixture(scope="module")
def nsys(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return _database(tmp_path_factory, "nsys", "--ranks", "2", "--size", "3MB")


@pytest.fixture(scope="module", params=["nsys", "nvprof"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """A database of each kind, and its truth."""
    if request.param == "nsys":
        return request.getfixturevalue("nsys")
    return _database(tmp_path_factory, "nvprof", "--size", "2MB")


def test_every_process_is_as_it_was_made(database: Demo) -> None:
    trace, truth = database
    assert (trace.meta.format, trace.meta.file_bytes) == (truth["kind"], truth["file_bytes"])
    assert len(truth["processes"]) == (2 if truth["kind"] == "nsys" else 1)
    for process in truth["processes"]:
        of_process = pl.col("pid") == process["pid"]
        kernels = trace.gpu_ops.filter(of_process & (pl.col("kind") == "kernel"))
        assert _totals(kernels) == _expected(process["kernels"])
        assert _totals(trace.launches.filter(of_process)) == _expected(process["launches"])
        operators = trace.ranges.filter(of_process & pl.col("op_id").is_not_null())
        assert _totals(operators) == _expected(process["ops"], "host_total_ns")
        assert trace.ranges.filter(of_process).height == process["ranges"]


def test_work_is_linked_to_the_operator_that_launched_it(database: Demo) -> None:
    trace, truth = database
    operators = trace.ranges.filter(pl.col("op_id").is_not_null()).select("name", range_row="row")
    for process in truth["processes"]:
        work = trace.gpu_ops.filter(pl.col("pid") == process["pid"])
        assert work["launch_row"].null_count() == process["gpu_ops_without_launch"]
        launching = {name: row for name, row in process["ops"].items() if row["gpu_ops"]}
        expected = {name: (row["gpu_ops"], row["device_self_ns"]) for name, row in launching.items()}
        assert _totals(work.drop("name").join(operators, on="range_row")) == expected


def test_steps_and_graphs_are_found(nsys: Demo) -> None:
    trace, truth = nsys
    expected = [step["step"] for step in truth["processes"][0]["steps"]]
    assert trace.steps["step"].drop_nulls().unique().sort().to_list() == expected
    nodes = trace.gpu_ops.filter(pl.col("graph_id").is_not_null())
    assert nodes.height > 10
    assert nodes["launch_row"].n_unique() < nodes.height


def test_pyprof_explains_every_kernel_of_an_operator(nsys: Demo) -> None:
    table = pyprof.pyprof_table(nsys[0])
    products = table.filter(pl.col("op").is_in(["mm", "addmm", "bmm", "linear"]))
    assert products.height > 10
    assert products["flops"].null_count() == 0
    assert set(table["dir"].unique()) == {"fprop", "bprop"}


def test_a_file_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "mine.sqlite"
    assert main(["demo", "--kind", "nsys", "--size", "1MB", "--out", str(out)]) == 0
    assert "1 processes" in capsys.readouterr().out
    assert [path.name for path in out.parent.iterdir()] == ["mine.sqlite"]
