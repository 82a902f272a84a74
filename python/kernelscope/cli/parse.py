"""``kernelscope parse``: the records of a database's kernels, as ``pyprof.parse`` writes them."""

import argparse
import sys

from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import Bar


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "parse",
        help="the kernels of a database with their NVTX ranges, one record a line (PyProf)",
        description="Writes a Python dictionary per kernel of an nsys or nvprof database, as PyProf does.",
    )
    parser.add_argument("database", metavar="DB", help="the database: nsys (.sqlite) or nvprof (.sql)")
    parser.add_argument(
        "--compat",
        action="store_true",
        help="the records of PyProf with its known faults (see docs/pyprof.md)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the database and writes the records."""
    from kernelscope.compat.pyprof import NEEDED, format_record, records
    from kernelscope.trace import read

    with Bar("reading") as bar:
        trace = read(options.database, tables=NEEDED, progress=bar.update)
    count = 0
    for record in records(trace, compat=options.compat):
        sys.stdout.write(format_record(record) + "\n")
        count += 1
    if count == 0:
        print("kernelscope: found no kernels", file=sys.stderr)
    return 0
