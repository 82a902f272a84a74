"""``kernelscope stats``: the reports of ``nsys stats``, by the same names."""

import argparse
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import Bar
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
        help="the reports of nsys stats, same names, same CSV",
        description="Prints reports of nsys stats and rules of nsys analyze about what nsys exported.",
        epilog="Exit code 1: a report is about something that was not recorded; the others are printed.",
    )
    parser.add_argument("database", metavar="DB", nargs="?", help="what nsys export --type sqlite wrote")
    parser.add_argument(
        "--report",
        "-r",
        action="append",
        default=[],
        metavar="NAME",
        help="name of a report, with arguments as in nsys: cuda_gpu_kern_sum:base; several are allowed "
        "(default: the first rows of each summary)",
    )
    parser.add_argument(
        "--format",
        choices=("csv", "column", "json", "parquet"),
        help="parquet needs --out, and has its own column names and nothing rounded (default: csv; "
        "column where no report is named)",
    )
    parser.add_argument(
        "--by", default="", metavar="COLUMNS", help="break rows down by device, stream, process, rank"
    )
    parser.add_argument("--out", type=Path, metavar="PATH", help="file to write to instead of stdout")
    parser.add_argument("--list", action="store_true", help="the names of all reports")
    parser.add_argument("--strict", action="store_true", help="fail at the first row that would be lost")
    arguments.add_threads(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Makes the reports, one after the other."""
    from kernelscope.compat.nsys import REPORTS, parse

    if options.list:
        width = max(map(len, REPORTS))
        for report in REPORTS.values():
            print(f"{report.name:{width}}  {report.doc}")
        return 0
    if options.database is None:
        raise InvalidArgumentError("name a database; --list has the names of reports")
    if options.format is None:
        options.format = "csv" if options.report else "column"
    if options.format == "parquet" and (options.out is None or len(options.report) != 1):
        raise InvalidArgumentError("--format parquet writes one report into one file: name it with --out")
    by = [name for name in options.by.split(",") if name]
    for name in options.report:
        parse(name, by=by)
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
        if options.format == "column" and len(reports) > 1:
            head += f"** {_title(name)}\n\n".encode()
        try:
            _print_one(options, name, by, head, out)
            head = b"\n"
        except NotRecordedError as error:
            # Nothing was written for it.
            head = b"\n" if head.startswith(b"\n") else b""
            out.flush()
            print(f"kernelscope: {error}", file=sys.stderr)
            # What was not asked for by name need not have been recorded.
            code = 1 if options.report else code
    return code


def _first_rows(name: str, parts: "Iterator[pl.DataFrame]") -> "Iterator[pl.DataFrame]":
    first = next(parts)
    if first.height > _DEFAULT_ROWS:
        print(
            f"kernelscope: {name}: the first {_DEFAULT_ROWS} rows; --report {name} has all", file=sys.stderr
        )
    yield first.head(_DEFAULT_ROWS)


def _title(name: str) -> str:
    from kernelscope.compat.nsys import REPORTS

    return f"{REPORTS[name.partition(':')[0]].doc} ({name})"


def _print_one(options: argparse.Namespace, name: str, by: list[str], head: bytes, out: IO[bytes]) -> None:
    """Writes ``head`` and the report; raises before both if it is about what was not recorded."""
    from kernelscope.compat.nsys import left_out_note, missing_reason, parse, read_for
    from kernelscope.report import nsys_stats

    report, question = parse(name, by=by)
    with Bar("reading") as bar:
        trace = read_for(
            options.database,
            report,
            question,
            strict=options.strict,
            threads=options.threads,
            progress=bar.update,
        )
    lack = missing_reason(trace, report)
    if lack is not None:
        raise NotRecordedError(lack)
    note = left_out_note(trace, report)
    if note is not None:
        print(f"kernelscope: {note}", file=sys.stderr)
    parts = report.parts(trace, question)
    # The parts hold what they need of the tables.
    del trace
    if not options.report:
        parts = _first_rows(name, parts)
    out.write(head)
    nsys_stats.write(parts, report.fields_by(question.by), out, form=options.format)
