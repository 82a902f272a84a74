"""What a lake holds, and when a source is read again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from jobs import batch, files_of

import kernelscope as ks

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_lake_holds_what_reading_gives(job: Path, tmp_path: Path) -> None:
    ks.batch.run(job, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    assert lake.ranks.collect()["rank"].to_list() == [0, 1, 2]
    for rank in range(3):
        trace = ks.read(job / f"rank{rank}.pt.trace.json")
        for name, frame in trace.tables.items():
            theirs = lake.tables[name].filter(pl.col("rank") == rank).drop("run", "rank").collect()
            ours = frame.rename({"rank": "group_rank"}) if name == "collectives" else frame
            assert theirs.equals(ours), name
            assert theirs.schema == ours.schema, name


def test_a_lake_says_what_is_known_of_each_rank(job: Path, tmp_path: Path) -> None:
    ks.batch.run(job, tmp_path / "lake", run="night")
    lake = ks.scan(tmp_path / "lake")
    assert lake.runs == ["night"]
    row = lake.manifest.row(1, named=True)
    trace = ks.read(job / "rank1.pt.trace.json")
    assert (row["rank"], row["rank_from"], row["outcome"]) == (1, "metadata", "done")
    assert (row["host"], row["world_size"], row["base_time_ns"]) == (
        trace.meta.host,
        3,
        trace.meta.base_time_ns,
    )
    steps = trace.steps["step"].drop_nulls()
    assert (row["first_step"], row["last_step"], row["steps"]) == (steps.min(), steps.max(), steps.len())
    assert row["events"] == trace.meta.seen


def test_unchanged_sources_are_not_read_again(job: Path, tmp_path: Path) -> None:
    traces = shutil.copytree(job, tmp_path / "traces")
    assert batch(traces, tmp_path / "lake")[0] == dict.fromkeys(["rank0", "rank1", "rank2"], "done")
    before = files_of(tmp_path / "lake")
    assert set(batch(traces, tmp_path / "lake")[0].values()) == {"unchanged"}
    assert files_of(tmp_path / "lake") == before

    changed = traces / "rank1.pt.trace.json"
    changed.write_bytes(changed.read_bytes().replace(b"aten::", b"aten__"))
    assert batch(traces, tmp_path / "lake")[0] == {
        "rank0": "unchanged",
        "rank1": "done",
        "rank2": "unchanged",
    }
    names = ks.scan(tmp_path / "lake", ranks=[1]).ops.select(pl.col("name").cast(pl.String)).collect()
    assert not names["name"].str.contains("aten::").any()


def test_an_edit_whose_time_was_set_back_is_noticed(job: Path, tmp_path: Path) -> None:
    trace = shutil.copy2(job / "rank0.pt.trace.json", tmp_path)
    batch(trace, tmp_path / "lake")
    stat = os.stat(trace)
    content = Path(trace).read_bytes()
    Path(trace).write_bytes(content[:-4000].replace(b"node00", b"node77") + content[-4000:])
    os.utime(trace, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert batch(trace, tmp_path / "lake")[0] == {"rank0": "done"}


def test_other_options_read_again(job: Path, tmp_path: Path) -> None:
    trace = job / "rank0.pt.trace.json"
    batch(trace, tmp_path / "lake")
    assert batch(trace, tmp_path / "lake", strict=True)[0] == {"rank0": "done"}
    assert batch(trace, tmp_path / "lake", strict=True)[0] == {"rank0": "unchanged"}


def test_a_moved_source_is_the_same_source(job: Path, tmp_path: Path) -> None:
    traces = shutil.copytree(job, tmp_path / "traces")
    batch(traces, tmp_path / "lake")
    moved = traces.rename(tmp_path / "elsewhere")
    assert set(batch(moved, tmp_path / "lake")[0].values()) == {"unchanged"}
    sources = ks.scan(tmp_path / "lake").manifest["source"].to_list()
    assert sources == [str(moved / f"rank{rank}.pt.trace.json") for rank in range(3)]


def test_ranks_are_added_to_a_lake(job: Path, tmp_path: Path) -> None:
    for rank in (2, 0):
        batch(job / f"rank{rank}.pt.trace.json", tmp_path / "lake")
    assert ks.scan(tmp_path / "lake").ranks.collect()["rank"].to_list() == [0, 2]


def test_runs_lie_side_by_side(job: Path, tmp_path: Path) -> None:
    for run in ("before", "after"):
        batch(job, tmp_path / "lake", run=run)
    lake = ks.scan(tmp_path / "lake")
    assert lake.runs == ["after", "before"]
    counts = lake.gpu_ops.group_by("run", "rank").len().collect()
    assert counts.height == 6
    assert ks.scan(tmp_path / "lake", run="after", ranks=[1]).steps.collect()["run"].unique().to_list() == [
        "after"
    ]


def test_a_table_without_rows_has_its_columns(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    ranges = ks.scan(tmp_path / "lake").ranges.collect()
    assert ranges.height == 0
    assert ranges.columns == [*(c.name for c in ks.schema.table("ranges").columns), "run", "rank"]


def test_command_line(cli: Run, job: Path, tmp_path: Path) -> None:
    done = cli("batch", job, "--out", "lake", "--workers", "2", "--memory", "2GB", "--no-summary")
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["rank"] for line in lines} == {0, 1, 2}
    assert {line["status"] for line in lines} == {"done"}
    assert all(line["peak_bytes"] > 10_000_000 and line["seconds"] > 0 for line in lines)
    assert "3 traces in" in done.stderr
    again = cli("batch", job, "--out", "lake", "--no-json-lines", "--no-summary")
    assert (again.returncode, again.stdout) == (0, "")
    assert "0 read, 3 unchanged" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["batch", "nowhere", "--out", "lake"], "nowhere"),
        (["batch", ".", "--out", "lake"], "found no trace"),
        (["batch", ".", "--out", "lake", "--run", "a/b"], "letters"),
        (["batch", ".", "--out", "lake", "--workers", "0"], "at least 1"),
        (["batch", "."], "--out"),
    ],
)
def test_usage(cli: Run, arguments: list[str], message: str) -> None:
    done = cli(*arguments)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_no_lake(tmp_path: Path) -> None:
    with pytest.raises(ks.errors.TraceNotFoundError, match="kernelscope batch"):
        ks.scan(tmp_path)


def test_what_a_lake_has_not(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    with pytest.raises(ks.errors.InvalidArgumentError, match="no rank 7"):
        ks.scan(tmp_path / "lake", ranks=[7])
    with pytest.raises(ks.errors.InvalidArgumentError, match="no run 'x'"):
        ks.scan(tmp_path / "lake", run="x")
    with pytest.raises(AttributeError, match="nonsense"):
        ks.scan(tmp_path / "lake").nonsense  # noqa: B018
