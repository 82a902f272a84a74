"""Leads a batch: finds what there is to do, hands it to workers, and puts what they make into its place."""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

from kernelscope import __version__
from kernelscope.batch import manifest, sizing
from kernelscope.batch.manifest import Entry
from kernelscope.batch.reports import BatchReport, RankReport, Status
from kernelscope.batch.sources import Source, find
from kernelscope.batch.work import Result, Task, read_rank
from kernelscope.batch.workers import WorkerPool, open_workers
from kernelscope.errors import (
    InvalidArgumentError,
    KernelscopeError,
    LakeFullError,
    MemoryLimitError,
    RankTakenError,
)
from kernelscope.units import format_bytes

DEFAULT_RUN = "default"


def run(
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    run: str = DEFAULT_RUN,
    workers: int | None = None,
    memory: int | None = None,
    executor: Executor | None = None,
    scheduler: str | None = None,
    strict: bool = False,
    step_range: str | None = None,
    on_rank: Callable[[RankReport, BatchReport], object] | None = None,
) -> BatchReport:
    """Reads all traces of ``inputs`` into the lake ``out``, a rank at a time on every core.

    Inputs are files, folders, tar archives and URLs of fsspec. A source that is in the lake already, and
    has not changed, is not read again; so a batch that was stopped, however, goes on where it was. A source
    that cannot be read is recorded with its error, and the others go on. ``run`` names the job, so that a
    lake can hold several. ``workers`` is the number of processes, one per core if null. ``memory`` is what
    they may use together, four fifths of what is free if null. ``executor`` is used in place of processes
    of our own; ``scheduler`` is the address of one of Dask, whose workers must see ``out`` under the same
    path. ``on_rank`` is called as each source is finished.

    Units: ``memory`` in bytes.
    Raises: LakeBusyError: another batch is writing into the lake.
        LakeFullError: the disk is full; what is in the lake is whole.
        SchedulerLostError: the scheduler went away; a second call goes on.
        TraceNotFoundError, InvalidArgumentError: the inputs name nothing that could be read.

    Example: ``ks.batch.run("traces/", "lake/", memory=8_000_000_000)``
    """
    manifest.check_run(run)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(out)):
        raise InvalidArgumentError(
            f"{os.fspath(out)}: a lake is a folder, for a rank appears by renaming one"
        )
    lake = Path(out).absolute()
    if lake.exists() and not lake.is_dir():
        raise InvalidArgumentError(f"{lake} is a file; name a folder for the lake")
    given = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    options: dict[str, object] = {"strict": strict, "step_range": step_range}
    with manifest.locked(lake):
        manifest.clear_staging(lake)
        sources = find(given, lake)
        report = BatchReport(lake, len(sources), sum(source.bytes for source in sources))
        batch = _Batch(report, run, options, sources, on_rank)
        batch.load_state()
        try:
            waiting = batch.prepare()
            if waiting:
                with open_workers(waiting, workers, memory, executor, scheduler) as pool:
                    batch.work(pool)
        except OSError as error:
            raise _explained(error, lake, report) from None
        finally:
            # A full disk has been reported by now, and the lines that were appended say the same.
            with contextlib.suppress(OSError):
                manifest.rewrite(lake, report.entries.values())
            manifest.clear_staging(lake)
    return report


def _explained(error: OSError, lake: Path, report: BatchReport) -> OSError:
    if not _is_full(error):
        return error
    there = sum(entry.outcome == "done" for entry in report.entries.values())
    return LakeFullError(
        f"{lake}: no space left; {there} ranks are in the lake and whole; free some space and run again",
        path=str(lake),
    )


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class _Batch:
    """The state of a batch: what is in the lake, and who has which rank."""

    def __init__(
        self,
        report: BatchReport,
        run: str,
        options: dict[str, object],
        sources: Sequence[Source],
        on_rank: Callable[[RankReport, BatchReport], object] | None,
    ) -> None:
        self._report = report
        self._lake = report.lake
        self._run = run
        self._options = options
        self._sources = {source.name: source for source in sources}
        self._on_rank = on_rank
        self._holders: dict[tuple[str, int | None], str] = {}
        self._refused: set[tuple[str, int | None]] = set()
        self._statuses: dict[str, Status] = {}
        self._missing: dict[int, list[Entry]] = {}
        """Ranks of this run whose sources are no more, by size."""

    def load_state(self) -> None:
        """Reads what is in the lake, whatever became of the batch that wrote it."""
        known = {
            entry.key: entry for entry in manifest.read_manifest(self._lake) if entry.outcome == "failed"
        }
        known |= {entry.key: entry for entry in manifest.finished_ranks(self._lake)}
        self._report.entries = known
        for entry in known.values():
            if entry.outcome == "done":
                self._holders[entry.run, entry.rank] = entry.source
                is_there = entry.source in self._sources or os.path.lexists(entry.source)
                if entry.run == self._run and not is_there:
                    self._missing.setdefault(entry.bytes, []).append(entry)
        manifest.rewrite(self._lake, known.values())

    def prepare(self) -> dict[Source, int]:
        """The sources that must be read, and the memory each will take."""
        waiting: dict[Source, int] = {}
        for source in self._sources.values():
            self._prepare(source, waiting)
        return waiting

    def _prepare(self, source: Source, waiting: dict[Source, int]) -> None:
        try:
            entry = self._unchanged(source)
            if entry is None:
                waiting[source] = sizing.expected_peak(source)
        except (KernelscopeError, OSError) as error:
            self.fail(source, error)
        else:
            if entry is not None:
                self._finish(RankReport(entry, "unchanged"))

    def _unchanged(self, source: Source) -> Entry | None:
        """The entry of a source that need not be read again."""
        entry = self._report.entries.get((self._run, source.name)) or self._moved(source)
        if entry is None or entry.outcome != "done":
            return None
        if (entry.version, dict(entry.options)) != (__version__, self._options):
            return None
        is_same = (entry.bytes, entry.mtime_ns) == (source.bytes, source.mtime_ns)
        return entry if is_same and entry.fingerprint == source.fingerprint() else None

    def _moved(self, source: Source) -> Entry | None:
        """The entry of a source that has the same content and is now here, and not where it was."""
        for entry in self._missing.get(source.bytes, ()):
            if entry.fingerprint == source.fingerprint():
                moved = replace(entry, source=source.name, mtime_ns=source.mtime_ns)
                self._rename(entry, moved)
                return moved
        return None

    def _rename(self, old: Entry, new: Entry) -> None:
        waiting = manifest.staging(self._lake) / manifest.ENTRY
        waiting.write_text(new.to_line(), encoding="utf-8")
        waiting.replace(old.place(self._lake) / manifest.ENTRY)
        del self._report.entries[old.key]
        self._report.entries[new.key] = new
        self._holders[new.run, new.rank] = new.source

    def work(self, pool: WorkerPool) -> None:
        """Has all sources read, the largest first."""
        for source, peak in pool.too_large.items():
            self.fail(source, _too_large(source, peak, pool.memory))
        lake = str(self._lake)
        for source, outcome in pool.results(
            lambda source, threads: (read_rank, Task(source, lake, self._run, self._options, threads))
        ):
            if isinstance(outcome, Result):
                self._take(source, outcome)
            elif _is_full(outcome):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            else:
                self.fail(source, outcome)

    def _take(self, source: Source, result: Result) -> None:
        entry = result.entry
        key = entry.run, entry.rank
        holder = self._holders.get(key)
        if key in self._refused or holder not in (None, source.name):
            self._refuse(source, entry, holder or "")
            return
        old = self._report.entries.get(entry.key)
        if old is not None and old.rank != entry.rank:
            self._forget(entry)
        manifest.commit(self._lake, Path(result.folder), entry)
        self._holders[key] = source.name
        self._report.read_bytes += source.bytes
        self._record(RankReport(entry, "done", result.seconds, result.peak_bytes))

    def _refuse(self, source: Source, entry: Entry, holder: str) -> None:
        """Takes neither of two sources of the same rank; one that is no part of this batch stays."""
        self.fail(source, _taken(source, entry, holder))
        other = self._sources.get(holder)
        key = entry.run, entry.rank
        if other is None or key in self._refused:
            return
        self._refused.add(key)
        status = self._statuses.get(holder)
        if status is not None:
            setattr(self._report, status, getattr(self._report, status) - 1)
            self._report.seen_bytes -= other.bytes
            self.fail(other, _taken(other, entry, source.name))
            self._holders[key] = holder

    def fail(self, source: Source, error: BaseException) -> None:
        """Records that a source could not be read."""
        kind = type(error).__name__
        found = {"rank": None, "fingerprint": "", "error": str(error) or kind, "error_kind": kind}
        entry = source.entry(self._run, self._options, "failed", **found)
        self._forget(entry)
        self._record(RankReport(entry, "failed"))

    def _forget(self, entry: Entry) -> None:
        """Takes out of the lake what was read from a source that is broken now, or another rank."""
        old = self._report.entries.get(entry.key)
        if old is not None and old.outcome == "done":
            manifest.discard(self._lake, old.place(self._lake))
            self._holders.pop((old.run, old.rank), None)

    def _record(self, report: RankReport) -> None:
        manifest.append(self._lake, report.entry)
        self._report.entries[report.entry.key] = report.entry
        self._finish(report)

    def _finish(self, report: RankReport) -> None:
        tally = self._report
        setattr(tally, report.status, getattr(tally, report.status) + 1)
        tally.seen_bytes += report.entry.bytes
        self._statuses[report.entry.source] = report.status
        if self._on_rank is not None:
            self._on_rank(report, tally)


def _taken(source: Source, entry: Entry, holder: str) -> RankTakenError:
    return RankTakenError(
        f"{source.name}: rank {entry.rank} of run {entry.run!r} is also that of {holder};"
        " take one of them out, or put them into different runs with --run",
        path=source.path,
    )


def _too_large(source: Source, peak: int, memory: int) -> MemoryLimitError:
    return MemoryLimitError(
        f"{source.name}: reading it takes about {format_bytes(peak)}, and --memory is {format_bytes(memory)}",
        path=source.path,
    )
