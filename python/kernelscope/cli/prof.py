"""``kernelscope prof``: prints PyProf's report of 20 columns."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say, show, show_all
from kernelscope.cli.inputs import STDIN, STDIN_NAME, is_database, is_json, on_disk
from kernelscope.cli.reading import LOST, read_file
from kernelscope.errors import InvalidArgumentError, NotAFileError, TraceNotFoundError, did_you_mean

if TYPE_CHECKING:
    from kernelscope.compat.pyprof.kernels import Kernels
    from kernelscope.report.compat.pyprof import Layout

_DEFAULT = "idx,dir,sub,mod,op,kernel,params,sil"


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "prof",
        help="show the computation of each kernel: PyProf's report",
        description="Prints one line per kernel with its function, sizes, FLOPs and bytes, like PyProf.",
    )
    parser.add_argument(
        "input",
        metavar="DICT_OR_TRACE",
        nargs="?",
        default=STDIN,
        help=(
            "records of kernelscope parse or pyprof.parse, or the trace itself (default: -, standard input)"
        ),
    )
    parser.add_argument(
        "-c",
        metavar="COLS",
        default=_DEFAULT,
        help=f"columns, separated by commas, or all (default: {_DEFAULT})",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV")
    form.add_argument("-w", type=int, default=0, metavar="N", help="print columns in lines of N characters")
    form.add_argument("--format", choices=("csv", "json", "parquet"), help="csv, json or parquet")
    parser.add_argument("--out", type=Path, metavar="PATH", help="file to write; required for parquet")
    parser.add_argument(
        "--compat",
        action="store_true",
        help="PyProf's own figures and CSV, including its errors (see docs/pyprof.md)",
    )
    arguments.add_loss(parser)
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
    import polars as pl

    from kernelscope.compat.pyprof.rows import table_parts
    from kernelscope.report.compat.pyprof import Layout, write
    from kernelscope.report.files import check_file

    check_file(options.out)
    if options.input == STDIN and sys.stdin is not None and sys.stdin.isatty():
        raise InvalidArgumentError("pass a file with records, or a database; or pipe one of them in")
    layout = Layout(columns, width=options.w, quoted=options.compat and form == "csv")
    kernels = _kernels(options)
    if kernels.frame.is_empty():
        say("found no kernels")
    if options.compat:
        _print_compat(kernels, layout)
    elif form is not None:
        write(pl.concat(table_parts(kernels, columns)), form, options.out)
    else:
        show(layout.header())
        for part in table_parts(kernels, columns):
            show_all(layout.lines(part))
    return 0


def _columns(text: str) -> list[str]:
    from kernelscope.compat.pyprof import COLUMNS

    names = list(COLUMNS) if text == "all" else text.split(",")
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise InvalidArgumentError(
            f"there is no column {', '.join(map(repr, unknown))}; the columns are {','.join(COLUMNS)}"
            f"{did_you_mean(unknown[0], COLUMNS)}"
        )
    return names


def _kernels(options: argparse.Namespace) -> "Kernels":
    """The kernels of a trace, or of the records of a file or of standard input."""
    path: str = options.input
    with on_disk(path) as file:
        if is_database(file) or is_json(file):
            return read_kernels(options, file)
        if os.path.isdir(file):
            raise NotAFileError(f"{path}: is a folder", path=path)
        if not os.path.exists(file):
            raise TraceNotFoundError(f"{path}: no such file", path=path)
        return _recorded_kernels(options, file)


def _recorded_kernels(options: argparse.Namespace, file: str) -> "Kernels":
    from kernelscope.compat.pyprof.records import gathered, read_records

    name = STDIN_NAME if options.input == STDIN else options.input
    lost: list[tuple[int, str]] = []

    def lose(number: int, why: str) -> None:
        lost.append((number, why))

    with open(file, encoding="utf-8", errors="replace") as lines:
        kernels = gathered(read_records(lines, name=name, on_loss=None if options.strict else lose))
    if lost:
        number, why = lost[0]
        count = "1 line is" if len(lost) == 1 else f"{len(lost):,} lines are"
        say(f"{name}: {count} skipped (not a valid kernel record); line {number}: {why}")
        setattr(options, LOST, not options.allow_loss)
    return kernels


def read_kernels(options: argparse.Namespace, path: str) -> "Kernels":
    """Returns the kernels of a trace with the context of their launches.

    For a database, nothing else is read.
    """
    from kernelscope.compat.pyprof import NEEDED, NEEDED_OF_PROFILER
    from kernelscope.compat.pyprof.kernels import kernels_of

    with on_disk(path) as file:
        needs: dict[str, Any] = {"tables": NEEDED_OF_PROFILER}
        if is_database(file):
            needs = {"tables": NEEDED, "only_launching": True}
        # Nobody holds the trace, so that its tables go as soon as they were looked at.
        return kernels_of(read_file(options, file, **needs), compat=options.compat)


def _print_compat(kernels: "Kernels", layout: "Layout") -> None:
    from kernelscope.compat.pyprof.rows import compat_parts

    show(layout.header())
    aborts = 0
    for part in compat_parts(kernels, [column.name for column in layout.columns]):
        show_all(layout.lines(part))
        aborts += part.filter("aborts").height
    if aborts:
        say(f"PyProf aborts its report with an error at {aborts} of these kernels")
