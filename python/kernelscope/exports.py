"""Converts other exports of nsys to the equivalent database.

Folders with one Parquet or Arrow file per table (``nsys export --type parquetdir`` and ``arrowdir``) have the
tables and columns of the SQLite export. Reports (``.nsys-rep``) are exported by nsys, if it is installed.
"""

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import polars as pl

from kernelscope.errors import TraceFormatError, naming

_TABLE = re.compile(r"([A-Za-z_]\w*)\.(parquet|arrow)", re.ASCII)
# Without one of them a folder is no export of nsys; its first release with folders wrote them all.
_MARKS = {
    "META_DATA_EXPORT",
    "EXPORT_META_DATA",
    "ANALYSIS_DETAILS",
    "TARGET_INFO_SESSION_START_TIME",
    "StringIds",
}
_REPORTS = {".nsys-rep", ".qdrep"}
_ROWS = 200_000
"""Number of rows in memory at a time."""
_ARROW_FILE = b"ARROW1"
_SAID_MOST = 300


@contextlib.contextmanager
def as_database(path: str | os.PathLike[str]) -> Generator[str | os.PathLike[str]]:
    """Returns the database for an export or a report of nsys; otherwise ``path`` itself.

    It is removed at the end of the context.

    Errors about the database name ``path``.

    Raises: TraceFormatError: a table of the export cannot be read, or nsys cannot export the report. OSError:
        there is no space for the database.
    """
    tables = _tables(path)
    nsys = shutil.which("nsys") if Path(path).suffix in _REPORTS and Path(path).is_file() else None
    if not tables and nsys is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="kernelscope-") as folder:
        database = os.path.join(folder, "export.sqlite")
        if nsys is None:
            _gather(tables, database)
        else:
            _export(nsys, path, database)
        with naming(database, os.fspath(path)):
            yield database


def is_export(path: str | os.PathLike[str]) -> bool:
    """Returns whether a folder is an nsys export: one trace, not several."""
    return bool(_tables(path))


def _tables(path: str | os.PathLike[str]) -> dict[str, Path]:
    """The files of a folder that nsys exported, by their tables; none of anything else."""
    if not os.path.isdir(path):
        return {}
    try:
        files = sorted(Path(path).iterdir())
    except PermissionError:
        return {}
    tables = {found[1]: file for file in files if (found := _TABLE.fullmatch(file.name)) and file.is_file()}
    return tables if not _MARKS.isdisjoint(tables) else {}


def _gather(tables: dict[str, Path], database: str) -> None:
    """Writes tables into a database, row after row as they stand in their files."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        # The database is made anew if anything goes wrong.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        for name, file in tables.items():
            connection.execute("BEGIN")
            try:
                _copy(name, file, connection)
            except (pl.exceptions.PolarsError, sqlite3.DatabaseError) as error:
                reason = str(error).partition("\n")[0][:_SAID_MOST]
                raise TraceFormatError(
                    f"{file}: cannot be read ({reason}). Export it again", path=str(file)
                ) from error
            connection.execute("COMMIT")


def _copy(name: str, file: Path, connection: sqlite3.Connection) -> None:
    frames = _slices(file)
    first = next(frames)
    columns = ", ".join(f"{_quoted(column)} {_stored(dtype)}" for column, dtype in first.schema.items())
    connection.execute(f"CREATE TABLE {_quoted(name)} ({columns})")
    insert = f"INSERT INTO {_quoted(name)} VALUES ({', '.join('?' * first.width)})"
    for frame in (first, *frames):
        connection.executemany(insert, frame.iter_rows())


def _slices(file: Path) -> Iterator[pl.DataFrame]:
    """The rows of a file in the types of SQLite, a part after another; at least one, which may be empty."""
    if file.suffix == ".parquet":
        rows = pl.scan_parquet(file, glob=False, hive_partitioning=False)
    elif _begins(file, _ARROW_FILE):
        rows = pl.scan_ipc(file, glob=False, hive_partitioning=False)
    else:
        # A stream has no index of its batches.
        rows = pl.read_ipc_stream(file).lazy()
    rows = rows.select(_plain(column, dtype) for column, dtype in rows.collect_schema().items())
    offset = 0
    while True:
        frame = rows.slice(offset, _ROWS).collect()
        yield frame
        offset += _ROWS
        if frame.height < _ROWS:
            return


def _begins(file: Path, mark: bytes) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(mark)) == mark


def _plain(column: str, dtype: pl.DataType) -> pl.Expr:
    """A column with a type that SQLite has."""
    values = pl.col(column)
    if dtype == pl.UInt64:
        # As nsys stores it in SQLite, which has no other integers.
        return values.reinterpret(signed=True)
    if dtype.is_integer() or dtype.is_float() or isinstance(dtype, (pl.Boolean, pl.Binary, pl.String)):
        return values
    return values.cast(pl.String, strict=False)


def _stored(dtype: pl.DataType) -> str:
    if dtype.is_integer() or dtype == pl.Boolean:
        return "INTEGER"
    if dtype.is_float():
        return "REAL"
    return "BLOB" if dtype == pl.Binary else "TEXT"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _export(nsys: str, report: str | os.PathLike[str], database: str) -> None:
    """Lets nsys export a report."""
    # Payloads of NCCL are blobs; older releases do not know the option.
    blobs = ["--include-blobs=true"] if "--include-blobs" in _run(nsys, "export", "--help").stdout else []
    done = _run(nsys, "export", "--type=sqlite", *blobs, f"--output={database}", os.path.abspath(report))
    if done.returncode or not os.path.exists(database):
        said = " ".join((done.stderr or done.stdout).split())[-_SAID_MOST:]
        path = os.fspath(report)
        raise TraceFormatError(
            f"{path}: nsys export failed with exit code {done.returncode}: {said}", path=path
        )


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, check=False, text=True, errors="replace")
