"""Progress and result of a batch."""

import json
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from kernelscope.batch.lazy_json import glance
from kernelscope.batch.manifest import Entry, Key
from kernelscope.remote import BY_ITS_ENDS
from kernelscope.units import format_count

_NAMED = 8
"""Maximum number of ranks that a message names; there may be a thousand."""

_SEVERAL = (
    "ranks with several processes, which are separate in collectives but not in steps: {}. Profile "
    "each process into its own file to compare their steps"
)

_VAGUE = (
    "ranks whose storage provides neither a version nor a modification time: {}. A change between "
    "the first and the last 64 KiB of a file of the same length is not noticed; a new --out reads "
    "them again"
)

Status = Literal["done", "unchanged", "failed", "waiting"]
"""``waiting``: read, but the rank or window is not known before the others are read."""


@dataclass(frozen=True, slots=True)
class RankReport:
    """Result of a source in this batch, and the resources used."""

    entry: Entry
    status: Status
    seconds: float | None = None
    peak_bytes: int | None = None

    def to_line(self) -> str:
        """The report as a line of JSON."""
        entry = self.entry
        meta = glance(entry.meta)
        value = {
            "source": entry.source,
            "status": self.status,
            "run": entry.run,
            "rank": entry.rank,
            "window": entry.window,
            "bytes": entry.bytes,
            "content_bytes": meta.get("content_bytes"),
            "events": meta.get("seen"),
            "lost": entry.lost,
            "error": entry.error,
            "error_kind": entry.error_kind,
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
        }
        return json.dumps(value) + "\n"


@dataclass(slots=True)
class BatchReport:
    """Progress of a batch: sources by result, out of ``total``; and all entries of the lake."""

    lake: Path | str
    """The folder of the lake, or its URL."""
    total: int
    total_bytes: int
    done: int = 0
    unchanged: int = 0
    failed: int = 0
    waiting: int = 0
    seen_bytes: int = 0
    read_bytes: int = 0
    """Bytes of the sources that were read in this batch."""
    started: float = field(default_factory=time.monotonic)
    entries: dict[Key, Entry] = field(default_factory=dict[Key, Entry])
    notes: list[str] = field(default_factory=list[str])
    """Oddities of the lake itself, one sentence each."""

    @property
    def finished(self) -> int:
        """Number of finished sources."""
        return self.done + self.unchanged + self.failed + self.waiting

    @property
    def failures(self) -> list[Entry]:
        """Returns the entries that have an error."""
        return [entry for entry in self.entries.values() if entry.error is not None]


def damage_notes(lines: Sequence[int], *, is_torn: bool) -> list[str]:
    """Returns sentences about damage to a manifest: ``lines`` of its log, its file."""
    again = "rebuilt from the ranks' own entries"
    notes = [f"the manifest is damaged, and {again}"] if is_torn else []
    return [*notes, f"damaged lines of the manifest, {again}: {_named(lines)}"] if lines else notes


def stranger_notes(names: Sequence[str]) -> list[str]:
    """Returns a sentence about the files in a lake that no batch wrote, if there are any."""
    if not names:
        return []
    more = f" and {format_count(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
    return [f"in the lake but not written by a batch, and left unchanged: {', '.join(names[:_NAMED])}{more}"]


def left_over_notes(ranks: Sequence[int], run: str, *, pruned: bool) -> list[str]:
    """Returns a sentence about the ranks of ``run`` that no longer have a trace."""
    then = "taken out" if pruned else "left unchanged; --prune removes them"
    return [f"ranks of run {run} whose traces no longer exist, {then}: {_named(ranks)}"]


def run_notes(entries: Collection[Entry]) -> list[str]:
    """Returns sentences about the runs among traces that were requested as one run.

    They also describe their ranks.
    """
    ranks: dict[str, set[int | None]] = {}
    for entry in entries:
        ranks.setdefault(entry.run, set()).add(entry.rank)
    notes: list[str] = []
    if len(ranks) > 1:
        runs = sorted(ranks, key=lambda run: (len(run), run))
        sizes = [f"{run} ({_count(len(ranks[run]), 'rank')})" for run in runs]
        more = f" and {format_count(len(sizes) - _NAMED)} more" if len(sizes) > _NAMED else ""
        notes.append(
            f"traces of {format_count(len(sizes))} jobs, one run each: {', '.join(sizes[:_NAMED])}{more}"
        )
    numbered = sum(entry.rank_from in (None, "order") for entry in entries)
    if numbered > 1:
        notes.append(
            f"{format_count(numbered)} traces have no rank in content or name and are numbered by "
            "host, process and name; --rank-from finds ranks in other names"
        )
    return notes


def _count(number: int, what: str) -> str:
    return f"{format_count(number)} {what}{'' if number == 1 else 's'}"


def runs_of(entries: Iterable[Entry], *, asked: str) -> list[str]:
    """Returns the runs among traces that were requested as one run, the run with the most ranks first."""
    ranks: dict[str, set[int | None]] = {}
    for entry in entries:
        if entry.outcome == "done" and entry.asked_run == asked:
            ranks.setdefault(entry.run, set()).add(entry.rank)
    return sorted(ranks, key=lambda run: (-len(ranks[run]), len(run), run))


def consistency_warnings(entries: Iterable[Entry], *, run: str) -> list[str]:
    """Returns a sentence for each oddity of the ranks of ``run``: missing, different, or cut ranks."""
    done = [entry for entry in entries if entry.outcome == "done" and entry.run == run]
    if not done:
        return []
    ranks: dict[int | None, list[Entry]] = {}
    for entry in done:
        ranks.setdefault(entry.rank, []).append(entry)
    steps: dict[tuple[int, ...], list[int | None]] = {}
    for rank, windows in ranks.items():
        steps.setdefault(tuple(sorted(step for e in windows for step in e.steps)), []).append(rank)
    lost = [entry.rank for entry in done if entry.lost]
    kept = [entry.rank for entry in done if entry.error is not None]
    vague = [entry.rank for entry in done if entry.fingerprint.startswith(BY_ITS_ENDS)]
    # Nearly all of many ranks were recorded alike.
    recordings: dict[_Recording, list[int | None]] = {}
    for entry in done:
        recordings.setdefault(_recording(entry), []).append(entry.rank)
    several = [rank for recording, its in recordings.items() if recording.processes > 1 for rank in its]
    found = [
        _missing([recording.world_size for recording in recordings], ranks),
        *(
            _differing(
                name.replace("_", " "),
                ((getattr(recording, name), its) for recording, its in recordings.items()),
            )
            for name in ("world_size", "format", "recorder", "versions")
        ),
        _differing("steps", steps.items()),
        _SEVERAL.format(_named(several)) if several else None,
        f"ranks with an earlier state because their traces cannot be read now: {_named(kept)}"
        if kept
        else None,
        _VAGUE.format(_named(vague)) if vague else None,
        f"ranks that lost events, see their diagnostics: {_named(lost)}" if lost else None,
    ]
    return [text for text in found if text is not None]


class _Recording(NamedTuple):
    """What a trace says of how it was recorded."""

    world_size: object
    format: object
    recorder: object
    versions: tuple[tuple[str, object], ...]
    processes: int


def _recording(entry: Entry) -> _Recording:
    meta = glance(entry.meta)
    return _Recording(
        world_size=meta.get("world_size"),
        format=meta.get("format"),
        recorder=meta.get("recorder"),
        versions=tuple(sorted(meta.get("versions", {}).items())),
        processes=meta.get("processes", 1),
    )


def _missing(world_sizes: Iterable[object], there: Collection[int | None]) -> str | None:
    """Which ranks of the job are not there, if the traces say how many it has."""
    world = max((size for size in world_sizes if isinstance(size, int)), default=0)
    # The size may be any number that stands in a file.
    first = list(islice((rank for rank in range(world) if rank not in there), _NAMED))
    if not first:
        return None
    missing = world - sum(rank is not None and rank < world for rank in there)
    return f"{format_count(world)} ranks expected, missing: {_named(first, count=missing)}"


def _differing(what: str, groups: Iterable[tuple[object, Sequence[int | None]]]) -> str | None:
    """Which ranks differ from most in ``what``; those that do not say are left out."""
    known: dict[object, list[int | None]] = {}
    for seen, ranks in groups:
        if seen not in (None, ()):
            known.setdefault(seen, []).extend(ranks)
    if not known:
        return None
    usual = max(known, key=lambda seen: len(known[seen]))
    others = [rank for seen, ranks in known.items() if seen != usual for rank in ranks]
    return f"other {what} than most ranks: {_named(others)}" if others else None


def _named(ranks: Sequence[int | None], *, count: int = 0) -> str:
    """The first of the ranks, and how many more there are of ``count``, or of ``ranks``."""
    known = sorted({rank for rank in ranks if rank is not None})
    shown, more = ", ".join(map(str, known[:_NAMED])), max(len(known), count) - _NAMED
    more = f" and {format_count(more)} more" if more > 0 else ""
    return f"{shown}{more}"
