"""``kernelscope batch``: the traces of all ranks into a lake."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, TypeVar

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers

T = TypeVar("T")


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "batch",
        help="the traces of all ranks into one lake of Parquet files",
        description="Reads the traces of many ranks, a rank at a time on every core, into Parquet files that"
        " ks.scan, DuckDB and pandas read. Stopped at any moment, it goes on where it was.",
        epilog="Exit code 1: a rank could not be read; the lake has the others.",
    )
    parser.add_argument(
        "inputs",
        metavar="FILES_OR_DIR",
        nargs="+",
        help="traces, folders of them, tar archives, or URLs (s3://bucket/traces/, with fsspec)",
    )
    parser.add_argument("--out", type=Path, metavar="LAKE", required=True, help="folder of the lake")
    parser.add_argument(
        "--run",
        dest="run_name",
        default="default",
        metavar="NAME",
        help="name of the job, if the lake is to hold several",
    )
    parser.add_argument(
        "--workers", type=arguments.positive, metavar="N", help="processes (default: one per core)"
    )
    parser.add_argument(
        "--memory",
        type=arguments.size,
        metavar="SIZE",
        help="what all processes may use together (default: four fifths of what is free)",
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="work through the Dask scheduler there, whose workers see the lake under the same path",
    )
    parser.add_argument("--strict", action="store_true", help="a rank fails at the first event it would lose")
    arguments.add_step_range(parser)
    parser.add_argument(
        "--json-lines",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="a line of JSON per rank on stdout (default: if stdout is no terminal)",
    )
    parser.add_argument(
        "--summary",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="say at the end what to look at first (default: yes)",
    )
    parser.add_argument("--html", type=Path, metavar="PAGE", help="also write a page about all ranks")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Fills the lake, and says what is in it."""
    from kernelscope.batch import coordinator
    from kernelscope.cli.batch_progress import Watch

    json_lines = not sys.stdout.isatty() if options.json_lines is None else options.json_lines
    with Watch(json_lines=json_lines) as watch:
        report = coordinator.run(
            options.inputs,
            options.out,
            run=options.run_name,
            workers=options.workers,
            memory=options.memory,
            scheduler=options.scheduler,
            strict=options.strict,
            step_range=options.step_range,
            on_rank=watch.update,
        )
    watch.conclude(report, run=options.run_name)
    if options.summary and report.done + report.unchanged:
        _summarize(report.lake, options.run_name, to=sys.stderr if json_lines else sys.stdout)
    if options.html is not None and report.done + report.unchanged:
        _in_process(write_page, report.lake, options.run_name, str(options.html))
    return 1 if report.failed else 0


def _summarize(lake: Path, run: str, *, to: TextIO) -> None:
    """Says what to look at first. The batch has not failed where that is not known."""
    from kernelscope.errors import KernelscopeError

    try:
        print(_in_process(make_text, lake, run), end="", file=to)
    except KernelscopeError as error:
        print(f"kernelscope: no summary: {error}", file=sys.stderr)


def _in_process(make: Callable[..., T], lake: Path, run: str, *more: str) -> "T":
    """What ``make`` gives in a process of its own: the one that leads a batch stays small."""
    from kernelscope.batch import ProcessPool, cores

    with ProcessPool(1, threads=cores()) as pool:
        return pool.submit(make, str(lake), run, *more).result()


def make_text(lake: str, run: str) -> str:
    """What to look at first in ``run`` of ``lake``."""
    from kernelscope.batch import scan
    from kernelscope.report import cluster_text

    return cluster_text.to_text(scan(lake, run=run))


def write_page(lake: str, run: str, out: str) -> None:
    """Writes the page about ``run`` of ``lake``."""
    from kernelscope.batch import scan
    from kernelscope.batch.reports import consistency_warnings
    from kernelscope.report.html.cluster import write_cluster_page

    opened = scan(lake, run=run)
    notes = [
        f"{warning[:1].upper()}{warning[1:]}." for warning in consistency_warnings(opened.entries, run=run)
    ]
    write_cluster_page(opened, Path(out), title=f"{lake} {run}", sources=opened.manifest, notes=notes)
