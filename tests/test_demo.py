"""Demo traces: what ``kernelscope demo`` writes, and the answers it knows to be right."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import _traceparse

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
