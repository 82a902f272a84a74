"""How the time of every rank's GPUs divides, and how much of their communication computing hides."""

import polars as pl

from kernelscope.analysis.gpu.time import first_class_ns, work_columns
from kernelscope.analysis.gpu.work import CLASSES
from kernelscope.analysis.intervals import covered_ns
from kernelscope.analysis.ranks.frames import Source, batches
from kernelscope.analysis.ranks.rank_tables import RankTables

_BY = ["rank", "device"]


def rank_gpu_time(source: "Source") -> pl.DataFrame:
    """How the time of each GPU of each rank divides, and how much of its communication computing hides.

    ``source`` is a list of traces, or a lake of many ranks, of which a few are in memory at a time. These are
    ``temporal_breakdown`` and ``comm_comp_overlap`` of every rank. A database of several processes is one
    rank of several devices.

    Columns: ``rank``, ``device``, ``span_ns`` (from its first work to the end of its last), ``compute_ns``,
        ``exposed_ns`` (it communicates, nothing computes), ``memory_ns`` (only copies and memsets run),
        ``idle_ns``; ``communication_ns`` (some communication runs), ``overlap_ns`` (and something computes,
        too), ``overlap`` (share of the communication; null if there is none).
    Units: ns. ``compute_ns``, ``exposed_ns``, ``memory_ns`` and ``idle_ns`` sum to ``span_ns``,
        ``exposed_ns`` and ``overlap_ns`` to ``communication_ns``.
    Order: by rank and device. A rank without GPU work has no row.
    Raises: InvalidArgumentError: two traces are of one rank.

    Example: ``rank_gpu_time(ks.scan("lake"))``
    """
    return pl.concat([_of_some(tables) for _, tables in batches(source)]).sort(_BY, nulls_last=True)


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
        overlap=pl.when(total > 0).then(overlap / total),
    )
