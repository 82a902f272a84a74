"""Times of kernels, operators, ranges and steps on each GPU, for joining with metric samples."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.grouping import classes_of, positions
from kernelscope.analysis.intervals import merged
from kernelscope.analysis.ops.table import operator_classes
from kernelscope.analysis.ranges.projection import enclosing_pairs, host_ranges, launching_calls
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.trace import Trace

PLACES: dict[str, tuple[tuple[str, type[pl.DataType]], ...]] = {
    "kernel": (("name", pl.String),),
    "op": (("name", pl.String),),
    "range": (("domain", pl.String), ("name", pl.String)),
    "host_range": (("domain", pl.String), ("name", pl.String)),
    "step": (("step", pl.Int32), ("name", pl.String)),
}
"""Objects that samples are joined to, with the columns that identify them."""


def times_of(trace: Trace, by: str, devices: Sequence[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the groups of ``by``, and the times of each on each of ``devices``.

    Columns: the first frame has those of ``PLACES``; the second has ``group`` (a position in the first),
        ``device``, ``start_ns`` and ``end_ns``, which do not overlap.
    """
    found = _FOUND[by](trace)
    everywhere = found.filter(pl.col("device").is_null()).drop("device")
    sampled = pl.DataFrame({"device": devices}, schema={"device": pl.Int32})
    somewhere = found.filter(pl.col("device").is_in(devices))
    found = pl.concat([somewhere, everywhere.join(sampled, how="cross").select(found.columns)])
    classes = classes_of(found.select(name for name, _ in PLACES[by]))
    grouped = found.select(classes.of.alias("group").cast(pl.UInt32), "device", "start_ns", "end_ns")
    return classes.keys, merged(grouped, by=["group", "device"])


def _work(trace: Trace, *columns: str) -> pl.DataFrame:
    end = pl.col("start_ns") + pl.col("dur_ns")
    known = trace.gpu_ops.filter(pl.col("device").is_not_null() & (pl.col("dur_ns") > 0))
    return known.select("device", "start_ns", *columns, end_ns=end)


def _kernels(trace: Trace) -> pl.DataFrame:
    return _work(trace, "name", "kind").filter(pl.col("kind") == "kernel")


def _operators(trace: Trace) -> pl.DataFrame:
    """The work of each operator and of those inside, once for each that is around its launch."""
    trace = with_replayed_ops(trace)
    work = _work(trace, "op_row").drop_nulls("op_row")
    of, kinds = operator_classes(trace.ops)
    parents = positions(trace.ops["row"], trace.ops["parent_row"])
    named = trace.ops.select("name", kinds["is_operator"].gather(of))
    place = positions(trace.ops["row"], work["op_row"])
    found: list[pl.DataFrame] = []
    while True:
        level = work.hstack(named.select(pl.all().gather(place)))
        found.append(level.filter("is_operator"))
        place = parents.gather(place)
        if place.null_count() == place.len():
            return pl.concat(found)


def _ranges(trace: Trace) -> pl.DataFrame:
    """From the first start to the last end of the work that was launched in each range, for each GPU."""
    ranges = host_ranges(trace, "name", "domain")
    calls = pl.DataFrame({"launch_row": launching_calls(trace)})
    work = trace.gpu_ops.select("device", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    work = work.hstack(calls).filter(pl.col("device").is_not_null() & pl.col("end_ns").is_not_null())
    pairs = enclosing_pairs(trace, ranges).select("range", "launch_row")
    spans = pairs.join(work, on="launch_row").group_by("range", "device", maintain_order=True)
    found = spans.agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    return found.hstack(ranges.select("domain", "name")[found["range"]])


def _host_ranges(trace: Trace) -> pl.DataFrame:
    """From the start to the end of each range on the host, for all GPUs."""
    ranges = host_ranges(trace, "name", "domain").filter(pl.col("dur_ns") > 0)
    end = pl.col("start_ns") + pl.col("dur_ns")
    nowhere = pl.lit(None, pl.Int32).alias("device")
    return ranges.select(nowhere, "start_ns", "domain", "name", end_ns=end)


def _steps(trace: Trace) -> pl.DataFrame:
    """The wall time of each step, for all GPUs."""
    nowhere = pl.lit(None, pl.Int32).alias("device")
    end = pl.col("start_ns") + pl.col("total_ns")
    return trace.steps.select("step", "name", nowhere, "start_ns", end_ns=end)


_FOUND = {"kernel": _kernels, "op": _operators, "range": _ranges, "host_range": _host_ranges, "step": _steps}
