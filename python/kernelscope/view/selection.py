"""Contents of a selected time range."""

from typing import Any

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.diff.host_attribution import attribute_time, claims
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.report.parts.columns import COLUMNS
from kernelscope.report.parts.tables import Table, with_share
from kernelscope.report.parts.window import cut, origin_ns
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters

_MOST_ROWS = 10


def selection(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the contents of ``[start, end)``: parts as of a step, kernels, operators and idle causes.

    Events that extend beyond the range count for the part inside it.
    """
    origin = origin_ns(trace)
    start = asked.whole("start") + origin
    end = max(asked.whole("end") + origin, start + 1)
    inside = cut(trace, start, end)
    return {
        "start": start - origin,
        "end": end - origin,
        "parts": parts(inside, start, end),
        "tables": [table.payload() for table in _tables(inside) if table.frame.height],
    }


def parts(trace: Trace, start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """Returns the parts of ``[start_ns, end_ns)`` of a trace, by the rules of ``step_breakdown``."""
    claimed = claims(trace)
    owned = attribute_time(claimed, [(start_ns, end_ns)]).group_by("row").agg(pl.col("ns").sum())
    by_category = owned.join(claimed.select("row", "category"), on="row", how="inner")
    times = dict(by_category.group_by("category").agg(pl.col("ns").sum()).iter_rows())
    times["other"] = end_ns - start_ns - sum(times.values())
    return [
        {"key": name, "ns": times.get(name.removesuffix("_ns"), 0), **COLUMNS[name]._asdict()}
        for name in CATEGORIES
    ]


def _tables(inside: Trace) -> list[Table]:
    kernels = with_share(analysis.kernel_table(inside), "total_ns")
    operators = analysis.op_table(inside)
    idle = analysis.idle_summary(inside)
    return [
        Table(
            "kernels",
            "Kernels",
            "Summed by name.",
            kernels.head(_MOST_ROWS),
            ("name", "total_ns", "share_pct", "calls"),
        ),
        Table(
            "ops",
            "Operators",
            "Summed by name.",
            operators.head(_MOST_ROWS),
            ("name", "host_self_ns", "device_self_ns", "calls"),
        ),
        Table("idle", "Idle time of GPUs by cause", "", idle, ("device", "cause", "idle_ns", "gaps")),
    ]
