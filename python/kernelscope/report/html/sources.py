"""The answers from which several views are made, each computed once."""

from itertools import chain
from typing import TYPE_CHECKING, cast

import polars as pl

from kernelscope.analysis.advice import recommendations
from kernelscope.analysis.costs.achieved import step_efficiency
from kernelscope.analysis.costs.attainable import summed
from kernelscope.analysis.costs.costed import Costed, costed_trace
from kernelscope.analysis.costs.coverage import cost_findings, coverage_of, kind_sums
from kernelscope.analysis.costs.limits import LimitedWork, limited_work
from kernelscope.analysis.gpu.summary import gpu_summary
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.kernels.table import kernel_table
from kernelscope.analysis.memory.records import AllocatorRecords
from kernelscope.analysis.missing_views import missing
from kernelscope.analysis.once import once
from kernelscope.analysis.ops.eligibility import Eligibility, call_eligibility
from kernelscope.analysis.ops.table import costed_calls, op_table, op_tables, operator_classes
from kernelscope.analysis.overview import overview
from kernelscope.analysis.steps.breakdown import step_breakdown
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

    @once
    def breakdown(self) -> pl.DataFrame:
        """Every complete step and its parts."""
        return step_breakdown(self.trace)

    @property
    def ops(self) -> dict[str, pl.DataFrame]:
        """Operators by name, and by name and what else was recorded: shape, stack and module."""
        return self._operators[0]

    @property
    def _eligibility(self) -> Eligibility:
        return self._operators[1]

    @once
    def _operators(self) -> tuple[dict[str, pl.DataFrame], Eligibility]:
        """The tables of operators, and which calls tensor cores can run: both look at the same tree."""
        ops = self.trace.ops
        recorded = {
            key: by for key, by in _GROUPINGS.items() if key == "name" or ops[by[1]].null_count() < ops.height
        }
        classes = operator_classes(ops, chain.from_iterable(recorded.values()))
        calls = costed_calls(self.trace, classes=classes, launches=self.work.launches)
        tables = op_tables(self.trace, list(recorded.values()), calls=calls, classes=classes)
        found = dict(zip(recorded, tables, strict=True))
        if not self.missing("call_stacks"):
            # Stacks that are put together from Python frames take their time.
            found["stack"] = op_table(self.window.trace, by=("name", "call_stack"))
        return found, call_eligibility(self.trace, tree=calls, classes=classes)

    @once
    def work(self) -> GpuWork:
        """What several questions ask of GPU work."""
        return GpuWork(self.trace)

    @once
    def kernels(self) -> pl.DataFrame:
        """Kernels by name."""
        return kernel_table(self.trace, work=self.work)

    @once
    def gpus(self) -> pl.DataFrame:
        """Each GPU that worked."""
        return gpu_summary(self.trace, work=self.work)

    @once
    def costs(self) -> pl.DataFrame:
        """What every operator had to compute: ``op_row`` and ``flops``."""
        ops = self._costed.ops
        return ops.select("op_row").with_columns(self._costed.kinds["flops"].gather(ops["kind"]))

    @once
    def _costed(self) -> Costed:
        return costed_trace(self.trace, convention="kernelscope")

    @once
    def _limited(self) -> LimitedWork:
        return limited_work(self.trace, self._costed, gpu_work=self.work)

    @once
    def _kinds(self) -> pl.DataFrame:
        return kind_sums(self._limited)

    def roofline(self, by: str) -> pl.DataFrame:
        """What was achieved and attainable, by a column."""
        return summed(self.trace, self._limited, (by,))

    @once
    def efficiency(self) -> pl.DataFrame:
        """FLOPs utilisation of each step."""
        return step_efficiency(self.trace, self._limited)

    @once
    def coverage(self) -> pl.DataFrame:
        """For how much of the GPU time the costs are known."""
        return coverage_of(self.trace, self._kinds)

    @once
    def cost_findings(self) -> pl.DataFrame:
        """Whose costs are not known, and why."""
        return cost_findings(self._kinds)

    @once
    def overview(self) -> dict[str, object]:
        """The figures of the trace at a glance."""
        table = overview(self.trace, gpus=self.gpus, efficiency=self.efficiency, calls=self._eligibility)
        return table.row(0, named=True)

    @once
    def recommendations(self) -> pl.DataFrame:
        """What could make the program faster."""
        return recommendations(
            self.trace,
            breakdown=self.breakdown,
            gpus=self.gpus,
            calls=self._eligibility,
            work=self.work,
            records=self.records,
        )

    @once
    def records(self) -> AllocatorRecords:
        """What several questions ask of allocations and frees."""
        return AllocatorRecords(self.trace)

    @once
    def window(self) -> Window:
        """The trace itself, or a step of it if it is large."""
        return window_of(self.trace, self.breakdown, self._extent)

    @once
    def _missing(self) -> dict[str, str]:
        rows = missing(self.trace).iter_rows(named=True)
        return {row["view"]: f"{row['why']} {row['remedy']}" for row in rows}

    def missing(self, *names: str) -> list[Note]:
        """What the trace lacks for views of :func:`kernelscope.analysis.missing`, and the remedies."""
        return [Note(self._missing[name], missing=True) for name in names if name in self._missing]

    @once
    def origin_ns(self) -> int:
        """The start of the first event: times of the page count from it."""
        return self._extent[0] if self._extent else 0

    @once
    def _extent(self) -> tuple[int, int] | None:
        return self.trace.extent()


def column_sum(frame: pl.DataFrame, column: str) -> int:
    """The sum of a column of whole numbers; 0 for an empty frame."""
    return cast("int | None", frame[column].sum()) or 0


def with_share(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Adds ``share_pct``, the share of each row in the sum of ``column``."""
    total = column_sum(frame, column) if column in frame.columns else 0
    return frame.with_columns(share_pct=pl.lit(100.0) * pl.col(column) / pl.lit(total or None))
