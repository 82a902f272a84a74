"""A rule about attention that runs as two matrix products and a softmax."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, counted, names_like, rule
from kernelscope.analysis.grouping import classes_of, gather_rows
from kernelscope.memo import per_trace
from kernelscope.trace import Trace
from kernelscope.units import format_ns, format_percent

_UNFUSED = 0.1
# How many works, such as masks, scales, dropout and copies, lie between a product and the softmax at most.
_BETWEEN = 8
_PRODUCTS = r"(?:^|::)(?:bmm|baddbmm|matmul)(?:_out)?$"
_SOFTMAX = r"(?i)softmax"
_LOG_SOFTMAX = r"(?i)log_?softmax"


class Attention(NamedTuple):
    """Marks the rows of ``gpu_ops`` that compute attention in pieces, and its matrix products."""

    marks: pl.Series
    products: pl.Series
    softmaxes: int


def attention(facts: Facts) -> Attention:
    """Returns the unfused attention of a trace."""
    return _found(facts.trace)


@per_trace
def _found(trace: Trace) -> Attention:
    work = trace.gpu_ops
    op, around = _names(trace, "ops", "op_row"), _names(trace, "ranges", "range_row")
    kinds = classes_of(work.select("kind", "name", op=op, around=around))
    is_softmax = (_like("op", _SOFTMAX) | _like("around", _SOFTMAX) | _like("name", _SOFTMAX)) & ~(
        _like("op", _LOG_SOFTMAX) | _like("around", _LOG_SOFTMAX)
    )
    of_kinds = kinds.keys.select(
        softmax=is_softmax & (pl.col("kind") == "kernel").fill_null(value=False),
        product=_like("op", _PRODUCTS) | _like("around", _PRODUCTS),
    )
    nothing = pl.repeat(value=False, n=work.height, eager=True)
    if not of_kinds["softmax"].any():
        return Attention(nothing, nothing, 0)
    groups = classes_of(work.select("device", "stream", "step"))
    ordered = work.select("start_ns", group=groups.of, kind=kinds.of).with_row_index("at")
    ordered = ordered.sort("group", "start_ns", maintain_order=True).with_row_index("place")
    ordered = ordered.hstack(of_kinds[ordered["kind"]])
    place = pl.when("product").then("place").cast(pl.Int64)
    found = ordered.with_columns(
        before=place.forward_fill().over("group"), after=place.backward_fill().over("group")
    ).filter("softmax")
    here = pl.col("place").cast(pl.Int64)
    found = found.filter((here - pl.col("before") <= _BETWEEN) & (pl.col("after") - here <= _BETWEEN))
    places = (
        found.select(place=pl.int_ranges("before", pl.col("after") + 1)).explode("place")["place"].unique()
    )
    marks = nothing.scatter(ordered["at"][places.drop_nulls()], values=True)
    return Attention(marks, marks & kinds.spread(of_kinds["product"]), found.height)


def _names(trace: Trace, table: str, column: str) -> pl.Series:
    return gather_rows(trace.gpu_ops[column], trace.tables[table], "name")["name"]


def _like(names: str, pattern: str) -> pl.Expr:
    return pl.col(names).cast(pl.String).str.contains(pattern).fill_null(value=False)


@rule("Attention is not fused", _UNFUSED, "share of kernel time")
def attention_not_fused(facts: Facts) -> Iterator[Advice]:
    """Finds a softmax between two batched products whose matrix is written and read each time."""
    if not facts.kernel_ns:
        return
    found = attention(facts)
    for gpu in facts.on_gpus(facts.rows_of(found.marks & facts.are_kernels)):
        if gpu.share <= _UNFUSED:
            continue
        # The products remain; what lies between them goes.
        is_product = found.products.filter(facts.are_rows(gpu.works["row"]))
        works = gpu.works.with_columns(saved=pl.when(~is_product).then("dur_ns").otherwise(0))
        between = int(works["saved"].sum())
        yield Advice(
            f"{gpu.who}{counted(found.softmaxes, 'softmax', 'softmaxes')} between batched matrix "
            f"products take {format_percent(gpu.share)} of the kernel time together with them, "
            f"{format_ns(between)} of it outside the products.",
            _fused(facts),
            gpu.share,
            change=facts.faster(works, "saved", launched=False),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )


def _fused(facts: Facts) -> str:
    if names_like(facts.trace, "ops", r"_scaled_dot_product_attention_math").len():
        return (
            "scaled_dot_product_attention uses its math backend here. Use float16 or bfloat16 and a "
            "mask without gradients. torch.nn.attention.sdpa_kernel reports why the fused backends "
            "refuse."
        )
    return (
        "Use torch.nn.functional.scaled_dot_product_attention or FlashAttention "
        '(attn_implementation="sdpa" or "flash_attention_2" in Transformers).'
    )
