"""Experts on several ranks: the tokens of each rank, and the cost of exchanging them."""

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from math import prod
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.call_tree import innermost, nest
from kernelscope.analysis.grouping import gather_rows
from kernelscope.analysis.ranks.cluster import Cluster, Source, Window, cluster_of, each_window, windows_of
from kernelscope.analysis.ranks.collectives import rank_calls
from kernelscope.analysis.training.backward import in_backward
from kernelscope.analysis.training.dimensions import parallel_dimensions
from kernelscope.analysis.training.issued import issued
from kernelscope.costs import Tensor
from kernelscope.costs.bind import bind, shape_of_input, sizes_of_value
from kernelscope.trace import Trace

_OPERATOR = "::alltoall_base_"
"""``alltoall_base_(output, input, process_group, output_split_sizes, input_split_sizes, ...)``."""

_INTEGERS = ("Long", "Int", "long int", "int")
"""Types of messages that count tokens, before these are exchanged."""

_SCHEMA = {
    "rank": pl.Int64, "row": pl.UInt32, "group": pl.String, "step": pl.Int32, "phase": pl.String,
    "layer": pl.Int64, "direction": pl.String, "tokens_sent": pl.Int64, "tokens_received": pl.Int64,
    "bytes": pl.Int64, "start_ns": pl.Int64, "dur_ns": pl.Int64, "exposed_ns": pl.Int64,
    "exposed_wait_ns": pl.Int64,
}  # fmt: skip


class _Splits(NamedTuple):
    """Tokens for and from each rank of a group (empty if all get the same), and their sums."""

    sent: tuple[int, ...]
    received: tuple[int, ...]
    tokens_sent: int | None
    tokens_received: int | None


def expert_exchanges(source: Source, *, executor: Executor | None = None) -> pl.DataFrame:
    """Exchanges of tokens between ranks with experts: to the experts (dispatch), and back (combine).

    These are the all-to-alls of groups with the dimension ep of :func:`parallel_dimensions`, except for
    counts of tokens. A combine returns what a dispatch before it brought. Layers have numbers in the order
    of each pass, in which parts of a batch that are computed in turns count as layers. The backward pass
    returns gradients in the opposite order of layers.

    Columns: ``rank``, ``row`` (in ``gpu_ops``, or ``ops`` if the host communicates), ``group``, ``step``,
        ``phase``, ``layer`` (from 0 in each pass of a step), ``direction`` (dispatch or combine),
        ``tokens_sent``, ``tokens_received`` (null without recorded shapes and splits), ``bytes`` (of the
        larger of both messages), ``start_ns``, ``dur_ns``, ``exposed_ns`` (while nothing computes) and
        ``exposed_wait_ns`` (part of it in which another rank had not arrived).
    Units: ns on the common clock from the earliest base time; bytes.
    Order: by rank and start.
    """
    return exchanges_of(source, cluster_of(source, executor=executor), executor)


def exchanges_of(source: Source, cluster: Cluster, executor: Executor | None = None) -> pl.DataFrame:
    """Returns the rows of :func:`expert_exchanges` for a source with a known cluster."""
    groups = parallel_dimensions(cluster).filter(dimension="ep")["group"]
    calls = rank_calls(cluster).filter(
        pl.col("group").is_in(groups.implode()),
        pl.col("kind") == "all_to_all",
        ~pl.col("dtype").is_in(_INTEGERS).fill_null(value=False),
    )
    own = ("rank", "window", "row", "device", "group", "step", "phase")
    parts = calls.select(own).partition_by("rank", "window", as_dict=True)
    arguments = [
        (window, part)
        for window in windows_of(source)
        if (part := parts.get((window.rank, window.window))) is not None
    ]
    if not arguments:
        return pl.DataFrame(schema=_SCHEMA)
    tables = ("ops", "gpu_ops", "launches", "collectives")
    found = pl.concat(each_window(_of_window, arguments, tables=tables, executor=executor))
    found = calls.join(found, on=["rank", "window", "row"], maintain_order="left")
    found = found.rename({"message_bytes": "bytes"})
    return found.select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items()).sort(
        "rank", "start_ns", "row"
    )


def _of_window(window: Window, trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Tokens, directions and layers of the calls of a rank.

    Columns: ``rank``, ``window``, ``row``, ``tokens_sent``, ``tokens_received``, ``direction``, ``layer``.
    """
    calls = issued(trace, calls.drop("rank", "window")).sort("issued_ns", "row")
    texts = _texts(trace, calls)
    splits = {text: _splits(*text) for text in texts.unique().iter_rows()}
    of_call = [splits[text] for text in texts.iter_rows()]
    found = calls.with_columns(
        tokens_sent=pl.Series([one.tokens_sent for one in of_call], dtype=pl.Int64),
        tokens_received=pl.Series([one.tokens_received for one in of_call], dtype=pl.Int64),
        split=pl.Series(of_call, dtype=pl.Object),
    )
    parts = [_with_layers(part) for part in found.partition_by("group", "step", maintain_order=True)]
    return pl.concat(parts).select(
        pl.lit(window.rank, pl.Int64).alias("rank"),
        pl.lit(window.window, pl.Int64).alias("window"),
        "row", "tokens_sent", "tokens_received", "direction", "layer",
    )  # fmt: skip


def _texts(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The recorded inputs of each call and the splits recorded with its kernel: four columns of texts."""
    ops = trace.ops.filter(pl.col("activity") == "communication").drop_nulls("dur_ns")
    ops = ops.filter(pl.col("name").cast(pl.String).str.ends_with(_OPERATOR))
    ops = nest(
        ops.select("track", "start_ns", "dur_ns", "input_dims", "concrete_inputs").with_row_index("row")
    )
    points = calls.select("track", start_ns="issued_ns", dur_ns=pl.lit(0, pl.Int64))
    inputs = gather_rows(innermost(points, ops), ops, "input_dims", "concrete_inputs")
    recorded = trace.collectives.select("row", "in_split", "out_split").unique("row", keep="first")
    splits = calls.select("row").join(recorded, on="row", how="left", maintain_order="left")
    return inputs.hstack(splits.drop("row")).with_columns(pl.all().cast(pl.String))


def _splits(dims: str | None, values: str | None, sent: str | None, received: str | None) -> _Splits:
    """The tokens of an exchange, from the inputs of its operator, or else from what its kernel has."""
    of_operator = [sizes_of_value(values, index) for index in (4, 3)]
    of_kernel = [sizes_of_value(json.dumps([text]), 0) for text in (sent, received)]
    sizes = [one or other or () for one, other in zip(of_operator, of_kernel, strict=True)]
    shapes = [shape_of_input(dims, index) for index in (1, 0)]
    tokens = [
        sum(own) if own else shape[0] if shape else None for own, shape in zip(sizes, shapes, strict=True)
    ]
    return _Splits(sizes[0], sizes[1], tokens[0], tokens[1])


def _with_layers(calls: pl.DataFrame) -> pl.DataFrame:
    """Adds ``direction`` and ``layer`` to the calls of a group in a step, in the order of their launches."""
    calls = calls.with_columns(is_backward=in_backward().fill_null(value=False))
    turns = pl.col("is_backward") != pl.col("is_backward").shift(1, fill_value=False)
    parts = calls.with_columns(run=turns.cum_sum()).partition_by("run", "phase", maintain_order=True)
    found = [one for part in parts for one in _directions(part["split"])]
    schema = {"direction": pl.String, "place": pl.Int64}
    calls = pl.concat(parts).hstack(pl.DataFrame(found, schema, orient="row"))
    last = pl.col("place").max().over("run", "phase")
    layer = pl.when("is_backward").then(last - pl.col("place")).otherwise("place")
    return calls.with_columns(layer=layer)


def _directions(splits: Iterable[_Splits]) -> Iterator[tuple[str, int]]:
    """Yields the direction of each exchange of a pass, and the number of the dispatch that it is or returns.

    A combine reverses the splits of the earliest dispatch that has not returned. Several are under way if
    parts of a batch are computed in turns. The first layer of a backward pass has nothing to return if its
    input has no gradient.
    """
    under_way: list[tuple[_Splits, int]] = []
    count = 0
    for one in splits:
        returned = next((it for it in under_way if one[:2] == (it[0].received, it[0].sent)), None)
        if returned is None:
            under_way.append((one, count))
            yield "dispatch", count
            count += 1
        else:
            under_way.remove(returned)
            yield "combine", returned[1]


def expert_layers(source: Source, *, executor: Executor | None = None) -> pl.DataFrame:
    """How evenly the tokens of each layer of experts are spread over its ranks, and what that costs.

    The slowest rank ends its combine last, and the others wait for it.

    Columns: ``group``, ``step``, ``phase``, ``layer``; ``ranks`` (with a dispatch), ``routed_tokens``
        (received by all), ``tokens_max`` (received by one rank), ``hot_rank``, ``imbalance`` (``tokens_max``
        relative to the mean, minus 1), ``dispatch_ns`` and ``combine_ns`` (of all ranks), ``exposed_ns``
        (part of both while nothing computes), ``combine_wait_ns`` (exposed waiting for late ranks in the
        combine, of all).
    Units: ns; shares. See :func:`expert_exchanges`.
    Order: by group, step, phase and layer.
    """
    return layers_of(expert_exchanges(source, executor=executor))


def layers_of(calls: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of :func:`expert_layers` for known exchanges."""
    by = ["group", "step", "phase", "layer"]
    is_dispatch = pl.col("direction") == "dispatch"
    of_rank = calls.group_by(*by, "rank").agg(
        tokens=pl.col("tokens_received").filter(is_dispatch).sum(),
        known=pl.col("tokens_received").filter(is_dispatch).is_not_null().all() & is_dispatch.any(),
        dispatch_ns=pl.col("dur_ns").filter(is_dispatch).sum(),
        combine_ns=pl.col("dur_ns").filter(~is_dispatch).sum(),
        exposed_ns=pl.col("exposed_ns").sum(),
        combine_wait_ns=pl.col("exposed_wait_ns").filter(~is_dispatch).sum(),
    )
    known = pl.col("known").all()
    sums = [pl.col(name).sum() for name in ("dispatch_ns", "combine_ns", "exposed_ns", "combine_wait_ns")]
    layers = of_rank.sort("tokens", "rank", descending=[True, False]).group_by(by).agg(
        *sums,
        ranks=pl.len().cast(pl.Int64),
        routed_tokens=pl.when(known).then(pl.col("tokens").sum()),
        tokens_max=pl.when(known).then(pl.col("tokens").max()),
        hot_rank=pl.when(known).then(pl.col("rank").first()),
        imbalance=pl.when(known, pl.col("tokens").sum() > 0).then(
            pl.col("tokens").max() / pl.col("tokens").mean() - 1
        ),
    )  # fmt: skip
    columns = ("ranks", "routed_tokens", "tokens_max", "hot_rank", "imbalance", "dispatch_ns", "combine_ns")
    return layers.select(*by, *columns, "exposed_ns", "combine_wait_ns").sort(by, nulls_last=True)


_PRODUCTS = r"^_GroupedLinear$|::_(?:scaled_)?grouped_mm$|::(?:ck_)?grouped_gemm(?:_impl)?$|::m_grouped_"
_PRODUCT_SCHEMA = {
    "rank": pl.Int64, "row": pl.UInt32, "step": pl.Int32, "phase": pl.String, "name": pl.String,
    "experts": pl.Int64, "tokens": pl.Int64, "tokens_by_expert": pl.List(pl.Int64), "imbalance": pl.Float64,
}  # fmt: skip


def expert_products(source: Source, *, executor: Executor | None = None) -> pl.DataFrame:
    """Grouped matrix products of experts, with the tokens of each expert where they were recorded.

    Included are products with a weight for each expert: ``_grouped_mm``, Transformer Engine's
    ``_GroupedLinear``, and the ones of Primus and DeepGEMM.

    Columns: ``rank``, ``row`` (in ``ops``), ``step``, ``phase``, ``name``, ``experts``, ``tokens`` (of all
        experts), ``tokens_by_expert`` (null if only offsets on the GPU say it) and ``imbalance`` (largest
        number of tokens relative to the mean, minus 1).
    Order: by rank and row.
    """
    arguments = [(window,) for window in windows_of(source)]
    found = pl.concat(each_window(_products_of, arguments, tables=("ops",), executor=executor))
    return found.sort("rank", "row")


def _products_of(window: Window, trace: Trace) -> pl.DataFrame:
    ops = trace.ops
    names = ops["name"].unique().drop_nulls()
    names = names.filter(names.cast(pl.String).str.contains(_PRODUCTS))
    texts = ("name", "input_dims", "concrete_inputs")
    ops = ops.filter(pl.col("name").is_in(names.implode())).select("row", "step", "phase", *texts)
    ops = ops.with_columns(pl.col(*texts, "phase").cast(pl.String))
    kinds = [(*kind, *_product(*kind)) for kind in ops.select(texts).unique().iter_rows()]
    counts = ("experts", "tokens", "tokens_by_expert")
    schema = dict.fromkeys(texts, pl.String) | {name: _PRODUCT_SCHEMA[name] for name in counts}
    found = ops.join(pl.DataFrame(kinds, schema, orient="row"), on=texts, nulls_equal=True)
    by_expert = pl.col("tokens_by_expert")
    found = found.drop_nulls("experts").with_columns(
        rank=pl.lit(window.rank), imbalance=by_expert.list.max() / by_expert.list.mean() - 1
    )
    return found.select(pl.col(name).cast(dtype) for name, dtype in _PRODUCT_SCHEMA.items())


def _product(
    name: str, dims: str | None, values: str | None
) -> tuple[int | None, int | None, list[int] | None]:
    """Experts, their tokens, and the tokens of each expert; null if these are no experts."""
    call = bind(name, dims, concrete_inputs=values)
    matrices = [tensor.shape for tensor in call.tensors() if len(tensor.shape) > 1] if call else []
    if call is None or len(matrices) < 2:
        return None, None, None
    if name == "_GroupedLinear":
        experts, tokens = len(matrices) - 1, prod(matrices[0][:-1])
        splits = sizes_of_value(values, 1) or ()
        return experts, tokens, list(splits) if len(splits) == experts else None
    if isinstance(call.arg(0), Tensor):
        weights = next((shape for shape in matrices[1:] if len(shape) == 3), None)
        # The gradient of the weights has none with three dimensions.
        return (weights[0], matrices[0][-2], None) if weights else (None, None, None)
    rows = [shape[0] for shape in matrices[: len(matrices) // 2]]
    return len(rows), sum(rows), rows
