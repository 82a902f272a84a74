"""``kernelscope critical-path``: shows the events that must be faster for a step to end sooner."""

import argparse
from functools import partial

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import read_ranks
from kernelscope.cli.writing import write_tables


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "critical-path",
        help="show the events that must be faster for a step to end sooner",
        description=(
            "Follows a step back from its end, from each event to the event for which it waited last. Only a "
            "shorter event of this path makes the step end sooner. In a lake, the path moves between ranks."
        ),
    )
    arguments.add_reading(parser)
    parser.add_argument("--step", type=int, metavar="N", help="number of the step (default: the whole trace)")
    parser.add_argument(
        "--annotation",
        metavar="NAME",
        help="annotation, operator or NVTX range instead of a step; * and ? match",
    )
    parser.add_argument(
        "--instance", type=int, default=0, metavar="N", help="number of the annotation, from 0 (default: 0)"
    )
    parser.add_argument(
        "--by",
        metavar="COLUMN[,COLUMN...]",
        help=(
            "one row per name, kind, table, bound_by, op, module, phase, category or python (line), and of "
            "several ranks also rank (default: name, or rank,name)"
        ),
    )
    arguments.add_table_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and writes its critical path."""
    from kernelscope.analysis.ranks.cluster import one_trace
    from kernelscope.report.dependencies import PLAIN_WIDTH, Part, path_csv, path_json, path_parts
    from kernelscope.report.files import check_file

    check_file(options.out)
    part = Part(step=options.step, annotation=options.annotation, instance=options.instance)
    source = read_ranks(options)
    by = options.by or ("rank,name" if one_trace(source) is None else "name")
    asked = source, tuple(by.split(",")), part
    json, csv = partial(path_json, *asked), partial(path_csv, *asked)
    write_tables(options, partial(path_parts, *asked), json, csv, plain_width=PLAIN_WIDTH)
    return 0
