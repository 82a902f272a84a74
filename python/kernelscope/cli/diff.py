"""``kernelscope diff``: shows what became slower between two traces."""

import argparse
from pathlib import Path

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say
from kernelscope.cli.inputs import STDIN
from kernelscope.cli.reading import read_file
from kernelscope.errors import InvalidArgumentError

_FORMATS = ("text", "markdown", "json")
_BROKEN = 1


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "diff",
        help="compare two traces and show what became slower or faster, for people and for CI",
        description=(
            "Aligns the steps, modules and operators of two traces, and ranks the causes of the change "
            "in step time. The changes sum to the total. Exit codes: 0 all bounds hold, 1 one is "
            "exceeded."
        ),
    )
    parser.add_argument("before", metavar="A", help="the trace to compare with; - is standard input")
    parser.add_argument("after", metavar="B", help="the trace that may have become slower")
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="BOUND",
        help=(
            "fail if this holds, for example 'step>5%%', 'communication>2ms', 'op:aten::mm>10%%', "
            "'module:Linear_*>1ms', 'kernel:*gemm*>100us'; may be repeated"
        ),
    )
    parser.add_argument(
        "--significant", action="store_true", help="ignore changes that are within the spread of single steps"
    )
    parser.add_argument("--format", choices=_FORMATS, default="text", help="default: text")
    parser.add_argument("--out", type=Path, metavar="PATH", help="file to write to")
    parser.add_argument(
        "--top", type=arguments.positive, default=10, metavar="N", help="rows of each table (default: 10)"
    )
    arguments.add_loss(parser)
    arguments.add_threads(parser)
    arguments.add_rank(parser)
    arguments.add_step_range(parser)
    for side, trace in (("before", "A"), ("after", "B")):
        arguments.add_capture(parser, f"--capture-{side}", of=trace)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads both traces, writes the changes, and fails if a bound is exceeded."""
    from kernelscope.analysis.diff.bounds import judge, parse_bound
    from kernelscope.analysis.diff.comparison import compare
    from kernelscope.report.differences import render_differences
    from kernelscope.report.files import check_file, print_or_write
    from kernelscope.report.text.cells import text_width

    # What is wrong with a bound is said before anything is read.
    bounds = [parse_bound(text) for text in options.fail_on]
    check_file(options.out)
    if options.before == options.after == STDIN:
        raise InvalidArgumentError("standard input contains one trace: pass the other as a file")
    before, after = (
        read_file(
            options,
            path,
            threads=options.threads,
            rank=options.rank,
            step_range=options.step_range,
            capture=capture,
        )
        for path, capture in (
            (options.before, options.capture_before),
            (options.after, options.capture_after),
        )
    )
    both = compare(before, after)
    verdicts = judge(both, bounds)
    width = text_width() if options.out is None else None
    text = render_differences(both, verdicts, format=options.format, top=options.top, width=width)
    print_or_write(text, options.out)
    broken = [v for v in verdicts if v.is_broken and not (options.significant and v.is_noise)]
    for verdict in broken:
        say(f"bound broken: {verdict.bound.text!r}")
    return _BROKEN if broken else 0
