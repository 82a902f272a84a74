"""The answers from which several views are made, each computed once."""

from functools import cached_property
from typing import TYPE_CHECKING, cast

import polars as pl

from kernelscope import analysis
from kernelscope.report import roofline

if TYPE_CHECKING:
    from kernelscope.trace import Trace


class Sources:
    """A trace, and what several views ask of it."""

    def __init__(self, trace: "Trace") -> None:
        self.trace = trace

    @cached_property
    def breakdown(self) -> pl.DataFrame:
        """Every complete step and its parts."""
        return analysis.step_breakdown(self.trace)

    @cached_property
    def ops(self) -> pl.DataFrame:
        """Operators by name."""
        return analysis.op_table(self.trace)

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Kernels by name."""
        return analysis.kernel_table(self.trace)

    @cached_property
    def gpus(self) -> pl.DataFrame:
        """Each GPU that worked."""
        return analysis.gpu_summary(self.trace)

    @cached_property
    def roofline(self) -> roofline.RooflineAnswers:
        """Costs, coverage and FLOPs utilisation."""
        return roofline.answer(self.trace, ("name",))

    @cached_property
    def origin_ns(self) -> int:
        """The start of the first event: times of the page count from it."""
        extent = self.trace.extent()
        return extent[0] if extent else 0


def column_sum(frame: pl.DataFrame, column: str) -> int:
    """The sum of a column of whole numbers; 0 for an empty frame."""
    return cast("int | None", frame[column].sum()) or 0


def with_share(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Adds ``share_pct``, the share of each row in the sum of ``column``."""
    total = column_sum(frame, column) if column in frame.columns else 0
    return frame.with_columns(share_pct=pl.lit(100.0) * pl.col(column) / pl.lit(total or None))
