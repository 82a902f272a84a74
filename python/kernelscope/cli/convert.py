"""``kernelscope convert``: the tables and views of a trace for other tools."""

import argparse
from pathlib import Path

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.reading import read_trace

_TARGETS = ("parquet", "arrow", "perfetto", "folded")


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "convert",
        help="the tables and views of a trace as Parquet, Arrow, a trace for Perfetto, or folded stacks",
        description="Writes a folder of Parquet or Arrow files with one per table, a JSON trace that"
        " ui.perfetto.dev opens, or folded stacks for flame graphs. Docs: docs/convert.md.",
    )
    arguments.add_reading(parser)
    parser.add_argument(
        "--to", required=True, type=_targets, metavar="FORM[,FORM...]", help=f"some of {', '.join(_TARGETS)}"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="the folder, or for perfetto alone the file, to write; a folder of them for several forms"
        " (default: one per form in this folder, named after the trace)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace, converts it and prints the paths."""
    trace = read_trace(options)

    from kernelscope.report.conversion import convert

    if options.out is not None:
        paths = convert(trace, options.to, options.out)
    else:
        stem = _stem(Path(options.trace).name)
        suffixes = {"perfetto": "perfetto.json"}
        paths = [
            path for to in options.to for path in convert(trace, to, Path(f"{stem}.{suffixes.get(to, to)}"))
        ]
    for path in paths:
        print(path)
    return 0


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
            f"a trace converts to {', '.join(_TARGETS)}, not {', '.join(unknown)}"
        )
    return targets
