"""``kernelscope info``: what is in a file, and what was repaired."""

import argparse

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import read_trace


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser("info", help="what is in a trace, and what was repaired")
    arguments.add_reading(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--check",
        action="store_true",
        help="ask all answers about the trace for laws that hold for any; paste what it prints into a report"
        " of a bug. FILE stands before what is wrong with the file itself. The exit status is 1 where an"
        " answer breaks a law",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and prints what it holds."""
    trace = read_trace(options, knows_ranks=True)

    from kernelscope.report.files import print_or_write
    from kernelscope.report.text import summary

    verdicts = None
    if options.check:
        from kernelscope.check import check

        verdicts = check(trace)
    if options.format == "json":
        print_or_write(summary.to_json(trace, verdicts), None)
    else:
        summary.print_text(trace, verdicts)
    return int(any(verdict.faults and not verdict.of_file for verdict in verdicts or ()))
