"""``kernelscope batch``: writes the traces of all ranks into a lake."""

import argparse
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say

if TYPE_CHECKING:
    from kernelscope.analysis.ranks.cluster import Cluster
    from kernelscope.batch.lake import Lake
    from kernelscope.batch.reports import BatchReport
    from kernelscope.cli.batch_progress import Watch

T = TypeVar("T")

FAILED = 1
STOPPED = 3
"""Exit code if sources are left."""
_PATIENCE_S = 10
"""Time limit for an orderly stop, in seconds."""
_COLLECTED = 100_000
"""Number of new objects between Python's garbage collections."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "batch",
        help="write the traces of all ranks into one lake of Parquet files",
        description=(
            "Reads the traces of many ranks, one rank per core at a time, into Parquet files that "
            "ks.scan, DuckDB and pandas read. An interrupted batch resumes where it stopped."
        ),
        epilog=(
            "Exit code 0: every rank is in the lake. 1: some ranks could not be read and are listed "
            "last; the lake has the others. 3: the batch was stopped; run it again to resume."
        ),
    )
    parser.add_argument(
        "inputs",
        metavar="FILES_OR_DIR",
        nargs="+",
        help="traces, folders of traces, tar archives, or URLs (s3://bucket/traces/, with fsspec)",
    )
    parser.add_argument("--out", metavar="LAKE", required=True, help="folder of the lake, or its URL")
    parser.add_argument(
        "--run",
        dest="run_name",
        default="default",
        metavar="NAME",
        help="name of the job, if the lake contains several",
    )
    parser.add_argument(
        "--workers", type=arguments.positive, metavar="N", help="number of processes (default: one per core)"
    )
    parser.add_argument(
        "--memory",
        type=arguments.size,
        metavar="SIZE",
        help=(
            "memory limit of all processes together, or of each worker of --scheduler (default: 80 %% of "
            "the free memory, or of the worker's limit)"
        ),
    )
    parser.add_argument(
        "--task-timeout",
        type=float,
        metavar="SECONDS",
        help=(
            "time limit per trace; after it, the worker is stopped and replaced (default: 300, plus one "
            "per megabyte)"
        ),
    )
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run on the Dask scheduler at this address, whose workers access the lake under the same path",
    )
    parser.add_argument(
        "--strict", action="store_true", help="a rank fails at the first event that would be lost"
    )
    arguments.add_step_range(parser)
    parser.add_argument(
        "--rank-from",
        metavar="REGEX",
        help=(
            "finds the rank in the path of a trace: one group of digits, and optionally a group "
            "(?P<run>...) for the run (default: the rank in the trace, otherwise in its name or folder)"
        ),
    )
    parser.add_argument("--prune", action="store_true", help="remove ranks whose traces no longer exist")
    _add_output(parser)
    parser.set_defaults(run=run)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json-lines",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="print one line of JSON per rank on stdout (default: if stdout is not a terminal)",
    )
    parser.add_argument(
        "--summary",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="print the most important findings at the end (default: yes)",
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="PAGE",
        help="also write a page about all ranks of the run with the most ranks",
    )


def run(options: argparse.Namespace) -> int:
    """Fills the lake, and prints a summary."""
    from kernelscope.batch.reports import runs_of
    from kernelscope.cli.batch_progress import Watch, ignoring_closed_pipes
    from kernelscope.errors import (
        BatchStoppedError,
        KernelscopeError,
        LakeFullError,
        SchedulerLostError,
        UnusableWorkersError,
        WorkerDiedError,
    )
    from kernelscope.report.files import check_file

    check_file(options.html)
    json_lines = not sys.stdout.isatty() if options.json_lines is None else options.json_lines
    watch = Watch(json_lines=json_lines)
    stop = _Stop()
    try:
        report = _fill(options, watch, stop)
    except BatchStoppedError:
        with ignoring_closed_pipes():
            return stop.say()
    except (LakeFullError, SchedulerLostError, UnusableWorkersError, WorkerDiedError) as error:
        with ignoring_closed_pipes():
            say(str(error))
        return STOPPED
    except OSError as error:
        # Those of our own are about the arguments: nothing was begun.
        if isinstance(error, KernelscopeError):
            raise
        with ignoring_closed_pipes():
            say(f"{error}; finished ranks are in the lake, and the next run resumes")
        return STOPPED
    there = report.done + report.unchanged
    largest = runs_of(report.entries.values(), asked=options.run_name)[:1]
    if options.summary and there:
        with ignoring_closed_pipes():
            _summarize(report.lake, largest, options.memory, to=sys.stderr if json_lines else sys.stdout)
    for run_name in largest:
        if options.html is not None and there:
            _in_process(write_page, report.lake, run_name, options.memory, str(options.html))
    with ignoring_closed_pipes():
        watch.name_failures()
    return FAILED if report.failed else 0


def _fill(options: argparse.Namespace, watch: "Watch", stop: "_Stop") -> "BatchReport":
    from kernelscope.batch import coordinator
    from kernelscope.cli.batch_progress import ignoring_closed_pipes

    with stop, _collecting_seldom():
        with watch:
            report = coordinator.run(
                options.inputs,
                options.out,
                run=options.run_name,
                workers=options.workers,
                memory=options.memory,
                scheduler=options.scheduler,
                strict=options.strict,
                step_range=options.step_range,
                rank_from=options.rank_from,
                task_timeout=options.task_timeout,
                prune=options.prune,
                on_rank=watch.update,
                stop=stop.is_asked,
            )
        with ignoring_closed_pipes():
            watch.conclude(report, run=options.run_name)
    return report


@contextlib.contextmanager
def _collecting_seldom() -> Generator[None]:
    """Has Python look for cycles seldom: it would look at all that is kept of each trace again and again."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECTED, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Stop:
    """Notes while a context lasts that the process is asked to end: by SIGTERM, or by Ctrl-C.

    A handler that raised would do so anywhere. In a finalizer, as those of Dask do at any time, Python loses
    the exception, and a second one would cut short what takes the batch down. So the batch asks, between two
    tasks. Where it does not come to that, or is asked twice, the process ends as it is: a lake bears that.
    """

    def __init__(self) -> None:
        self._number: int | None = None
        self._before: dict[int, Any] = {}

    def is_asked(self) -> bool:
        """Whether the batch is to end."""
        return self._number is not None

    def say(self) -> int:
        """Says why the batch ended, and gives the exit code."""
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        say("stopped by SIGTERM; finished ranks are in the lake, and the next run resumes")
        return STOPPED

    def __enter__(self) -> "_Stop":
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._ask) for number in heeded}
        return self

    def __exit__(self, *_: object) -> None:
        if self._before:
            signal.alarm(0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, _frame: object) -> None:
        if self.is_asked():
            os._exit(STOPPED if self._number == signal.SIGTERM else 128 + signal.SIGINT)
        self._number = number
        signal.alarm(_PATIENCE_S)


def _summarize(lake: Path | str, runs: list[str], memory: int | None, *, to: TextIO) -> None:
    """Says what to look at first. The batch has not failed where that is not known."""
    from polars.exceptions import PolarsError

    from kernelscope.errors import KernelscopeError

    try:
        text = "".join(_in_process(make_text, lake, run, memory) for run in runs)
    except (KernelscopeError, PolarsError, OSError) as error:
        # The tables of a lake in a storage are read by Polars, which looks for credentials in its own way.
        say(f"no summary: {error}")
    else:
        # Safe by line.
        to.write(text)


def _in_process(make: Callable[..., T], lake: Path | str, run: str, *more: object) -> "T":
    """What ``make`` gives in a process of its own: the one that leads a batch stays small."""
    from kernelscope.batch import ProcessPool, cores

    with ProcessPool(1, threads=cores()) as pool:
        return pool.submit(make, str(lake), run, *more).result()


def make_text(lake: str, run: str, memory: int | None) -> str:
    """Returns the most important findings about ``run`` of ``lake`` as text."""
    from kernelscope.batch import scan
    from kernelscope.report.text.cluster import to_text

    return to_text(_cluster(scan(lake, run=run), memory))


def write_page(lake: str, run: str, memory: int | None, out: str) -> None:
    """Writes the page about ``run`` of ``lake``."""
    from kernelscope.batch import scan
    from kernelscope.batch.reports import consistency_warnings
    from kernelscope.report.html.cluster import write_cluster_page

    opened = scan(lake, run=run)
    notes = [
        f"{warning[:1].upper()}{warning[1:]}." for warning in consistency_warnings(opened.entries, run=run)
    ]
    write_cluster_page(
        opened,
        Path(out),
        title=f"{Path(lake).name} {run}",
        cluster=_cluster(opened, memory),
        sources=opened.manifest,
        notes=notes,
    )


def _cluster(lake: "Lake", memory: int | None) -> "Cluster":
    """What the answers need, in as much memory as a batch may take, or as they take in any case."""
    from kernelscope.analysis import cluster_of
    from kernelscope.analysis.ranks.parts import LEAST_MEMORY

    return cluster_of(lake, memory=None if memory is None else max(memory, LEAST_MEMORY))
