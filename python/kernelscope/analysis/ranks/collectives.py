"""Waiting time and bandwidth of ranks, by collective and message size."""

from collections.abc import Sequence

import polars as pl

from kernelscope.analysis.grouping import check_by
from kernelscope.analysis.ranks.clocks import shifts
from kernelscope.analysis.ranks.cluster import Cluster, Source, cluster_of
from kernelscope.analysis.ranks.collective_calls import SYNCHRONISING, TRANSFERS, UNKNOWN_GROUP, numbered
from kernelscope.analysis.ranks.parts import Parts
from kernelscope.costs.communication import bus_factor
from kernelscope.errors import InvalidArgumentError
from kernelscope.memo import per_trace

_BY = ("kind", "group_size", "message_bytes")
_FIGURES = (
    *("ranks_seen", "group_size", "transfer_ns", "skew_ns", "total_ns", "wait_ns", "exposed_ns"),
    *("message_bytes", "algorithm_bytes_per_s", "bus_bytes_per_s"),
)
_FIRST = ("_rank", "_start_ns", "_row")
_OF_INSTANCE = ("kind", "name", "group", "group_size", "dtype", "message_bytes", "step", "phase", "peer")


def communication(source: "Source | Cluster", by: str | Sequence[str] = _BY) -> pl.DataFrame:
    """Waiting time of ranks in collectives, and transfer time after all have arrived.

    ``source`` is a list of traces, or a lake of many ranks. Collectives are matched over the ranks by process
    group and sequence number, otherwise by order. Waiting for missing ranks is unknown and not counted.
    ``by`` accepts any columns of ``collective_instances`` that identify a collective: ``kind``, ``name``,
    ``group``, ``group_size``, ``dtype``, ``message_bytes``, ``step``, ``phase``, ``peer``; and ``dimension``
    (of parallelism, see ``parallel_dimensions``).

    Columns: the columns of ``by``; ``collectives``; ``calls`` (of all ranks); ``total_ns`` (of all calls),
        ``wait_ns`` (part of it spent waiting for late ranks; null if the other ranks are unknown),
        ``exposed_ns`` (part of it while the device did not compute); ``bytes`` (of the messages of all
        collectives); ``transfer_p50_ns``, ``transfer_p90_ns``, ``transfer_max_ns`` and ``skew_p50_ns``,
        ``skew_max_ns`` over the collectives; ``algorithm_bytes_per_s`` and ``bus_bytes_per_s`` (of the median
        transfer), ``bus_bytes_per_s_min`` (of the slowest); ``incomplete`` (number of collectives without all
        ranks).
    Units: ns; bytes; bytes per second.
    Formula: as ``collective_instances``.
    Order: by total time, longest first.
    Raises: InvalidArgumentError: ``by`` contains an unknown column, or two traces are of one rank.
    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.

    Example: ``communication([ks.read(p) for p in paths], by=("group", "phase"))``
    """
    columns = check_by(by, (*_OF_INSTANCE, "dimension"))
    cluster = cluster_of(source)
    own = ["group" if column == "dimension" else column for column in columns]
    instances = instances_in_parts(cluster).gather(chosen, list(dict.fromkeys((*own, *_FIGURES))))
    if "dimension" in columns:
        # Its module asks about clusters.
        from kernelscope.analysis.training.dimensions import with_dimension

        instances = with_dimension(instances, cluster)
    instances = instances.with_columns(bytes="message_bytes")
    transfer = pl.col("transfer_ns")
    table = instances.group_by(columns).agg(
        pl.len().cast(pl.Int64).alias("collectives"),
        pl.col("ranks_seen").sum().cast(pl.Int64).alias("calls"),
        pl.col("total_ns").sum(),
        _sum_if_any("wait_ns"),
        pl.col("exposed_ns").sum(),
        pl.col("bytes").sum(),
        transfer.median().alias("transfer_p50_ns"),
        transfer.quantile(0.9, interpolation="linear").alias("transfer_p90_ns"),
        transfer.max().alias("transfer_max_ns"),
        pl.col("skew_ns").median().alias("skew_p50_ns"),
        pl.col("skew_ns").max().alias("skew_max_ns"),
        pl.col("algorithm_bytes_per_s", "bus_bytes_per_s").median(),
        pl.col("bus_bytes_per_s").min().alias("bus_bytes_per_s_min"),
        (pl.col("ranks_seen") < pl.col("group_size")).sum().cast(pl.Int64).alias("incomplete"),
    )
    descending = [True, *(False for _ in columns)]
    return table.sort(["total_ns", *columns], descending=descending, nulls_last=True)


def collective_instances(source: "Source | Cluster") -> pl.DataFrame:
    """Collectives of the ranks: the last rank to arrive, the waiting time of the others, and the speed.

    Columns: ``instance``, ``kind``, ``name``, ``group`` (name and ranks of the process group), ``group_size``
        (as recorded, else null), ``dtype``, ``message_bytes``, ``step``, ``phase`` (of the calling operator),
        ``peer`` (the pair of a transfer), ``sequence``, ``matched_by`` (sequence, comms_id or order),
        ``ranks_seen``; ``start_ns`` (of the first rank, on the common clock), ``first_rank``, ``last_rank``
        (whose kernels started first and last), ``skew_ns`` (between these two); ``transfer_ns`` (the shortest
        call, made by the rank that waited for no other), ``total_ns``, ``wait_ns`` and ``exposed_ns`` (summed
        over the ranks); ``algorithm_bytes_per_s`` and ``bus_bytes_per_s``; ``agrees`` (whether all ranks have
        the same kind and, except for all_to_all, size).
    Units: ns on the common clock from the earliest base time; bytes per second.
    Formula: the waiting time of a rank is the duration of its call minus the shortest call. Algorithm
        bandwidth is ``message_bytes / transfer_ns``, bus bandwidth that times the share of the message that
        crosses a link: ``costs.communication.bus_factor``. With fewer than two ranks, ``wait_ns`` and
        ``skew_ns`` are null, and bandwidths include waiting.
    Order: by start.
    """
    found = instances_in_parts(cluster_of(source)).gather(chosen, ())
    found = found.sort(_FIRST).with_row_index("instance").drop(_FIRST)
    return found.sort("start_ns", "instance")


@per_trace
def instances_in_parts(cluster: Cluster) -> Parts:
    """Returns the collectives in parts.

    They have the rank, the start on its clock and the row of their first call.
    """
    return cluster.calls.map(_instances_of, shifts(cluster))


def _instances_of(calls: pl.DataFrame, shift: pl.DataFrame) -> pl.DataFrame:
    firsts = calls.group_by("instance", maintain_order=True).agg(
        pl.col("rank", "start_ns", "row").first().name.prefix("_")
    )
    order = _waits(calls, shift).sort("instance", "start_ns", "rank")
    instances = order.group_by("instance", maintain_order=True).agg(
        *(pl.col(name).drop_nulls().first() for name in _OF_INSTANCE if name != "message_bytes"),
        pl.col("message_bytes").max(),
        pl.col("sequence", "matched_by", "ranks_seen").first(),
        pl.col("start_ns").first(),
        pl.col("rank").first().alias("first_rank"),
        pl.col("rank").last().alias("last_rank"),
        (pl.col("start_ns").last() - pl.col("start_ns").first()).alias("skew_ns"),
        pl.col("dur_ns").min().alias("transfer_ns"),
        pl.col("dur_ns").sum().alias("total_ns"),
        _sum_if_any("wait_ns"),
        pl.col("exposed_ns").sum(),
        _agrees().alias("agrees"),
    )
    several = pl.col("ranks_seen") > 1
    rate = pl.when(pl.col("transfer_ns") > 0).then(pl.col("message_bytes") * 1e9 / pl.col("transfer_ns"))
    return (
        instances.with_columns(pl.when(several).then(name).alias(name) for name in ("skew_ns", "wait_ns"))
        .with_columns(algorithm_bytes_per_s=rate)
        .with_columns(bus_bytes_per_s=pl.col("algorithm_bytes_per_s") * _factor(instances))
        .join(firsts, on="instance", maintain_order="left")
        .drop("instance")
    )


def chosen(instances: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Returns columns of collectives (default: all), with plain texts."""
    return instances.select(columns or pl.all()).with_columns(pl.col(pl.Categorical).cast(pl.String))


def collective_stragglers(source: "Source | Cluster") -> pl.DataFrame:
    """Number of collectives to which each rank arrived last, and the time that the others waited for it.

    Only collectives that wait for all their ranks count, if the trace of several ranks contains them.

    Columns: ``rank``, ``collectives``, ``times_last`` and ``times_first`` (of these), ``held_up_ns`` (waiting
        time of all others in the collectives to which it arrived last), ``waited_ns`` (its own).
    Units: ns.
    Order: by ``held_up_ns``, largest first.
    """
    cluster = cluster_of(source)
    found = cluster.calls.gather(_lateness, shifts(cluster)).group_by("rank").agg(pl.all().sum())
    return found.sort("held_up_ns", "rank", descending=[True, False])


def _lateness(calls: pl.DataFrame, shift: pl.DataFrame) -> pl.DataFrame:
    calls = _waits(calls, shift).drop_nulls("wait_ns").sort("instance", "start_ns", "rank")
    rank, waited = pl.col("rank"), pl.col("wait_ns")
    calls = calls.select(
        "rank",
        "wait_ns",
        is_first=rank == rank.first().over("instance"),
        is_last=rank == rank.last().over("instance"),
        others_waited_ns=waited.sum().over("instance") - waited,
    )
    return calls.group_by("rank").agg(
        collectives=pl.len().cast(pl.Int64),
        times_last=pl.col("is_last").sum().cast(pl.Int64),
        times_first=pl.col("is_first").sum().cast(pl.Int64),
        held_up_ns=pl.col("others_waited_ns").filter("is_last").sum(),
        waited_ns=waited.sum(),
    )


def rank_calls(source: "Source | Cluster") -> pl.DataFrame:
    """Calls of each rank in each collective on the common clock, with waiting and exposed time.

    Columns: the columns that identify the collective, ``instance``, ``ranks_seen``, ``matched_by``, ``rank``,
        ``row`` (in the rank's ``gpu_ops``, or ``ops`` if the host communicates), ``step``, ``start_ns``,
        ``dur_ns``, ``wait_ns`` (for late ranks; null if no other rank is known or the kind does not wait for
        all), ``exposed_ns`` (while the device did not compute), ``exposed_wait_ns``.
    Units: ns on the common clock from the earliest base time.
    """
    cluster = cluster_of(source)
    calls = cluster.calls.gather(_rank_calls, shifts(cluster)).sort("rank", "_start_ns", "row")
    # Collectives of different parts have the same numbers.
    own = ("line", "key", "place", "_start_ns")
    return numbered(calls.drop("instance")).select(name for name in calls.columns if name not in own)


def calls_of(source: "Source | Cluster", instance: int) -> pl.DataFrame:
    """Returns the calls of all ranks in collective ``instance``, as rows of ``rank_calls``.

    Other collectives are not kept, so memory does not depend on the length of the job.

    Raises: InvalidArgumentError: there is no such collective.
    """
    cluster = cluster_of(source)
    firsts = _firsts(cluster)
    if not 0 <= instance < firsts.height:
        raise InvalidArgumentError(
            f"the ranks have {firsts.height:,} collectives; there is no number {instance}"
        )
    found = cluster.calls.gather(_calls_of, shifts(cluster), *firsts.row(instance))
    return found.with_columns(instance=pl.lit(instance, pl.UInt32)).sort("rank", "start_ns", "row")


@per_trace
def _firsts(cluster: Cluster) -> pl.DataFrame:
    """The first call of each collective, in the order of their numbers."""
    return instances_in_parts(cluster).gather(chosen, _FIRST).sort(_FIRST)


def _calls_of(calls: pl.DataFrame, shift: pl.DataFrame, rank: int, start_ns: int, row: int) -> pl.DataFrame:
    is_first = (pl.col("rank") == rank) & (pl.col("start_ns") == start_ns) & (pl.col("row") == row)
    # A part that has not this collective has no such call.
    own = calls.filter(is_first)["instance"]
    found = _rank_calls(calls.filter(pl.col("instance").is_in(own.implode())), shift)
    return found.drop("line", "key", "place", "_start_ns")


def _rank_calls(calls: pl.DataFrame, shift: pl.DataFrame) -> pl.DataFrame:
    texts = pl.col(pl.Categorical).cast(pl.String)
    return _waits(calls, shift).with_columns(texts, calls["start_ns"].alias("_start_ns"))


def _waits(calls: pl.DataFrame, shift: pl.DataFrame) -> pl.DataFrame:
    """The calls on the common clock, with what each waited and what was exposed, in their order."""
    calls = calls.join(shift, on="rank", how="left", maintain_order="left")
    kind = pl.col("kind").cast(pl.String)
    # A thread of the host that sends or receives waits for the other rank, as a kernel need not.
    synchronises = kind.is_in(SYNCHRONISING) | (kind.is_in(TRANSFERS) & pl.col("device").is_null())
    waits = synchronises & (pl.col("ranks_seen") > 1)
    wait = pl.col("dur_ns") - pl.col("dur_ns").min().over("instance")
    # Where the group is not known, nobody can say how long the transfer took: as a rule the smaller part.
    is_unknown = pl.col("group").cast(pl.String).str.starts_with(UNKNOWN_GROUP).fill_null(value=False)
    waited = pl.when(is_unknown).then("exposed_ns").otherwise(pl.col("wait_ns").fill_null(0))
    return (
        calls.with_columns(
            pl.col("start_ns", "issued_ns") - pl.col("shift_ns"),
            wait_ns=pl.when(waits).then(wait),
            exposed_ns=pl.col("dur_ns") - pl.col("hidden_ns"),
        )
        .with_columns(exposed_wait_ns=pl.min_horizontal(waited, "exposed_ns"))
        .drop("shift_ns", "hidden_ns")
    )


@per_trace
def exposed_waits(cluster: Cluster) -> pl.DataFrame:
    """Returns how long each rank waited for others in each step while its device did not compute.

    Columns: ``rank``, ``step``, ``exposed_wait_ns``, ``exposed_on_host_ns`` (communication of the host,
        including waiting).
    """
    found = cluster.calls.gather(_exposed_waits, shifts(cluster))
    return found.group_by("rank", "step").agg(pl.col("exposed_wait_ns", "exposed_on_host_ns").sum())


def _exposed_waits(calls: pl.DataFrame, shift: pl.DataFrame) -> pl.DataFrame:
    on_host = pl.col("exposed_ns").filter(pl.col("device").is_null()).sum()
    waits = _waits(calls, shift).group_by("rank", "step")
    return waits.agg(pl.col("exposed_wait_ns").sum(), exposed_on_host_ns=on_host)


def _agrees() -> pl.Expr:
    """Whether what the ranks recorded can be one collective."""
    sizes = (pl.col("message_bytes").n_unique() == 1) | (pl.col("kind").first() == "all_to_all")
    return (pl.col("kind").n_unique() == 1) & sizes


def _sum_if_any(column: str) -> pl.Expr:
    """The sum; null where no value is known."""
    return pl.when(pl.col(column).is_not_null().any()).then(pl.col(column).sum()).alias(column)


def _factor(instances: pl.DataFrame) -> pl.Expr:
    """The bus factor of each collective; null where its kind or the size of its group is not known."""
    known = instances.select("kind", "group_size").unique().drop_nulls()
    found: pl.Expr = pl.lit(None, pl.Float64)
    for kind, size in known.iter_rows():
        if kind not in {"send_recv", "barrier"} and size >= 1:
            same = (pl.col("kind") == kind) & (pl.col("group_size") == size)
            found = pl.when(same).then(bus_factor(kind, size)).otherwise(found)
    return found
