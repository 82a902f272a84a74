"""``kernelscope info``: what is in a file, and what was repaired."""

import argparse
import sys

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import read_trace


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser("info", help="what is in a trace, and what was repaired")
    arguments.add_reading(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and prints what it holds."""
    trace = read_trace(options)

    from kernelscope.report import summary

    if options.format == "json":
        sys.stdout.write(summary.to_json(trace))
    else:
        summary.print_text(trace)
    return 0
