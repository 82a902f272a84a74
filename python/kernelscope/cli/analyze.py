"""``kernelscope analyze``: where the time went."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.cli import arguments
from kernelscope.cli.reading import read_trace
from kernelscope.errors import InvalidArgumentError
from kernelscope.report.views import on_request

if TYPE_CHECKING:
    from kernelscope.cli.arguments import Subparsers

_FOLDERS = ("csv", "parquet")
_FILES = {**dict.fromkeys(_FOLDERS, "folder of files"), "html": "page"}


def add_parser(subparsers: "Subparsers") -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "analyze",
        help="where the time of each step went, and what the GPU did",
        description="Reads and links a trace, and shows its steps, operators, kernels and GPUs.",
    )
    arguments.add_reading(parser)
    parser.add_argument(
        "--format",
        choices=("text", "json", *_FILES),
        default="text",
        help="text and json go to stdout or a file, csv and parquet into a folder, html is a page"
        " that works offline (default: text)",
    )
    parser.add_argument("--out", type=Path, metavar="PATH", help="file or folder to write to")
    parser.add_argument(
        "--top",
        type=arguments.positive,
        default=10,
        metavar="N",
        help="rows of each table of the text (default: 10)",
    )
    parser.add_argument(
        "--also",
        action="append",
        choices=on_request(),
        default=[],
        help="a view that the text shows beside its own, and may be given again; the other formats have them",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and writes the report."""
    if options.format in _FILES and options.out is None:
        what = _FILES[options.format]
        raise InvalidArgumentError(f"--format {options.format} writes a {what}: name it with --out")
    if options.format == "html":
        from kernelscope.report.html import begin_page

        # Before the trace is read, which may take a while: one that is missing is told at once.
        begin_page()
    from kernelscope.report import asked_tables, render

    trace = read_trace(options, tables=asked_tables(options.format))
    render(trace, format=options.format, out=options.out, top=options.top, also=tuple(options.also))
    return 0
