"""``kernelscope sql``: queries the tables of a trace."""

import argparse
import sys
from pathlib import Path

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say
from kernelscope.cli.reading import read_trace

_FORMATS = ("text", "csv", "json")
_ROWS = 1_000
_SECONDS = 60


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "sql",
        help="query the tables of a trace with SQL",
        description=(
            "Answers a SELECT over the tables of a trace, which kernelscope schema lists. It cannot read "
            "or write files, and is stopped after a time limit."
        ),
    )
    arguments.add_reading(parser)
    parser.add_argument(
        "statement",
        metavar="STATEMENT",
        help="for example: select name, sum(dur_ns) as ns from gpu_ops group by name",
    )
    parser.add_argument("--format", choices=_FORMATS, default="text", help="output format (default: text)")
    parser.add_argument("--out", type=Path, metavar="PATH", help="file to write to instead of stdout")
    parser.add_argument(
        "--rows",
        type=arguments.positive,
        default=_ROWS,
        metavar="N",
        help=f"maximum number of rows (default: {_ROWS:,})",
    )
    parser.add_argument(
        "--seconds",
        type=arguments.positive,
        default=_SECONDS,
        metavar="N",
        help=f"time limit of the statement (default: {_SECONDS})",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and prints the answer."""
    from kernelscope.queries import check_statement, sql
    from kernelscope.report.answers import write_answer
    from kernelscope.report.files import check_file, print_or_write
    from kernelscope.report.text.cells import text_width

    check_statement(options.statement)
    check_file(options.out)
    trace = read_trace(options)
    # One more tells that there are more.
    found = sql(trace, options.statement, rows=options.rows + 1, seconds=options.seconds)
    width = text_width() if options.out is None else None
    text, lacking = write_answer(found.head(options.rows), form=options.format, width=width)
    print_or_write(text, options.out)
    sys.stdout.flush()
    if found.height > options.rows:
        say(f"the first {options.rows:,} rows; pass --rows N for more")
    if lacking:
        columns = f"{len(lacking)} columns do" if len(lacking) > 1 else f"{lacking[0]} does"
        say(f"{columns} not fit; --format csv has all")
    return 0
