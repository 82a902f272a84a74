"""Limits of the GPU operations of several traces, which are determined together."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from kernelscope.analysis.costs.hints import step_annotations
from kernelscope.analysis.costs.limits import LimitedWork, limited_work, refined
from kernelscope.analysis.costs.unique_costs import operator_calls
from kernelscope.analysis.ranks.joined import PART, Joined, alone, joined, part_of
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.trace import Trace

TABLES = (
    "ops", "launches", "gpu_ops", "python", "ranges", "collectives", "devices", "steps", "captured_ops",
    "captured_nodes",
)  # fmt: skip
"""Tables from which costs and limits are determined."""

_DEVICE = ("name", "total_memory_bytes", "sm_count", "warp_size", "compute_major")


def by_phase(trace: Trace, limited: LimitedWork) -> pl.DataFrame:
    """Returns the table of ``limited`` by phase, as ``by_phase``, if anything is recomputed."""
    if (with_replayed_ops(trace).ops["phase"] == "recompute").any():
        return refined(trace, limited, ["phase"]).table
    return limited.table.with_columns(by_phase=pl.lit(None, pl.String))


class Alike(NamedTuple):
    """Some of several traces, joined: their positions, and the table :func:`by_phase` with ``PART``."""

    places: list[int]
    whole: Joined
    table: pl.DataFrame


def limits_by_phase(traces: Sequence[Trace], options: Mapping[str, Any]) -> Iterator[Alike]:
    """Yields the limits of all traces, with the ``options`` of ``limited_work``.

    Traces that are alike are joined, as most of one job are.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, trace in enumerate(traces):
        groups.setdefault(_likeness(trace) or place, []).append(place)
    for places in groups.values():
        some = [traces[place] for place in places]
        if len(some) == 1:
            table = by_phase(some[0], limited_work(some[0], **options))
            yield Alike(places, alone(some[0]), table.with_columns(part_of(table)))
            continue
        whole = joined(some, TABLES)
        table = by_phase(whole.trace, limited_work(whole.trace, **options))
        parts = whole.trace.gpu_ops.select("device", PART).unique("device")
        yield Alike(places, whole, table.join(parts, on="device", maintain_order="left"))


def _likeness(trace: Trace) -> Hashable:
    """What traces that are joined have in common: all that decides about a trace as a whole.

    None for a trace with operations of no GPU: only the GPU tells which trace an operation is from.
    """
    if trace.gpu_ops["device"].has_nulls():
        return None
    names = operator_calls(with_replayed_ops(trace))["name"].unique().drop_nulls()
    return (
        *(frame.is_empty() for frame in (trace.ops, trace.ranges, trace.gpu_ops, trace.captured_nodes)),
        trace.steps["step"].has_nulls(),
        frozenset(trace.devices.select(_DEVICE).rows()),
        frozenset(step_annotations(names).cast(pl.String)),
    )
