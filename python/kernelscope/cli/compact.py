"""``kernelscope compact``: the small ranks of a lake into few files."""

import argparse

from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say, show
from kernelscope.units import format_count


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "compact",
        help="the small ranks of a lake into few files",
        description="Gathers the tables of small ranks into files of about 128 MB, up to 1,024 ranks in each."
        " The lake has the same rows before and after. Stopped at any moment, a second run goes on.",
    )
    parser.add_argument(
        "lake", metavar="LAKE", help="folder of a lake that kernelscope batch filled, or its URL"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Gathers the ranks, and says where they are."""
    from kernelscope.batch import compact

    done = compact(options.lake)
    for note in done.notes:
        say(note)
    show(
        f"{options.lake}: {format_count(done.gathered)} of {format_count(done.ranks)} ranks are gathered,"
        f" in {format_count(done.folders)} {'folder' if done.folders == 1 else 'folders'}"
    )
    return 0
