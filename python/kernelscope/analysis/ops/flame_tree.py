"""Flame graphs as trees: the frames of each thread, and the events of each frame."""

from typing import NamedTuple

import polars as pl

from kernelscope.analysis.grouping import Classes, classes_of, of_every, positions, sum_by_group
from kernelscope.analysis.ops.call_stacks import Trie
from kernelscope.analysis.ops.flame import (
    clean_name,
    has_recorded_stacks,
    of_thread,
    python_frames,
    shown_frame_name,
    stack_rows,
)
from kernelscope.analysis.timeline import thread_labels
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

MOST_STACKS = 200_000
"""Maximum number of stacks in a tree. The smallest stacks beyond it are summed in ``left_ns``."""

_NO_THREAD = "(no operator)"
_KEYS = ("track", "path")
_FRAMES = {
    "parent": pl.UInt32,
    "text": pl.String,
    "track": pl.Int64,
    "own_ns": pl.Int64,
    "total_ns": pl.Int64,
}
_TABLES = ("ops", "launches", "python", "ranges", "gpu_ops")


class FlameTree(NamedTuple):
    """Frames of a flame graph, with their events.

    ``frames`` has one row per frame, after its caller: ``parent`` (position; null for the root of a thread),
    ``name``, ``category`` (of its events, as on the timeline, or ``module``, ``thread``, ``other``),
    ``total_ns`` (including its calls), ``own_ns`` and ``calls`` (number of its events; null if not recorded).
    ``events`` has the ``row`` of each event with its ``frame``. ``left_ns`` is the time of omitted stacks.
    """

    frames: pl.DataFrame
    events: pl.DataFrame
    left_ns: int


@per_trace
def flame_tree(
    trace: Trace,
    *,
    by: str = "op",
    metric: str = "self_cpu",
    spans: tuple[tuple[int, int], ...] | None = None,
) -> FlameTree:
    """Returns the stacks of :func:`folded_stacks` with ``by_thread`` as a tree with one root per thread.

    ``spans`` (ns) restricts the events to those that start in one of the spans.

    Units: ns. Order: the thread with the longest time first, each frame after its caller.
    """
    rows, trie = stack_rows(trace, by, metric)
    values = rows["value_ns"]
    if spans is not None:
        values = pl.select(pl.when(_inside(rows["start_ns"], spans)).then(values)).to_series()
    stacks = _stacks_of(rows)
    sums = stacks.keys.hstack(sum_by_group(stacks.of, values, stacks.keys.height))
    sums = (
        sums.filter(pl.col("path").is_not_null() & (pl.col("sum") > 0))
        .with_columns(_thread_ns=pl.col("sum").sum().over("track"))
        .sort("_thread_ns", "track", "sum", "path", descending=[True, False, True, False])
    )
    kept = sums if sums.height <= MOST_STACKS else sums.sort("sum", descending=True).head(MOST_STACKS)
    left_ns = int(sums["sum"].sum()) - int(kept["sum"].sum())
    frames, places = _grown(kept.select(*_KEYS, "sum"), trie)
    labels = dict(thread_labels(trace.threads).select("track", "label").iter_rows())
    frames = frames.with_columns(
        name=pl.when(pl.col("parent").is_null())
        .then(pl.col("track").replace_strict(labels, default=_NO_THREAD, return_dtype=pl.String))
        .otherwise("text")
    )
    if by == "python" and not has_recorded_stacks(trace):
        # The stacks are of the events in Python frames; the frames are events themselves.
        rows = python_frames(trace)
        stacks = _stacks_of(rows)
    frame = stacks.keys.join(places, on=_KEYS, how="left", nulls_equal=True, maintain_order="left")["frame"]
    events = pl.DataFrame([frame.gather(stacks.of), rows["row"], rows["start_ns"]])
    del rows, stacks, values
    events = events.drop_nulls("frame") if events["frame"].null_count() else events
    return FlameTree(_described(trace, frames, events, by), events.drop("start_ns"), left_ns)


def _stacks_of(rows: pl.DataFrame) -> Classes:
    """The threads and paths of events, and those of each."""
    track = of_thread(pl.col("track").cast(pl.Int64))
    return classes_of(rows.select(track.alias("track"), pl.col("path").cast(pl.UInt32)))


def _inside(times: pl.Series, spans: tuple[tuple[int, int], ...]) -> pl.Series:
    """Which of the times lie in one of ``spans``, which do not overlap."""
    ordered = pl.DataFrame(sorted(spans), schema={"start": pl.Int64, "end": pl.Int64}, orient="row")
    # None begins before the first.
    ends = pl.concat([pl.Series([None], dtype=pl.Int64), ordered["end"]])
    return (times < ends.gather(ordered["start"].search_sorted(times, side="right"))).fill_null(value=False)


def _grown(sums: pl.DataFrame, trie: Trie) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The frames by caller, text, thread and times, and which of them each path is."""
    above: list[int | None] = trie.paths["parent"].to_list()
    names: list[int] = trie.paths["name"].to_list()
    known: dict[tuple[int | None, str | int | None], int] = {}
    place: dict[tuple[int | None, int], int] = {}
    tracks: list[int | None] = []
    own: list[int] = []

    def frame(parent: int | None, text: str | int | None, track: int | None) -> int:
        found = known.setdefault((parent, text), len(known))
        if found == len(own):
            own.append(0)
            tracks.append(track)
        return found

    for track, path, value in sums.iter_rows():
        chain: list[int] = []
        at: int | None = path
        while at is not None and (track, at) not in place:
            chain.append(at)
            at = above[at]
        found = frame(None, track, track) if at is None else place[track, at]
        for step in reversed(chain):
            for text in filter(None, trie.texts[names[step]].split(";")):
                found = frame(found, text, track)
            place[track, step] = found
        own[found] += value
    parents = [parent for parent, _ in known]
    totals = own.copy()
    for number in range(len(totals) - 1, -1, -1):
        above_it = parents[number]
        if above_it is not None:
            totals[above_it] += totals[number]
    frames = pl.DataFrame(
        {
            "parent": parents,
            "text": [None if parent is None else str(text) for parent, text in known],
            "track": tracks,
            "own_ns": own,
            "total_ns": totals,
        },
        schema=_FRAMES,
    )
    places = pl.DataFrame(
        {"track": [t for t, _ in place], "path": [p for _, p in place], "frame": list(place.values())},
        schema={"track": pl.Int64, "path": pl.UInt32, "frame": pl.UInt32},
    )
    return frames, places


def _described(trace: Trace, frames: pl.DataFrame, events: pl.DataFrame, by: str) -> pl.DataFrame:
    """The frames with the number of their events, their category and the name of their first event."""
    counted = events.group_by("frame").agg(calls=pl.len(), start_ns=pl.col("start_ns").min())
    counted = of_every(counted, "frame", frames.height)
    is_first = events["start_ns"] == counted["start_ns"].gather(events["frame"])
    firsts = events.filter(is_first).group_by("frame").agg(pl.col("row").min())
    rows = of_every(firsts, "frame", frames.height)["row"]
    found = frames.with_columns(counted["calls"], rows, *_kinds(trace, rows))
    is_root = pl.col("parent").is_null()
    # What was replayed is no event of its own.
    kind = pl.when(pl.col("row").is_not_null()).then(pl.col("category").fill_null("operator"))
    category = pl.lit("python") if by == "python" else kind.fill_null("other")
    # Of stacks that were recorded as texts nobody knows how often a frame was called.
    counts = pl.lit(None, pl.UInt32) if by == "python" and has_recorded_stacks(trace) else pl.col("calls")
    real = shown_frame_name(pl.col("event_name"))
    name = pl.when(clean_name(real) == pl.col("text")).then(real).otherwise("name")
    return found.select(
        "parent",
        name=name,
        category=pl.when(is_root).then(pl.lit("thread")).otherwise(category),
        total_ns="total_ns",
        own_ns="own_ns",
        calls=pl.when(~is_root).then(counts),
    )


def _kinds(trace: Trace, rows: pl.Series) -> pl.DataFrame:
    """The ``event_name`` and ``category`` of the events with these numbers.

    An operator of ``emit_nvtx`` is an operator, although it is a range, too.
    """
    found = [_kinds_in(trace, table, rows) for table in _TABLES]
    return pl.select(
        pl.coalesce(part[column] for part in found).alias(column) for column in ("event_name", "category")
    )


def _kinds_in(trace: Trace, table: str, rows: pl.Series) -> pl.DataFrame:
    """The same from one table, null for the events of others."""
    communicates = pl.col("is_communication").fill_null(value=False)
    category = {
        "ops": pl.when("is_annotation").then(pl.lit("annotation")).otherwise(pl.lit("operator")),
        "launches": pl.lit("launch"),
        # Among operators there are only the modules of the network.
        "python": pl.lit("module"),
        "ranges": pl.lit("range"),
        "gpu_ops": pl.when(communicates)
        .then(pl.lit("communication"))
        .otherwise(pl.col("kind").cast(pl.String)),
    }[table]
    frame = trace.tables[table]
    return frame[positions(frame["row"], rows)].select(
        event_name=pl.col("name").cast(pl.String),
        category=pl.when(pl.col("row").is_not_null()).then(category),
    )
