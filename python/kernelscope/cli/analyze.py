"""``kernelscope analyze``: shows where the time went."""

import argparse
import re
from pathlib import Path

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import read_trace
from kernelscope.errors import InvalidArgumentError

_FOLDERS = ("csv", "parquet")
_FILES = {**dict.fromkeys(_FOLDERS, "folder of files"), "html": "page"}
_ORDER = re.compile(r"^ORDER = (\d+)$", re.MULTILINE)
_ON_REQUEST = re.compile(r"^ON_REQUEST = True$", re.MULTILINE)


def on_request() -> tuple[str, ...]:
    """Returns the names of the views that the text shows on request.

    They are read and not imported, because ``--help`` must not wait for Polars.
    """
    found: list[tuple[int, str]] = []
    for path in (Path(__file__).parents[1] / "report" / "views").glob("[a-z]*.py"):
        source = path.read_text(encoding="utf-8")
        order = _ORDER.search(source)
        if order and _ON_REQUEST.search(source):
            found.append((int(order[1]), path.stem))
    return tuple(name for _, name in sorted(found))


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "analyze",
        help="show the time of each step and the activity of the GPU",
        description="Reads and links a trace, and shows its steps, operators, kernels and GPUs.",
    )
    arguments.add_reading(parser)
    arguments.add_filters(parser)
    parser.add_argument(
        "--format",
        choices=("text", "json", *_FILES),
        default="text",
        help=(
            "text and json go to stdout or a file, csv and parquet to a folder, html is a page that "
            "works offline (default: text)"
        ),
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
        metavar="VIEW",
        default=[],
        help=(
            f"a view to add to the text ({', '.join(on_request())}); may be repeated. The other formats "
            "contain all of them"
        ),
    )
    parser.add_argument(
        "--categories",
        metavar="FILE",
        help=(
            "rules of kernel categories that replace the built-in ones: TOML, or JSON of vLLM's gputrc2graph"
        ),
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and writes the report."""
    if options.format in _FILES and options.out is None:
        what = _FILES[options.format]
        raise InvalidArgumentError(f"--format {options.format} writes a {what}: name it with --out")
    if options.format == "html":
        from kernelscope.report.html.libraries import check_libraries

        # Before the trace is read, which may take a while: a library that is missing is reported at once.
        check_libraries()
    from kernelscope.report import render, required_tables
    from kernelscope.report.files import check_file

    if options.categories is not None:
        from kernelscope.analysis import load_categories

        load_categories(options.categories)

    if options.format not in _FOLDERS:
        check_file(options.out)
    trace = read_trace(
        options, tables=required_tables(options.format), knows_ranks=True, **arguments.filters_of(options)
    )
    render(trace, format=options.format, out=options.out, top=options.top, also=tuple(options.also))
    return 0
