"""Names of processes and threads, for files in which they are no events."""

import polars as pl

from kernelscope.report.perfetto.chrome_events import places_of_tracks
from kernelscope.trace import Trace


def names_of_tracks(trace: Trace, moved: pl.DataFrame) -> pl.DataFrame:
    """Returns the name of each process and thread, and its place among its neighbours.

    Columns: ``pid``, ``pid_text``, ``tid`` and ``tid_text`` (null for a process), ``name`` and ``order``.
        ``moved`` has the events that are drawn elsewhere; see ``further_tracks``.
    """
    text = pl.col(pl.Categorical).cast(pl.String)
    threads = trace.threads.with_columns(text)
    orders = trace.metadata.with_columns(text).filter(pl.col("name") == "process_sort_index")
    orders = orders.select("track", order=pl.col("value").cast(pl.Int64, strict=False))
    label = pl.format("({})", "process_label")
    processes = (
        threads.join(orders, on="track", how="left", maintain_order="left")
        .group_by("pid", "pid_text", maintain_order=True)
        .agg(
            pl.concat_str("process_name", label, separator=" ", ignore_nulls=True).first().alias("name"),
            pl.col("order").max(),
        )
    )
    named = pl.col("name").is_not_null() & (pl.col("name") != "")
    of_threads = places_of_tracks(trace.threads).drop("track")
    of_threads = of_threads.with_columns(
        threads.select(name="thread_name", order=pl.col("sort_index").cast(pl.Int64))
    )
    further = moved.unique(["pid", "pid_text", "tid"], keep="first", maintain_order=True)
    further = further.select("pid", "pid_text", "tid", "name")
    found = pl.concat([processes, of_threads, further], how="diagonal")
    return found.filter(named).select("pid", "tid", "pid_text", "tid_text", "name", "order")
