"""``kernelscope compact``: merges the small ranks of a lake into few files."""

import argparse

from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say, show
from kernelscope.units import format_count


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "compact",
        help="merge the small ranks of a lake into few files",
        description=(
            "Merges the tables of small ranks into files of about 128 MB with up to 1,024 ranks each. "
            "The rows of the lake do not change. An interrupted run resumes where it stopped."
        ),
    )
    parser.add_argument("lake", metavar="LAKE", help="folder or URL of a lake that kernelscope batch created")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Merges the ranks, and prints where they are."""
    from kernelscope.batch import compact

    done = compact(options.lake)
    for note in done.notes:
        say(note)
    show(
        f"{options.lake}: merged {format_count(done.gathered)} of {format_count(done.ranks)} ranks "
        f"into {format_count(done.folders)} {'folder' if done.folders == 1 else 'folders'}"
    )
    return 0
