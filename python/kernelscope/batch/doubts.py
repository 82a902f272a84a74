"""What is odd about the ranks of a run: missing, recorded differently, or cut."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from kernelscope.batch.manifest import Entry
from kernelscope.units import format_count

_NAMED = 8
"""Ranks that are named; there may be a thousand."""

_SEVERAL = (
    "ranks with the work of several processes, which are told apart in collectives but not in steps: {}; "
    "profile each process into a file of its own to compare their steps"
)


def doubts(entries: Iterable[Entry], *, run: str) -> list[str]:
    """Sentences about the ranks of ``run``, none if nothing is odd."""
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
    told = [(entry.rank, value(entry)) for entry in done if value(entry) not in (None, ())]
    if not told:
        return None
    usual, _ = Counter(known for _, known in told).most_common(1)[0]
    others = [rank for rank, known in told if known != usual]
    return f"other {what} than most ranks: {_named(others)}" if others else None


def _named(ranks: Sequence[int | None]) -> str:
    known = sorted(rank for rank in ranks if rank is not None)
    shown = ", ".join(map(str, known[:_NAMED]))
    more = f" and {format_count(len(known) - _NAMED)} more" if len(known) > _NAMED else ""
    return f"{shown}{more}"
