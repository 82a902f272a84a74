"""``kernelscope sequences``: finds kernels worth fusing or launching as a graph."""

import argparse
from functools import partial

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import read_trace
from kernelscope.cli.writing import write_tables


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "sequences",
        help="find kernels worth fusing or launching as a graph",
        description=(
            "Finds sequences of kernels that run again and again, and replays the trace with each fused into "
            "one kernel, or launched as one CUDA graph. The largest saving comes first."
        ),
    )
    arguments.add_reading(parser)
    arguments.add_table_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and writes the sequences."""
    from kernelscope.report import dependencies
    from kernelscope.report.files import check_file

    check_file(options.out)
    trace = read_trace(options)
    json, csv = partial(dependencies.sequence_json, trace), partial(dependencies.sequence_csv, trace)
    parts = partial(dependencies.sequence_parts, trace)
    write_tables(options, parts, json, csv, plain_width=dependencies.PLAIN_WIDTH)
    return 0
