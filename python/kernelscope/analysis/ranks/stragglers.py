"""Time of each rank by category, and the ranks that delay the others, step by step and with the cause."""

import polars as pl

from kernelscope.analysis.gpu.time import first_class_ns, work_columns
from kernelscope.analysis.gpu.work import CLASSES
from kernelscope.analysis.intervals import covered_ns
from kernelscope.analysis.ranks.cluster import Cluster, Source, batches, cluster_of
from kernelscope.analysis.ranks.collectives import exposed_waits
from kernelscope.analysis.ranks.host_phases import host_ranks
from kernelscope.analysis.ranks.rank_tables import RankTables

CAUSES = ("compute", "launch", "data", "network")
"""Causes of a slow rank: GPU operations, the host that launches them, data loading, or the transfers
themselves."""

_PARTS = tuple(f"{cause}_ns" for cause in CAUSES)


def rank_steps(source: "Source | Cluster") -> pl.DataFrame:
    """Time of each rank in each step, without waiting for other ranks.

    Ranks that train together take equally long for a step, because the others wait for the slow one.
    ``own_ns`` distinguishes them.

    Columns: ``rank``, ``step``, ``start_ns`` (on the rank's clock), ``total_ns``; ``compute_ns`` (kernels,
        copies and memsets run), ``launch_ns`` (the GPU is idle while the host works or nothing is recorded),
        ``data_ns`` (it is idle while the host loads data), ``network_ns`` (only communication runs, and all
        ranks of the collective have arrived), ``wait_ns`` (only communication runs, and a rank has not
        arrived; counted for collectives that no other kernel hides); ``own_ns`` (total without waiting). The
        host of a rank without GPU operations counts as computing unless it loads data, or communicates while
        no operator runs.
    Units: ns. The four parts and ``wait_ns`` sum to ``total_ns``.
    """
    cluster = cluster_of(source)
    on = ["rank", "step"]
    steps = cluster.steps.unique(on, keep="first", maintain_order=True)
    steps = steps.join(exposed_waits(cluster), on=on, how="left", nulls_equal=True, maintain_order="left")
    has_gpu = ~pl.col("rank").is_in(host_ranks(steps).implode())
    works = pl.col("total_ns") - pl.col("dataloader_ns")
    on_host = pl.min_horizontal(pl.col("exposed_on_host_ns").fill_null(0), works)
    communication = pl.when(has_gpu).then("communication_ns").otherwise(on_host)
    steps = steps.with_columns(has_gpu.alias("has_gpu"), communication.alias("communication_ns"))
    wait = pl.min_horizontal(pl.col("exposed_wait_ns").fill_null(0), "communication_ns")
    on_gpu = pl.sum_horizontal("kernel_ns", "memcpy_ns", "memset_ns")
    launch = pl.sum_horizontal("runtime_ns", "cpu_exec_ns", "other_ns")
    return steps.with_columns(wait_ns=wait).select(
        "rank",
        "step",
        "start_ns",
        "total_ns",
        compute_ns=pl.when("has_gpu").then(on_gpu).otherwise(works - pl.col("communication_ns")),
        launch_ns=pl.when("has_gpu").then(launch).otherwise(0),
        data_ns="dataloader_ns",
        network_ns=pl.col("communication_ns") - pl.col("wait_ns"),
        wait_ns="wait_ns",
        own_ns=pl.col("total_ns") - pl.col("wait_ns"),
    )


def stragglers(source: "Source | Cluster", *, threshold: float = 0.05) -> pl.DataFrame:
    """Ranks that took longer than the others for their own part of a step, and the cause.

    ``source`` is a list of traces, or a lake of many ranks. A rank straggles in a step under two conditions.
    Its own time, excluding waiting for other ranks, exceeds that of the fastest quarter of the ranks by more
    than ``threshold`` of the median step. And its own time, or one part of it, exceeds the typical value by
    that much and by more than three times the ranks' usual distance from it. The typical value of a part is
    the median over the ranks (for an even number, the lower of the two middle values). For ranks without GPU
    operations, the median step is the larger of the medians over the ranks and over all steps.

    Columns: ``step``, ``rank``, ``cause`` (compute, launch, data or network: the part with the largest
        excess), ``phase`` (forward, backward, optimizer or other: the host phase with the largest excess, if
        the cause is compute and the rank has no GPU operations), ``own_ns``, ``excess_ns`` (over the fastest
        quarter), ``compute_excess_ns``, ``launch_excess_ns``, ``data_excess_ns``, ``network_excess_ns``,
        ``step_ns`` (median over ranks), ``ranks`` (number that have the step).
    Units: ns. Order: by step, the slowest rank first. A step without stragglers, or with fewer than two
    ranks, has no row.
    """
    cluster = cluster_of(source)
    steps = rank_steps(cluster)
    fastest = pl.col("own_ns").quantile(0.25, interpolation="lower").over("step")
    compared = steps.with_columns(
        *((pl.col(part) - _middle(pl.col(part)).over("step")).alias(_excess(part)) for part in _PARTS),
        excess_ns=pl.col("own_ns") - fastest,
        step_ns=_middle(pl.col("total_ns")).over("step"),
        ranks=pl.len().cast(pl.Int64).over("step"),
    )
    # What interrupts a host does so in short steps, too.
    is_host = pl.col("rank").is_in(cluster.phases["rank"].unique().implode())
    usual = pl.col("step_ns").quantile(0.5, interpolation="higher")
    usual = pl.when(is_host).then(pl.max_horizontal("step_ns", usual)).otherwise("step_ns")
    least = threshold * usual
    stands_out = [
        (pl.col(name) > least) & (pl.col(name) > 3 * _middle(pl.col(name).abs()).over("step"))
        for name in ("excess_ns", *map(_excess, _PARTS))
    ]
    late = compared.filter(
        (pl.col("ranks") > 1) & (pl.col("excess_ns") > least) & pl.any_horizontal(stands_out)
    )
    # The first of equal ones.
    cause = pl.concat_list(map(_excess, _PARTS)).list.arg_max().replace_strict(dict(enumerate(CAUSES)))
    late = late.join(_slow_phases(cluster), on=["rank", "step"], how="left", nulls_equal=True)
    return (
        late.with_columns(cause=cause)
        .select(
            "step",
            "rank",
            "cause",
            pl.when(cause="compute").then("phase").alias("phase"),
            "own_ns",
            "excess_ns",
            *map(_excess, _PARTS),
            "step_ns",
            "ranks",
        )
        .sort("step", "excess_ns", "rank", descending=[False, True, False], nulls_last=True)
    )


def _slow_phases(cluster: Cluster) -> pl.DataFrame:
    """The phase for which each host works longer than is typical by most, in each step.

    Columns: ``rank``, ``step``, ``phase``.
    """
    phases = cluster.phases.unique(["rank", "step", "phase"], keep="first", maintain_order=True)
    typical = _middle(pl.col("phase_ns")).over("step", "phase")
    order = phases.with_columns(excess_ns=pl.col("phase_ns") - typical)
    order = order.sort("excess_ns", "phase", descending=[True, False])
    return order.group_by("rank", "step", maintain_order=True).agg(pl.col("phase").first())


def _middle(values: pl.Expr) -> pl.Expr:
    """The median; of two ranks, or of two halves, the faster is as it should be."""
    return values.quantile(0.5, interpolation="lower")


def _excess(part: str) -> str:
    return part.removesuffix("_ns") + "_excess_ns"


def straggler_ranks(source: "Source | Cluster", *, threshold: float = 0.05) -> pl.DataFrame:
    """Number of steps in which each rank straggled, the cause, and the total delay.

    Columns: ``rank``, ``cause`` and ``phase`` (of most of the excess), ``steps`` (in which it straggled),
        ``of_steps``, ``excess_ns`` (summed over these steps).
    Units: ns.
    Order: by excess, largest first. Ranks that never straggled are left out.
    """
    cluster = cluster_of(source)
    late = stragglers(cluster, threshold=threshold)
    by_cause = late.group_by("rank", "cause", "phase").agg(
        pl.len().cast(pl.Int64).alias("steps"), pl.col("excess_ns").sum()
    )
    main = by_cause.sort("rank", "excess_ns", "cause", "phase", descending=[False, True, False, False])
    of_steps = cluster.steps.group_by("rank").agg(pl.col("step").n_unique().cast(pl.Int64).alias("of_steps"))
    return (
        main.group_by("rank", maintain_order=True)
        .agg(pl.col("cause", "phase").first(), pl.col("steps", "excess_ns").sum())
        .join(of_steps, on="rank", how="left")
        .select("rank", "cause", "phase", "steps", "of_steps", "excess_ns")
        .sort("excess_ns", "rank", descending=[True, False])
    )


_BY = ["rank", "device"]


def rank_gpu_time(source: Source) -> pl.DataFrame:
    """Time of each GPU of each rank by category, and the share of its communication that computation hides.

    ``source`` is a list of traces, or a lake of many ranks, a few of which are in memory at a time. The
    columns are those of ``temporal_breakdown`` and ``comm_comp_overlap`` for every rank. A database of
    several processes is one rank with several devices.

    Columns: ``rank``, ``device``, ``span_ns`` (from its first to its last operation), ``compute_ns``,
        ``exposed_ns`` (it communicates and nothing computes), ``memory_ns`` (only copies and memsets run),
        ``idle_ns``; ``communication_ns`` (any communication runs), ``overlap_ns`` (and something computes,
        too), ``overlap`` (share of the communication; null if there is none).
    Units: ns. ``compute_ns``, ``exposed_ns``, ``memory_ns`` and ``idle_ns`` sum to ``span_ns``,
        ``exposed_ns`` and ``overlap_ns`` to ``communication_ns``.
    Order: by rank and device. A rank without GPU operations has no row.
    Raises: InvalidArgumentError: two traces are of one rank.

    Example: ``rank_gpu_time(ks.scan("lake"))``
    """
    parts = pl.concat([_of_some(tables) for _, _, tables in batches(source)])
    # Those of several windows of a rank; a sum of nulls is 0, where they stand for no work of a kind.
    table = parts.group_by(_BY).agg(pl.col(name).sum() for name in parts.columns if name not in _BY)
    total = pl.col("communication_ns")
    overlap = pl.when(total > 0).then(pl.col("overlap_ns") / total)
    return table.with_columns(overlap=overlap).sort(_BY, nulls_last=True)


def _of_some(tables: RankTables) -> pl.DataFrame:
    work = tables["gpu_ops"].select(work_columns(*_BY)).collect()
    spans = work.group_by(_BY).agg(span_ns=pl.col("end_ns").max() - pl.col("start_ns").min())
    parts = first_class_ns(work, by=_BY)
    communication = covered_ns(work.filter(pl.col("class") == CLASSES.index("communication")), by=_BY)
    table = spans.join(parts, on=_BY, how="left", nulls_equal=True).rename({"communication_ns": "exposed_ns"})
    table = table.join(communication, on=_BY, how="left", nulls_equal=True)
    of_class = [pl.col("exposed_ns" if name == "communication" else f"{name}_ns") for name in CLASSES]
    total = pl.col("covered_ns").fill_null(0)
    overlap = total - pl.col("exposed_ns")
    return table.select(
        *_BY,
        "span_ns",
        *of_class,
        idle_ns=pl.col("span_ns") - pl.sum_horizontal(of_class),
        communication_ns=total,
        overlap_ns=overlap,
    )
