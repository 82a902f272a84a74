"""Sharded parameters and gradients (FSDP, ZeRO): when they are gathered, needed, freed and reduced."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.call_tree import innermost, nest
from kernelscope.analysis.grouping import gather_rows
from kernelscope.analysis.ranks.clocks import shifts
from kernelscope.analysis.ranks.cluster import (
    Cluster,
    Source,
    Window,
    cluster_of,
    each_window,
    one_trace,
    windows_of,
)
from kernelscope.analysis.ranks.collectives import rank_calls
from kernelscope.analysis.training.backward import in_backward
from kernelscope.analysis.training.dimensions import parallel_dimensions
from kernelscope.analysis.training.issued import issued
from kernelscope.costs import find_dtype
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_GATHER = "all_gather"
_REDUCE = "reduce"
_KINDS = (_GATHER, "reduce_scatter", "all_reduce")
_HOOKS = {"pre_forward": "forward", "pre_backward": "backward"}
_PREFETCHES = {"forward_prefetch": "forward", "backward_prefetch": "backward"}
_EVENTS = {
    "FSDP::all_gather": _GATHER,
    "FSDP::post_backward_reduce": _REDUCE,
    "FSDP::all_gather_copy_out": "use",
    "FSDP::post_forward": "free",
    "FSDP::post_backward_reshard": "free",
    "FSDP::pre_forward": "pre_forward",
    "FSDP::pre_backward": "pre_backward",
    "FSDP::forward_prefetch": "forward_prefetch",
    "FSDP::backward_prefetch": "backward_prefetch",
    "FullyShardedDataParallel._pre_forward": "pre_forward",
    "FullyShardedDataParallel._pre_backward_hook": "pre_backward",
    "FullyShardedDataParallel._pre_forward_prefetch": "forward_prefetch",
    "FullyShardedDataParallel._pre_backward_prefetch": "backward_prefetch",
    "FullyShardedDataParallel._post_backward_prefetch": "backward_prefetch",
    "FullyShardedDataParallel._post_backward_hook": _REDUCE,
}
"""Annotations of torch. FSDP2 adds the name of the unit."""

_NAME = re.compile(r"([\w:.]+)(?: for .*)?(?: \((.*?)\))?( \[pg=\d+\])?$")
_ROOT = "(root)"
_FOREVER_NS = 2**62

_SCHEMA = {
    "rank": pl.Int64, "row": pl.UInt32, "step": pl.Int32, "fsdp_unit": pl.String, "kind": pl.String,
    "direction": pl.String, "bytes": pl.Int64, "is_prefetched": pl.Boolean, "issued_ns": pl.Int64,
    "start_ns": pl.Int64, "dur_ns": pl.Int64, "needed_ns": pl.Int64, "wait_ns": pl.Int64,
    "exposed_ns": pl.Int64, "freed_ns": pl.Int64,
}  # fmt: skip
_IS_GATHER, _IS_FORWARD = pl.col("kind") == _GATHER, pl.col("direction") == "forward"
_SUMS = (
    _IS_GATHER.sum().cast(pl.Int64).alias("gathers"),
    pl.col("is_prefetched").mean().alias("prefetched_share"),
    pl.col("wait_ns").filter(_IS_GATHER, _IS_FORWARD).sum().alias("forward_wait_ns"),
    pl.col("wait_ns").filter(_IS_GATHER, ~_IS_FORWARD).sum().alias("backward_wait_ns"),
    pl.col("wait_ns").filter(~_IS_GATHER).sum().alias("reduce_wait_ns"),
)
_TIMES = ("issued_ns", "start_ns", "needed_ns", "freed_ns")


class _Call(NamedTuple):
    """An all-gather or reduce-scatter: of units without a name, size and order say which one it is of."""

    row: int
    step: int | None
    kind: str
    direction: str
    elements: int | None


def fsdp_collectives(source: "Source", *, executor: Executor | None = None) -> pl.DataFrame:
    """All-gathers and reduce-scatters of sharded data parallelism, and how long computation waits for each.

    Included are the groups with the dimension fsdp or dp of :func:`parallel_dimensions`. FSDP2 names its
    units. Units without names have numbers in the order in which the forward pass gathers them, and the
    backward pass gathers in the opposite order.

    An all-gather is needed as soon as the operation that uses its result is launched and the one before on
    its stream has ended. A reduction is needed when the backward pass of its step has computed everything.
    Computation waits from then until the collective ends, or for a reduction from the end of the one before.
    On the host, collectives block, so computation waits while no operator computes.

    Columns: ``rank``, ``row`` (in ``gpu_ops``, or ``ops`` if the host communicates), ``step``, ``fsdp_unit``,
        ``kind`` (all_gather, reduce_scatter or all_reduce), ``direction`` (forward or backward), ``bytes``
        (of the message), ``is_prefetched`` (whether an all-gather was issued before the hook of its own unit;
        null without annotations of FSDP), ``issued_ns`` (its launch), ``start_ns``, ``dur_ns``, ``needed_ns``
        and ``wait_ns`` (null if unknown), ``exposed_ns`` (while nothing computes) and ``freed_ns`` (when the
        host frees the gathered parameters; null if unknown).
    Units: ns on the common clock from the earliest base time; bytes.
    Order: by rank and ``issued_ns``.
    Source: _fully_shard/_fsdp_param_group.py and _runtime_utils.py in torch/distributed/fsdp.
    """
    trace = one_trace(source)
    if trace is not None:
        return collectives_of_trace(trace)
    return sharded_calls(source, cluster_of(source, executor=executor), executor)


@per_trace
def collectives_of_trace(trace: Trace) -> pl.DataFrame:
    """Returns the rows of :func:`fsdp_collectives` for the trace of one rank."""
    kinds = trace.collectives["name"].unique().cast(pl.String).drop_nulls()
    if not any(re.search("gather|scatter", name) for name in kinds):
        return pl.DataFrame(schema=_SCHEMA)
    return sharded_calls(trace, cluster_of(trace))


def sharded_calls(source: Source, cluster: Cluster, executor: Executor | None = None) -> pl.DataFrame:
    """Returns the rows of :func:`fsdp_collectives` for a source with a known cluster."""
    groups = parallel_dimensions(cluster).filter(pl.col("dimension").is_in(["fsdp", "dp"]))["group"]
    calls = rank_calls(cluster).filter(pl.col("group").is_in(groups.implode()), pl.col("kind").is_in(_KINDS))
    is_sharded = pl.col("kind").is_in([_GATHER, "reduce_scatter"]).any()
    parts = calls.filter(is_sharded).partition_by("rank", "window", as_dict=True)
    arguments = [
        (window, part)
        for window in windows_of(source)
        if (part := parts.get((window.rank, window.window))) is not None
    ]
    if not arguments:
        return pl.DataFrame(schema=_SCHEMA)
    tables = ("ops", "gpu_ops", "launches", "ranges", "collectives")
    found = pl.concat(each_window(_of_window, arguments, tables=tables, executor=executor))
    found = found.join(shifts(cluster), on="rank", how="left")
    found = found.with_columns(pl.col(_TIMES) - pl.col("shift_ns").fill_null(0))
    return found.select(list(_SCHEMA)).sort("rank", "issued_ns", "row")


def _of_window(window: Window, trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The collectives of a window of a rank, on its own clock."""
    marks = _marks(trace)
    columns = ("row", "step", "kind", "phase", "dtype", "exposed_ns", "device")
    found = issued(trace, calls.select(*columns, bytes="message_bytes"))
    own = _around(found, marks, (_GATHER, _REDUCE))
    hook = _around(found, marks, (*_HOOKS, *_PREFETCHES))["event"]
    # Without annotations, an all-gather in the backward pass belongs to it.
    named = hook.replace_strict({**_HOOKS, **_PREFETCHES}, default=None, return_dtype=pl.String)
    by_phase = pl.when(in_backward() | (pl.col("kind") != _GATHER)).then(pl.lit("backward"))
    found = found.with_columns(
        fsdp_unit=own["fsdp_unit"],
        direction=pl.coalesce(named, by_phase.otherwise(pl.lit("forward"))),
        is_prefetched=pl.when(kind=_GATHER).then(~hook.is_in(list(_HOOKS)).fill_null(value=False))
        if (marks["event"].is_in(list(_HOOKS))).any()
        else pl.lit(None, pl.Boolean),
    )
    # Replicated gradients are reduced, too; gloo has no other reduction.
    found = found.filter((pl.col("kind") != "all_reduce") | own["event"].eq_missing(_REDUCE))
    found = _with_units(found.sort("issued_ns", "row"))
    found = _with_waits(trace, _with_uses(found, marks))
    found = _with_frees(found, marks)
    return found.select(
        pl.lit(window.rank, pl.Int64).alias("rank"),
        *(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items() if name not in ("rank", *_TIMES)),
        *(pl.col(name) + window.later_ns for name in _TIMES),
    )


def _marks(trace: Trace) -> pl.DataFrame:
    """Annotations and NVTX ranges of FSDP: ``track``, ``start_ns``, ``dur_ns``, ``event``, ``fsdp_unit``."""
    tables = (trace.ops.filter("is_annotation"), trace.ranges.filter(pl.col("kind") == "push_pop"))
    marks = pl.concat(
        [table.select("track", "start_ns", pl.col("dur_ns").fill_null(0), "name") for table in tables]
    )
    known: list[tuple[str, str, str | None]] = [
        (text, event, _unit(match))
        for text in marks["name"].unique().cast(pl.String).drop_nulls()
        if (match := _NAME.match(text)) and (event := _EVENTS.get(match[1]))
    ]
    names = pl.DataFrame(known, dict.fromkeys(("name", "event", "fsdp_unit"), pl.String), orient="row")
    marks = marks.with_columns(pl.col("name").cast(pl.String)).join(names, on="name")
    return marks.drop("name").sort("start_ns", "dur_ns", descending=[False, True])


def _unit(match: re.Match[str]) -> str | None:
    """The unit in an annotation of FSDP2; the root of a model has no name."""
    return (match[2] or _ROOT) + (match[3] or "") if match[1].startswith("FSDP::") else None


def _around(calls: pl.DataFrame, marks: pl.DataFrame, events: Iterable[str]) -> pl.DataFrame:
    """The innermost of some annotations around the launch of each call: ``event``, ``fsdp_unit``."""
    some = nest(marks.filter(pl.col("event").is_in(list(events))).with_row_index("row"))
    points = calls.select("track", start_ns="issued_ns", dur_ns=pl.lit(0, pl.Int64))
    return gather_rows(innermost(points, some), some, "event", "fsdp_unit")


def _with_units(calls: pl.DataFrame) -> pl.DataFrame:
    """Numbers units without names; ``calls`` are in the order of their launches."""
    if calls["fsdp_unit"].null_count() < calls.height:
        return calls
    sizes = {name: find_dtype(name) for name in calls["dtype"].drop_nulls().unique()}
    size = pl.col("dtype").replace_strict(
        {name: known.bytes for name, known in sizes.items() if known}, default=None, return_dtype=pl.Float64
    )
    listed = calls.select("row", "step", "kind", "direction", elements=(pl.col("bytes") / size).round())
    rows = (_Call(*row) for row in listed.iter_rows())
    return calls.with_columns(pl.Series("fsdp_unit", list(_numbered(rows)), dtype=pl.String))


def _numbered(calls: Iterable[_Call]) -> Iterator[str | None]:
    """Yields the unit of each call.

    The backward pass returns to the latest unit of the same size, for parameters and for gradients.
    """
    sizes: list[int | None] = []
    left: dict[str, list[int]] = {}
    was_backward, step = True, None
    for call in calls:
        is_backward = call.direction == "backward"
        if not is_backward:
            if was_backward or call.step != step:
                sizes, left = [], {}
            sizes.append(call.elements)
            yield f"unit {len(sizes) - 1}"
        else:
            rest = left.setdefault(call.kind, list(range(len(sizes))))
            unit = next((place for place in reversed(rest) if sizes[place] == call.elements), None)
            if unit is not None:
                rest.remove(unit)
            yield None if unit is None else f"unit {unit}"
        was_backward, step = is_backward, call.step


def _with_uses(calls: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Adds where the host uses an all-gather: on ``use_track``, from ``use_ns`` to ``use_end_ns``."""
    end = pl.col("start_ns") + pl.col("dur_ns")
    copies = marks.filter(event="use")
    if copies.height:
        uses = copies.select("fsdp_unit", use_track="track", use_ns="start_ns", use_end_ns=end)
        gathers = calls.sort("issued_ns")
        return gathers.join_asof(
            uses, left_on="issued_ns", right_on="use_ns", by="fsdp_unit", strategy="forward",
            check_sortedness=False,
        )  # fmt: skip
    hooks = marks.filter(pl.col("event").is_in(list(_HOOKS)))
    hooks = hooks.select("track", "start_ns", end.alias("end_ns"), pl.col("event").replace_strict(_HOOKS))
    gathers = calls.filter(kind=_GATHER).select("row", "issued_ns", "is_prefetched", "direction")
    schema = {"row": pl.UInt32, "use_track": pl.UInt32, "use_ns": pl.Int64}
    uses = pl.DataFrame(list(_hooks_of(gathers, hooks)), schema, orient="row")
    uses = uses.with_columns(use_end_ns=pl.lit(None, pl.Int64))
    return calls.join(uses, on="row", how="left", maintain_order="left")


def _hooks_of(gathers: pl.DataFrame, hooks: pl.DataFrame) -> Iterator[tuple[int, int, int]]:
    """Yields the row of each all-gather, with the thread and the end of the hook that waits for it.

    FSDP1 waits in the hook that gathers, or else for the first of those that were prefetched.
    """
    prefetched: dict[str, deque[int]] = {"forward": deque(), "backward": deque()}
    rest = deque(gathers.iter_rows())
    for track, start_ns, end_ns, direction in hooks.iter_rows():
        own: int | None = None
        later: list[tuple[int, str]] = []
        while rest and rest[0][1] < end_ns:
            row, issued_ns, is_prefetched, of = rest.popleft()
            if not is_prefetched:
                own = row
            elif issued_ns < start_ns:
                prefetched[of].append(row)
            else:
                later.append((row, of))
        if own is None and prefetched[direction]:
            own = prefetched[direction].popleft()
        if own is not None:
            yield own, track, end_ns
        for row, of in later:
            prefetched[of].append(row)


def _with_waits(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Adds ``needed_ns`` and ``wait_ns``."""
    calls = calls.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    on_gpu, is_gather = pl.col("device").is_not_null(), pl.col("kind") == _GATHER
    work = _computation(trace)
    waits = pl.concat(
        [
            _gather_waits(work, calls.filter(on_gpu, is_gather)),
            _reduce_waits(work, calls.filter(on_gpu, ~is_gather)),
            calls.filter(~on_gpu).select("row", needed_ns=pl.lit(None, pl.Int64), wait_ns="exposed_ns"),
        ]
    )
    return calls.join(waits, on="row", how="left", maintain_order="left")


def _computation(trace: Trace) -> pl.DataFrame:
    """GPU operations that compute or copy.

    Columns: ``device``, ``stream``, ``step``, ``phase``, ``start_ns``, ``end_ns``, ``is_main`` (whether the
        stream computes longest; others scale and copy what was gathered or reduced), ``track`` and
        ``launch_ns`` (of the launch).
    """
    works = trace.gpu_ops.filter(
        ~pl.col("is_communication").fill_null(value=False), pl.col("kind") != "graph"
    )
    launch = gather_rows(works["launch_row"], trace.launches, "track", "start_ns")
    phase = gather_rows(works["op_row"], trace.ops, "phase")
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    found = works.select("device", "stream", "step", "start_ns", end_ns=end).hstack(phase)
    sums = found.group_by("device", "stream").agg(ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    main = sums.sort("ns", "stream").group_by("device").agg(main=pl.col("stream").last())
    found = found.join(main, on="device", how="left", nulls_equal=True, maintain_order="left")
    found = found.with_columns(is_main=pl.col("stream").eq_missing(pl.col("main"))).drop("main")
    return found.hstack(launch.rename({"start_ns": "launch_ns"}))


def _gather_waits(work: pl.DataFrame, gathers: pl.DataFrame) -> pl.DataFrame:
    """When a GPU needs each all-gather, and how long it waits: ``row``, ``needed_ns``, ``wait_ns``.

    Where annotations do not say what uses it, this is the first operation after it that was launched after
    it, if the operation waits.
    """
    before = pl.col("end_ns").cum_max().shift(1).over("device", "stream")
    needed = pl.min_horizontal("start_ns", pl.max_horizontal(before, "launch_ns"))
    work = work.sort("device", "stream", "start_ns").select(
        "device", "track", "launch_ns", "is_main", first_ns="start_ns", needed_ns=needed
    )  # fmt: skip
    is_used = pl.col("use_ns").is_not_null()
    used = gathers.filter(is_used).join_asof(
        work.drop_nulls("launch_ns").sort("launch_ns", "first_ns"), left_on="use_ns", right_on="launch_ns",
        by_left=["use_track", "device"], by_right=["track", "device"], strategy="forward",
        check_sortedness=False,
    )  # fmt: skip
    used = used.filter(
        pl.col("launch_ns") <= pl.coalesce("use_end_ns", "launch_ns"),
        pl.col("first_ns") >= pl.col("start_ns"),
    )
    others = gathers.filter(~is_used).sort("end_ns")
    others = others.join_asof(
        work.filter("is_main").sort("first_ns"), left_on="end_ns", right_on="first_ns", by="device",
        strategy="forward", check_sortedness=False,
    )  # fmt: skip
    waits = (pl.col("launch_ns") >= pl.col("issued_ns")) & (pl.col("needed_ns") < pl.col("end_ns"))
    # An operation waits for the last of several.
    waits &= pl.col("first_ns").is_last_distinct()
    others = others.with_columns(needed_ns=pl.when(waits).then("needed_ns"))
    wait = pl.min_horizontal("end_ns", "first_ns") - pl.col("needed_ns")
    return pl.concat(
        [
            used.select("row", "needed_ns", wait_ns=wait.clip(0)),
            others.select("row", "needed_ns", wait_ns=wait.fill_null(0)),
        ]
    )


def _reduce_waits(work: pl.DataFrame, reduces: pl.DataFrame) -> pl.DataFrame:
    """How long a step waits for each reduce-scatter after its backward pass: as :func:`_gather_waits`."""
    by = ["device", "step"]
    work = work.filter(in_backward(), "is_main")
    ends = work.group_by(by).agg(needed_ns=pl.col("end_ns").max())
    found = reduces.join(ends, on=by, nulls_equal=True).sort("end_ns", "row")
    before = pl.col("end_ns").cum_max().shift(1).over(by)
    wait = pl.col("end_ns") - pl.max_horizontal("needed_ns", before)
    return found.select("row", "needed_ns", wait_ns=wait.clip(0))


def _with_frees(calls: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Adds ``freed_ns``: the last time that the host frees a unit before it gathers it again.

    Annotations also mark where a unit could be freed, but is kept.
    """
    frees = marks.filter(event="free").select("fsdp_unit", freed_ns="start_ns")
    again = pl.col("issued_ns").shift(-1).over("fsdp_unit").fill_null(_FOREVER_NS)
    gathers = calls.filter(kind=_GATHER).sort("issued_ns").with_columns(again_ns=again).sort("again_ns")
    found = gathers.join_asof(
        frees, left_on="again_ns", right_on="freed_ns", by="fsdp_unit", check_sortedness=False
    )  # fmt: skip
    found = found.filter(pl.col("freed_ns") >= pl.col("issued_ns")).select("row", "freed_ns")
    return calls.join(found, on="row", how="left", maintain_order="left")


def fsdp_units(source: "Source", *, executor: Executor | None = None) -> pl.DataFrame:
    """How each unit of sharded data parallelism is gathered, used and reduced.

    Columns: ``fsdp_unit``, ``bytes`` (of its parameters), ``gathers`` (number of all-gathers), ``gather_ns``
        (mean), ``prefetched_share`` (of the all-gathers), ``forward_wait_ns`` and ``backward_wait_ns`` (time
        that computation waits for all-gathers), ``held_ns`` (mean from the launch of an all-gather until the
        host frees its result), ``reduces`` (number of reductions), ``reduce_ns`` (mean) and
        ``reduce_wait_ns`` (time that steps wait for reductions).
    Units: ns; bytes; shares between 0 and 1. See :func:`fsdp_collectives`.
    Order: by waiting time, longest first.
    """
    return units_of(fsdp_collectives(source, executor=executor))


def units_of(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of :func:`fsdp_units` for known collectives."""
    length, held = pl.col("dur_ns"), pl.col("freed_ns") - pl.col("issued_ns")
    mean = [length.filter(_IS_GATHER), held, length.filter(~_IS_GATHER)]
    gather_ns, held_ns, reduce_ns = (one.mean().round().cast(pl.Int64) for one in mean)
    units = calls.group_by("fsdp_unit").agg(
        *_SUMS,
        bytes=pl.col("bytes").filter(_IS_GATHER).max(),
        gather_ns=gather_ns,
        held_ns=held_ns,
        reduces=(~_IS_GATHER).sum().cast(pl.Int64),
        reduce_ns=reduce_ns,
    )
    waits = pl.sum_horizontal(pl.col("^.*_wait_ns$"))
    return units.select(
        "fsdp_unit", "bytes", "gathers", "gather_ns", "prefetched_share", "forward_wait_ns",
        "backward_wait_ns", "held_ns", "reduces", "reduce_ns", "reduce_wait_ns",
    ).sort(waits, "fsdp_unit", descending=[True, False], nulls_last=True)  # fmt: skip


def fsdp_steps(source: "Source", *, executor: Executor | None = None) -> pl.DataFrame:
    """How long each step waits for sharded data parallelism, and the memory of gathered parameters.

    Columns: ``rank``, ``step``, ``gathers``, ``late_gathers`` (that computation waits for),
        ``prefetched_share``, ``forward_wait_ns``, ``backward_wait_ns``, ``reduce_wait_ns`` (from the end of
        the computation of the backward pass to the end of the last reduce-scatter), ``bytes`` (that
        all-gathers bring) and ``peak_bytes`` (most gathered parameters at a time, as the host allocates and
        frees them; null if unknown).
    Units: ns; bytes; shares between 0 and 1. See :func:`fsdp_collectives`.
    Order: by rank and step.
    """
    calls = fsdp_collectives(source, executor=executor)
    steps = calls.group_by("rank", "step").agg(
        *_SUMS,
        late_gathers=(_IS_GATHER & (pl.col("wait_ns") > 0)).sum().cast(pl.Int64),
        bytes=pl.col("bytes").filter(_IS_GATHER).sum(),
    )
    steps = steps.join(_peaks(calls), on=["rank", "step"], how="left", nulls_equal=True)
    return steps.select(
        "rank", "step", "gathers", "late_gathers", "prefetched_share", "forward_wait_ns", "backward_wait_ns",
        "reduce_wait_ns", "bytes", "peak_bytes",
    ).sort("rank", "step", nulls_last=True)  # fmt: skip


def _peaks(calls: pl.DataFrame) -> pl.DataFrame:
    """Most gathered parameters at a time, of ranks that say when they free them."""
    gathers = calls.filter(pl.col("kind") == _GATHER, pl.col("freed_ns").is_not_null().any().over("rank"))
    size = pl.col("bytes").fill_null(0)
    begins = gathers.select("rank", "step", at="issued_ns", change=size)
    ends = gathers.drop_nulls("freed_ns").select("rank", "step", at="freed_ns", change=-size)
    held = pl.concat([begins, ends]).sort("rank", "at", "change")
    held = held.with_columns(bytes=pl.col("change").cum_sum().over("rank"))
    return held.group_by("rank", "step").agg(peak_bytes=pl.col("bytes").max())
