"""Two aligned traces: their steps, operators and GPU operations, and the owner of each moment of a step."""

from dataclasses import dataclass

import polars as pl

from kernelscope.analysis.diff.host_attribution import attribute_time, claims
from kernelscope.analysis.diff.kernel_keys import kernels_as_later
from kernelscope.analysis.diff.op_pairs import Pairs, corresponding, operators
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.errors import NotRecordedError
from kernelscope.trace import Trace

SIDES = ("before", "after")

_NOTHING = "(nothing recorded)"
_NAMES = ("module", "op", "name")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two traces with aligned steps, operators and GPU operations, for several questions."""

    before: Trace
    after: Trace
    steps: pl.DataFrame
    """The compared steps; see :func:`diff_steps`."""
    pairs: Pairs
    """Corresponding operators and GPU operations."""
    names: tuple[pl.DataFrame, pl.DataFrame]
    """Name of every row of each trace; rows of the earlier trace have the name of their counterpart in the
    later: ``row``, ``module``, ``op``, ``name``. The earlier trace also has ``module_before``, ``op_before``
    and ``name_before``, null if they are equal."""
    parts: pl.DataFrame
    """Every moment of the steps by its owner: ``pair``, ``category``, ``module``, ``op``, ``name``,
    ``*_before``, ``before_ns``, ``after_ns``, ``calls_before``, ``calls_after``."""

    def side(self, side: str) -> tuple[Trace, pl.DataFrame]:
        """Returns the trace ``before`` or ``after``, and its names."""
        return (self.before, self.names[0]) if side == "before" else (self.after, self.names[1])


def compare(before: Trace, after: Trace) -> Comparison:
    """Aligns two traces.

    Raises: NotRecordedError: a trace contains nothing with a duration, or only one marks steps.
    Example: ``compare(ks.read("old.json"), ks.read("new.json")).steps``
    """
    before, after = with_replayed_ops(before), with_replayed_ops(after)
    steps = diff_steps(before, after)
    pairs = corresponding(before, after, steps)
    names = _translated(before, after, pairs)
    parts = [
        _part(trace, steps, names[place], side, SIDES[1 - place])
        for place, (side, trace) in enumerate(zip(SIDES, (before, after), strict=True))
    ]
    return Comparison(before, after, steps, pairs, names, pl.concat(parts, how="diagonal"))


def _part(trace: Trace, steps: pl.DataFrame, names: pl.DataFrame, side: str, other: str) -> pl.DataFrame:
    nothing = pl.lit(_NOTHING).cast(pl.Categorical)
    owned = _owned(trace, steps.select("pair", start_ns=f"start_{side}", total_ns=f"{side}_ns"))
    named = owned.join(names, on="row", how="left").with_columns(
        pl.when(pl.col("row").is_null()).then(nothing).otherwise("name").alias("name")
    )
    return (
        named.rename({"ns": f"{side}_ns", "calls": f"calls_{side}"})
        .with_columns(pl.lit(0, pl.Int64).alias(f"{other}_ns"), pl.lit(0, pl.Int64).alias(f"calls_{other}"))
        .drop("row")
    )


def diff_steps(before: Trace, after: Trace) -> pl.DataFrame:
    """Returns the wall times of the steps that :func:`diff` compares.

    Steps are paired by number, or by position if no number occurs in both traces. Incomplete steps are left
    out, unless a trace has no others.

    Columns: ``pair`` (counted from 0 in order of time), ``step_before``, ``step_after``, ``start_before``,
        ``start_after``, ``before_ns``, ``after_ns``, ``delta_ns``.
    Units: ns.
    Order: of time.
    Raises: NotRecordedError: a trace contains nothing with a duration, or only one marks steps.
    """
    sides = [
        _whole_steps(trace).select(
            **{f"step_{side}": "step", f"start_{side}": "start_ns", f"{side}_ns": "total_ns"}
        )
        for trace, side in zip((before, after), SIDES, strict=True)
    ]
    marked = [
        side[f"step_{name}"].null_count() < side.height for side, name in zip(sides, SIDES, strict=True)
    ]
    if marked[0] != marked[1]:
        without = (after if marked[0] else before).meta.path
        raise NotRecordedError(
            f"{without} marks no steps, but the other trace does. Name the annotation that delimits "
            "its steps with step_range= or --step-range"
        )
    numbers = [frame[f"step_{side}"].drop_nulls() for frame, side in zip(sides, SIDES, strict=True)]
    if numbers[0].is_in(numbers[1].implode()).any():
        joined = sides[0].join(
            sides[1], left_on="step_before", right_on="step_after", how="inner", coalesce=False
        )
    else:
        count = min(side.height for side in sides)
        joined = pl.concat([side.head(count) for side in sides], how="horizontal")
    columns = ("step_before", "step_after", "start_before", "start_after", "before_ns", "after_ns")
    ordered = joined.sort("start_before").select(columns).with_row_index("pair")
    return ordered.with_columns(delta_ns=pl.col("after_ns") - pl.col("before_ns"))


def _whole_steps(trace: Trace) -> pl.DataFrame:
    steps = trace.steps.filter(~pl.col("is_partial"))
    if steps.is_empty():
        steps = trace.steps
    if steps.is_empty():
        raise NotRecordedError(
            f"{trace.meta.path} contains nothing with a duration, so there is nothing to compare"
        )
    return steps.sort("start_ns").unique("step", keep="first", maintain_order=True)


def _owned(trace: Trace, steps: pl.DataFrame) -> pl.DataFrame:
    """Whose the moments of the steps are: ``pair``, ``row``, ``category``, ``ns`` and ``calls``."""
    windows = steps.sort("start_ns")
    bounds = [(start, start + total) for start, total in windows.select("start_ns", "total_ns").rows()]
    claimed = claims(trace)
    moments = attribute_time(claimed, bounds)
    pairs = windows.select("pair").with_row_index("window")
    return (
        moments.join(pairs, on="window", how="left")
        .join(claimed.select("row", "category"), on="row", how="left")
        .with_columns(pl.col("category").fill_null("other"))
        .drop("window")
    )


def _translated(before: Trace, after: Trace, pairs: Pairs) -> tuple[pl.DataFrame, pl.DataFrame]:
    own = [claims(trace).select("row", "op_row", "name") for trace in (before, after)]
    ops = [operators(trace).select("row", "module", op="name") for trace in (before, after)]
    later = ops[1].rename({"row": "after", "op": "_op", "module": "_module"})
    of_op = pairs.ops.select(op_row="before", after="after").join(later, on="after", how="left").drop("after")
    same = pl.concat([pairs.work, pairs.ops.select("before", "after")])
    of_row = same.join(own[1].select(after="row", _name="name"), on="after", how="left").drop("after")
    named = own[0].join(ops[0].rename({"row": "op_row"}), on="op_row", how="left")
    named = named.join(of_op, on="op_row", how="left")
    named = named.join(of_row, left_on="row", right_on="before", how="left")
    kernels = [trace.gpu_ops.filter(pl.col("kind") == "kernel")["name"] for trace in (before, after)]
    named = named.join(kernels_as_later(*kernels), on="name", how="left")
    named = named.with_columns(_name=pl.coalesce("_name", "later_name"))
    first = named.select(
        "row",
        *(pl.coalesce(f"_{c}", c).alias(c) for c in _NAMES),
        *(pl.when(pl.col(c) != pl.coalesce(f"_{c}", c)).then(pl.col(c)).alias(f"{c}_before") for c in _NAMES),
    )
    second = own[1].join(ops[1].rename({"row": "op_row"}), on="op_row", how="left").select("row", *_NAMES)
    return first, second
