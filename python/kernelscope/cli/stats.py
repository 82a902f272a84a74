"""``kernelscope stats``: prints the reports of ``nsys stats`` under the same names."""

import argparse
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say, show
from kernelscope.errors import InvalidArgumentError, NotRecordedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl


# Those of nsys that are about GPUs and hosts. One that has nothing to say says why on stderr.
_DEFAULT_REPORTS = (
    "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "cuda_api_sum", "osrt_sum",
    "nvtx_sum", "um_sum",
)  # fmt: skip
# Of each of them: ranges of PyTorch's emit_nvtx are a row each.
_DEFAULT_ROWS = 25


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "stats",
        help="print the reports of nsys stats under the same names, as the same CSV",
        description="Prints the reports of nsys stats and the rules of nsys analyze for exported databases.",
        epilog=(
            "Exit code 1: the data of a report was not recorded (the other reports are printed), or rows "
            "of the database are lost."
        ),
    )
    parser.add_argument(
        "database",
        metavar="DB",
        nargs="*",
        help=(
            "databases that nsys export --type sqlite wrote; - is standard input. Summaries of several "
            "databases, or of the ranks of a lake, combine all values"
        ),
    )
    parser.add_argument(
        "--report",
        "-r",
        action="append",
        default=[],
        metavar="NAME",
        help=(
            "name of a report, with arguments as in nsys: cuda_gpu_kern_sum:base. Separate several with "
            "commas, or repeat the option (default: the first rows of each summary)"
        ),
    )
    parser.add_argument(
        "--format",
        choices=("csv", "tsv", "column", "table", "json", "parquet"),
        help=(
            "parquet needs --out, and has its own column names and unrounded values (default: csv, or "
            "column without --report)"
        ),
    )
    parser.add_argument(
        "--by", default="", metavar="COLUMNS", help="break rows down by device, stream, process, rank, file"
    )
    parser.add_argument(
        "--timeunit",
        type=_time_unit,
        default="ns",
        metavar="UNIT",
        help=(
            "nanoseconds, microseconds, milliseconds or seconds, or an abbreviation of these (default: "
            "nanoseconds)"
        ),
    )
    parser.add_argument("--out", type=Path, metavar="PATH", help="file to write to instead of stdout")
    parser.add_argument("--list", action="store_true", help="list the names of all reports")
    arguments.add_filters(parser)
    arguments.add_loss(parser)
    arguments.add_threads(parser)
    parser.set_defaults(run=run)


# As nsys takes them, and shorter.
_TIME_UNITS = {
    "ns": "ns", "nsec": "ns", "nanoseconds": "ns", "us": "us", "usec": "us", "microseconds": "us", "ms": "ms",
    "msec": "ms", "milliseconds": "ms", "s": "s", "seconds": "s",
}  # fmt: skip


def _split(names: str) -> list[str]:
    """The reports of an argument; behind ``:name=`` stands one name to its end, which may have commas."""
    front, is_named, name = names.partition(":name=")
    found = front.split(",")
    found[-1] += is_named + name
    return [report for report in found if report]


def _time_unit(text: str) -> str:
    """The unit of time that a word, or its beginning, names."""
    exact = _TIME_UNITS.get(text)
    begun = {unit for word, unit in _TIME_UNITS.items() if text and word.startswith(text)}
    found = {exact} if exact else begun
    if len(found) != 1:
        what = "matches several units" if found else "is not a unit of time"
        names = "nanoseconds, microseconds, milliseconds, seconds"
        raise argparse.ArgumentTypeError(f"{text} {what}; there are {names}")
    return found.pop()


def run(options: argparse.Namespace) -> int:
    """Creates the reports, one after the other."""
    from kernelscope.compat.nsys import REPORTS, parse

    if options.list:
        width = max(map(len, REPORTS))
        for report in REPORTS.values():
            show(f"{report.name:{width}}  {report.doc}")
        return 0
    if not options.database:
        raise InvalidArgumentError("pass a database; --list shows the names of reports")
    options.report = [name for names in options.report for name in _split(names)]
    if options.format is None:
        options.format = "csv" if options.report else "column"
    if options.format == "parquet" and (options.out is None or len(options.report) != 1):
        raise InvalidArgumentError("--format parquet writes one report to one file: name it with --out")
    if options.format == "parquet" and options.timeunit != "ns":
        raise InvalidArgumentError("--format parquet has times in ns: omit --timeunit")
    by = [name for name in options.by.split(",") if name]
    from kernelscope.cli.stats_sources import FILE, Sources

    for name in options.report:
        parse(name, by=[column for column in by if column != FILE])
    with Sources(options, is_apart=FILE in by) as options.sources:
        by = [column for column in by if column != FILE]
        if options.out is None:
            return _print_all(options, by, sys.stdout.buffer)
        from kernelscope.report.files import filled_file

        with filled_file(options.out) as path, path.open("wb") as out:
            return _print_all(options, by, out)


def _print_all(options: argparse.Namespace, by: list[str], out: IO[bytes]) -> int:
    code = 0
    reports = options.report or _DEFAULT_REPORTS
    head = b""
    for name in reports:
        if options.format in ("column", "table") and len(reports) > 1:
            head += f"** {_title(name)}\n\n".encode()
        try:
            _print_one(options, name, by, head, out)
            head = b"\n"
        except NotRecordedError as error:
            # Nothing was written for it.
            head = b"\n" if head.startswith(b"\n") else b""
            out.flush()
            say(str(error))
            # What was not asked for by name need not have been recorded.
            code = 1 if options.report else code
    return code


def _first_rows(name: str, parts: "Iterator[pl.DataFrame]") -> "Iterator[pl.DataFrame]":
    first = next(parts)
    if first.height > _DEFAULT_ROWS:
        say(f"{name}: the first {_DEFAULT_ROWS} rows; --report {name} shows all")
    yield first.head(_DEFAULT_ROWS)


def _title(name: str) -> str:
    from kernelscope.compat.nsys import parse

    return f"{parse(name)[0].doc} ({name})"


def _print_one(options: argparse.Namespace, name: str, by: list[str], head: bytes, out: IO[bytes]) -> None:
    """Writes ``head`` and the report; raises before both if it is about what was not recorded."""
    from kernelscope.report.compat import nsys
    from kernelscope.report.text.cells import text_width

    fields, parts = options.sources.made(name, by)
    if not options.report:
        parts = _first_rows(name, parts)
    out.write(head)
    width = text_width() if options.out is None else None
    form, unit = options.format, options.timeunit
    lacking = nsys.write(parts, fields, out, form=form, width=width, time_unit=unit)
    if lacking:
        out.flush()
        columns = f"{len(lacking)} columns do" if len(lacking) > 1 else f"{lacking[0]} does"
        say(f"{name}: {columns} not fit; --format csv has all")
