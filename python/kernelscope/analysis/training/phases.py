"""Time of host and GPU in each phase of training, also by micro-batch and module."""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

import polars as pl

from kernelscope.analysis.call_tree import CallTree, innermost, nest
from kernelscope.analysis.grouping import as_text, check_by, gather_rows, positions
from kernelscope.analysis.ranks.cluster import Source, Window, each_share, one_trace, windows_of
from kernelscope.analysis.ranks.joined import PART, joined
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.analysis.training.backward import in_backward
from kernelscope.analysis.training.micro_batches import micro_batches
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

PHASES = (
    "data_loading", "forward", "recompute", "backward", "gradient_clipping", "optimizer", "evaluation",
    "checkpoint_saving", "other",
)  # fmt: skip
"""In the order of a step."""

_BY = ("phase", "micro_batch", "step", "module")
_COUNTS = ("operators", "host_ns", "device_ns", "kernels")
_TABLES = ("ops", "launches", "gpu_ops", "python", "ranges", "captured_ops", "captured_nodes")

_MARKS = {
    "gradient_clipping": r"clip\w*grad|grad\w*[ _]norm",
    "evaluation": r"\b(?:evaluat(?:e|ion)|eval|validation)\b",
    "checkpoint_saving": r"\bsav(?:e|ing)\b.*(?:checkpoint|state|model)|(?:save|write)_checkpoint",
}
"""Names of annotations and NVTX ranges."""

_FRAMES = {
    "gradient_clipping": r": \w*(?:clip_grad|grad_norm)\w*$",
    "evaluation": r": (?:run_)?(?:evaluate|(?:eval|evaluation|validation)_(?:step|loop|epoch))$",
    "checkpoint_saving": (
        r": (?:async_)?save_(?:checkpoint|state|pretrained)\w*$|torch/serialization\.py\(\d+\): save$"
        r"|distributed/checkpoint/\w+\.py\(\d+\): (?:async_)?save$"
    ),
}
"""Names of Python frames."""

_NORMS = ("aten::_foreach_norm", "aten::linalg_vector_norm", "aten::norm")
_PRODUCTS = ("aten::_foreach_mul_", "aten::mul_")
"""Operators with which ``torch.nn.utils.clip_grad_norm_`` measures gradients, and limits them."""


def training_phases(
    source: Source, by: str | Sequence[str] = ("phase",), *, executor: Executor | None = None
) -> pl.DataFrame:
    """Time of host and GPU in each phase of training.

    ``by`` accepts ``phase``, ``micro_batch``, ``step`` and ``module``. The phases are ``forward``,
    ``recompute``, ``backward``, ``optimizer`` and ``other`` of ``ops``, and ``data_loading``,
    ``gradient_clipping``, ``evaluation`` and ``checkpoint_saving``, which Python frames, annotations and NVTX
    ranges name. Clipping also shows in norms between the backward pass and the step of the optimizer.
    Micro-batches have numbers from 0 in each step: a backward pass and the forward operators that it
    differentiates. Recomputation inside a kernel of torch.compile counts for the phase of the kernel.
    ``source`` is a trace, or a list of traces or a lake of many ranks. An ``executor`` reads several ranks at
    once.

    Columns: the columns of ``by`` (null for GPU operations without an operator); ``operators`` (calls of
        operators and annotations), ``host_ns`` (own time of these, without steps), ``device_ns`` (GPU
        operations that they launched), ``device_share`` (of all GPU time) and ``kernels``. Of several ranks,
        also ``rank``, at first, and shares of the GPU time of the rank.
    Units: ns; shares between 0 and 1. Concurrent operations are added, not merged.
    Order: by rank, by phase, in the order of a step, and the other columns.
    Raises: InvalidArgumentError: ``by`` contains something else.
    Example: ``training_phases(trace, by=("phase", "micro_batch"))``
    """
    columns = check_by(by, _BY)
    trace = one_trace(source)
    total = pl.col("device_ns").sum()
    if trace is not None:
        table = _sums(with_replayed_ops(trace), columns)
    else:
        tasks = [(window,) for window in windows_of(source)]
        found = each_share(partial(_of_share, by=columns), tasks, tables=_TABLES, executor=executor)
        columns, total = ["rank", *columns], total.over("rank")
        # A rank may have several windows.
        table = pl.concat(found).group_by(columns).agg(pl.col(_COUNTS).sum())
    share = pl.col("device_ns") / pl.when(total > 0).then(total)
    table = table.select(*columns, "operators", "host_ns", "device_ns", device_share=share, kernels="kernels")
    order = [pl.col(c).cast(pl.Enum(PHASES)) if c == "phase" else pl.col(c) for c in columns]
    return table.sort(*order, nulls_last=True)


def _of_share(tasks: Sequence[tuple[Window]], traces: Sequence[Trace], by: list[str]) -> pl.DataFrame:
    """The sums of some windows, with the rank of each."""
    whole = joined([with_replayed_ops(trace) for trace in traces], _TABLES)
    ranks = pl.Series("rank", [window.rank for (window,) in tasks], pl.Int64)
    found = _sums(whole.trace, by, (PART,))
    if "step" in by:
        found = found.with_columns(whole.own_numbers(found["step"]))
    return found.with_columns(ranks.gather(found[PART]))


def _sums(trace: Trace, by: list[str], keys: tuple[str, ...] = ()) -> pl.DataFrame:
    """The figures of :func:`training_phases` by the columns ``by``, and by columns ``keys`` of all tables."""
    ops = phased(trace)
    if "micro_batch" in by:
        ops = ops.with_columns(micro_batches(trace)["micro_batch"])
    ops = ops.select("row", "host_ns", *by).hstack(trace.ops.select(keys))
    host = ops.group_by(*keys, *by).agg(operators=pl.len().cast(pl.Int64), host_ns=pl.col("host_ns").sum())
    work = trace.gpu_ops.select(*keys, "op_row", "dur_ns", is_kernel=pl.col("kind") == "kernel")
    place = positions(ops["row"], work["op_row"])
    work = pl.concat([work, ops.select(by)[place]], how="horizontal")
    device = work.group_by(*keys, *by).agg(
        device_ns=pl.col("dur_ns").sum(), kernels=pl.col("is_kernel").sum().cast(pl.Int64)
    )
    table = host.join(device, on=[*keys, *by], how="full", coalesce=True, nulls_equal=True)
    return as_text(table.with_columns(pl.col(_COUNTS).fill_null(0)))


@per_trace
def phased(trace: Trace) -> pl.DataFrame:
    """Returns operators and annotations with their phase of training.

    Columns: ``row``, ``step``, ``module``, ``phase`` and ``host_ns``.
    """
    ops = trace.ops
    tree = CallTree(ops)
    tree.put_own_time(ops, into="host_ns")
    named = named_phases(trace)
    around = innermost(ops.select("track", "start_ns", dur_ns=pl.lit(0, pl.Int64)), named)
    found = ops.select(
        "row", "step", "module", recorded="phase", named=gather_rows(around, named, "phase")["phase"],
        host_ns=tree.columns(["host_ns"])["host_ns"],
    )  # fmt: skip
    recorded = pl.col("recorded").cast(pl.String)
    phase = pl.when(in_backward("recorded")).then(recorded).otherwise(pl.coalesce("named", recorded))
    # The own time of a step is that without an operator.
    host = pl.when(ops["activity"].ne_missing("step")).then("host_ns").otherwise(0)
    return found.with_columns(phase=phase, host_ns=host).drop("recorded", "named")


def named_phases(trace: Trace) -> pl.DataFrame:
    """Times of threads in a phase that has a name, nested.

    Columns: ``row``, ``parent_row``, ``track``, ``start_ns``, ``dur_ns``, ``phase``, ``table`` and
        ``table_row`` (where the name is recorded; null for phases without a name of their own).
    """
    loading = trace.ops.filter(pl.col("activity") == "data_loading")
    parts = [
        _clipping(trace),
        loading.select("track", "start_ns", "dur_ns", phase=pl.lit("data_loading")),
        _matching("ops", trace.ops.filter("is_annotation"), _MARKS),
        _matching("ranges", trace.ranges.filter(pl.col("kind") == "push_pop"), _MARKS),
        _matching("python", trace.python, _FRAMES),
    ]
    return nest(pl.concat(parts, how="diagonal").drop_nulls("dur_ns").with_row_index("row"))


def _matching(source: str, table: pl.DataFrame, patterns: Mapping[str, str]) -> pl.DataFrame:
    names = table["name"].unique().cast(pl.String).drop_nulls()
    known = [
        (name, phase)
        for name in names
        for phase, pattern in patterns.items()
        if re.search(pattern, name, re.IGNORECASE)
    ]
    phases = pl.DataFrame(known, {"name": pl.String, "phase": pl.String}, orient="row")
    found = table.filter(pl.col("name").is_in(phases["name"].implode()))
    found = found.select(
        "track", "start_ns", "dur_ns", pl.col("name").cast(pl.String), table=pl.lit(source), table_row="row"
    )
    return found.join(phases.unique("name"), on="name").drop("name")


def _clipping(trace: Trace) -> pl.DataFrame:
    """From the first norm after a backward pass to the last product before the step of the optimizer."""
    end = pl.col("start_ns") + pl.col("dur_ns").fill_null(0)
    ops = trace.ops.select(
        "track", "start_ns", "is_annotation", "name", "phase",
        caller=pl.coalesce("caller_track", "track"), end_ns=end,
    ).sort("start_ns")  # fmt: skip
    updates = ops.filter(pl.col("is_annotation"), pl.col("phase") == "optimizer")
    gradients = ops.filter(in_backward()).select("start_ns", track="caller", since_ns="start_ns")
    updates = updates.join_asof(gradients, on="start_ns", by="track", check_sortedness=False)
    updates = updates.select("track", "start_ns", until_ns="start_ns", last_ns="since_ns")
    parts = ops.filter(pl.col("name").is_in([*_NORMS, *_PRODUCTS]), pl.col("phase") == "other")
    parts = parts.join_asof(gradients, on="start_ns", by="track", check_sortedness=False)
    parts = parts.join_asof(updates, on="start_ns", by="track", strategy="forward", check_sortedness=False)
    # Other norms may be logged between two steps.
    parts = parts.filter(pl.col("since_ns") == pl.col("last_ns"))
    first = pl.col("start_ns").filter(pl.col("name").is_in(_NORMS)).min()
    found = parts.group_by("track", "until_ns").agg(start_ns=first, end_ns=pl.col("end_ns").max())
    found = found.drop_nulls("start_ns")
    length = pl.col("end_ns") - pl.col("start_ns")
    return found.select("track", "start_ns", dur_ns=length, phase=pl.lit("gradient_clipping"))
