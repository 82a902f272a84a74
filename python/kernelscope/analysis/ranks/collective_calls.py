"""Communication of each rank: one row per collective or transfer, and the calls that form one collective."""

import json
import math
from typing import cast

import polars as pl

from kernelscope.analysis.intervals import Intervals
from kernelscope.analysis.ranks.host_calls import computing_on_host, host_calls, last_begun
from kernelscope.analysis.ranks.parts import BUCKETS
from kernelscope.analysis.ranks.rank_tables import RankTables, gather_texts
from kernelscope.costs import find_dtype
from kernelscope.costs.bind import shape_of_input
from kernelscope.costs.communication import collective_kind, message_bytes

_FAR = 613
"""Distance between the first buckets of two lines: most collectives are the first of a group."""

UNKNOWN_GROUP = "unknown"
"""Prefix of the group of a call if the rank has several candidate groups: ``unknown (rank 3)``."""

COMMUNICATION = "communication_calls"
"""Name of the lake table with these rows."""

CALL_SCHEMA: dict[str, pl.DataType] = {
    "rank": pl.Int64(),
    "row": pl.UInt32(),
    "kind": pl.String(),
    "name": pl.String(),
    "group": pl.String(),
    "group_size": pl.Int64(),
    "group_description": pl.String(),
    "sequence": pl.Int64(),
    "comms_id": pl.UInt64(),
    "dtype": pl.String(),
    "message_bytes": pl.Int64(),
    "peer": pl.String(),
    "pid": pl.Int64(),
    "device": pl.Int32(),
    "stream": pl.Int64(),
    "step": pl.Int32(),
    "phase": pl.String(),
    "issued_ns": pl.Int64(),
    "start_ns": pl.Int64(),
    "dur_ns": pl.Int64(),
    "hidden_ns": pl.Int64(),
}
"""Columns of ``communication_calls``. ``kind`` is the kind of collective, ``group_description`` is the text
by which the program describes the process group, ``comms_id`` identifies the collective on all ranks,
``peer`` is the pair of ranks of a transfer, ``phase`` is the phase of the calling operator, ``issued_ns``
the start of the call that passed it to a host thread, ``hidden_ns`` the computation time of the device
during it."""

# A kernel's name says what it does where no arguments were recorded; the longer names in front. One that
# sends and receives runs all-to-alls, too: what it moved is not known.
_KERNELS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "reduce": "reduce",
}
_TYPE_IN_KERNEL = r"_(bf16|f16|f32|f64|i8|i32|i64|u32|u64)_"
_TEXT = ("name", "dtype", "process_group", "process_group_ranks", "process_group_description")
_NUMBERS = (
    "bytes", "in_elements", "out_elements", "group_size", "source_rank", "destination_rank", "sequence",
    "comms_id",
)  # fmt: skip
_ARGUMENTS = (*_TEXT, *_NUMBERS)
_COMMUNICATES = pl.col("is_communication").fill_null(value=False)


def communication_calls(tables: RankTables, *, ranks: int) -> pl.DataFrame:
    """Returns the communication of each of some ranks, from tables with a column ``rank``.

    Columns: ``CALL_SCHEMA``.
    """
    calls = _with_phases(tables, _with_arguments(tables, _gpu_calls(tables)))
    calls = pl.concat([calls, host_calls(tables)], how="diagonal")
    if calls.is_empty():
        return pl.DataFrame(schema=CALL_SCHEMA)
    calls = _with_messages(tables, calls)
    on_gpu, on_host = calls.filter(pl.col("device").is_not_null()), calls.filter(pl.col("device").is_null())
    # A single rank needs no column of its own, which would be as long as the table.
    of_rank = ["rank"] if ranks > 1 else []
    computing = (
        _kernels(tables).filter(~_COMMUNICATES).select("rank", "device", "start_ns", "dur_ns").collect()
    )
    has_gpu = pl.col("rank").is_in(computing["rank"].unique().implode())
    calls = pl.concat(
        [
            _hidden(computing, on_gpu, [*of_rank, "device"]),
            # What the host communicates, the work of any of its GPUs hides.
            _hidden(computing, on_host.filter(has_gpu), of_rank),
            _hidden_on_host(tables, on_host.filter(~has_gpu)),
        ]
    )
    return calls.select(pl.col(name).cast(dtype) for name, dtype in CALL_SCHEMA.items())


def _hidden(computing: pl.DataFrame, calls: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Adds how long the intervals of ``computing`` that agree in ``by`` last during each of ``calls``."""
    if calls.is_empty():
        return calls.with_columns(hidden_ns=pl.lit(None, pl.Int64))
    spans = calls.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    return calls.with_columns(Intervals(computing, by=by).hidden_ns(spans))


def _hidden_on_host(tables: RankTables, calls: pl.DataFrame) -> pl.DataFrame:
    """Adds how long operators compute during each of ``calls`` of ranks without a GPU, or a later call runs.

    A host that waits for several calls waits for the last: each moment counts for one call.
    """
    if calls.is_empty():
        return calls.with_columns(hidden_ns=pl.lit(None, pl.Int64))
    calls = calls.with_row_index("call")
    parts = _hidden(computing_on_host(tables, calls["rank"].unique()), last_begun(calls), ["rank"])
    exposed = parts.group_by("call").agg(exposed_ns=(pl.col("dur_ns") - pl.col("hidden_ns")).sum())
    calls = calls.join(exposed, on="call", how="left", maintain_order="left").drop("call")
    hidden = pl.col("dur_ns") - pl.col("exposed_ns").fill_null(0)
    return calls.with_columns(hidden_ns=hidden).drop("exposed_ns")


def _kernels(tables: RankTables) -> pl.LazyFrame:
    """Kernels; whole graphs are left out, for they may hold collectives."""
    return tables["gpu_ops"].filter(pl.col("kind") == "kernel")


def _gpu_calls(tables: RankTables) -> pl.DataFrame:
    """Kernels that communicate."""
    columns = ("rank", "row", "op_row", "range_row", "pid", "device", "stream", "step", "start_ns")
    work = _kernels(tables).filter(_COMMUNICATES)
    duration, name = pl.col("dur_ns").fill_null(0), pl.col("name").cast(pl.String)
    return work.select(*columns, duration, kernel=name).collect()


def _with_arguments(tables: RankTables, work: pl.DataFrame) -> pl.DataFrame:
    """The arguments recorded with the kernel, and where it has none, with its operator."""
    texts = pl.col("source", *_TEXT).cast(pl.String)
    arguments = tables["collectives"].select("rank", "row", texts, *_NUMBERS).collect()
    arguments = arguments.unique(["rank", "row", "source"], keep="first", maintain_order=True)
    of_kernel = arguments.filter(pl.col("source") == "gpu_op").drop("source")
    of_op = arguments.filter(pl.col("source") == "op").drop("source")
    of_op = of_op.rename({"row": "op_row", **{c: f"{c}_op" for c in _ARGUMENTS}})
    found = work.join(of_kernel, on=["rank", "row"], how="left", maintain_order="left")
    found = found.join(of_op, on=["rank", "op_row"], how="left", maintain_order="left")
    return found.with_columns(pl.coalesce(c, f"{c}_op").alias(c) for c in _ARGUMENTS)


def _with_phases(tables: RankTables, calls: pl.DataFrame) -> pl.DataFrame:
    """The phase of the operator that launched each kernel."""
    wanted = calls.select("rank", row="op_row").unique().drop_nulls()
    phases = gather_texts(tables["ops"], wanted, phase="phase").rename({"row": "op_row"})
    return calls.join(phases, on=["rank", "op_row"], how="left", maintain_order="left")


def _with_messages(tables: RankTables, calls: pl.DataFrame) -> pl.DataFrame:
    """Kind, group, peers and bytes of each call."""
    is_unsized = pl.col("in_elements").is_null() & pl.col("bytes").is_null()
    unsized = calls.filter(is_unsized & pl.col("op_row").is_not_null())
    if unsized.height:
        calls = _with_inputs(tables, calls, unsized)
    in_range = calls.filter(is_unsized & pl.col("range_row").is_not_null())
    if in_range.height:
        calls = _with_ranges(tables, calls, in_range)
    by = ["name", "kernel", "dtype", "bytes", "group_size", "in_elements", "out_elements"]
    kinds = calls.select(by).unique()
    messages = [_message(*row) for row in kinds.iter_rows()]
    kinds = kinds.with_columns(
        pl.Series("kind", [kind for kind, _ in messages], dtype=pl.String),
        pl.Series("message_bytes", [size for _, size in messages], dtype=pl.Int64),
    )
    calls = calls.join(kinds, on=by, how="left", nulls_equal=True, maintain_order="left")
    # torch records the other end alone.
    ends = [
        pl.coalesce(end, pl.when(kind=kind).then("rank"))
        for end, kind in (("source_rank", "send"), ("destination_rank", "recv"))
    ]
    pair = (pl.min_horizontal(ends), pl.max_horizontal(ends))
    peers = pl.all_horizontal(end.is_not_null() for end in ends)
    transfer = pl.col("kind").is_in(["send", "recv", "send_recv"])
    ranks = pl.col("process_group_ranks").str.replace_all(" ", "", literal=True).fill_null("")
    group = pl.concat_str(pl.col("process_group"), pl.lit(" "), ranks).str.strip_chars_end(" ")
    if "is_of_unknown_group" in calls.columns:
        # Calls of different ranks that may be of different groups are not matched.
        unknown = pl.format(f"{UNKNOWN_GROUP} (rank {{}})", "rank")
        group = pl.when(pl.col("is_of_unknown_group")).then(unknown).otherwise(group)
    listed = tables["process_groups"].select(
        "rank", process_group=pl.col("name").cast(pl.String), listed=pl.col("description").cast(pl.String)
    )
    listed = listed.unique(["rank", "process_group"], keep="first", maintain_order=True).collect()
    calls = calls.join(listed, on=["rank", "process_group"], how="left", maintain_order="left")
    return calls.with_columns(
        group=group,
        group_description=pl.coalesce("process_group_description", "listed"),
        peer=pl.when(transfer & peers).then(pl.format("{}-{}", *pair)),
    )


def _with_inputs(tables: RankTables, calls: pl.DataFrame, unsized: pl.DataFrame) -> pl.DataFrame:
    """Elements and type from the shapes of the operator, which older recorders have instead."""
    wanted = unsized.select("rank", row="op_row").unique()
    ops = gather_texts(tables["ops"], wanted, op="name", dims="input_dims", types="input_types")
    ops = ops.rename({"row": "op_row"})
    sizes = ops.select("dims", "types").unique().drop_nulls()
    inputs = [_first_input(dims, types) for dims, types in sizes.iter_rows()]
    sizes = sizes.with_columns(
        pl.Series("elements", [count for count, _ in inputs], dtype=pl.Int64),
        pl.Series("type", [dtype for _, dtype in inputs], dtype=pl.String),
    )
    ops = ops.join(sizes, on=["dims", "types"], how="left")
    ops = ops.drop("dims", "types")
    calls = calls.join(ops, on=["rank", "op_row"], how="left", maintain_order="left")
    missing = pl.col("in_elements").is_null() & (pl.col("op").is_not_null())
    return calls.with_columns(
        name=pl.coalesce("name", "op"),
        dtype=pl.when(missing).then(pl.coalesce("type", "dtype")).otherwise("dtype"),
        in_elements=pl.coalesce("in_elements", "elements"),
    ).drop("op", "elements", "type")


def _with_ranges(tables: RankTables, calls: pl.DataFrame, in_range: pl.DataFrame) -> pl.DataFrame:
    """The collective and its elements from the NVTX range around the call, the type from the kernel."""
    wanted = in_range.select("rank", row="range_row").unique()
    ranges = gather_texts(tables["ranges"], wanted, range="name", sizes="sizes").rename({"row": "range_row"})
    sizes = ranges.select("sizes").unique().drop_nulls()
    elements = pl.Series("elements", [_elements(text) for text in sizes["sizes"]], dtype=pl.Int64)
    ranges = ranges.join(sizes.with_columns(elements), on="sizes", how="left").drop("sizes")
    calls = calls.join(ranges, on=["rank", "range_row"], how="left", maintain_order="left")
    missing = pl.col("in_elements").is_null() & pl.col("elements").is_not_null()
    dtype = pl.col("kernel").str.extract(_TYPE_IN_KERNEL, 1)
    return calls.with_columns(
        name=pl.coalesce("name", "range"),
        dtype=pl.when(missing).then(pl.coalesce("dtype", dtype)).otherwise("dtype"),
        in_elements=pl.coalesce("in_elements", "elements"),
    ).drop("range", "elements")


def _elements(dims: str) -> int | None:
    """Elements of an operator's first input."""
    shape = shape_of_input(dims, 0)
    return None if shape is None else _possible(math.prod(shape))


def _possible(size: int) -> int | None:
    """``size`` if a message can have it; what a damaged trace says may not even fit a column."""
    return size if 0 <= size < 2**63 else None


def _first_input(dims: str, types: str) -> tuple[int | None, str | None]:
    """Elements and type of an operator's first input."""
    count = _elements(dims)
    try:
        names = json.loads(types)
    except ValueError:
        return None, None
    if count is None or not isinstance(names, list) or not names:
        return None, None
    return count, str(cast("list[object]", names)[0])


def _message(
    name: str | None,
    kernel: str | None,
    dtype: str | None,
    size: int | None,
    ranks: int | None,
    sent: int | None,
    received: int | None,
) -> tuple[str | None, int | None]:
    """What the call does, and the bytes of the message that bandwidths are quoted for."""
    # NCCL's own ranges are called like its functions.
    kind = collective_kind((name or "").removeprefix("nccl"))
    if kind is None:
        text = (kernel or "").lower().replace("_", "")
        kind = next((kind for part, kind in _KERNELS.items() if part in text), None)
    if size is not None:
        return kind, _whole_message(kind, size, ranks)
    known = find_dtype(dtype) if dtype else None
    if known is None or sent is None:
        return kind, None
    if kind in {"all_gather", "gather"} and received is None:
        return kind, None
    return kind, _possible(message_bytes(kind or "", sent, received or 0) * known.bytes)


# Of these NCCL counts the part of one rank.
_OF_ONE_RANK = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}


def _whole_message(kind: str | None, size: int, ranks: int | None) -> int | None:
    """The bytes of a message of which NCCL told ``size``.

    Source: NVIDIA/nccl, src/collectives.cc: what each function reports is its own count of elements.
    """
    if kind is None:
        return None
    if kind in _OF_ONE_RANK:
        return None if ranks is None else _possible(size * ranks)
    return size


SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Kinds that no rank can leave before the last one has arrived. Only for these is the waiting time exact."""

TRANSFERS = ("send", "recv", "send_recv")


_LINE = ["window", "group", "peer", "channel"]


def lines_of(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the keys of calls that can form one collective, and whether all calls have a number or an id.

    Calls of a line share process group and window. Transfers are distinguished by their pair of ranks, and
    calls without a recorded group by their kind. Each rank numbers its own transfers, with all others, so
    the numbers of two ranks do not agree.

    Columns: ``window``, ``group``, ``peer``, ``channel``, ``numbered``, ``identified``.
    """
    numbered, identified = (pl.col(name).is_not_null().all() for name in ("sequence", "comms_id"))
    lines = calls.with_columns(channel=_channel()).group_by(_LINE)
    is_pair = pl.col("peer").is_not_null()
    known = lines.agg(numbered=numbered, identified=identified)
    return known.with_columns(pl.col("numbered", "identified") & ~is_pair)


def numbered_lines(lines: pl.DataFrame) -> pl.DataFrame:
    """Returns the lines of all ranks, from the lines of some of them, each with a number in ``line``."""
    return lines.group_by(_LINE).agg(pl.col("numbered", "identified").all()).with_row_index("line")


def _channel() -> pl.Expr:
    transfer = pl.col("kind").is_in(TRANSFERS).fill_null(value=False)
    # One rank sends what the other receives.
    is_first = pl.col("rank").cast(pl.String) == pl.col("peer").cast(pl.String).str.split("-").list.first()
    is_up = is_first == (pl.col("kind") == "send")
    both = pl.when(pl.col("kind") == "send_recv").then(pl.lit("both"))
    return (
        pl.when(transfer & pl.col("peer").is_not_null())
        .then(both.when(is_up).then(pl.lit("up")).otherwise(pl.lit("down")))
        .when(pl.col("group").is_null() | transfer)
        .then(pl.col("kind").cast(pl.String))
    )


def keyed(calls: pl.DataFrame, lines: pl.DataFrame) -> pl.DataFrame:
    """Returns the complete calls of some ranks with keys.

    The calls of one collective have equal keys on all ranks.

    Calls of one collective have one line and one sequence number, or one id if a call of the line has no
    number. If a call has neither, they have the same position among the line's calls of their step. Without a
    recorded group, the same kind of collective at the same position of the step counts as the same.

    Columns: the columns of ``calls``; ``line``, ``key``, ``place``; ``matched_by`` (sequence, comms_id or
        order); ``bucket``, which brings the calls of one collective together.
    """
    found = calls.with_columns(channel=_channel()).join(lines, on=_LINE, how="left", nulls_equal=True)
    found = found.with_columns(
        # Ids are hashes of 64 bits.
        key=pl.when("numbered")
        .then("sequence")
        .when("identified")
        .then((pl.col("comms_id") // 2).cast(pl.Int64))
        .otherwise("step"),
        matched_by=pl.when("numbered")
        .then(pl.lit("sequence"))
        .when("identified")
        .then(pl.lit("comms_id"))
        .otherwise(pl.lit("order")),
    ).drop("channel", "numbered", "identified")
    # Of the calls of a step this is the place; of one sequence number, which several kernels of a group of
    # transfers share, it distinguishes these.
    place = pl.int_range(pl.len()).over("rank", "line", "key")
    # Two threads of gloo may begin in another order than that in which they got their work.
    found = found.sort("rank", pl.coalesce("issued_ns", "start_ns"), "row").with_columns(place=place)
    parts = (pl.col(name).cast(pl.Int64).fill_null(0) % BUCKETS for name in ("key", "place"))
    mixed = pl.sum_horizontal(pl.col("line").cast(pl.Int64) * _FAR, *parts)
    return found.with_columns(bucket=(mixed % BUCKETS).cast(pl.UInt32))


def matched(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the calls of collectives whose calls are all present.

    Columns: the columns of ``keyed``; ``instance`` (number of the collective), ``ranks_seen`` (of the
        collective).
    Order: by rank, then by time.
    """
    return numbered(calls.sort("rank", "start_ns", "row")).with_columns(ranks_seen=pl.len().over("instance"))


def numbered(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns calls with the number of their collective in ``instance``, in the order of its first calls."""
    on = ["line", "key", "place"]
    numbers = calls.select(on).unique(maintain_order=True).with_row_index("instance")
    return calls.join(numbers, on=on, how="left", nulls_equal=True, maintain_order="left")
