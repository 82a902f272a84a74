"""``kernelscope what-if``: predicts the time that a change saves."""

import argparse
from functools import partial

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import read_ranks
from kernelscope.cli.writing import write_tables
from kernelscope.errors import InvalidArgumentError


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "what-if",
        help="predict the time that a change would save",
        description=(
            "Replays a trace, or all ranks of a lake, with some events shorter or longer. All others take as "
            "long as recorded and start when their dependencies are satisfied."
        ),
    )
    arguments.add_reading(parser)
    parser.add_argument(
        "changes",
        nargs="+",
        metavar="CHANGE=FACTOR",
        help=(
            "events, and the share of their time that they then take: 'kernel:*gemm*=0.5', "
            "'op:aten::softmax=0', 'module:*attention*=0.7', 'range:NAME=0', 'python:NAME=0', 'call:NAME=0', "
            "'wait:*AllReduce*=0', launch=0, sync=0, dataloader=0, communication=0, "
            "copy=0; also 'fuse:NAME=1' (the kernels inside become one), graph=0 or 'graph:NAME=0' (they are "
            "launched as one graph) and 'gpu=H200 SXM'; of several ranks also rank:N=median, host:NAME=0.9, "
            "stage:N=0.9, link:HOST=median"
        ),
    )
    parser.add_argument(
        "--step", type=int, metavar="N", help="number of the step that changes (default: the whole trace)"
    )
    arguments.add_table_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and writes the prediction."""
    from kernelscope.report.dependencies import PLAIN_WIDTH, what_if_csv, what_if_json, what_if_parts
    from kernelscope.report.files import check_file

    check_file(options.out)
    changes = dict(map(_change, options.changes))
    asked = read_ranks(options), changes, options.step
    json, csv = partial(what_if_json, *asked), partial(what_if_csv, *asked)
    write_tables(options, partial(what_if_parts, *asked), json, csv, plain_width=PLAIN_WIDTH)
    return 0


def _change(text: str) -> tuple[str, float | str]:
    """``launch=0.5`` as what changes and its factor."""
    from kernelscope.analysis.dependencies.rank_changes import MEDIAN

    change, _, factor = text.rpartition("=")
    if factor == MEDIAN or change == "gpu":
        return change, factor
    try:
        return change, float(factor)
    except ValueError:
        raise InvalidArgumentError(
            f"{text} has no factor: write for example 'kernel:*gemm*=0.5' to halve the time of these kernels"
        ) from None
