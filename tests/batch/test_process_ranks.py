"""Databases of several processes: each process is a rank, with what a database of it alone has."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jobs import files_of
from polars.testing import assert_frame_equal

import draws
import kernelscope as ks
from kernelscope.batch import work
from kernelscope.batch.reports import BatchReport, RankReport
from nsys_database import Database, global_tid
from oracles.traces import SHARED, need
from twin.drawn_databases import write

OF_FILES = {"steps", "gpu_steps", "devices", "diagnostics", "threads"}
"""Tables whose rows are no events."""


def batch(inputs: Path, lake: Path, **options: Any) -> tuple[dict[str, str], BatchReport]:
    """Runs a batch in this process; gives what became of each source, by the end of its name."""
    found: dict[str, str] = {}

    def note(rank: RankReport, _: BatchReport) -> None:
        found[rank.entry.source.rpartition("/")[2]] = rank.status

    with ThreadPoolExecutor(1) as executor:
        report = ks.batch.run(inputs, lake, executor=executor, on_rank=note, **options)
    return found, report


def alone(path: Path, copy: Path, others: set[int], *, has_rest: bool) -> ks.Trace:
    """What a database has of which SQL deleted the rows of ``others`` and, if not ``has_rest``, of nobody."""
    shutil.copy(path, copy)
    database = sqlite3.connect(copy)
    for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')}
        for column in ("globalTid", "globalPid"):
            if column in columns:
                pids = ", ".join(map(str, others))
                nobody = "" if has_rest else f"{column} IS NULL OR"
                database.execute(
                    f'DELETE FROM "{table}" WHERE {nobody} ({column} >> 24) & 0xffffff IN ({pids})'
                )
    database.commit()
    database.close()
    return ks.read(copy)


def numbered(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Tables whose rows are numbered from 0: rows of a database are rowids and what tables before have."""
    rows = {row for name, frame in tables.items() if name not in OF_FILES and "row" in frame.columns
            for row in frame["row"]}  # fmt: skip
    numbers = {row: number for number, row in enumerate(sorted(rows))}
    return {
        name: frame.with_columns(
            pl.col(column).replace_strict(numbers, return_dtype=pl.Int64)
            for column in frame.columns
            if (column == "row" or column.endswith("_row")) and frame[column].count()
        )
        for name, frame in tables.items()
    }


def assert_ranks_are_processes(path: Path, lake: Path) -> None:
    """Ranks have every row of the database once, and each what a database of its process alone has."""
    whole = ks.read(path)
    launching = sorted(whole.gpu_ops["pid"].drop_nulls().unique())
    ranks = ks.scan(lake).manifest.sort("rank")["rank"].to_list()
    assert ranks == list(range(len(launching)))
    read = {rank: ks.scan(lake, ranks=[rank]).tables for rank in ranks}
    for name, frame in whole.tables.items():
        if name not in OF_FILES and "row" in frame.columns:
            rows = [row for rank in ranks for row in read[rank][name].collect()["row"].to_list()]
            assert sorted(rows) == sorted(frame["row"].to_list()), name
    for rank, pid in enumerate(launching):
        others = set(launching) - {pid}
        if rank:
            # What launches nothing, and what is of no process, goes with the first.
            every = pl.concat(frame["pid"] for frame in whole.tables.values() if "pid" in frame.columns)
            others = set(every.drop_nulls()) - {pid}
        expected = alone(path, lake.with_name(f"{lake.name}-{rank}.sqlite"), others, has_rest=rank == 0)
        own_tables = {name: frame.collect() for name, frame in read[rank].items()}
        for name, frame in numbered(expected.tables).items():
            if name in ("diagnostics", "collectives"):
                continue
            if name == "devices":
                # Every rank knows all GPUs of the machine.
                assert set(frame["device"]) <= set(own_tables[name]["device"])
                continue
            kept = [column for column in frame.columns if column != "track"]
            order = [column for column in ("row", "step", "device", "pid", "tid") if column in frame.columns]
            found = numbered(own_tables)[name].select(kept).sort(order)
            assert_frame_equal(found, frame.select(kept).sort(order), categorical_as_str=True)


# In the last one a process has GPU work and no call.
@pytest.mark.parametrize("seed", [*range(draws.seed, draws.seed + draws.count(10, 400)), 20_261_293])
def test_ranks_of_drawn_databases(tmp_path: Path, seed: int) -> None:
    path = write(tmp_path / "report.sqlite", seed)
    if ks.read(path).gpu_ops["pid"].n_unique() < 2:
        # Drawn without a second process.
        path.unlink()
        path = write(tmp_path / "report.sqlite", 1000 + seed)
    batch(path, tmp_path / "lake")
    if ks.read(path).gpu_ops["pid"].n_unique() > 1:
        assert_ranks_are_processes(path, tmp_path / "lake")


def test_ranks_of_a_real_database(tmp_path: Path) -> None:
    path = need(SHARED / "traces/nsys/h100-2gpu-emit-nvtx-2026.2.sqlite")
    found, report = batch(path, tmp_path / "lake")
    assert found == {f"{path.name}::process={pid}": "done" for pid in (111, 112)}
    assert (report.total, report.done, report.failed) == (2, 2, 0)
    assert_ranks_are_processes(path, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    assert lake.manifest.sort("rank")["rank_from"].to_list() == ["order", "order"]
    assert lake.gpu_ops.group_by("rank").agg(pl.len()).sort("rank").collect().rows() == [(0, 2184), (1, 2184)]


def torchrun(path: Path, *pids: int, ranks: dict[int, int] | None = None, **environment: str) -> Path:
    """A database of what started the processes (4), of the processes, and of a process without GPU work
    (99)."""
    schema = {"MPI_RANKS": "globalTid INTEGER, rank INTEGER"} if ranks else None
    database = Database(path, schema=schema)
    for pid in (4, 99):
        database.range("main", 0, 900, pid=pid)
    database.range("of nobody", 0, 900, globalTid=None)
    for number, pid in enumerate(pids):
        database.range("train_step", 90, 410, pid=pid)
        database.call(100, 200, correlation=1, pid=pid)
        database.kernel(300 + number, 400, correlation=1, pid=pid, deviceId=number)
    for pid, rank in (ranks or {}).items():
        database.insert("MPI_RANKS", globalTid=global_tid(pid, pid), rank=rank)
    for name, value in environment.items():
        database.meta("CAPTURE", **{"PROCESS_0:ENVIRONMENT_VARIABLE": f"{name}={value}"})
    return database.close()


def test_what_is_of_no_rank_goes_with_the_first(tmp_path: Path) -> None:
    path = torchrun(tmp_path / "report.sqlite", 7, 8)
    batch(path, tmp_path / "lake")
    assert_ranks_are_processes(path, tmp_path / "lake")
    ranges = ks.scan(tmp_path / "lake").ranges.select("rank", pl.col("pid"), pl.col("name")).collect()
    assert ranges.filter(rank=1)["pid"].to_list() == [8]
    assert set(ranges.filter(rank=0)["pid"].to_list()) == {4, 7, 99, None}


def test_steps_of_processes_are_their_own(tmp_path: Path) -> None:
    torchrun(tmp_path / "report.sqlite", 7, 8)
    batch(tmp_path / "report.sqlite", tmp_path / "lake", step_range="train_step")
    steps = ks.scan(tmp_path / "lake").steps.select("rank", "step", "kernel_ns").sort("rank").collect()
    assert steps.rows() == [(0, 0, 100), (1, 0, 99)]


def test_ranks_from_mpi(tmp_path: Path) -> None:
    torchrun(tmp_path / "rank7.sqlite", 7, 8, ranks={7: 5, 8: 4}, OMPI_COMM_WORLD_SIZE="8", RANK="3")
    batch(tmp_path / "rank7.sqlite", tmp_path / "lake")
    manifest = ks.scan(tmp_path / "lake").manifest.sort("rank")
    assert manifest.select("rank", "world_size", "rank_from").rows() == [(4, 8, "mpi"), (5, 8, "mpi")]


def test_databases_of_several_machines(tmp_path: Path) -> None:
    """What nothing tells the rank of is numbered by host, process and name: no name of a file is a rank."""
    (tmp_path / "traces").mkdir()
    for node in range(2):
        torchrun(tmp_path / f"traces/rank{node}.sqlite", 10 * node + 7, 10 * node + 8)
    found, report = batch(tmp_path / "traces", tmp_path / "lake")
    assert (len(found), report.done, report.total) == (4, 4, 4)
    manifest = ks.scan(tmp_path / "lake").manifest.sort("rank")
    assert manifest["rank"].to_list() == [0, 1, 2, 3]
    assert [name.rpartition("/")[2] for name in manifest["source"]] == [
        "rank0.sqlite::process=7", "rank0.sqlite::process=8",
        "rank1.sqlite::process=17", "rank1.sqlite::process=18",
    ]  # fmt: skip


def test_a_second_batch_reads_nothing(tmp_path: Path) -> None:
    path = torchrun(tmp_path / "report.sqlite", 7, 8)
    batch(path, tmp_path / "lake")
    before = files_of(tmp_path / "lake")
    found, report = batch(path, tmp_path / "lake")
    assert found == {"report.sqlite::process=7": "unchanged", "report.sqlite::process=8": "unchanged"}
    assert (report.total, report.unchanged) == (2, 2)
    assert not any("not written by a batch" in note for note in report.notes)
    assert files_of(tmp_path / "lake") == before
    # It goes elsewhere with the times it has.
    (tmp_path / "elsewhere").mkdir()
    moved = path.rename(tmp_path / "elsewhere/report.sqlite")
    found, report = batch(moved, tmp_path / "lake")
    assert (set(found.values()), report.unchanged) == ({"unchanged"}, 2)


@pytest.mark.parametrize("pids", [(7,), (8, 9, 10)])
def test_a_database_that_was_recorded_again(tmp_path: Path, pids: tuple[int, ...]) -> None:
    """With fewer or other processes, the ranks are those of the new one."""
    path = torchrun(tmp_path / "report.sqlite", 7, 8)
    batch(path, tmp_path / "lake")
    path.unlink()
    torchrun(path, *pids)
    batch(path, tmp_path / "lake")
    batch(path, tmp_path / "fresh")
    assert files_of(tmp_path / "lake").keys() == files_of(tmp_path / "fresh").keys()
    again, fresh = (ks.scan(tmp_path / name).gpu_ops.collect() for name in ("lake", "fresh"))
    assert_frame_equal(again.sort("rank"), fresh.sort("rank"))


def test_ranks_that_fail_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = torchrun(tmp_path / "report.sqlite", 7, 8)
    write_tables = work._write

    def fail(tables: dict[str, pl.DataFrame], *more: Any) -> Any:
        if "gpu_ops" in tables and tables["gpu_ops"]["pid"].to_list() == [8]:
            raise OSError("broken")
        return write_tables(tables, *more)

    monkeypatch.setattr(work, "_write", fail)
    assert batch(path, tmp_path / "lake")[0] == {
        "report.sqlite::process=7": "done", "report.sqlite::process=8": "failed",
    }  # fmt: skip
    monkeypatch.undo()
    found, _ = batch(path, tmp_path / "lake")
    assert set(found.values()) <= {"done", "unchanged"}
    assert_ranks_are_processes(path, tmp_path / "lake")
