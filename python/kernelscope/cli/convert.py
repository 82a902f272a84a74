"""``kernelscope convert``: writes the tables and views of a trace for other tools."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import show
from kernelscope.cli.inputs import STDIN
from kernelscope.cli.reading import read_ranks, read_trace
from kernelscope.errors import InvalidArgumentError, did_you_mean

if TYPE_CHECKING:
    from kernelscope.analysis.ranks.cluster import Source
    from kernelscope.trace import Trace

_TARGETS = ("parquet", "arrow", "perfetto", "folded")


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "convert",
        help="write a trace as Parquet, Arrow, a Perfetto trace, or folded stacks",
        description=(
            "Writes a folder of Parquet or Arrow files with one file per table, a JSON trace for "
            "ui.perfetto.dev, or folded stacks for flame graphs. With --merge, the traces of several ranks "
            "become one JSON trace on one clock. Docs: docs/convert.md."
        ),
    )
    arguments.add_reading(parser)
    parser.add_argument("more", nargs="*", metavar="TRACE", help="with --merge, traces of further ranks")
    parser.add_argument(
        "--merge",
        action="store_true",
        help="write the ranks of all traces, of a lake or of a file of several ranks into one file",
    )
    parser.add_argument(
        "--to", required=True, type=_targets, metavar="FORM[,FORM...]", help=f"some of {', '.join(_TARGETS)}"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help=(
            "folder to write, or the file if the only target is perfetto; with several targets, a folder "
            "that contains them (default: one per target in this folder, named after the trace, or "
            "merged). A file that ends in .gz is compressed, and one that ends in .pftrace or "
            ".perfetto-trace is a protobuf of Perfetto instead of JSON"
        ),
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace, converts it and prints the paths."""
    from kernelscope.report.conversion import convert
    from kernelscope.report.files import check_file

    if options.to == ["perfetto"]:
        check_file(options.out)
    trace = _ranks(options) if options.merge else _one(options)
    if options.out is not None:
        paths = convert(trace, options.to, options.out)
    else:
        stem = "stdin" if options.trace == STDIN else _stem(Path(options.trace).name)
        if options.more:
            stem = "merged"
        suffixes = {"perfetto": "perfetto.json"}
        paths = [
            path for to in options.to for path in convert(trace, to, Path(f"{stem}.{suffixes.get(to, to)}"))
        ]
    for path in paths:
        show(str(path))
    return 0


def _one(options: argparse.Namespace) -> "Trace":
    if options.more:
        raise InvalidArgumentError("several traces are written into one file with --merge")
    return read_trace(options)


def _ranks(options: argparse.Namespace) -> "Source":
    if options.to != ["perfetto"]:
        raise InvalidArgumentError("--merge writes one file: pass --to perfetto")
    if not options.more:
        return read_ranks(options)
    paths = (options.trace, *options.more)
    return [
        read_trace(argparse.Namespace(**{**vars(options), "trace": path}), knows_ranks=True) for path in paths
    ]


def _stem(name: str) -> str:
    """The name of a trace without what says how it is stored."""
    for suffix in (".gz", ".zst", ".json", ".sqlite", ".sql", ".trace", ".pt"):
        name = name.removesuffix(suffix) or name
    return name


def _targets(text: str) -> list[str]:
    targets = list(dict.fromkeys(part.strip() for part in text.split(",")))
    unknown = [target for target in targets if target not in _TARGETS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"the targets of a conversion are {', '.join(_TARGETS)}, not "
            f"{', '.join(unknown)}{did_you_mean(unknown[0], _TARGETS)}"
        )
    return targets
