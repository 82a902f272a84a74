"""Inputs of the rules, each computed on first use."""

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple, cast

import polars as pl

from kernelscope.analysis.advice.record import matching, names_like, rows_like
from kernelscope.analysis.advice.savings import Change, Savings, together
from kernelscope.analysis.advice.waits import REPLAYS, Gaps, classified_gaps
from kernelscope.analysis.call_tree import innermost, nest
from kernelscope.analysis.gpu.time import temporal_breakdown
from kernelscope.analysis.gpu.work import GpuWork
from kernelscope.analysis.grouping import classes_of, gather_rows, positions, sum_by_group
from kernelscope.analysis.intervals import Intervals, merged
from kernelscope.analysis.kernels.tensor_cores import is_nvidia, kernel_flags
from kernelscope.analysis.memory.records import AllocatorRecords
from kernelscope.analysis.steps.breakdown import CATEGORIES, step_breakdown, step_times
from kernelscope.trace import Trace

COMPILED = r"^Torch-Compiled Region|^CompiledFunction(?:Backward)?$|^## Call CompiledFxGraph"
"""Names of operations that torch.compile generated."""

_CAPTURES = r"GraphInstantiate|EndCapture"
_COMPILERS = r"\(dynamo_timed\)$|^_?compile_fx|^torch/_dynamo.*(?:_compile|convert_frame)|^CachingAutotuner"
_LOADERS = r"^(?:cu|hip)(?:Module|Library)Load|^cudaLibraryLoad|^hipModuleLoad"
_ALLOCATORS = (
    r"^(?:cuda|hip|cu)(?:Malloc|Free|MemAlloc|MemFree|MemCreate|MemMap|MemUnmap|MemRelease)"
    r"(?:_v2|Host|Managed)?$"
)
_FED, _COPYING = 0.05, 0.1
# Beyond this share of its capacity a GPU has no room for a larger batch.
_FULL = 0.8
_OF_OPS = ("row", "parent_row", "name", "start_ns", "dur_ns", "step")


class OnGpu(NamedTuple):
    """Operations of one GPU. ``who`` names it at the start of a sentence if the trace has several."""

    device: int | None
    who: str
    works: pl.DataFrame
    spent_ns: int
    kernel_ns: int
    """Summed time of all ``kernels`` of the GPU."""

    @property
    def share(self) -> float:
        """Share of the operations in the kernel time of the GPU."""
        return self.spent_ns / self.kernel_ns if self.kernel_ns else 0.0


class PartOfSteps(NamedTuple):
    """Time of one part over all complete steps: the mean over GPUs, and the GPU with the most time."""

    mean_ns: int
    worst_ns: int
    device: int | None

    @classmethod
    def of(cls, devices: pl.Series, times: pl.Series) -> "PartOfSteps":
        """Returns the part from the times of all GPUs."""
        if times.is_empty():
            return cls(0, 0, None)
        worst = times.arg_max() or 0
        return cls(round(cast(float, times.mean())), int(times[worst]), devices[worst])


class Facts:
    """Figures about one trace. Only complete steps count; in a trace without steps, everything counts.

    The figures exist only while the rules run, because together they may be as large as a table of the trace.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.work = GpuWork(trace)
        self.records = AllocatorRecords(trace)
        self.waited_ns = 0
        """How long it waited for other ranks in exposed communication, if these are known."""

    @cached_property
    def breakdown(self) -> pl.DataFrame:
        """The complete steps; see ``step_times``."""
        return step_times(self.trace)

    @cached_property
    def total_ns(self) -> int:
        """Total time of all complete steps."""
        return int(self.breakdown["total_ns"].sum())

    @cached_property
    def parts(self) -> Mapping[str, "PartOfSteps"]:
        """Time of each part over all complete steps."""
        sums = step_breakdown(self.trace).group_by("device", "pid").agg(pl.col(CATEGORIES).sum())
        sums = sums.sort("device", "pid")
        return {name: PartOfSteps.of(sums["device"], sums[name]) for name in CATEGORIES}

    @cached_property
    def marked(self) -> bool:
        """Whether the trace marks steps."""
        return self.breakdown["step"].null_count() < self.breakdown.height

    @cached_property
    def steps(self) -> int:
        """Number of complete steps."""
        return self.breakdown.height

    def share(self, ns: int) -> float:
        """Returns a time as a share of the time of all steps, or 0 without steps."""
        return ns / self.total_ns if self.total_ns > 0 else 0.0

    def inside(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows of ``frame`` that belong to a complete step.

        Columns: ``frame`` needs ``step``.
        """
        if not self.marked:
            return frame
        is_inside = frame.select(self._is_inside).to_series()
        return frame if is_inside.all(ignore_nulls=False) else frame.filter(is_inside)

    @cached_property
    def _is_inside(self) -> pl.Expr:
        steps = self.breakdown["step"].drop_nulls()
        if not self.marked:
            return pl.lit(value=True)
        low, high = cast("int | None", steps.min()), cast("int | None", steps.max())
        if low is not None and high is not None and steps.n_unique() == high - low + 1:
            return pl.col("step").is_between(low, high)
        return pl.col("step").is_in(steps.implode())

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """The classes of ``work.launches``, and sums over their kernels that count.

        Kernels count if they are in complete steps and are not communication.

        Columns: ``name``, ``device``, ``tensor_cores``, ``works`` (number of kernels that count) and
        ``dur_ns`` (of these).
        """
        of, classes = self.work.launches
        sums = self.work.totals
        if self._are_inside is not None:
            inside = pl.select(pl.when(self._are_inside).then(of)).to_series()
            sums = sum_by_group(inside, self.trace.gpu_ops["dur_ns"], classes.height)
        computes = (pl.col("kind") == "kernel") & ~pl.col("is_communication").fill_null(value=False)
        counted = classes.select(computes).to_series()
        return kernel_flags(classes.select("name", "device"), self.trace.devices).select(
            "name",
            "device",
            "tensor_cores",
            works=pl.when(counted).then(sums["rows"]).otherwise(0),
            dur_ns=pl.when(counted).then(sums["sum"]).otherwise(0),
        )

    @cached_property
    def are_kernels(self) -> pl.Series:
        """Marks the rows of ``gpu_ops`` that count among the ``kernels``."""
        return self.marked_kernels(self.kernels["works"] > 0)

    def rows_of(self, marks: pl.Series, *columns: str) -> pl.DataFrame:
        """Returns the marked rows of ``gpu_ops``.

        Columns: ``row``, ``device``, ``dur_ns`` (0 if unknown) and ``columns``.
        """
        work = self.trace.gpu_ops.select("row", "device", pl.col("dur_ns").fill_null(0), *columns)
        return work.filter(marks)

    def on_gpus(self, works: pl.DataFrame) -> list[OnGpu]:
        """Groups ``works`` by GPU, the GPU with the longest time first.

        Columns: ``works`` needs ``device`` and ``dur_ns``.
        """
        totals = dict(self.kernels.group_by("device").agg(pl.col("dur_ns").sum()).iter_rows())
        parts = [
            OnGpu(device, self.who(device), part, int(part["dur_ns"].sum()), totals.get(device, 0))
            for (device,), part in works.group_by("device", maintain_order=True)
        ]
        return sorted(parts, key=lambda part: -part.spent_ns)

    def who(self, device: object) -> str:
        """Returns the GPU as the start of a sentence, or nothing if the trace has only one."""
        return f"GPU {device}: " if self._gpus > 1 and device is not None else ""

    @cached_property
    def _gpus(self) -> int:
        return self.trace.gpu_ops["device"].drop_nulls().n_unique()

    @cached_property
    def savings(self) -> Savings:
        """Changes of the trace, and the time that complete steps take less with them."""
        return Savings(self.trace)

    def faster(self, works: pl.DataFrame, saved: str = "dur_ns", *, launched: bool = True) -> Change:
        """See ``Savings.faster``."""
        return self.savings.faster(works, saved, launched=launched)

    def with_other_stages(self, change: Change, saved_ns: int) -> Change:
        """Returns a change that all stages of a pipeline make: transfers, which mostly wait, take less."""
        transfers = self.calls.filter(dimension="pp")
        if transfers.is_empty():
            return change
        shorter = (pl.col("dur_ns") * self.share(saved_ns)).round().cast(pl.Int64)
        saved = transfers.with_columns(saved_ns=shorter)
        return together([change, self.faster(saved, "saved_ns")])

    def sooner(self, gaps: pl.DataFrame) -> Change:
        """See ``Savings.sooner``; host activity with its own rules stays."""
        return self.savings.sooner(gaps, self.busy_elsewhere)

    def without(self, calls: pl.DataFrame) -> tuple[Change, int]:
        """Returns the change that calls of the host go, and its saving in ns; see ``Savings.without``."""
        change = self.savings.without(calls)
        return change, self.savings.of(change)

    def are_rows(self, rows: pl.Series) -> pl.Series:
        """Marks the rows of ``gpu_ops`` that are in ``rows``."""
        marks = pl.repeat(value=False, n=self.trace.gpu_ops.height, eager=True)
        return marks.scatter(positions(self.trace.gpu_ops["row"], rows), values=True)

    def marked_kernels(self, marks: pl.Series) -> pl.Series:
        """Marks the rows of ``gpu_ops`` that are kernels of a marked class."""
        counted = (self.kernels["works"] > 0) & marks.fill_null(value=False)
        found = counted.gather(self.work.launches.of)
        return found if self._are_inside is None else found & self._are_inside

    @cached_property
    def _are_inside(self) -> pl.Series | None:
        """Which rows of ``gpu_ops`` are in whole steps; None if all are."""
        if not self.marked:
            return None
        inside = self.trace.gpu_ops.select(self._is_inside.fill_null(value=False)).to_series()
        return None if inside.all() else inside

    @cached_property
    def kernel_ns(self) -> int:
        """Summed time of all ``kernels``."""
        return int(self.kernels["dur_ns"].sum())

    @cached_property
    def kernel_count(self) -> int:
        """Number of ``kernels``."""
        return int(self.kernels["works"].sum())

    def named(self, pattern: str) -> pl.Series:
        """Marks the ``kernels`` whose names match ``pattern``."""
        names = self.kernels["name"]
        return names.is_in(matching(names, pattern).implode()).fill_null(value=False)

    @cached_property
    def communication(self) -> pl.DataFrame:
        """Communication operations on GPUs in complete steps: ``row``, ``device``, ``dur_ns``."""
        marks = self.trace.gpu_ops["is_communication"].fill_null(value=False)
        return self.rows_of(marks if self._are_inside is None else marks & self._are_inside)

    @cached_property
    def sharded(self) -> pl.DataFrame:
        """Collectives of sharded parameters on GPUs in complete steps: the columns of ``fsdp_collectives``,
        and ``device``."""
        from kernelscope.analysis.training.sharding import collectives_of_trace

        found = self.inside(collectives_of_trace(self.trace))
        found = found.hstack(gather_rows(found["row"], self.trace.gpu_ops, "device"))
        return found.drop_nulls("device")

    @cached_property
    def calls(self) -> pl.DataFrame:
        """Collectives on GPUs in complete steps: the columns of ``rank_calls``, and ``dimension``."""
        from kernelscope.analysis.ranks.cluster import cluster_of
        from kernelscope.analysis.ranks.collectives import rank_calls
        from kernelscope.analysis.training.dimensions import with_dimension

        cluster = cluster_of(self.trace)
        return self.inside(with_dimension(rank_calls(cluster), cluster).drop_nulls("device"))

    def communication_causes(self, device: int | None, exposed_ns: int) -> list[str]:
        """Returns the more specific rules that explain half of the exposed communication of a GPU.

        Waiting for other ranks does not count, as far as it is known.
        """
        if not self.trace.gpu_ops["is_communication"].any():
            return []
        is_own = pl.col("device").eq_missing(device)
        is_gather = pl.col("kind") == "all_gather"
        waits, calls = self.sharded.filter(is_own), self.calls.filter(is_own)
        explained = {
            "late_all_gathers": waits.filter(is_gather)["wait_ns"],
            "late_reductions": waits.filter(~is_gather)["wait_ns"],
            "exposed_tensor_parallelism": calls.filter(dimension="tp")["exposed_ns"],
        }
        return [
            name for name, times in explained.items() if 2 * int(times.sum()) >= exposed_ns - self.waited_ns
        ]

    @cached_property
    def norm_waits(self) -> list[OnGpu]:
        """Gaps after the host had waited for the GPU while gradients are clipped, grouped by GPU."""
        from kernelscope.analysis.training.phases import named_phases

        gaps = self.gaps.late.filter(pl.col("cause") == "sync")
        if gaps.is_empty():
            return []
        clipping = named_phases(self.trace).filter(phase="gradient_clipping")
        calls = gather_rows(gaps["sync_row"], self.trace.launches, "track", "start_ns")
        clipping = nest(clipping.select("row", "track", "start_ns", "dur_ns"))
        around = innermost(calls.with_columns(dur_ns=pl.lit(0, pl.Int64)), clipping)
        return self.on_gpus(gaps.filter(around.is_not_null()))

    @cached_property
    def updates(self) -> pl.Series:
        """Marks the counted kernels in ``gpu_ops`` that the optimizer launched."""
        phase = self.trace.ops["phase"]
        if phase.null_count() == phase.len():
            return pl.repeat(value=False, n=self.trace.gpu_ops.height, eager=True)
        is_update = (phase.gather(self.work.callers) == "optimizer").fill_null(value=False)
        return is_update & self.are_kernels

    @cached_property
    def spans(self) -> pl.DataFrame:
        """Time of complete steps as separate intervals: ``start_ns``, ``end_ns``."""
        end = pl.col("start_ns") + pl.col("total_ns")
        return merged(self.breakdown.select("start_ns", end_ns=end), by=[])

    @cached_property
    def every_gap(self) -> Gaps:
        """Idle gaps of GPUs with their causes; see ``classified_gaps``."""
        return classified_gaps(self.trace)

    @cached_property
    def gaps(self) -> Gaps:
        """Gaps before operations of complete steps, clipped to these steps."""
        inside = self.every_gap.all.select(self._is_inside.fill_null(value=False)).to_series()
        if inside.len() == 1:
            inside = pl.repeat(inside[0], self.every_gap.all.height, eager=True)
        return self.every_gap.counted(inside, self.spans)

    def waits(self, cause: str) -> list[OnGpu]:
        """Gaps that waited for the host by ``cause``, grouped by GPU, the longest wait first.

        Host activity with its own rules counts for those rules.
        """
        gaps = self.gaps.late.filter(pl.col("cause") == cause)
        if cause in ("launch", "host") and self.explained.height:
            ends = gaps.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
            known = Intervals(self.busy_elsewhere, by=[]).hidden_ns(ends)
            gaps = gaps.with_columns(dur_ns=gaps["dur_ns"] - known).filter(pl.col("dur_ns") > 0)
        return self.on_gpus(gaps)

    @cached_property
    def waited(self) -> "dict[int | None, dict[str | None, int]]":
        """Waiting time of each GPU in complete steps by cause, the longest first."""
        groups = classes_of(self.gaps.all.select("device", "cause"))
        sums = groups.keys.hstack(sum_by_group(groups.of, self.gaps.all["dur_ns"], groups.keys.height))
        found: dict[int | None, dict[str | None, int]] = {}
        for device, cause, ns in sums.sort("sum", descending=True).select("device", "cause", "sum").rows():
            found.setdefault(device, {})[cause] = ns
        return found

    @cached_property
    def graph_launches(self) -> int:
        """Number of graph replays."""
        return rows_like(self.trace, "launches", REPLAYS, "row").height

    @cached_property
    def captures_graphs(self) -> bool:
        """Whether graphs are captured or built, as happens before the first replay."""
        return names_like(self.trace, "launches", _CAPTURES).len() > 0

    @cached_property
    def is_compiled(self) -> bool:
        """Whether parts of the program were compiled by torch.compile."""
        return names_like(self.trace, "ops", COMPILED).len() > 0

    @cached_property
    def compiling(self) -> pl.DataFrame:
        """Compilation by torch.compile in complete steps; see ``ops_named``."""
        return self.ops_named(_COMPILERS)

    @cached_property
    def loads(self) -> pl.DataFrame:
        """Calls that load kernel code in complete steps; see ``launches_named``."""
        return self.launches_named(_LOADERS)

    @cached_property
    def explained(self) -> pl.DataFrame:
        """Host activity in complete steps with its own rules: ``name``, ``start_ns``, ``dur_ns``."""
        found = (self.compiling, self.loads, self.allocations)
        return pl.concat(
            calls.select(pl.col("name").cast(pl.String), "start_ns", "dur_ns") for calls in found
        )

    @cached_property
    def busy_elsewhere(self) -> pl.DataFrame:
        """Time of host activity with its own rules as separate intervals: ``start_ns``, ``end_ns``."""
        return merged(self.explained, by=[])

    @cached_property
    def allocations(self) -> pl.DataFrame:
        """Calls that allocate GPU memory in complete steps. The first of several fills the cache of the
        allocator.

        Columns: see ``launches_named``.
        """
        found = self.launches_named(_ALLOCATORS)
        return found.filter(pl.col("step") != self.breakdown["step"].min()) if self.steps > 1 else found

    @cached_property
    def gives_back(self) -> bool:
        """Whether the allocator returns memory to the driver in complete steps, as it does when memory is
        short."""
        return matching(self.allocations["name"], "Free|Release|Unmap").len() > 0

    @property
    def has_frames(self) -> bool:
        """Whether Python frames or call stacks were recorded."""
        stacks = self.trace.ops["call_stack"]
        return self.trace.python.height > 0 or stacks.null_count() < stacks.len()

    @cached_property
    def may_grow(self) -> bool:
        """Whether a larger batch could help: memory is available, and GPUs do not wait for data."""
        full = self.may_use("total_reserved_bytes", _FULL) or self.may_use("total_allocated_bytes", _FULL)
        fed = self.share(self.parts["dataloader_ns"].worst_ns) < _FED and not self._copies_matter
        return fed and not full and not self.records.failed.height and not self.gives_back

    @cached_property
    def _copies_matter(self) -> bool:
        """Whether some GPU only copies for a good part of its time."""
        shares = temporal_breakdown(self.trace)["memory_share"]
        return bool((shares > _COPYING).any())

    def may_use(self, column: str, share: float) -> bool:
        """Whether some GPU's memory may exceed a share of its capacity, judged by the totals.

        ``column`` is ``total_allocated_bytes`` or ``total_reserved_bytes``.
        """
        most, least = self.trace.memory[column].max(), self.trace.devices["total_memory_bytes"].min()
        return isinstance(most, int) and isinstance(least, int) and most > share * least

    @cached_property
    def memory(self) -> pl.DataFrame:
        """Memory summary of each device; see ``memory_summary``."""
        from kernelscope.analysis.memory.curve import memory_summary

        return memory_summary(self.trace)

    @cached_property
    def is_nvidia(self) -> bool:
        """Whether no active GPU is known to be from another vendor than NVIDIA."""
        described = self.trace.devices.filter(
            pl.col("name").is_not_null() | pl.col("warp_size").is_not_null()
        )
        return described.height > 0 and is_nvidia(described).height == described.height

    def capability(self, device: int = 0) -> float | None:
        """Returns the compute capability of a GPU, such as 7.5, or None if it was not recorded."""
        rows = self.trace.devices.filter(pl.col("device") == device)
        if rows.is_empty() or rows["compute_major"][0] is None:
            return None
        return cast(int, rows["compute_major"][0]) + (rows["compute_minor"][0] or 0) / 10

    def ops_named(self, pattern: str) -> pl.DataFrame:
        """Returns operators and annotations in complete steps whose names match ``pattern``."""
        return self.inside(rows_like(self.trace, "ops", pattern, *_OF_OPS))

    def ops_doing(self, activity: str) -> pl.DataFrame:
        """Returns operators and annotations of an ``activity`` that belong to or overlap a complete step."""
        return self._doing(self.trace.ops, activity)

    def ranges_doing(self, activity: str) -> pl.DataFrame:
        """Returns NVTX ranges of an ``activity`` that belong to or overlap a complete step."""
        return self._doing(self.trace.ranges, activity)

    def _doing(self, table: pl.DataFrame, activity: str) -> pl.DataFrame:
        rows = table.select(*_OF_OPS, "activity").filter(pl.col("activity") == activity)
        if not self.marked:
            return rows
        begins, ends = self.breakdown["start_ns"], self.breakdown["start_ns"] + self.breakdown["total_ns"]
        row_ends = rows["start_ns"] + rows["dur_ns"].fill_null(0)
        begun = begins.sort().search_sorted(row_ends, side="left")
        ended = ends.sort().search_sorted(rows["start_ns"], side="right")
        return rows.filter(self._is_inside | (begun > ended))

    def launches_named(self, pattern: str) -> pl.DataFrame:
        """Returns runtime and driver calls in complete steps whose names match ``pattern``."""
        columns = ("row", "name", "start_ns", "dur_ns", "step", "op_row")
        return self.inside(rows_like(self.trace, "launches", pattern, *columns))

    def any_named(self, pattern: str) -> bool:
        """Returns whether the name of any operator or GPU operation in the trace matches ``pattern``."""
        return any(names_like(self.trace, table, pattern).len() > 0 for table in ("ops", "gpu_ops"))
