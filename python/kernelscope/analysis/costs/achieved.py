"""Share of the GPU time with known costs, and the performance achieved in it."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import polars as pl

from kernelscope.analysis.costs.costed import KNOWN
from kernelscope.analysis.costs.limits import LimitedWork, limited_work
from kernelscope.analysis.costs.peaks import PRODUCTS
from kernelscope.analysis.costs.together import TABLES, by_phase, limits_by_phase
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.ranks.cluster import Source, Window, each_share, one_trace, windows_of
from kernelscope.analysis.ranks.joined import PART, alone, part_of
from kernelscope.analysis.steps.occurrences import step_places
from kernelscope.analysis.steps.tokens import embedded_tokens
from kernelscope.costs import ConventionName
from kernelscope.trace import Trace

_STATES = ("exact", "estimate", "unknown_dtype", "missing_shape", "unknown_op")
_CODES = {
    "unknown_op": "cost_unknown_op",
    "missing_shape": "cost_missing_shape",
    "unknown_dtype": "cost_unknown_dtype",
}
_FAILED = "cost_model_failed"


def cost_coverage(trace: Trace, *, convention: ConventionName = "kernelscope") -> pl.DataFrame:
    """GPU time of operators by cost status, and the time without an operator.

    Columns: ``status`` (as in :func:`kernelscope.analysis.costs`; ``unlinked`` for GPU operations with an
        unknown operator), ``operators``, ``device_ns``, ``linked_pct`` (share of the GPU time that has an
        operator; null for ``unlinked``) and ``device_pct`` (share of all GPU time).
    Units: ns; percent. Concurrent operations are added, not merged. Order: as above, every status once.
    Raises: KeyError: the convention does not exist.
    """
    return coverage_of(trace, kind_sums(limited_work(trace, convention=convention)))


def kind_sums(work: LimitedWork) -> pl.DataFrame:
    """Returns the kinds of operators that count, with their number and GPU time.

    Columns: ``name``, ``status``, ``note``, ``operators`` and ``device_ns`` (null without GPU operations).
    """
    counts = work.costed.ops.group_by("kind").agg(operators=pl.len().cast(pl.Int64))
    times = work.table.group_by(kind="of_kind").agg(pl.col("device_ns").sum())
    kinds = work.costed.kinds.select("name", "status", "note").with_columns(
        kind=pl.int_range(pl.len(), dtype=pl.UInt32)
    )
    return as_text(counts.join(kinds, on="kind").join(times, on="kind", how="left").drop("kind"))


def coverage_of(trace: Trace, kinds: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of :func:`cost_coverage` for a trace with the sums ``kinds``."""
    sums = kinds.group_by("status").agg(pl.col("operators", "device_ns").sum())
    rows = pl.DataFrame({"status": list(_STATES)}).join(sums, on="status", how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("operators", "device_ns").fill_null(0))
    linked = int(rows["device_ns"].sum())
    total = int(trace.gpu_ops["dur_ns"].sum())
    rest = pl.DataFrame(
        {"status": ["unlinked"], "operators": [None], "device_ns": [total - linked]}, schema=rows.schema
    )
    of_linked = 100.0 * pl.col("device_ns") / (linked or None)
    return pl.concat([rows, rest]).with_columns(
        linked_pct=pl.when(pl.col("status") != "unlinked").then(of_linked),
        device_pct=100.0 * pl.col("device_ns") / (total or None),
    )


def known_pct(coverage: pl.DataFrame) -> float | None:
    """Returns the share of all GPU time with known FLOPs, from the rows of :func:`cost_coverage`."""
    known = coverage.filter(pl.col("status").is_in(KNOWN))["device_pct"]
    return None if known.null_count() else float(known.sum())


def cost_findings(kinds: pl.DataFrame) -> pl.DataFrame:
    """Returns the reasons for unknown costs, one row per reason and operator, from the sums ``kinds``.

    Columns: ``code`` (cost_unknown_op: no model; cost_model_failed: a model raised; cost_missing_shape,
        cost_unknown_dtype), ``severity``, ``name`` (the operator), ``count``, ``device_ns`` and ``message``.
    Order: by device time, longest first.
    """
    missing = kinds.filter(~pl.col("status").is_in(["exact", "estimate"]))
    failed = pl.col("note").str.starts_with("the model ") & (pl.col("status") == "unknown_op")
    code = (
        pl.when(failed).then(pl.lit(_FAILED)).otherwise(pl.col("status").replace_strict(_CODES, default=None))
    )
    return (
        missing.with_columns(code=code, severity=pl.lit("info"), message=pl.col("note"))
        .group_by("code", "severity", "name", "message")
        .agg(pl.col("operators").sum().alias("count"), pl.col("device_ns").sum())
        .select("code", "severity", "name", "count", "device_ns", "message")
        .sort(
            ["device_ns", "count", "name", "message"], descending=[True, True, False, False], nulls_last=True
        )
    )


def efficiency(
    source: Source,
    *,
    gpu: str | None = None,
    peak: Mapping[str, float] | None = None,
    convention: ConventionName = "kernelscope",
    tokens: int | None = None,
    executor: Executor | None = None,
) -> pl.DataFrame:
    """FLOPs utilisation of every step: FLOPs over its wall time, relative to the peak of the GPUs.

    The denominator is the peak of one type on all active GPUs: the type with the most FLOPs in matrix
    products. Recomputed FLOPs count for the hardware FLOPs utilisation (HFU), not for the model FLOPs
    utilisation (MFU). Unknown FLOPs count as 0, so the figures are lower bounds if ``known_pct`` is below
    100. Incomplete steps are left out.

    ``tokens`` is the number of tokens that a step of a rank processes. Without it, the annotation of the step
    or the batch that the forward pass looks up in the word embedding provides it. ``source`` is a trace, or a
    list of traces or a lake of many ranks. An ``executor`` reads several ranks at once.

    Columns: ``step`` (null for a trace without steps, which counts as one; steps with equal numbers, as in
        two profiler cycles, have a row each), ``name``, ``total_ns`` (wall time), ``device_ns`` (all GPU time
        of the step, including operations without an operator; overlaps added), ``known_pct`` (share of it
        with known FLOPs), ``flops``, ``recompute_flops`` (the part that is recomputed), ``flops_per_s``,
        ``mfu_pct``, ``hfu_pct``, ``peak_flops_per_s`` (the denominator), ``peak_type``, ``gpus``,
        ``model_flops_per_s_per_gpu`` (FLOPs without recomputation, per second and GPU), ``tokens`` and
        ``tokens_per_s``. Of several ranks, also ``rank``, at first.
    Units: ns; FLOP; FLOP/s; percent; tokens per second.
    Formula: hfu_pct = 100 * flops / (total_ns * 1e-9 * peak_flops_per_s);
        mfu_pct = hfu_pct * (flops - recompute_flops) / flops.
    Order: by start; by rank.
    Raises: InvalidArgumentError: the GPU or type of peak does not exist. KeyError: the convention does not
    exist.
    Source: Chowdhery et al. 2022 (PaLM), appendix B.
    Example: ``efficiency(trace, gpu="h100-sxm5")["mfu_pct"].mean()``
    """
    trace = one_trace(source)
    if trace is not None:
        return step_efficiency(trace, limited_work(trace, convention=convention, gpu=gpu, peak=peak), tokens)
    options = {"gpu": gpu, "peak": peak, "convention": convention}
    tasks = [(window,) for window in windows_of(source)]
    ask = partial(_of_share, options=options, tokens=tokens)
    found = pl.concat(each_share(ask, tasks, tables=TABLES, executor=executor))
    return found.sort("rank", maintain_order=True)


def _of_share(
    tasks: Sequence[tuple[Window]], traces: Sequence[Trace], options: Mapping[str, Any], tokens: int | None
) -> pl.DataFrame:
    ranks = pl.Series("rank", [window.rank for (window,) in tasks], pl.Int64)
    found: list[pl.DataFrame] = []
    for places, whole, table in limits_by_phase(traces, options):
        rows = _of_steps(whole.trace, table, [traces[place] for place in places], tokens)
        place = pl.Series("place", places, pl.Int32).gather(rows[PART])
        found.append(rows.with_columns(whole.own_numbers(rows["step"]), place, ranks.gather(place)))
    # In the order of the traces, each with its rows in order.
    return (
        pl.concat(found).sort("place", maintain_order=True).select("rank", pl.exclude("rank", "place", PART))
    )


def step_efficiency(trace: Trace, limited: LimitedWork, tokens: int | None = None) -> pl.DataFrame:
    """Returns the rows of :func:`efficiency` for operations with known limits."""
    table = by_phase(trace, limited)
    table = table.with_columns(part_of(table))
    return _of_steps(alone(trace).trace, table, [trace], tokens).drop(PART)


def _of_steps(trace: Trace, work: pl.DataFrame, parts: Sequence[Trace], tokens: int | None) -> pl.DataFrame:
    """The rows of :func:`efficiency` for a joined trace of ``parts``, with ``PART``.

    ``work`` is its table of :func:`by_phase`.
    """
    place = pl.int_range(pl.len(), dtype=pl.UInt32).alias("step_place")
    steps = trace.steps.with_columns(place).filter(~pl.col("is_partial") & pl.col("step").is_not_null())
    is_known = pl.col("flops").is_not_null().any()
    recomputed = pl.col("flops").filter(pl.col("by_phase") == "recompute")
    sums = [
        pl.col("device_ns").filter(pl.col("status").is_in(KNOWN)).sum().alias("_known_ns"),
        pl.when(is_known).then(pl.col("flops").sum()).alias("flops"),
        pl.when(is_known).then(recomputed.sum()).alias("recompute_flops"),
    ]
    of_gpu = pl.col("dur_ns").sum().alias("device_ns")
    times = trace.gpu_ops.group_by(step_places(trace).alias("step_place")).agg(of_gpu)
    table = (
        steps.select(PART, "step", "name", "start_ns", "total_ns", "step_place", "tokens")
        .join(times, on="step_place", how="left")
        .join(work.group_by("step_place").agg(sums), on="step_place", how="left")
        .with_columns(pl.col("name").cast(pl.String))
        .drop("step_place")
    )
    unmarked = sorted({*range(len(parts))}.difference(steps[PART]))
    if unmarked:
        whole = (
            _whole(parts, unmarked)
            .join(trace.gpu_ops.group_by(PART).agg(of_gpu), on=PART, how="left")
            .join(work.group_by(PART).agg(sums), on=PART, how="left")
        )
        table = pl.concat([table, whole], how="diagonal")
    table = table.with_columns(pl.col("device_ns", "_known_ns").fill_null(0))
    table = _with_tokens(trace, table, tokens).join(_denominators(trace, work), on=PART, how="left")
    per_s = pl.when(pl.col("total_ns") > 0).then(1e9 / pl.col("total_ns"))
    speed = pl.col("flops") * per_s
    model_speed = (pl.col("flops") - pl.col("recompute_flops")) * per_s
    share = pl.when(pl.col("device_ns") > 0).then(100.0 * pl.col("_known_ns") / pl.col("device_ns"))
    gpus = pl.col("gpus").fill_null(0)
    return table.sort(PART, "start_ns", "step").select(
        PART,
        "step",
        "name",
        "total_ns",
        "device_ns",
        share.alias("known_pct"),
        pl.col("flops", "recompute_flops").round().cast(pl.Int64, strict=False),
        speed.alias("flops_per_s"),
        (100.0 * model_speed / pl.col("peak_flops_per_s")).alias("mfu_pct"),
        (100.0 * speed / pl.col("peak_flops_per_s")).alias("hfu_pct"),
        "peak_flops_per_s",
        "peak_type",
        gpus.alias("gpus"),
        (model_speed / pl.when(gpus > 0).then(gpus)).alias("model_flops_per_s_per_gpu"),
        "tokens",
        (pl.col("tokens") * per_s).alias("tokens_per_s"),
    )


def _whole(parts: Sequence[Trace], unmarked: Sequence[int]) -> pl.DataFrame:
    """Name, start and length of traces that count as one step, given by their positions in ``parts``."""
    rows = [(part, *(parts[part].extent() or (None, None))) for part in unmarked]
    whole = pl.DataFrame(rows, {PART: pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}, orient="row")
    length = pl.col("end_ns") - pl.col("start_ns")
    return whole.select(PART, "start_ns", total_ns=length, name=pl.lit("the whole trace"))


def _with_tokens(trace: Trace, steps: pl.DataFrame, tokens: int | None) -> pl.DataFrame:
    """The tokens of each step: those that are given, else those that its annotation or its batch has."""
    if tokens is not None:
        return steps.with_columns(tokens=pl.lit(tokens, pl.Int64))
    embedded = embedded_tokens(trace)
    of_part = embedded.group_by(PART).agg(in_part=pl.col("tokens").sum())
    steps = steps.join(embedded.rename({"tokens": "in_step"}), on=[PART, "step"], how="left")
    steps = steps.join(of_part, on=PART, how="left")
    # The steps of one number cannot be told apart.
    in_step = pl.when(~pl.struct(PART, "step").is_duplicated()).then("in_step")
    in_part = pl.when(pl.col("in_part") > 0).then("in_part")
    found = pl.when(pl.col("step").is_null()).then(in_part).otherwise(pl.coalesce("tokens", in_step))
    return steps.with_columns(tokens=found)


def _denominators(trace: Trace, work: pl.DataFrame) -> pl.DataFrame:
    """The peak of all GPUs of each part in the type that most FLOPs of its products are in.

    Columns: ``PART``, ``peak_flops_per_s``, ``peak_type`` and ``gpus``. Parts without GPUs are left out.
    """
    products = work.filter(
        pl.col("family").is_in(PRODUCTS) & (pl.col("flops") > 0) & pl.col("compute_peak").is_not_null()
    )
    types = products.group_by(PART, "limit_type").agg(pl.col("flops").sum()).sort("flops", "limit_type")
    types = types.group_by(PART, maintain_order=True).agg(peak_type=pl.col("limit_type").last())
    rates = products.join(types, left_on=[PART, "limit_type"], right_on=[PART, "peak_type"])
    # A GPU on which nothing of this type ran could have run it, too.
    rates = rates.group_by(PART, "device").agg(pl.col("compute_peak").max())
    rates = rates.group_by(PART).agg(pl.col("compute_peak").mean())
    gpus = trace.gpu_ops.group_by(PART).agg(gpus=pl.col("device").drop_nulls().n_unique().cast(pl.Int64))
    found = gpus.join(types, on=PART, how="left").join(rates, on=PART, how="left")
    return found.select(PART, "peak_type", "gpus", peak_flops_per_s=pl.col("compute_peak") * pl.col("gpus"))
