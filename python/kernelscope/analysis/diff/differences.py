"""What changed between two traces, and how much of the difference of their steps it makes."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.diff.moment_owners import claims, divided
from kernelscope.analysis.diff.op_pairs import Pairs, corresponding, operators
from kernelscope.analysis.diff.step_pairs import step_pairs
from kernelscope.analysis.grouping import as_text, check_by

if TYPE_CHECKING:
    from kernelscope.trace import Trace

KEYS = ("category", "module", "op", "name")
"""What :func:`diff` can look at differences by."""

_NOTHING = "(nothing recorded)"
_RENAMED = ("module", "op", "name")


class Comparison:
    """Two traces whose steps, operators and GPU work are aligned; each answer is computed once.

    Example: ``both = Comparison(ks.read("old.json"), ks.read("new.json")); print(both.changes())``
    """

    def __init__(self, before: "Trace", after: "Trace") -> None:
        self.before = before
        self.after = after

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The steps that are compared; see :func:`diff_steps`."""
        return step_pairs(self.before, self.after).with_columns(
            delta_ns=pl.col("after_ns") - pl.col("before_ns")
        )

    @cached_property
    def pairs(self) -> Pairs:
        """The operators and the GPU work that correspond."""
        return corresponding(self.before, self.after, self.steps)

    @cached_property
    def names(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """What every row of each trace is called, the earlier by what corresponds in the later.

        Columns: ``row``, ``module``, ``op``, ``name``; of the earlier also ``module_before``, ``op_before``
            and ``name_before``, null where they are the same.
        """
        return _translated(self.before, self.after, self.pairs)

    def side(self, side: str) -> tuple["Trace", pl.DataFrame]:
        """The trace ``before`` or ``after``, and its names."""
        return (self.before, self.names[0]) if side == "before" else (self.after, self.names[1])

    @cached_property
    def parts(self) -> pl.DataFrame:
        """Every moment of the steps by what it belongs to.

        Columns: ``pair``, those of ``KEYS``, ``*_before``, ``before_ns``, ``after_ns``, ``calls_before``,
            ``calls_after``.
        """
        sides: list[pl.DataFrame] = []
        nothing = pl.lit(_NOTHING).cast(pl.Categorical)
        for side, other, trace, names in (
            ("before", "after", self.before, self.names[0]),
            ("after", "before", self.after, self.names[1]),
        ):
            owned = _owned(trace, self.steps.select("pair", start_ns=f"start_{side}", total_ns=f"{side}_ns"))
            named = owned.join(names, on="row", how="left").with_columns(
                pl.when(pl.col("row").is_null()).then(nothing).otherwise("name").alias("name")
            )
            sides.append(
                named.rename({"ns": f"{side}_ns", "calls": f"calls_{side}"}).with_columns(
                    pl.lit(0, pl.Int64).alias(f"{other}_ns"), pl.lit(0, pl.Int64).alias(f"calls_{other}")
                )
            )
        return pl.concat(sides, how="diagonal").drop("row")

    def changes(self, *, by: str | Sequence[str] = KEYS) -> pl.DataFrame:
        """The differences by the columns ``by``; see :func:`diff`."""
        columns = check_by(by, KEYS)
        figures = ("before_ns", "after_ns", "calls_before", "calls_after")
        renamed = [f"{c}_before" for c in columns if c in _RENAMED]
        count = self.steps.height
        of_step = self.parts.group_by(*columns, "pair").agg(
            pl.col(figures).sum(), *(pl.col(c).drop_nulls().first() for c in renamed)
        )
        table = of_step.group_by(columns).agg(
            *(pl.col(c).drop_nulls().first() for c in renamed),
            *((pl.col(c).sum() / count).alias(c) for c in figures),
            spread_ns=(_variance("before_ns", count) + _variance("after_ns", count)).sqrt(),
        )
        table = as_text(table.with_columns(delta_ns=pl.col("after_ns") - pl.col("before_ns")))
        changed = (pl.col("delta_ns") != 0) | (pl.col("calls_before") != pl.col("calls_after"))
        ordered = table.filter(changed).sort(
            [pl.col("delta_ns").abs(), *columns],
            descending=[True, *(False for _ in columns)],
            nulls_last=True,
        )
        return ordered.select(
            *columns,
            *renamed,
            "calls_before",
            "calls_after",
            "before_ns",
            "after_ns",
            "delta_ns",
            "spread_ns",
            is_noise=pl.col("delta_ns").abs() <= pl.col("spread_ns"),
        )


def diff(before: "Trace", after: "Trace", *, by: str | Sequence[str] = KEYS) -> pl.DataFrame:
    """What makes the steps of ``after`` slower or faster than those of ``before``, the most first.

    Steps of the same number correspond (of the same place, if no number is common), in them operators by a
    longest common subsequence of module, name, depth and shapes, and in those GPU work by name and order: so
    a module that is numbered anew, or a kernel that took another's place, is compared with what it was.
    Each moment of a step belongs to one thing alone: of what runs then, to the first of kernel, copy, memset,
    communication, runtime call, data loading and other host work, and of these to what began last; a moment
    in which nothing was recorded belongs to the category ``other``. So the deltas sum to the difference of
    the mean step times, and time on the host that a running kernel hides counts nothing. What did not
    change is not in the table: that of a trace with itself is empty.

    ``by`` takes some of ``category``, ``module``, ``op`` and ``name`` (of a kernel, copy, call or operator).

    Columns: those of ``by``, as they are called in ``after`` or, if they are gone, in ``before``;
        ``module_before``, ``op_before`` and ``name_before`` (what it was called, where that differs);
        ``calls_before``, ``calls_after``, ``before_ns``, ``after_ns``, ``delta_ns`` (means of a step);
        ``spread_ns`` (how far single steps of either trace lie from their mean: the root of the two
        variances added; null for a single step) and ``is_noise`` (whether the delta is no larger).
    Units: ns.
    Order: by the size of the delta, largest first.
    Raises: InvalidArgumentError: ``by`` is unknown.
        NotRecordedError: a trace has nothing that takes time, or only one marks steps.
    Example: ``diff(old, new).filter(pl.col("delta_ns") > 0).head(10)``
    """
    return Comparison(before, after).changes(by=by)


def diff_steps(before: "Trace", after: "Trace") -> pl.DataFrame:
    """The wall times of the steps that :func:`diff` compares.

    Columns: ``pair``, ``step_before``, ``step_after``, ``start_before``, ``start_after``, ``before_ns``,
        ``after_ns``, ``delta_ns``.
    Units: ns.
    Order: of time.
    Raises: NotRecordedError: a trace has nothing that takes time, or only one marks steps.
    """
    return Comparison(before, after).steps


def _owned(trace: "Trace", steps: pl.DataFrame) -> pl.DataFrame:
    """Whose the moments of the steps are: ``pair``, ``row``, ``category``, ``ns`` and ``calls``."""
    windows = steps.sort("start_ns")
    bounds = [(start, start + total) for start, total in windows.select("start_ns", "total_ns").rows()]
    claimed = claims(trace)
    moments = divided(claimed, bounds)
    pairs = windows.select("pair").with_row_index("window")
    return (
        moments.join(pairs, on="window", how="left")
        .join(claimed.select("row", "category"), on="row", how="left")
        .with_columns(pl.col("category").fill_null("other"))
        .drop("window")
    )


def _translated(before: "Trace", after: "Trace", pairs: Pairs) -> tuple[pl.DataFrame, pl.DataFrame]:
    own = [_names(trace) for trace in (before, after)]
    ops = [operators(trace).select("row", "module", op="name") for trace in (before, after)]
    later = ops[1].rename({"row": "after", "op": "_op", "module": "_module"})
    of_op = pairs.ops.select(op_row="before", after="after").join(later, on="after", how="left").drop("after")
    same = pl.concat([pairs.work, pairs.ops.select("before", "after")])
    of_row = same.join(own[1].select(after="row", _name="name"), on="after", how="left").drop("after")
    named = (
        own[0]
        .join(ops[0].rename({"row": "op_row"}), on="op_row", how="left")
        .join(of_op, on="op_row", how="left")
    )
    named = named.join(of_row, left_on="row", right_on="before", how="left")
    first = named.select(
        "row",
        *(pl.coalesce(f"_{c}", c).alias(c) for c in _RENAMED),
        *(
            pl.when(pl.col(c) != pl.coalesce(f"_{c}", c)).then(pl.col(c)).alias(f"{c}_before")
            for c in _RENAMED
        ),
    )
    second = own[1].join(ops[1].rename({"row": "op_row"}), on="op_row", how="left").select("row", *_RENAMED)
    return first, second


def _names(trace: "Trace") -> pl.DataFrame:
    return claims(trace).select("row", "op_row", "name")


def _variance(column: str, count: int) -> pl.Expr:
    """The variance over ``count`` steps of what a group has in some of them; it has none in the others."""
    if count < 2:
        return pl.lit(None, pl.Float64)
    value = pl.col(column).cast(pl.Float64)
    mean = value.sum() / count
    around = ((value - mean) ** 2).sum() + (count - pl.len()) * mean**2
    return around / (count - 1)
