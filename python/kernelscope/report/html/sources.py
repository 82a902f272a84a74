"""The answers from which several views are made, each computed once."""

from typing import TYPE_CHECKING, cast

import polars as pl

from kernelscope.analysis.advice import recommendations
from kernelscope.analysis.costs.achieved import step_efficiency
from kernelscope.analysis.costs.attainable import summed
from kernelscope.analysis.costs.coverage import cost_findings, coverage_of, kind_sums
from kernelscope.analysis.costs.limits import limited_work
from kernelscope.analysis.gpu.summary import gpu_summary
from kernelscope.analysis.kernels.table import kernel_table
from kernelscope.analysis.missing_views import missing_views
from kernelscope.analysis.ops.table import op_table, op_tables
from kernelscope.analysis.overview import overview
from kernelscope.analysis.steps.breakdown import step_breakdown
from kernelscope.memo import Memo, per_trace
from kernelscope.report.html.parts import Note
from kernelscope.report.html.window import Window, window_of

if TYPE_CHECKING:
    from kernelscope.trace import Trace

_GROUPINGS: dict[str, tuple[str, ...]] = {
    "name": ("name",),
    "shape": ("name", "input_dims", "input_types"),
    "module": ("name", "module"),
}


class Sources:
    """A trace, and what several views ask of it. Any number of threads may ask."""

    def __init__(self, trace: "Trace") -> None:
        self.trace = trace

    @property
    def memo(self) -> Memo:
        """That of the trace, in which the answers are kept."""
        return self.trace.memo

    @property
    @per_trace
    def breakdown(self) -> pl.DataFrame:
        """Every complete step and its parts."""
        return step_breakdown(self.trace)

    @property
    @per_trace
    def ops(self) -> dict[str, pl.DataFrame]:
        """Operators by name, and by name and what else was recorded: shape, stack and module."""
        ops = self.trace.ops
        recorded = {
            key: by for key, by in _GROUPINGS.items() if key == "name" or ops[by[1]].null_count() < ops.height
        }
        tables = op_tables(self.trace, tuple(recorded.values()))
        found = dict(zip(recorded, tables, strict=True))
        if not self.missing("call_stacks"):
            # Stacks that are put together from Python frames take their time.
            found["stack"] = op_table(self.window.trace, by=("name", "call_stack"))
        return found

    @property
    @per_trace
    def kernels(self) -> pl.DataFrame:
        """Kernels by name."""
        return kernel_table(self.trace)

    @property
    @per_trace
    def gpus(self) -> pl.DataFrame:
        """Each GPU that worked."""
        return gpu_summary(self.trace)

    @property
    @per_trace
    def _kinds(self) -> pl.DataFrame:
        return kind_sums(limited_work(self.trace))

    def roofline(self, by: str) -> pl.DataFrame:
        """What was achieved and attainable, by a column."""
        return summed(self.trace, limited_work(self.trace), (by,))

    @property
    @per_trace
    def efficiency(self) -> pl.DataFrame:
        """FLOPs utilisation of each step."""
        return step_efficiency(self.trace, limited_work(self.trace))

    @property
    @per_trace
    def coverage(self) -> pl.DataFrame:
        """For how much of the GPU time the costs are known."""
        return coverage_of(self.trace, self._kinds)

    @property
    @per_trace
    def cost_findings(self) -> pl.DataFrame:
        """Whose costs are not known, and why."""
        return cost_findings(self._kinds)

    @property
    @per_trace
    def overview(self) -> dict[str, object]:
        """The figures of the trace at a glance."""
        table = overview(self.trace, costs=True)
        return table.row(0, named=True)

    @property
    @per_trace
    def recommendations(self) -> pl.DataFrame:
        """What could make the program faster."""
        return recommendations(self.trace)

    @property
    @per_trace
    def window(self) -> Window:
        """The trace itself, or a step of it if it is large."""
        return window_of(self.trace, self.breakdown, self._extent)

    @property
    @per_trace
    def _missing(self) -> dict[str, str]:
        rows = missing_views(self.trace).iter_rows(named=True)
        return {row["view"]: f"{row['why']} {row['remedy']}" for row in rows}

    def missing(self, *names: str) -> list[Note]:
        """What the trace lacks for views of :func:`kernelscope.analysis.missing_views`, and the remedies."""
        return [Note(self._missing[name], missing=True) for name in names if name in self._missing]

    @property
    @per_trace
    def origin_ns(self) -> int:
        """The start of the first event: times of the page count from it."""
        return self._extent[0] if self._extent else 0

    @property
    @per_trace
    def _extent(self) -> tuple[int, int] | None:
        return self.trace.extent()


def column_sum(frame: pl.DataFrame, column: str) -> int:
    """The sum of a column of whole numbers; 0 for an empty frame."""
    return cast("int | None", frame[column].sum()) or 0


def with_share(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Adds ``share_pct``, the share of each row in the sum of ``column``."""
    total = column_sum(frame, column) if column in frame.columns else 0
    return frame.with_columns(share_pct=pl.lit(100.0) * pl.col(column) / pl.lit(total or None))
