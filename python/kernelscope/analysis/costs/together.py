"""Limits of the GPU operations of several traces, which are determined together."""

from collections.abc import Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import polars as pl

from kernelscope.analysis.costs.hints import step_annotations
from kernelscope.analysis.costs.limits import LimitedWork, limited_work, refined
from kernelscope.analysis.costs.unique_costs import operator_calls
from kernelscope.analysis.ranks.joined import PART, joined
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


def limits_by_phase(traces: Sequence[Trace], options: Mapping[str, Any]) -> list[pl.DataFrame]:
    """Returns the table :func:`by_phase` of each trace, with the ``options`` of ``limited_work``.

    Traces that are alike are joined, as most of one job are. ``step_place`` counts for steps with a number
    alone.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, trace in enumerate(traces):
        groups.setdefault(_kind(trace) or place, []).append(place)
    found: dict[int, pl.DataFrame] = {}
    for places in groups.values():
        found |= zip(places, _of_kind([traces[place] for place in places], options), strict=True)
    return [found[place] for place in range(len(traces))]


def _kind(trace: Trace) -> Hashable:
    """What traces that are joined have in common: all that decides about a trace as a whole.

    None for a trace with operations of no GPU: only the GPU tells which trace an operation is from.
    """
    if trace.gpu_ops["device"].has_nulls():
        return None
    trace = with_replayed_ops(trace)
    names = operator_calls(trace)["name"].unique().drop_nulls()
    return (
        *(frame.is_empty() for frame in (trace.ops, trace.ranges, trace.gpu_ops)),
        trace.steps["step"].has_nulls(),
        frozenset(trace.devices.select(_DEVICE).rows()),
        frozenset(step_annotations(names).cast(pl.String)),
    )


def _of_kind(traces: Sequence[Trace], options: Mapping[str, Any]) -> list[pl.DataFrame]:
    if len(traces) == 1:
        return [by_phase(traces[0], limited_work(traces[0], **options))]
    whole, strides = joined([with_replayed_ops(trace) for trace in traces], TABLES)
    table = by_phase(whole, limited_work(whole, **options))
    parts = whole.gpu_ops.select("device", PART).unique("device")
    of_part = table.join(parts, on="device", maintain_order="left").partition_by(PART, as_dict=True)
    firsts = accumulate((trace.steps.height for trace in traces), initial=0)
    return [
        of_part.get((part,), table.clear()).with_columns(
            *(pl.col(kind) - part * strides[kind] for kind in ("device", "step")),
            pl.col("step_place") - first,
        )
        for part, first in zip(range(len(traces)), firsts, strict=False)
    ]
