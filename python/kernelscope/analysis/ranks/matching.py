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
    channel = (
        pl.when(transfer & pl.col("peer").is_not_null())
        .then(pl.lit("transfer"))
        .when(pl.col("group").is_null() | transfer)
        .then(pl.col("kind"))
    )
    lines = _numbered(calls.with_columns(channel=channel), ["group", "peer", "channel"], "line")
    numbered = pl.col("sequence").is_not_null().all().over("line")
    keyed = lines.drop("channel").with_columns(
        key=pl.when(numbered).then("sequence").otherwise("step"),
        matched_by=pl.when(numbered).then(pl.lit("sequence")).otherwise(pl.lit("order")),
    )
    # Of the calls of a step this is the place; of one sequence number, which several kernels of a group of
    # transfers share, it tells these apart.
    place = pl.int_range(pl.len()).over("rank", "line", "key")
    keyed = keyed.sort("rank", "start_ns", "row").with_columns(place=place)
    found = _numbered(keyed, ["line", "key", "place"], "instance").drop("line", "key", "place")
    return found.with_columns(ranks_seen=pl.len().over("instance"))


def _numbered(frame: pl.DataFrame, columns: list[str], name: str) -> pl.DataFrame:
    """Adds a number for each combination of ``columns``: quicker to group by than texts."""
    numbers = frame.select(columns).unique(maintain_order=True).with_row_index(name)
    return frame.join(numbers, on=columns, how="left", nulls_equal=True, maintain_order="left")
