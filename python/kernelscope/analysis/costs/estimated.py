"""Cost estimates from the names, grids and steps of kernels without a known operator cost."""

import re
from typing import NamedTuple

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.costs.costed import KNOWN, costed_trace
from kernelscope.analysis.costs.launch_sizes import attention_pairs
from kernelscope.analysis.grouping import as_text
from kernelscope.analysis.kernels.categories import work_categories
from kernelscope.analysis.kernels.kernel_math import kernel_math
from kernelscope.errors import InvalidArgumentError
from kernelscope.trace import Trace

# Names are longer only where templates nest; what decides stands in front.
_LONGEST = 2_000
_LARGEST = 2**63 - 1

_SIZE = r"([1-9]\d{0,4})"
# Each block of these computes one tile of the result and ends. Kernels whose blocks go on to other tiles
# (nvjet, CUTLASS 3, Stream-K) are not among them: their grids bound nothing.
_TILES = (
    re.compile(rf"_MT{_SIZE}x{_SIZE}x\d+_"),
    re.compile(rf"cutlass_[78]\d_\w*gemm\w*?_{_SIZE}x{_SIZE}_\d+x\d+_"),
    re.compile(rf"^(?:volta|turing|ampere)_\w*gemm_\w*?{_SIZE}x{_SIZE}_"),
    re.compile(rf"^sm[78]\d_xmma_gemm_\w*tilesize{_SIZE}x{_SIZE}x\d+_"),
)
_GOES_ON = re.compile(r"_SK[1-9]|(?i:stream_?k|persistent)")
# Tensile counts threads, not blocks, in the first axis.
_COUNTS_THREADS = re.compile(r"^Cijk_")

_HEAD_SIZES = (
    re.compile(r"kernel_traits<\s*([1-9]\d{0,3})\s*,", re.IGNORECASE),
    re.compile(r"fmhaSm\d+\w*?H([1-9]\d{0,3})(?=[A-Z])"),
    re.compile(r"(?:fmha|flash|attn|attention|mha)\w*?_h?d([1-9]\d{1,3})(?:_|$)"),
)
# What stands beside attention: it attends to nothing itself.
_BESIDE = re.compile(
    r"(?i)reduce|combine|merge|segments|prepare|preprocess|convert|dot_do_o|metadata|indices|plan"
)

_NOT_KNOWN = "the name gives the operation but not its size"
_OF_GEMM = "the depth is in neither name nor grid, so FLOPs are unknown"
_NO_TILE = "the name has no tile, or its blocks process several tiles"
_NO_GRID = "the grid was not recorded, as in a replay without its capture"
_NO_STEP = "no annotation around it contains the lengths of all sequences"
_BOTH = "the step mixes prefill and decode, and the share of this kernel is unknown"
_PART = "it prepares or combines data for another attention kernel"
_NO_HEADS = "the number of query heads is in neither name nor grid; pass query_heads="
_NO_HEAD_SIZE = "the head size is not in the name; pass head_size="
_OF_ATTENTION = "the kernel is assumed to attend to all keys under a causal mask, without a window"
_WHOLE_GRAPH = "the operations inside a whole-graph execution were not recorded"


class _Estimate(NamedTuple):
    """What one kind of kernel is estimated to do, per launch."""

    limit: str
    basis: str | None = None
    tile: str | None = None
    outputs_at_most: int | None = None
    attended_pairs: int | None = None
    kv_tokens: int | None = None
    flops: int | None = None


def estimated_costs(
    trace: Trace, *, query_heads: int | None = None, head_size: int | None = None
) -> pl.DataFrame:
    """Estimates for GPU operations with unknown :func:`costs`, from names, grids and steps.

    Every row is an estimate, and no operation of a row has a cost in :func:`costs`: the two divide the GPU
    operations of a trace. Attention has the query-key pairs of one head, from the lengths in the annotation
    of its step. It has FLOPs if the number of heads of one GPU is passed as ``query_heads``, and their size
    is in the name or passed as ``head_size``. A matrix product has an upper bound for the elements of its
    result: one tile per block of the grid. Padding and splitting the depth make it larger than the actual
    number.

    Columns: ``name``, ``category`` (as in :func:`kernel_categories`; null for whole graphs), ``math`` (the
        type in which it multiplies, if the name contains it), ``step``, ``grid``, ``calls``, ``device_ns``,
        ``tile`` (rows by columns); per call ``outputs_at_most`` (elements), ``attended_pairs`` (of one query
        head), ``kv_tokens`` (keys read, summed over sequences) and ``flops``; ``status`` (always `estimate`),
        ``basis`` (source of the figures; null without any) and ``limit`` (assumptions, or missing data).
    Units: ns; FLOP, a multiply-add counting 2.
    Order: longest first, then by name and step.
    Raises: InvalidArgumentError: a number of heads or their size is less than 1 or more than 65,536.
    Source: the kernels' names and grids; annotations of vLLM and SGLang.
    Example: ``estimated_costs(trace, query_heads=32).filter(pl.col("flops").is_not_null())``
    """
    for option, given in (("query_heads", query_heads), ("head_size", head_size)):
        if given is not None and not 1 <= given <= 65_536:
            raise InvalidArgumentError(f"{option}={given}: must be 1 to 65,536")
    kinds = _kinds(trace)
    lengths = _lengths_of_steps(trace)
    found = [
        _estimate(row, lengths.get(row["step"]), query_heads=query_heads, head_size=head_size)
        for row in kinds.iter_rows(named=True)
    ]
    figures = {
        "limit": pl.String,
        "basis": pl.String,
        "tile": pl.String,
        "outputs_at_most": pl.Int64,
        "attended_pairs": pl.Int64,
        "kv_tokens": pl.Int64,
        "flops": pl.Int64,
    }
    math = [kernel_math(name).math if name else None for name in kinds["name"]]
    return (
        kinds.hstack(pl.DataFrame(found, schema=figures, orient="row"))
        .with_columns(math=pl.Series(math, dtype=pl.String), status=pl.lit("estimate"))
        .select(
            "name", "category", "math", "step", "grid", "calls", "device_ns", "tile", "outputs_at_most",
            "attended_pairs", "kv_tokens", "flops", "status", "basis", "limit",
        )
        .sort(pl.col("device_ns").neg(), "name", "step", "grid", maintain_order=True)
    )  # fmt: skip


def _kinds(trace: Trace) -> pl.DataFrame:
    """GPU work without a known cost, by name, grid, block and step."""
    costed = costed_trace(trace)
    is_known = costed.kinds["status"].is_in(KNOWN).gather(costed.ops["kind"])
    known = is_known.gather(costed.work) if costed.work.len() else pl.Series(dtype=pl.Boolean)
    sizes = [
        pl.col(size).arr.get(axis).cast(pl.Int64).alias(f"{size}_{axis}")
        for size in ("grid", "block")
        for axis in range(3)
    ]
    work = trace.gpu_ops.select(
        "name", "kind", "step", *sizes, dur_ns=pl.col("dur_ns").fill_null(0)
    ).with_columns(category=work_categories(trace))
    work = work.filter(~known.fill_null(value=False)) if work.height else work
    by = [column for column in work.columns if column != "dur_ns"]
    grid = pl.format("[{}, {}, {}]", "grid_0", "grid_1", "grid_2")
    return as_text(
        work.group_by(by, maintain_order=True).agg(
            calls=pl.len().cast(pl.Int64), device_ns=pl.col("dur_ns").sum()
        )
    ).with_columns(grid=grid)


def _lengths_of_steps(trace: Trace) -> dict[int, list[list[int]]]:
    """The sums over prompts and over decoding requests of each step whose annotation has them."""
    names = trace.steps.select("step", pl.col("name").cast(pl.String)).drop_nulls()
    told = {step: _traceparse.step_lengths(name) for step, name in names.iter_rows()}
    return {step: lengths for step, lengths in told.items() if lengths}


def _estimate(
    kind: dict[str, object],
    lengths: list[list[int]] | None,
    *,
    query_heads: int | None,
    head_size: int | None,
) -> _Estimate:
    name = str(kind["name"] or "")[:_LONGEST]
    match kind["category"]:
        case None:
            return _Estimate(_WHOLE_GRAPH)
        case "gemm":
            return _of_gemm(name, _axes(kind, "grid"), _axes(kind, "block"))
        case "attention":
            return _of_attention(name, lengths, query_heads, head_size)
        case _:
            return _Estimate(_NOT_KNOWN, "the name")


def _axes(kind: dict[str, object], size: str) -> list[int] | None:
    axes = [kind[f"{size}_{axis}"] for axis in range(3)]
    found = [axis for axis in axes if isinstance(axis, int) and axis > 0]
    return found if len(found) == 3 else None


def _of_gemm(name: str, grid: list[int] | None, block: list[int] | None) -> _Estimate:
    tiles = [] if _GOES_ON.search(name) else [match for rule in _TILES if (match := rule.search(name))]
    if not tiles:
        return _Estimate(f"{_NO_TILE}; {_OF_GEMM}", "the name")
    rows, columns = int(tiles[0][1]), int(tiles[0][2])
    tile = f"{rows}x{columns}"
    blocks = grid
    if grid and _COUNTS_THREADS.match(name):
        is_whole = block is not None and grid[0] % block[0] == 0
        blocks = [grid[0] // block[0], *grid[1:]] if block and is_whole else None
    if blocks is None:
        return _Estimate(f"{_NO_GRID}; {_OF_GEMM}", "tile from the name", tile)
    outputs = rows * columns * blocks[0] * blocks[1] * blocks[2]
    bound = outputs if outputs <= _LARGEST else None
    return _Estimate(_OF_GEMM, "tile from the name, multiplied by the blocks of the grid", tile, bound)


def _of_attention(
    name: str, lengths: list[list[int]] | None, query_heads: int | None, head_size: int | None
) -> _Estimate:
    if _BESIDE.search(name.split("<", 1)[0]):
        return _Estimate(_PART, "the name")
    if lengths is None:
        return _Estimate(_NO_STEP, "the name")
    busy = [sums for sums in lengths if sums[0] > 0]
    pairs = [attention_pairs(*sums) for sums in busy]
    if len(busy) != 1 or pairs[0] is None:
        return _Estimate(_BOTH if len(busy) > 1 else _NO_STEP, "the name")
    size = head_size or next((int(found[1]) for rule in _HEAD_SIZES if (found := rule.search(name))), None)
    basis = "lengths from the step's annotation"
    limits = [_OF_ATTENTION]
    flops = None
    if size is None:
        limits.append(_NO_HEAD_SIZE)
    if query_heads is None:
        limits.append(_NO_HEADS)
    if size is not None and query_heads is not None:
        flops = 4 * pairs[0] * query_heads * size
        basis += ", and heads " + ("as given" if head_size else "as passed, of the size in the name")
    limit = "; ".join(limits)
    is_held = flops is None or flops <= _LARGEST
    return _Estimate(
        limit, basis, attended_pairs=pairs[0], kv_tokens=busy[0][1], flops=flops if is_held else None
    )
