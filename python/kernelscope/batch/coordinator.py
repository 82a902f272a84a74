"""Coordinates a batch: finds tasks, assigns them to workers, and moves their results into place."""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kernelscope import __version__, remote
from kernelscope.batch import gathering, manifest, rank_folders, sizing
from kernelscope.batch.dask_cluster import Needs
from kernelscope.batch.jobs import arrange
from kernelscope.batch.lake_state import Aside, Image, LakeState
from kernelscope.batch.manifest import Entry, Key, Place
from kernelscope.batch.mirror import mirrored
from kernelscope.batch.rank_names import check_pattern
from kernelscope.batch.reports import BatchReport, RankReport, Status, left_over_notes, run_notes
from kernelscope.batch.sources import Part, Source, database_of, find
from kernelscope.batch.work import Move, Moved, Result, Split, Task, move_rank, read_rank
from kernelscope.batch.workers import WorkerPool, open_workers
from kernelscope.errors import (
    BatchStoppedError,
    InvalidArgumentError,
    KernelscopeError,
    LakeFullError,
    MemoryLimitError,
    RankTakenError,
)
from kernelscope.units import format_bytes

DEFAULT_RUN = "default"
_LOOKED_AT = 100
"""Number of traces whose visibility every worker of a scheduler checks."""


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
    rank_from: str | None = None,
    task_timeout: float | None = None,
    prune: bool = False,
    on_rank: Callable[[RankReport, BatchReport], object] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> BatchReport:
    """Reads all traces of ``inputs`` into the lake ``out``, one rank per core at a time.

    Inputs are files, folders, tar archives and fsspec URLs. Sources that are in the lake already and
    unchanged are skipped, so an interrupted batch resumes where it stopped. A source that cannot be read is
    recorded with its error, and the others continue. ``run`` names the job, so that a lake can contain
    several. Further jobs among the inputs get numbers. ``workers`` is the number of processes (default: one
    per core). ``memory`` limits them together (default: 80 % of the free memory). ``executor`` replaces the
    processes. ``scheduler`` is the address of a Dask scheduler whose workers access ``inputs`` and ``out``
    under the same paths; ``memory`` then limits each worker. ``out`` may be a URL: processes of this machine
    then fill a temporary folder, from which each rank is uploaded. ``rank_from`` is a regular expression that
    finds the rank, and optionally the run, in the path of a trace, as groups of these names. docs/cluster.md
    describes how ranks and runs are found without it. ``prune`` removes ranks of the run whose traces no
    longer exist. ``task_timeout`` limits the time per trace (default: 300 s plus one second per megabyte).
    ``on_rank`` is called for each finished source. ``stop`` is polled several times a second between tasks.
    When it returns true, the workers are stopped, and unfinished tasks are left for the next call.

    Units: ``memory`` in bytes, ``task_timeout`` in seconds.
    Raises: LakeBusyError: another batch is writing to the lake. LakeFullError: the disk is full; ranks in the
        lake are complete. BatchStoppedError: ``stop`` returned true; call again to resume. StorageError: the
        storage of ``out`` does not answer; call again to resume. SchedulerLostError: the scheduler does not
        exist, or the connection was lost; call again to resume. UnusableWorkersError: it has no workers, or
        some cannot run the batch; call again to resume. TraceNotFoundError, InvalidArgumentError: the inputs
        contain nothing that can be read.

    Example: ``ks.batch.run("traces/", "lake/", memory=8_000_000_000)``
    """
    manifest.check_run(run)
    if rank_from is not None:
        check_pattern(rank_from)
    asked = _Asked(run, {"strict": strict, "step_range": step_range}, rank_from, prune, stop)
    if task_timeout is not None and not task_timeout > 0:
        raise InvalidArgumentError(f"task_timeout must be more than 0 seconds, not {task_timeout}")
    hands = _Hands(workers, memory, executor, scheduler, task_timeout)
    if remote.is_storage(out):
        if scheduler is not None:
            raise InvalidArgumentError(
                f"{out}: with a scheduler, a lake is a folder that all workers can access"
            )
        with mirrored(out, on_rank) as mirror:
            report = _run_here(inputs, mirror.folder, asked, hands, mirror.note, mirror)
        report.lake = out
        return report
    return _run_here(inputs, out, asked, hands, on_rank)


class _Asked(NamedTuple):
    """What a batch was asked for."""

    run: str
    reading: dict[str, object]
    """Options of ``kernelscope.read``."""
    rank_from: str | None
    prune: bool
    stop: Callable[[], bool]
    """Returns whether to stop before everything is done."""

    @property
    def options(self) -> dict[str, object]:
        """With what a trace must have been read to count as unchanged."""
        return {**self.reading, "rank_from": self.rank_from}


class _Hands(NamedTuple):
    """Who does the work."""

    workers: int | None
    memory: int | None
    executor: Executor | None
    scheduler: str | None
    task_timeout: float | None


def _run_here(
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    asked: _Asked,
    hands: _Hands,
    on_rank: Callable[[RankReport, BatchReport], object] | None,
    image: Image | None = None,
) -> BatchReport:
    """Reads the traces into a lake that is a folder, maybe an ``image``."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)", os.fspath(out)):
        raise InvalidArgumentError(f"{os.fspath(out)}: pass a URL as text with two slashes, not as a Path")
    lake = (remote.local_path(os.fspath(out)) or Path(out)).absolute()
    given = [os.fspath(name) for name in ([inputs] if isinstance(inputs, (str, os.PathLike)) else inputs)]
    rank_folders.check_out(lake, given)
    with manifest.locked(lake):
        manifest.clear_staging(lake)
        sources = find(given, lake)
        report = BatchReport(lake, len(sources), sum(source.bytes for source in sources))
        workplace = manifest.workplace(lake)
        state = LakeState(lake, image)
        batch = _Batch(report, state, asked, sources, workplace, on_rank)
        batch.load()
        try:
            _work(batch, asked, hands, lake, image)
        except OSError as error:
            raise _explained(error, lake, report) from None
        finally:
            # A full disk has been reported by now, and the lines that were appended say the same.
            with contextlib.suppress(OSError):
                state.save()
            manifest.clear_staging(lake)
    return report


def _work(batch: "_Batch", asked: _Asked, hands: _Hands, lake: Path, image: Image | None) -> None:
    """Has everything read, then everything put where it belongs, and small ranks gathered."""
    waiting = batch.prepare()
    batch.note_left_over(prune=asked.prune)
    if waiting:
        with open_workers(waiting, *hands, needs=batch.needs(waiting)) as pool:
            batch.work(pool)
    if not batch.is_settled:
        _settle(batch, hands, lake, image)
    batch.note_runs()
    batch.gather(swept=True)


def _settle(batch: "_Batch", hands: _Hands, lake: Path, image: Image | None) -> None:
    """Has everything put where it belongs."""
    moves = batch.misplaced()
    if moves:
        if image is not None:
            for move in moves:
                if Path(move.folder) == move.entry.folder(lake):
                    image.fetch(move.entry)
        peaks = {move: sizing.moving_peak(move.entry) for move in moves}
        with open_workers(peaks, *hands, needs=batch.needs(())) as pool:
            batch.move(pool)
    batch.settle()


def _explained(error: OSError, lake: Path, report: BatchReport) -> OSError:
    if not _is_full(error):
        return error
    there = sum(entry.outcome == "done" for entry in report.entries.values())
    return LakeFullError(
        f"{lake}: no space left on the device. {there} ranks are complete in the lake. Free some "
        "space and run again",
        path=str(lake),
    )


def _is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


class _Batch:
    """The state of a batch: its sources, and what becomes of them."""

    def __init__(
        self,
        report: BatchReport,
        state: LakeState,
        asked: _Asked,
        sources: Sequence[Source],
        workplace: Path,
        on_rank: Callable[[RankReport, BatchReport], object] | None,
    ) -> None:
        self._report = report
        self._state = state
        self._asked = asked
        self._sources = {source.name: source for source in sources}
        self._workplace = str(workplace)
        self._on_rank = on_rank
        self._statuses: dict[str, Status] = {}
        self._missing: dict[int, list[Entry]] = {}
        """Ranks of this run whose sources are no more, by size."""
        self._kept: set[Key] = set()
        """What the lake had before."""
        self._new = gathering.Heap()
        """How much came into the lake since ranks were gathered."""

    def load(self) -> None:
        """Reads what is in the lake."""
        self._state.load(self._sources.keys())
        self._report.entries = self._state.entries
        self._report.notes = self._state.notes
        self._take_apart_known()
        there = self._state.done(self._asked.run)
        self._kept = set(there)
        for entry in there.values():
            if entry.source not in self._sources and not os.path.lexists(entry.source):
                self._missing.setdefault(entry.bytes, []).append(entry)

    def _take_apart_known(self) -> None:
        """Takes the ranks of databases that the lake has each for itself, if these have not changed."""
        waiting = [aside.entry for aside in self._state.asides.values()]
        for entry in [*self._state.entries.values(), *waiting]:
            database = database_of(entry.source)
            if database == entry.source or entry.asked_run != self._asked.run:
                continue
            source, parts = self._sources.get(database), entry.meta.get("parts")
            if source is None or not parts:
                continue
            if (entry.bytes, entry.mtime_ns) == (source.bytes, source.mtime_ns):
                known = tuple(Part(tuple(processes), *rest) for processes, *rest in parts)
                self._take_apart(source, source.split(known))

    def _take_apart(self, source: Source, parts: Sequence[Source]) -> None:
        """Takes each rank of a database for itself."""
        self._forget_of(source, {part.name for part in parts})
        del self._sources[source.name]
        self._sources |= {part.name: part for part in parts}
        self._report.total += len(parts) - 1
        self._report.total_bytes += source.bytes * (len(parts) - 1)

    def prepare(self) -> dict[Source, int]:
        """The sources that must be read, and the memory each will take."""
        return self._prepared(self._sources.values())

    def _prepared(self, sources: Iterable[Source]) -> dict[Source, int]:
        waiting: dict[Source, int] = {}
        for source in sources:
            self._check()
            self._prepare(source, waiting)
        return waiting

    def _check(self) -> None:
        """Ends the batch if it was asked to."""
        if self._asked.stop():
            raise BatchStoppedError("stopped. Finished ranks are in the lake, and the next run resumes")

    def _prepare(self, source: Source, waiting: dict[Source, int]) -> None:
        try:
            if source.error is not None:
                raise source.error
            entry = self._unchanged(source)
            if entry is None:
                waiting[source] = sizing.expected_peak(source)
        except (KernelscopeError, OSError) as error:
            self.fail(source, error)
        else:
            if entry is not None:
                waits = self._state.entries.get(entry.key) is not entry
                self._finish(RankReport(entry, "waiting" if waits else "unchanged"))

    def _unchanged(self, source: Source) -> Entry | None:
        """The entry of a source that need not be read again."""
        entry = self._state.latest((self._asked.run, source.name)) or self._moved(source)
        if entry is None or entry.outcome != "done":
            return None
        if (entry.version, entry.options) != (__version__, self._asked.options):
            return None
        if (entry.bytes, entry.mtime_ns) != (source.bytes, source.mtime_ns):
            return None
        is_same = self._state.is_surely_unchanged(entry, source.ctime_ns)
        return entry if is_same or entry.fingerprint == source.fingerprint() else None

    def _moved(self, source: Source) -> Entry | None:
        """The entry of a source that has the same content and is now here, and not where it was."""
        part = source.name.removeprefix(database_of(source.name))
        for entry in self._missing.get(source.bytes, ()):
            if entry.source.removeprefix(database_of(entry.source)) != part:
                continue
            if entry.key in self._state.entries and entry.fingerprint == source.fingerprint():
                times = {"mtime_ns": source.mtime_ns, "ctime_ns": source.ctime_ns}
                moved = replace(entry, source=source.name, **times)
                self._state.rename(entry, moved)
                return moved
        return None

    def note_left_over(self, *, prune: bool) -> None:
        """Says which ranks of the run have no trace any more, or takes them out."""
        run = self._asked.run
        known = [*self._state.done(run).values(), *(aside.entry for aside in self._state.asides.values())]
        left = {
            entry.key: entry
            for entry in known
            if entry.asked_run == run and entry.source not in self._sources and self._is_gone(entry.source)
        }
        if prune:
            for entry in left.values():
                self._state.forget(entry)
        ranks = sorted({entry.rank for entry in left.values() if entry.rank is not None})
        if ranks:
            self._report.notes += left_over_notes(ranks, run, pruned=prune)

    def _is_gone(self, source: str) -> bool:
        """Whether it is certain that there is no such source any more."""
        archive, _, member = source.partition("::")
        if member and any(name.startswith(f"{archive}::") for name in self._sources):
            return archive not in self._sources
        try:
            os.lstat(archive)
        except (FileNotFoundError, NotADirectoryError):
            return "://" not in source
        except OSError:
            pass
        return False

    def needs(self, sources: Iterable[Source]) -> Needs:
        """What workers on other machines must see: of each folder of traces the first of its files."""
        files = [source.path for source in sources if source.kind != "remote"]
        firsts = {os.path.dirname(path): path for path in sorted(files, reverse=True)}
        return Needs(self._workplace, list(firsts.values())[:_LOOKED_AT])

    def work(self, pool: WorkerPool[Source]) -> None:
        """Has all sources read, the largest first."""
        for source, peak in pool.too_large.items():
            self.fail(source, _too_large(source, peak, pool.limit))

        def work(source: Source, threads: int) -> tuple[Callable[[Task], Result | Split], Task]:
            return read_rank, self._task(source, threads)

        for source, outcome in pool.results(work, self._check):
            if isinstance(outcome, Result):
                self._take(source, outcome)
            elif isinstance(outcome, Split):
                parts = source.split(outcome.parts)
                self._take_apart(source, parts)
                pool.waiting += self._prepared(parts).items()
            elif _is_full(outcome):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            else:
                self.fail(source, outcome)

    def _task(self, source: Source, threads: int) -> Task:
        asked = self._asked
        before = self._state.latest((asked.run, source.name))
        if before is not None and before.outcome != "done":
            before = None
        return Task(source, self._workplace, asked.run, asked.reading, threads, asked.rank_from, before)

    def _take(self, source: Source, result: Result) -> None:
        """Puts what was read into its place if that is known and free, else lets it wait."""
        entry = result.entry
        if source.part is None:
            self._forget_of(source, {source.name})
        self._report.read_bytes += source.bytes
        folder = Path(result.folder)
        if not self._state.is_free(entry):
            self._state.wait(Aside(folder, entry, result.seconds, result.peak_bytes))
            self._finish(RankReport(entry, "waiting"))
            return
        try:
            self._state.commit(folder, entry)
        except RankTakenError as error:
            self.fail(source, error)
            return
        self._state.drop_aside(entry.key)
        self._finish(RankReport(entry, "done", result.seconds, result.peak_bytes))
        self._new.add(entry)
        if self._new.is_enough:
            self.gather()

    def gather(self, *, swept: bool = False) -> None:
        """Gathers small ranks as soon as they fill a folder; with ``swept``, what is left of folders, too."""
        entries = self._state.entries.values()
        shares = gathering.full_shares(entries) + (gathering.swept_shares(entries) if swept else [])
        for share in shares:
            self._check()
            self._state.gather(share)
        self._new = gathering.Heap()

    def _forget_of(self, source: Source, kept: Collection[str]) -> None:
        """Takes out what the lake has of a database as other ranks than those that it is now."""
        database, run = database_of(source.name), self._asked.run
        for key, entry in list(self._state.entries.items()):
            if key[0] == run and database_of(key[1]) == database and key[1] not in kept:
                self._state.forget(entry)

    @property
    def is_settled(self) -> bool:
        """Whether it is known already that everything is where it belongs."""
        return self._state.is_settled(self._asked.run)

    def note_runs(self) -> None:
        """Says which runs the traces are of."""
        self._report.notes += run_notes(self._state.done(self._asked.run).values())

    def misplaced(self) -> list[Move]:
        """What is not where it belongs, now that all traces are known. Copies are taken out."""
        run, state = self._asked.run, self._state
        there = state.done(run)
        waiting = {key: aside for key, aside in state.asides.items() if key[0] == run}
        family = there | {key: aside.entry for key, aside in waiting.items()}
        named = {key: entry.run for key, entry in there.items() if entry.settled}
        found = arrange(family.values(), run, kept=self._kept, taken=state.other_runs(run), named=named)
        for key, first in found.copies.items():
            self._refuse(family[key], _copied(family[key], first[1]))
        return [
            Move(
                family[key],
                str(waiting[key].folder if key in waiting else family[key].folder(state.lake)),
                place,
                self._workplace,
            )
            for key, place in found.places.items()
            if family[key].place != place
        ]

    def _refuse(self, entry: Entry, error: KernelscopeError) -> None:
        self._state.forget(entry)
        failed = replace(entry.moved(Place(self._asked.run, None)), outcome="failed", files={}, steps=())
        self._fail_entry(failed, error)

    def move(self, pool: WorkerPool[Move]) -> None:
        """Has all that is misplaced written anew, before anything takes its new place."""
        for move, peak in pool.too_large.items():
            self._fail_entry(move.entry, _too_large(move, peak, pool.limit))
        for move, outcome in pool.results(lambda move, _: (move_rank, move), self._check):
            if isinstance(outcome, Moved):
                entry, folder = outcome
                before = self._state.asides.get(entry.key, Aside(Path(), entry))
                self._state.wait(before._replace(folder=Path(folder), entry=entry))
            elif _is_full(outcome):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            else:
                self._fail_entry(move.entry, outcome)

    def settle(self) -> None:
        """Puts what waited into its place."""
        waiting = {key: aside for key, aside in self._state.asides.items() if key[0] == self._asked.run}
        for key in waiting:
            self._state.leave(key)
        for aside in waiting.values():
            self._place(aside)
        self._state.settle(self._asked.run)

    def _place(self, aside: Aside) -> None:
        entry, state = aside.entry, self._state
        try:
            if not state.is_free(entry):
                raise RankTakenError(
                    f"{entry.source}: {entry.place.folder} in the lake is already in use; run again"
                )
            state.commit(aside.folder, entry)
        except RankTakenError as error:
            self._fail_entry(entry, error)
            return
        del state.asides[entry.key]
        status = "unchanged" if self._statuses.get(entry.source) == "unchanged" else "done"
        self._finish(RankReport(entry, status, aside.seconds, aside.peak_bytes))

    def fail(self, source: Source, error: BaseException) -> None:
        """Records that a source could not be read. What the lake has of it stays, and says so."""
        old = self._state.entries.get((self._asked.run, source.name))
        if old is None or old.rank is None:
            run = self._asked.run
            old = source.entry(Place(run, None), self._asked.options, "failed", asked_run=run, fingerprint="")
        self._fail_entry(old, error)

    def _fail_entry(self, entry: Entry, error: BaseException) -> None:
        kind = type(error).__name__
        held = self._state.entries.get(entry.key)
        outcome = "failed" if held is None else held.outcome
        entry = replace(entry, outcome=outcome, error=str(error) or kind, error_kind=kind)
        self._state.record(entry)
        self._finish(RankReport(entry, "failed"))

    def _finish(self, report: RankReport) -> None:
        """Counts a source as what became of it; what it was counted as before does not count any more."""
        tally, source = self._report, report.entry.source
        before = self._statuses.get(source)
        if before is None:
            tally.seen_bytes += report.entry.bytes if source in self._sources else 0
        else:
            setattr(tally, before, getattr(tally, before) - 1)
        if source in self._sources:
            setattr(tally, report.status, getattr(tally, report.status) + 1)
            self._statuses[source] = report.status
        if self._on_rank is not None:
            self._on_rank(report, tally)


def _copied(entry: Entry, first: str) -> RankTakenError:
    return RankTakenError(
        f"{entry.source}: contains the same recording as {first}, which is in the lake already. "
        "Remove one of them",
        path=entry.source,
    )


def _too_large(source: Source | Move, peak: int, limit: str) -> MemoryLimitError:
    return MemoryLimitError(
        f"{source.name}: reading it needs about {format_bytes(peak)}, but {limit}", path=source.name
    )
