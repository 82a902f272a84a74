"""``kernelscope info``: shows the contents of a file, and the repairs."""

import argparse

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import read_trace


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser("info", help="show the contents of a trace and the repairs")
    arguments.add_reading(parser)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--check",
        action="store_true",
        help=(
            "check all answers about the trace against laws that hold for any trace. Paste the output "
            "into bug reports. FILE marks faults of the file itself. The exit code is 1 if an answer "
            "violates a law"
        ),
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and prints its contents."""
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
