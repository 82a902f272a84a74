"""``kernelscope prof``: PyProf's report of 20 columns."""

import argparse
import contextlib
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import Bar
from kernelscope.errors import InvalidArgumentError, NotAFileError, TraceNotFoundError

if TYPE_CHECKING:
    from kernelscope.compat.pyprof import KernelRecord
    from kernelscope.trace import Trace

_SQLITE = b"SQLite format 3\0"
_DEFAULT = "idx,dir,sub,mod,op,kernel,params,sil"


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "prof",
        help="what each kernel computed: PyProf's report",
        description="Prints a line per kernel with its function, sizes, FLOPs and bytes, as PyProf does.",
    )
    parser.add_argument(
        "input",
        metavar="DICT_OR_DB",
        nargs="?",
        help="records of kernelscope parse or pyprof.parse, or the database itself (default: standard input)",
    )
    parser.add_argument(
        "-c",
        metavar="COLS",
        default=_DEFAULT,
        help=f"columns, with commas between, or all (default: {_DEFAULT})",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV")
    form.add_argument("-w", type=int, default=0, metavar="N", help="print columns in lines of N characters")
    form.add_argument("--format", choices=("csv", "json", "parquet"), help="csv, json or parquet")
    parser.add_argument("--out", type=Path, metavar="PATH", help="the file to write; parquet needs one")
    parser.add_argument(
        "--compat",
        action="store_true",
        help="PyProf's own figures and CSV, with its faults (see docs/pyprof.md)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the records or the database and prints the report."""
    columns = _columns(options.c)
    form = "csv" if options.csv else options.format
    if options.w < 0:
        raise InvalidArgumentError("-w must be at least 0")
    if form == "parquet" and options.out is None:
        raise InvalidArgumentError("--format parquet writes a file: name it with --out")
    if options.out is not None and form is None:
        raise InvalidArgumentError("--out needs --csv or --format")
    if options.compat and (form not in (None, "csv") or options.out is not None):
        raise InvalidArgumentError("--compat prints text and CSV to standard output only")
    with _source(options.input) as source:
        if options.compat:
            _print_compat(source, columns, width=options.w, quoted=form == "csv")
        else:
            _print(source, columns, options, form)
    return 0


def _columns(text: str) -> list[str]:
    from kernelscope.compat.pyprof import COLUMNS

    names = list(COLUMNS) if text == "all" else text.split(",")
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise InvalidArgumentError(
            f"there is no column {', '.join(map(repr, unknown))}; the columns are {','.join(COLUMNS)}"
        )
    return names


@contextlib.contextmanager
def _source(path: str | None) -> Generator["Trace | Iterator[KernelRecord]"]:
    """The trace of a database, or the records of a file or of standard input."""
    from kernelscope.compat.pyprof import read_records

    if path is None:
        yield read_records(sys.stdin, name="standard input")
        return
    try:
        with Path(path).open("rb") as file:
            is_database = file.read(len(_SQLITE)) == _SQLITE
    except FileNotFoundError:
        raise TraceNotFoundError(f"{path}: no such file", path=path) from None
    except IsADirectoryError:
        raise NotAFileError(f"{path}: is a folder, not a file", path=path) from None
    if is_database:
        from kernelscope.compat.pyprof import NEEDED
        from kernelscope.trace import read

        with Bar("reading") as bar:
            trace = read(path, tables={**NEEDED, "devices": []}, progress=bar.update)
        yield trace
        return
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        yield read_records(file, name=path)


def _print_compat(
    source: "Trace | Iterator[KernelRecord]", columns: list[str], *, width: int, quoted: bool
) -> None:
    from kernelscope.compat.pyprof import records, rows
    from kernelscope.report.pyprof import Layout
    from kernelscope.trace import Trace

    layout = Layout(columns, width=width, quoted=quoted)
    found = records(source, compat=True) if isinstance(source, Trace) else source
    aborts = 0
    print(layout.header())
    for row in rows(found, compat=True):
        print(layout.line(row._asdict()))
        aborts += row.aborts
    if aborts:
        print(
            f"kernelscope: at {aborts} of these kernels PyProf ends its report with an error", file=sys.stderr
        )


def _print(
    source: "Trace | Iterator[KernelRecord]",
    columns: list[str],
    options: argparse.Namespace,
    form: str | None,
) -> None:
    from kernelscope.compat.pyprof import pyprof_table
    from kernelscope.report import pyprof

    layout = pyprof.Layout(columns, width=options.w)
    frame = pyprof_table(source)
    if form is not None:
        pyprof.write(frame.select(columns), form, options.out)
        return
    print(layout.header())
    for row in frame.iter_rows(named=True):
        print(layout.line(row))
