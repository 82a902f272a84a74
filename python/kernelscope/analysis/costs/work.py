"""GPU operations by the kinds of their operators and by properties of the operations."""

from functools import cached_property
from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.costs.costed import Costed
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import classes_of, sum_by_group
from kernelscope.analysis.kernels.kernel_math import with_kernel_math
from kernelscope.analysis.kernels.tensor_cores import kernel_flags
from kernelscope.analysis.steps.occurrences import step_places
from kernelscope.trace import Trace

# Algorithms that need fewer multiply-adds than the direct product that is counted.
_FEWER = r"(?i)winograd|fft|gcgemm|cgemm|strassen"

TOLERANCE = 1.05
"""Tolerance above a peak: clocks above the stated one, and rounding."""
# The coarsest unit of recorders.
_TICK_NS = 1_000


class PairedWork(NamedTuple):
    """GPU operations by pairs of a kind of operators and a class of operations.

    ``pairs``: ``kind``, ``class``, and the operators' ``cores`` (whether their operations used tensor cores:
    2 yes, 1 unknown, 0 no) and ``math`` (the known type of their longest operation, 0 for none). ``ops``, one
    row per operator: ``device_ns``, ``kernels``, ``tensor_core_ns``, ``cores``, ``math``, ``needs_fewer``.
    ``pieces``, one row per GPU operation: ``at`` (its position), ``op`` and ``pair`` (positions in the
    others), ``dur_ns``, ``is_timed``, ``busy_ns``, ``share`` (of its operator's time, or an equal share if
    that is 0).
    """

    pairs: pl.DataFrame
    ops: pl.DataFrame
    pieces: pl.DataFrame

    def figures(self, limits: pl.DataFrame) -> pl.DataFrame:
        """Returns sums over the operations of each pair. Values that depend on unknown limits are null.

        Columns: ``limits``, one row per pair, needs ``least_ns`` (the minimum time), ``compute_ns`` (by the
            operations), ``memory_ns`` (by the bytes), ``through_ns`` (by the bytes that exceed the L2) and
            ``is_estimate``, each for the whole operator. The result has ``pieces``, ``is_timed`` (any is),
            ``device_ns``, ``shares``, ``tensor_core_ns``, ``saveable_ns`` (busy time beyond the minimum
            time); ``longest_ns`` and ``longest_at`` of the longest operation, and ``flagged_ns``,
            ``flagged_at`` and ``reason`` of the longest one that seems to exceed a peak.
        Order: by pair.
        """
        limits = limits.with_columns(pl.col(pl.Float64).fill_nan(None))
        sums = self._sums(limits["least_ns"])
        flagged = self._flagged(limits).sort("dur_ns", descending=True, maintain_order=True)
        flagged = flagged.filter(pl.col("pair").is_first_distinct())
        flagged = flagged.select("pair", "reason", flagged_ns="dur_ns", flagged_at="at")
        return sums.join(flagged, on="pair", how="left").sort("pair").drop("pair")

    def _sums(self, least_ns: pl.Series) -> pl.DataFrame:
        """The sums of each pair's pieces, by the least time that an operator of it needs."""
        least = least_ns.gather(self.pieces["pair"])
        tensor_core_ns = self.ops["tensor_core_ns"].gather(self.pieces["op"]) * self.pieces["share"]
        saveable_ns = (self.pieces["busy_ns"] - least * self.pieces["share"]).clip(0).fill_null(0.0)
        pieces = self.pieces.select(
            "at", "pair", "dur_ns", "is_timed", "share",
            saveable_ns=saveable_ns, tensor_core_ns=tensor_core_ns,
        )  # fmt: skip
        return pieces.group_by("pair").agg(
            pieces=pl.len().cast(pl.Int64),
            is_timed=pl.col("is_timed").any(),
            device_ns=pl.col("dur_ns").sum(),
            shares=pl.col("share").sum(),
            tensor_core_ns=pl.col("tensor_core_ns").sum(),
            saveable_ns=pl.col("saveable_ns").sum(),
            longest_ns=pl.col("dur_ns").max(),
            longest_at=pl.col("at").get(pl.col("dur_ns").arg_max()),
        )

    def _flagged(self, limits: pl.DataFrame) -> pl.DataFrame:
        """The pieces that seem to reach more than a peak, with the ``reason``; few of them do."""
        pairs, ops = self.pieces["pair"], self.ops.drop("cores", "math").rename({"device_ns": "op_ns"})
        is_over = limits["least_ns"].gather(pairs) > ops["op_ns"].gather(self.pieces["op"])
        pieces = self.pieces.select("pair", "op", "dur_ns", "at").filter(is_over)
        pieces = pieces.hstack(limits[pieces["pair"]]).hstack(ops[pieces["op"]])
        return pieces.with_columns(reason=_reason())


def count_operators(pieces: pl.DataFrame, groups: pl.Series, count: int) -> pl.Series:
    """Counts the operators that contain GPU operations of each of ``count`` groups.

    ``groups`` has the group of each pair.

    Columns: ``pieces`` needs ``op`` and ``pair``.
    """
    # As one number, sorted, they are counted in a third of the time and memory of two.
    operators = (pieces["op"].cast(pl.UInt64) * count + groups.gather(pieces["pair"])).sort().unique()
    group = operators % count
    return sum_by_group(group, group, count)["rows"]


def _reason() -> pl.Expr:
    """Why an operator seems to reach more than a peak: the first reason that explains it."""
    duration = pl.col("op_ns").cast(pl.Float64)
    over_compute = (pl.col("compute_ns") > TOLERANCE * duration).fill_null(value=False)
    ticked = duration + _TICK_NS * pl.col("kernels")
    limit = pl.max_horizontal("compute_ns", "memory_ns")
    return (
        pl.when(limit <= TOLERANCE * duration)
        .then(6)
        .when(~over_compute & (pl.col("through_ns") <= TOLERANCE * duration))
        .then(1)
        .when(over_compute & pl.col("needs_fewer"))
        .then(2)
        .when((pl.col("op_ns") % _TICK_NS == 0) & (limit <= TOLERANCE * ticked))
        .then(3)
        .when("is_estimate")
        .then(4)
        .otherwise(5)
    )


class CostedWork:
    """The GPU operations of a trace, with their operators in ``costed``.

    Columns of ``classes``, one row per class of equal operations: ``kernel``, ``kind``, ``stream``,
    ``device``, ``step``, ``step_place`` (see ``step_places``), ``is_communication``.
    """

    def __init__(self, trace: Trace, costed: Costed) -> None:
        work = trace.gpu_ops.select("kind", "stream", "device", "step", "is_communication", kernel="name")
        alike = classes_of(work.with_columns(step_place=step_places(trace)))
        self._op, self._of_class, self.classes = costed.work, alike.of, alike.keys
        self._trace = trace

    @cached_property
    def maths(self) -> list[str]:
        """Types in which kernels multiply, numbered from 1."""
        return self._marked["math"].drop_nulls().unique().sort().to_list()

    def paired(self, kinds: pl.Series) -> PairedWork:
        """Returns the operations by pairs of the kinds of their operators and their classes."""
        # An operator used tensor cores if a kernel did, and may have if of a kernel it is not known.
        used = pl.col("tensor_cores").cast(pl.UInt8) * 2
        text = pl.col("kernel").cast(pl.String)
        numbers = {name: number for number, name in enumerate(self.maths, 1)}
        marks = self._marked.select(
            cores=pl.when(pl.col("kind") == "kernel").then(used).otherwise(0).fill_null(1).cast(pl.UInt8),
            math=pl.col("math").replace_strict(numbers, default=0, return_dtype=pl.UInt8),
            needs_fewer=text.str.contains(_FEWER).fill_null(value=False),
        )
        at = self._op.is_not_null().arg_true()
        durations, busy_ns = self._trace.gpu_ops["dur_ns"], GpuWork(self._trace).on_devices.shared_ns()
        pieces = pl.DataFrame(
            {
                "at": at,
                "op": self._op.gather(at),
                "of_class": self._of_class.gather(at),
                "dur_ns": durations.gather(at).fill_null(0),
                "is_timed": durations.is_not_null().gather(at),
                "busy_ns": busy_ns.gather(at),
            }
        )
        return pair_pieces(pieces, kinds, marks)

    @cached_property
    def _marked(self) -> pl.DataFrame:
        """The classes with ``math``, and with ``tensor_cores`` as every table of kernels has them."""
        kernels = with_kernel_math(self.classes.with_columns(name="kernel"))
        return kernel_flags(kernels, self._trace.devices)

    def labelled(self, found: pl.DataFrame) -> pl.DataFrame:
        """Replaces the numbers ``cores`` and ``math`` by ``tensor_cores`` and ``math`` as types."""
        names = pl.Series([None, *self.maths], dtype=pl.String)
        known = pl.when(pl.col("cores") == 2).then(True).when(pl.col("cores") == 0).then(False)
        return found.with_columns(names.gather(found["math"]).alias("math"), tensor_cores=known).drop("cores")


def pair_pieces(pieces: pl.DataFrame, kinds: pl.Series, marks: pl.DataFrame) -> PairedWork:
    """Returns the ``pieces`` by pairs of the kind of their operator and their class.

    Columns: ``pieces`` needs ``at``, ``op`` (a position in ``kinds``), ``of_class`` (a position in
        ``marks``), ``dur_ns``, ``is_timed`` and ``busy_ns``; ``marks`` needs ``cores``, ``math`` and
        ``needs_fewer`` (its algorithm needs fewer operations than are counted).
    """
    ops = pl.DataFrame(_traceparse.operator_work(pieces, marks, kinds.len()))
    of_op = ops.select("device_ns", "kernels", "cores", "math", kinds.alias("kind"))[pieces["op"]]
    pairs = classes_of(of_op.select("kind", pieces["of_class"].alias("class"), "cores", "math"))
    share = pl.when(of_op["device_ns"] > 0).then(pieces["dur_ns"] / of_op["device_ns"])
    pieces = pieces.select(
        "at", "op", "dur_ns", "is_timed", "busy_ns",
        pairs.of.alias("pair"), share=share.otherwise(1 / of_op["kernels"]),
    )  # fmt: skip
    return PairedWork(pairs.keys, ops, pieces)
