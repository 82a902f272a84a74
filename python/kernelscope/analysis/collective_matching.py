"""Which calls of different ranks are one collective."""

import polars as pl

SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Kinds that no rank can leave before the last one has come: only there is waiting what it looks like."""

TRANSFERS = ("send", "recv", "send_recv")


def matched(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls with the collective they belong to.

    Calls are one collective if they are of one process group and have one sequence number. Where a call of
    the group has no number, they are if they come at the same place among the group's calls of their step.
    Transfers are matched by their pair of ranks. Without a recorded group, the same kind of collective at
    the same place of the step is taken for the same.

    Columns: those of ``calls``; ``instance`` (number of the collective), ``matched_by`` (sequence or order),
        ``ranks_seen`` (of the collective).
    """
    if calls.is_empty():
        return calls.with_columns(
            instance=pl.lit(None, pl.UInt32),
            matched_by=pl.lit(None, pl.String),
            ranks_seen=pl.lit(None, pl.UInt32),
        )
    transfer = pl.col("kind").is_in(TRANSFERS).fill_null(value=False)
    keyed = calls.with_columns(
        channel=pl.when(transfer & pl.col("peer").is_not_null())
        .then(pl.lit("transfer"))
        .when(pl.col("group").is_null() | transfer)
        .then(pl.col("kind"))
    )
    where = ["group", "peer", "channel"]
    numbered = pl.col("sequence").is_not_null().all().over(where)
    keyed = keyed.with_columns(numbered.alias("_numbered")).sort("rank", "start_ns", "row")
    place = pl.int_range(pl.len()).over("rank", *where, "step")
    again = pl.int_range(pl.len()).over("rank", *where, "sequence")
    keyed = keyed.with_columns(
        # Several kernels of one number, as a group of transfers has, are told apart by their order.
        number=pl.when("_numbered").then(pl.col("sequence")).otherwise(place),
        again=pl.when("_numbered").then(again).otherwise(0),
        _step=pl.when(~pl.col("_numbered")).then(pl.col("step")),
        matched_by=pl.when("_numbered").then(pl.lit("sequence")).otherwise(pl.lit("order")),
    )
    key = [*where, "_step", "number", "again"]
    return keyed.with_columns(
        pl.struct(key).rank("dense").cast(pl.UInt32).alias("instance"),
        pl.len().over(key).alias("ranks_seen"),
    ).drop("channel", "_numbered", "number", "again", "_step")
