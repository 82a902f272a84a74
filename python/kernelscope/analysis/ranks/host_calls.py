"""Collectives and transfers that the host runs itself, as with gloo, and its other activity meanwhile."""

from collections.abc import Iterable, Iterator

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.ranks.rank_tables import RankTables

_ON = ["rank", "row"]
_NUMBERS = ("in_elements", "out_elements", "group_size", "source_rank", "destination_rank")
_NEVER = (1 << 63) - 1


def runs_on_host(name: pl.Expr) -> pl.Expr:
    """Returns whether an operator of this name is a collective or transfer that the host runs itself."""
    text = name.cast(pl.Categorical)
    return pl.any_horizontal(text.cat.starts_with(start) for start in _traceparse.host_collectives())


def host_calls(tables: RankTables) -> pl.DataFrame:
    """Returns the communication of the host, in the step and the phase of the call.

    Columns: ``rank``, ``row``, ``pid``, ``step``, ``phase``, ``issued_ns``, ``start_ns``, ``dur_ns``;
        arguments as in ``collectives``; ``is_of_unknown_group`` (the rank has several groups, and the
        communicating one is unknown).
    """
    own = (
        tables["ops"]
        .filter(runs_on_host(pl.col("name")))
        .select(*_ON, "pid", "step", "phase", "start_ns", "dur_ns")
    )
    texts = pl.col("name", "dtype", "^process_group.*$").cast(pl.String)
    told = tables["collectives"].filter(pl.col("source").cast(pl.String) == "op")
    calls = own.join(told.select(*_ON, "call_row", texts, *_NUMBERS), on=_ON).collect()
    callers = tables["ops"].filter(pl.col("row").is_in(calls["call_row"].implode()))
    callers = callers.select(
        "rank", call_row="row", issued_ns="start_ns", step_of_call="step", phase_of_call="phase"
    )
    groups = tables["process_groups"].group_by("rank").agg(groups=pl.len())
    calls = calls.join(callers.collect(), on=["rank", "call_row"], how="left", maintain_order="left")
    calls = calls.join(groups.collect(), on="rank", how="left", maintain_order="left")
    return calls.select(
        pl.exclude("step", "phase", "step_of_call", "phase_of_call", "call_row", "groups"),
        step=pl.when(pl.col("issued_ns").is_null()).then("step").otherwise("step_of_call"),
        phase=pl.coalesce("phase_of_call", "phase").cast(pl.String),
        is_of_unknown_group=pl.col("process_group").is_null() & (pl.col("groups").fill_null(0) > 1),
    )


def computing_on_host(tables: RankTables, ranks: pl.Series) -> pl.DataFrame:
    """Returns the times of leaf operators on any thread of ``ranks``, without those that communicate.

    Columns: ``rank``, ``start_ns``, ``dur_ns``.
    """
    communicates = (pl.col("activity").cast(pl.String) == "communication").fill_null(value=False)
    ops = tables["ops"].filter(pl.col("rank").is_in(ranks.implode())).select(
        *_ON, "parent_row", "is_annotation", "start_ns", "dur_ns", communicates=communicates
    ).collect()  # fmt: skip
    marks, ops = ops.filter("is_annotation"), ops.filter(~pl.col("is_annotation"))
    parents = found = ops.select("rank", row="parent_row").drop_nulls().unique()
    # Operators inside an annotation are inside the operator around it.
    while found.height:
        around = marks.join(found, on=_ON, how="semi").select("rank", row="parent_row").drop_nulls()
        found = around.unique().join(parents, on=_ON, how="anti")
        parents = pl.concat([parents, found])
    leaves = ops.join(parents, on=_ON, how="anti")
    return leaves.filter(~pl.col("communicates")).select("rank", "start_ns", "dur_ns")


def last_begun(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the parts of each of ``calls`` in which no later call of its rank runs.

    Columns: ``calls`` needs ``call``, ``rank``, ``start_ns``, ``dur_ns``. The result has the same columns for
    the parts.
    """
    end = (pl.col("start_ns") + pl.col("dur_ns").fill_null(0)).alias("end_ns")
    order = calls.sort("rank", "start_ns", "call").select("rank", "call", "start_ns", end)
    parts = [
        (rank, *part)
        for (rank,), of_rank in order.group_by("rank", maintain_order=True)
        for part in _parts(of_rank.drop("rank").iter_rows())
    ]
    schema = {name: calls.schema[name] for name in ("rank", "call", "start_ns", "dur_ns")}
    return pl.DataFrame(parts, schema=schema, orient="row")


def _parts(calls: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Call, start and duration of each part, from call, start and end in the order of starts."""
    running: list[tuple[int, int]] = []
    at = 0
    for call, start, end in (*calls, (-1, _NEVER, _NEVER)):
        while running and at < start:
            last, until = running[-1]
            if until > at:
                yield last, at, min(until, start) - at
                at = min(until, start)
            if until <= start:
                running.pop()
        at = start
        running.append((call, end))
