"""Determines the runs, ranks and windows of traces: which belong to one job, and in which order.

Only the recorded contents of the traces decide, never the order in which they were read, so that an
interrupted batch ends in the same lake as an uninterrupted one. docs/cluster.md states the rule.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from kernelscope.batch.manifest import Entry, Key, Place

JOB_GAP_NS = 600 * 10**9
"""Maximum distance between the recordings of the ranks of one job, including wrong clocks, in ns."""


@dataclass(frozen=True, slots=True)
class _Recording:
    """What a trace tells of the process that it is of."""

    key: Key
    rank: int | None
    """World size as recorded; null if unknown."""
    told_run: str | None
    world_size: int | None
    default_group: str | None
    process: Hashable
    """Identity shared by two windows of one process; the content if the process is unknown."""
    host: str
    pid: int
    groups: dict[str, str]
    start: int
    end: int
    events: int
    steps: tuple[int, ...]

    @property
    def folder(self) -> str:
        return self.key[1].rpartition("/")[0]


@dataclass(slots=True)
class _Process:
    """The recordings of a process, in order of time."""

    recordings: list[_Recording]
    rank: int | None

    @property
    def first(self) -> _Recording:
        return self.recordings[0]

    @property
    def key(self) -> Key:
        return self.first.key

    @property
    def folder(self) -> str:
        return self.first.folder

    @property
    def start(self) -> int:
        return self.first.start

    @property
    def end(self) -> int:
        return self.recordings[-1].end


class Arrangement(NamedTuple):
    """Place of each trace, and the original of each copy."""

    places: dict[Key, Place]
    copies: dict[Key, Key]


def arrange(
    entries: Iterable[Entry],
    run: str,
    *,
    kept: Collection[Key],
    taken: Collection[str],
    named: Mapping[Key, str],
) -> Arrangement:
    """Returns the places of the traces ``entries``, which were requested as one run.

    Of several recordings of the same data, those in ``kept`` stay, otherwise the first by name. ``taken`` has
    the names of other runs of the lake, ``named`` the names already given to jobs.
    """
    every = sorted(map(_recording, entries), key=lambda r: (r.key not in kept, r.key))
    recordings, copies = _without_copies(every)
    jobs = _jobs(_processes(recordings))
    for job in jobs:
        _number(job)
    jobs.sort(key=lambda job: min((process.start, process.key) for process in job))
    names = _names(jobs, run, taken, named)
    places: dict[Key, Place] = {}
    told: dict[str, list[_Process]] = defaultdict(list)
    for name, job in zip(names, jobs, strict=True):
        told[name] += job
    for name, job in told.items():
        places |= _windows(name, job)
    return Arrangement(places, copies)


def _recording(entry: Entry) -> _Recording:
    meta: Any = entry.meta
    rank, host, pid = meta.get("told_rank"), meta.get("host"), meta.get("pid")
    told_run = meta.get("told_run")
    size, group, recorder = meta.get("world_size"), meta.get("default_group"), meta.get("recorder")
    process = entry.fingerprint if pid is None else (host, pid, size, group, recorder)
    if told_run is not None and rank is not None:
        # The user says that they belong together.
        process = told_run
    start = meta.get("start_ns") or 0
    return _Recording(
        key=entry.key,
        rank=rank,
        told_run=told_run,
        world_size=size,
        default_group=group,
        process=process,
        host=host or "",
        pid=pid or 0,
        groups=meta.get("groups") or {},
        start=start,
        end=max(meta.get("end_ns") or 0, start),
        events=meta.get("seen") or 0,
        steps=tuple(step - entry.step_offset for step in entry.steps),
    )


def _without_copies(recordings: Iterable[_Recording]) -> tuple[list[_Recording], dict[Key, Key]]:
    """One of several files of one recording, such as a trace and the same one compressed."""
    firsts: dict[Hashable, _Recording] = {}
    copies: dict[Key, Key] = {}
    for recording in recordings:
        what = recording.rank, recording.process, recording.start, recording.end, recording.events
        first = firsts.setdefault(what, recording)
        if first is not recording:
            copies[recording.key] = first.key
    return list(firsts.values()), copies


def _processes(recordings: Iterable[_Recording]) -> list[_Process]:
    """Recordings of one process, which records one thing at a time."""
    lines: dict[Hashable, list[_Process]] = defaultdict(list)
    for recording in sorted(recordings, key=lambda r: (r.start, r.end, r.key)):
        what = recording.process, recording.rank
        for process in lines[what]:
            if process.end <= recording.start and _agree(process.first.groups, recording.groups):
                process.recordings.append(recording)
                break
        else:
            lines[what].append(_Process([recording], recording.rank))
    return [process for line in lines.values() for process in line]


def _agree(groups: dict[str, str], others: dict[str, str]) -> bool:
    """Whether process groups of one name have the same ranks; more may be made while a job runs."""
    return all(others.get(name, ranks) == ranks for name, ranks in groups.items())


def _jobs(processes: list[_Process]) -> list[list[_Process]]:
    """Processes of one world, recorded at one time, of which no two have the same rank."""
    told: dict[str, list[_Process]] = defaultdict(list)
    worlds: dict[tuple[int | None, str | None], list[_Process]] = defaultdict(list)
    for process in processes:
        first = process.first
        if first.told_run is not None:
            told[first.told_run].append(process)
        else:
            worlds[first.world_size, first.default_group].append(process)
    unknown = worlds.pop((None, None), [])
    jobs = [job for members in worlds.values() for job in _of_one_time(members)]
    left = [process for process in unknown if not _joins(process, jobs)]
    return [*told.values(), *jobs, *_of_one_time(left)]


def _of_one_time(processes: Sequence[_Process]) -> list[list[_Process]]:
    together: list[list[_Process]] = []
    reach = 0
    for process in sorted(processes, key=_ORDER):
        if not together or process.start - reach > JOB_GAP_NS:
            together.append([])
            reach = process.end
        together[-1].append(process)
        reach = max(reach, process.end)
    return [job for some in together for job in separate(some)]


def _joins(process: _Process, jobs: list[list[_Process]]) -> bool:
    """Puts a process that records no world into the only job of its time in which its rank is free."""
    if process.rank is None:
        return False
    fitting = [
        job
        for job in jobs
        if min(p.start for p in job) - JOB_GAP_NS <= process.end
        and process.start <= max(p.end for p in job) + JOB_GAP_NS
        and process.rank < (job[0].first.world_size or 0)
        and all(p.rank != process.rank for p in job)
    ]
    if len(fitting) == 1:
        fitting[0].append(process)
    return len(fitting) == 1


class _Timed(Protocol):
    """What is of a rank and of a time."""

    @property
    def rank(self) -> int | None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def folder(self) -> str: ...


_T = TypeVar("_T", bound=_Timed)
_ORDER: Callable[[Any], Any] = attrgetter("start", "end", "key")


def separate(items: Sequence[_T]) -> list[list[_T]]:
    """Divides recordings made at several times, in order of time, so that no part contains a rank twice.

    Cuts are made where nothing was recorded, at the longest pause first, and as few as possible. Overlapping
    recordings are divided by folder if no folder contains a rank twice. Otherwise the first recording of each
    rank forms a part, then the second, and so on.
    """
    waiting, parts = [sorted(items, key=_ORDER)], list[list[_T]]()
    while waiting:
        some = waiting.pop()
        if not _has_doubles(some):
            parts.append(some)
            continue
        cut = _longest_gap(some)
        if cut is None:
            parts += _by_folder(some)
        else:
            waiting += [some[cut:], some[:cut]]
    return parts


def _has_doubles(items: Iterable[_T]) -> bool:
    ranks = [item.rank for item in items if item.rank is not None]
    return len(set(ranks)) < len(ranks)


def _longest_gap(items: Sequence[_T]) -> int | None:
    reach, longest, cut = items[0].end, 0, None
    for number, item in enumerate(items):
        if item.start - reach > longest:
            longest, cut = item.start - reach, number
        reach = max(reach, item.end)
    return cut


def _by_folder(items: Sequence[_T]) -> list[list[_T]]:
    folders: dict[str, list[_T]] = defaultdict(list)
    turns: dict[int, list[_T]] = defaultdict(list)
    seen: Counter[int | None] = Counter()
    for item in items:
        folders[item.folder].append(item)
        turns[0 if item.rank is None else seen[item.rank]].append(item)
        seen[item.rank] += 1
    are_jobs = not any(map(_has_doubles, folders.values()))
    return list(folders.values() if are_jobs else turns.values())


def _number(job: Sequence[_Process]) -> None:
    """Gives the processes of which nothing tells the rank the free ones, by host, process and name."""
    there = {process.rank for process in job}
    free = (number for number in range(len(job) + len(there)) if number not in there)
    nameless = [process for process in job if process.rank is None]
    for process in sorted(nameless, key=lambda p: (p.first.host, p.first.pid, p.key)):
        process.rank = next(free)


def _names(
    jobs: Sequence[Sequence[_Process]], run: str, taken: Collection[str], named: Mapping[Key, str]
) -> list[str]:
    """The names of runs: what was asked for, with a number for the second job and each after it.

    A job that has a name keeps it, whatever comes into the lake later.
    """
    names = [job[0].first.told_run for job in jobs]
    used = {*taken, *names} - {run}
    names = [None if name is None else name or run for name in names]
    for place, job in enumerate(jobs):
        keys = (recording.key for process in job for recording in process.recordings)
        known = Counter(named[key] for key in keys if key in named)
        name = min(known, key=lambda name: (-known[name], name), default=None)
        if names[place] is None and name is not None and name not in used:
            names[place] = name
            used.add(name)
    name, number = run, 1
    for place, known_name in enumerate(names):
        while known_name is None and name in used:
            number += 1
            name = f"{run}-{number}"
        names[place] = known_name or name
        used.add(known_name or name)
    return [name or run for name in names]


class _Window(NamedTuple):
    """A recording with the rank that was found for it."""

    recording: _Recording
    rank: int

    @property
    def start(self) -> int:
        return self.recording.start

    @property
    def end(self) -> int:
        return self.recording.end

    @property
    def key(self) -> Key:
        return self.recording.key

    @property
    def folder(self) -> str:
        return self.recording.folder


def _windows(run: str, job: Sequence[_Process]) -> dict[Key, Place]:
    """The places of the recordings of a job: what was recorded at one time has one number on all ranks."""
    places: dict[Key, Place] = {}
    every = [_Window(recording, process.rank or 0) for process in job for recording in process.recordings]
    last: int | None = None
    for number, together in enumerate(separate(every)):
        steps = [step for window in together for step in window.recording.steps]
        # Numbers that go on are as they were recorded.
        offset = last + 1 - min(steps) if steps and last is not None and min(steps) <= last else 0
        last = max(steps) + offset if steps else last
        for window in together:
            places[window.key] = Place(run, window.rank, number, offset)
    return places
