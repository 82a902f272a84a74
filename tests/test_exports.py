"""Exports of nsys that are no SQLite database: folders of Parquet or Arrow, reports, and what is refused."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kernelscope as ks
from kernelscope import errors
from metrics_database import MetricsDatabase
from nsys_database import write_training_steps

Run = Callable[..., subprocess.CompletedProcess[str]]
TYPES = {"INTEGER": pl.Int64, "INT": pl.Int64, "REAL": pl.Float64, "BLOB": pl.Binary}


def tables_of(database: Path) -> Iterator[tuple[str, pl.DataFrame]]:
    """Every table of a database as nsys writes it to Parquet: with the names and the order of SQLite."""
    with closing(sqlite3.connect(database)) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (name,) in names:
            if name.startswith("sqlite_"):
                continue
            columns = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
            schema = {column[1]: TYPES.get(column[2].upper().split("(")[0], pl.String) for column in columns}
            rows = connection.execute(f'SELECT * FROM "{name}"').fetchall()
            yield name, pl.DataFrame(rows, schema=schema, orient="row")


def as_parquet(database: Path, folder: Path) -> Path:
    folder.mkdir()
    for name, table in tables_of(database):
        table.write_parquet(folder / f"{name}.parquet", row_group_size=1000)
    return folder


def as_arrow(database: Path, folder: Path) -> Path:
    """Half of them as files and half as streams, and the unsigned ids that Arrow has and SQLite lacks."""
    folder.mkdir()
    for index, (name, table) in enumerate(tables_of(database)):
        ids = [column for column in ("globalTid", "globalPid") if column in table.columns]
        table = table.with_columns(pl.col(ids).reinterpret(signed=False)) if ids else table
        write = table.write_ipc if index % 2 else table.write_ipc_stream
        write(folder / f"{name}.arrow")
    return folder


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exports") / "steps.sqlite"
    return write_training_steps(path)


def assert_equal(one: ks.Trace, other: ks.Trace) -> None:
    for name, table in one.tables.items():
        assert_frame_equal(table, other.tables[name], categorical_as_str=True)


@pytest.mark.parametrize("write", [as_parquet, as_arrow])
def test_a_folder_of_tables_is_the_database(
    database: Path, tmp_path: Path, write: Callable[[Path, Path], Path]
) -> None:
    folder = write(database, tmp_path / "steps_dir")
    trace = ks.read(folder)
    assert trace.gpu_ops.height
    assert_equal(trace, ks.read(database))
    assert (trace.meta.path, trace.meta.format) == (str(folder), "nsys")


def test_real_databases_too(shared: Path, tmp_path: Path) -> None:
    for path in sorted((shared / "traces/nsys").glob("*.sqlite")):
        for write in (as_parquet, as_arrow):
            folder = write(path, tmp_path / f"{path.stem}-{write.__name__}")
            assert_equal(ks.read(folder), ks.read(path))


def test_commands_take_the_folder_and_name_it(database: Path, tmp_path: Path, cli: Run) -> None:
    folder = as_parquet(database, tmp_path / "steps_dir")
    for command in (("stats", "-r", "cuda_gpu_kern_sum"), ("analyze",), ("info",)):
        of_folder, of_file = cli(*command, folder), cli(*command, database)
        assert (of_folder.returncode, of_folder.stderr) == (of_file.returncode, "")
        assert of_folder.stdout.splitlines()[3:] == of_file.stdout.splitlines()[3:]
        assert "kernelscope-" not in of_folder.stdout


def test_many_rows_come_in_parts_and_in_order(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelscope.exports._ROWS", 7)
    assert_equal(ks.read(as_parquet(database, tmp_path / "parts")), ks.read(database))


def test_a_damaged_table_is_named(database: Path, tmp_path: Path, cli: Run) -> None:
    folder = as_parquet(database, tmp_path / "steps_dir")
    damaged = folder / "StringIds.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    done = cli("analyze", folder)
    assert done.returncode == 1
    assert done.stderr.count("\n") <= 2
    assert f"{damaged}: cannot be read" in " ".join(done.stderr.split())
    with pytest.raises(errors.TraceFormatError, match="Export it again"):
        ks.read(folder)


def test_names_are_names_and_no_statements(database: Path, tmp_path: Path) -> None:
    folder = as_parquet(database, tmp_path / "steps_dir")
    hostile = 'x" INT); DROP TABLE StringIds; --'
    pl.DataFrame({hostile: [1], "?": [b"\x00"]}).write_parquet(folder / "OTHER.parquet")
    (folder / 'a" (b); --.parquet').write_bytes(b"no table")
    trace = ks.read(folder)
    assert_frame_equal(trace.gpu_ops, ks.read(database).gpu_ops, categorical_as_str=True)
    # Tables that nobody knows are told, as those of a database are.
    assert trace.diagnostics["code"].to_list().count("unread_table") == 1


def test_other_folders_stay_folders(tmp_path: Path, cli: Run) -> None:
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "data.parquet")
    with pytest.raises(errors.NotAFileError, match="is a folder"):
        ks.read(tmp_path)
    assert "is a folder" in cli("analyze", tmp_path).stderr


@pytest.fixture
def nsys(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that exports as nsys does, and notes what it was asked."""
    program = tmp_path / "bin/nsys"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$2" = --help ]; then echo "  --include-blobs=true|false"; exit; fi\n'
        f'echo "$@" >> {tmp_path}/asked\n'
        'for last; do case "$last" in --output=*) output=${last#--output=};; esac; done\n'
        'if grep -q damaged "$last"; then echo "Failed to open report" >&2; exit 1; fi\n'
        f'cp {database} "$output"\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return tmp_path / "asked"


def test_a_report_is_exported_where_nsys_is(nsys: Path, database: Path, tmp_path: Path, cli: Run) -> None:
    report = tmp_path / "steps.nsys-rep"
    report.write_bytes(b"\x08\x01")
    trace = ks.read(report)
    assert_equal(trace, ks.read(database))
    assert trace.meta.path == str(report)
    assert "export --type=sqlite --include-blobs=true" in nsys.read_text()
    assert cli("stats", "-r", "cuda_gpu_kern_sum", report).returncode == 0
    report.write_bytes(b"damaged")
    with pytest.raises(
        errors.TraceFormatError, match="nsys export failed with exit code 1: Failed to open report"
    ):
        ks.read(report)


def test_a_report_names_the_command_where_nsys_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Run
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = tmp_path / "steps.nsys-rep"
    report.write_bytes(b"\x08\x01")
    with pytest.raises(errors.NotATraceError, match="nsys export --type sqlite"):
        ks.read(report)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("steps.h5", b"\x89HDF\r\n\x1a\n" + bytes(64)),
        ("steps.jsonl", b'{"data":["[Unknown]","main"]}\n{"Type":48,"CudaEvent":{"startNs":"5"}}\n'),
        ("steps.json", b'{"Type":82,"NvtxEvent":{"Type":59}}\n{"Type":48,"CudaEvent":{"startNs":"5"}}\n'),
    ],
)
def test_other_exports_name_the_command(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(errors.NotATraceError, match="nsys export --type sqlite"):
        ks.read(path)


@pytest.mark.parametrize("write", [as_parquet, as_arrow])
def test_samples_of_gpu_metrics(tmp_path: Path, write: Callable[[Path, Path], Path]) -> None:
    metrics = MetricsDatabase(tmp_path / "metrics.sqlite")
    for at, value in enumerate((10, 101, None)):
        metrics.sample(at, value, gpu=at % 2)
    path = metrics.close()
    found, expected = ks.read(write(path, tmp_path / "metrics_dir")), ks.read(path)
    assert_frame_equal(found.counters, expected.counters, categorical_as_str=True)
    codes = ["impossible_metric", "unexpected_null"]
    assert found.diagnostics.filter(pl.col("code").is_in(codes))["count"].to_list() == [1, 1]
