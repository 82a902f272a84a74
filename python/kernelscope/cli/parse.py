"""``kernelscope parse``: writes the records of a trace's kernels in the format of ``pyprof.parse``."""

import argparse
from itertools import chain

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say, show_all
from kernelscope.cli.prof import read_kernels


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "parse",
        help=(
            "write the kernels of a trace with their NVTX ranges or operators, one record per line (PyProf)"
        ),
        description="Writes one Python dictionary per kernel of a trace, like PyProf does for databases.",
    )
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help=(
            "an nsys (.sqlite) or nvprof (.sql) database, or a PyTorch profiler trace; - is standard input"
        ),
    )
    parser.add_argument(
        "--compat",
        action="store_true",
        help="write the records of PyProf including its known errors (see docs/pyprof.md)",
    )
    arguments.add_loss(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and writes the records."""
    from kernelscope.compat.pyprof.records import record_lines

    lines = record_lines(read_kernels(options, options.trace))
    first = next(lines, None)
    if first is None:
        say("found no kernels")
        return 0
    show_all(chain([first], lines))
    return 0
