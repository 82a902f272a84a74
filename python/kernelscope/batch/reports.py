"""What a batch reports while it runs, and at its end."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernelscope.batch.manifest import Entry
from kernelscope.units import format_count

_NAMED = 8
"""Ranks that are named; there may be a thousand."""

_SEVERAL = (
    "ranks with the work of several processes, which are distinguished in collectives but not in steps: {}; "
    "profile each process into a file of its own to compare their steps"
)

Status = Literal["done", "unchanged", "failed"]


@dataclass(frozen=True, slots=True)
class RankReport:
    """What became of a source in this batch, and what it took."""

    entry: Entry
    status: Status
    seconds: float | None = None
    peak_bytes: int | None = None

    def to_line(self) -> str:
        """The report as a line of JSON."""
        entry = self.entry
        value = {
            "source": entry.source,
            "status": self.status,
            "run": entry.run,
            "rank": entry.rank,
            "bytes": entry.bytes,
            "content_bytes": entry.meta.get("content_bytes"),
            "events": entry.meta.get("seen"),
            "lost": entry.lost,
            "error": entry.error,
            "error_kind": entry.error_kind,
            "seconds": self.seconds,
            "peak_bytes": self.peak_bytes,
        }
        return json.dumps(value) + "\n"


@dataclass(slots=True)
class BatchReport:
    """How far a batch is: sources by what became of them, out of ``total``; and all entries of the lake."""

    lake: Path
    total: int
    total_bytes: int
    done: int = 0
    unchanged: int = 0
    failed: int = 0
    seen_bytes: int = 0
    read_bytes: int = 0
    """Bytes of the sources that are done in this batch."""
    started: float = field(default_factory=time.monotonic)
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict[tuple[str, str], Entry])

    @property
    def finished(self) -> int:
        """Sources that nothing is left to do for."""
        return self.done + self.unchanged + self.failed

    @property
    def failures(self) -> list[Entry]:
        """The entries that have an error."""
        return [entry for entry in self.entries.values() if entry.outcome == "failed"]


def consistency_warnings(entries: Iterable[Entry], *, run: str) -> list[str]:
    """Returns a sentence for each oddity of the ranks of ``run``: missing, different, or cut."""
    done = [entry for entry in entries if entry.outcome == "done" and entry.run == run]
    if not done:
        return []
    lost = [entry.rank for entry in done if entry.lost]
    several = [entry.rank for entry in done if entry.meta.get("processes", 1) > 1]
    found = [
        _missing(done),
        _differing(done, "world size", lambda entry: entry.meta.get("world_size")),
        _differing(done, "format", lambda entry: entry.meta.get("format")),
        _differing(done, "recorder", lambda entry: entry.meta.get("recorder")),
        _differing(done, "versions", lambda entry: tuple(sorted(entry.meta.get("versions", {}).items()))),
        _differing(done, "steps", lambda entry: entry.steps),
        _SEVERAL.format(_named(several)) if several else None,
        f"ranks that lost events, which their diagnostics name: {_named(lost)}" if lost else None,
    ]
    return [text for text in found if text is not None]


def _missing(done: Sequence[Entry]) -> str | None:
    """Which ranks of the job are not there, if the traces say how many it has."""
    sizes = [size for entry in done if isinstance(size := entry.meta.get("world_size"), int)]
    world = max(sizes, default=0)
    missing = sorted(set(range(world)) - {entry.rank for entry in done})
    return f"of {format_count(world)} ranks these are missing: {_named(missing)}" if missing else None


def _differing(done: Sequence[Entry], what: str, value: Callable[[Entry], object]) -> str | None:
    """Which ranks differ from most in ``what``; those that do not say are left out."""
    known = [(entry.rank, value(entry)) for entry in done if value(entry) not in (None, ())]
    if not known:
        return None
    usual, _ = Counter(seen for _, seen in known).most_common(1)[0]
    others = [rank for rank, seen in known if seen != usual]
    return f"other {what} than most ranks: {_named(others)}" if others else None


def _named(ranks: Sequence[int | None]) -> str:
    known = sorted(rank for rank in ranks if rank is not None)
    shown = ", ".join(map(str, known[:_NAMED]))
    more = f" and {format_count(len(known) - _NAMED)} more" if len(known) > _NAMED else ""
    return f"{shown}{more}"
