"""Sizes and element types that only the names and grids of the launched kernels contain."""

import re
from bisect import bisect_left, bisect_right

from kernelscope import _traceparse

# Operators over tensor lists run one of these; the type stands in the template.
_LIST_DTYPES = (
    re.compile(r"CatArrayBatchedCopy\w*<\s*(?:\(anonymous namespace\)::)?(?P<dtype>[\w:]+)\s*,"),
    re.compile(r"multi_tensor_apply_kernel<.*?(?:Functor|Op)\w*<\s*(?P<dtype>[A-Za-z_][\w:]*)\s*[,>]"),
)
# Where torch copies without regard to the type, only its size is in the template.
_OPAQUE = re.compile(r"OpaqueType<(?P<size>\d+)u?>")
_BY_SIZE = {1: "uint8", 2: "float16", 4: "float32", 8: "int64", 16: "complex128"}


def list_dtype(kernel: str) -> str | None:
    """Returns the element type of the tensor lists that a kernel processes, from its name.

    It is None if the name does not contain it.

    For a copy by size, returns a type of that size: its bytes are right, and it computes nothing.

    Example: ``list_dtype("void at::native::CatArrayBatchedCopy<float, unsigned int, 4>(...)")`` is ``float``.
    """
    for pattern in _LIST_DTYPES:
        match = pattern.search(kernel)
        if match and not match["dtype"].endswith("OpaqueType") and "::native::" not in match["dtype"]:
            return match["dtype"]
    opaque = _OPAQUE.search(kernel)
    return _BY_SIZE.get(int(opaque["size"])) if opaque and len(opaque["size"]) < 3 else None


# Batched products of TensorRT-LLM: ``bmm_<out>_<A><B>_<sum>_t<rows>x<columns>x<depth>...``; A holds the
# weights.
_BMM = re.compile(
    r"^bmm_[A-Za-z0-9]+_(?P<a>(?:Mx)?E\dm\d|Bfloat16|Fp16)(?:(?:Mx)?E\dm\d|Bfloat16|Fp16)?"
    r"_Fp32_t(?P<rows>[1-9]\d{0,5})x(?P<tokens>[1-9]\d{0,5})x(?P<depth>[1-9]\d{0,5})"
)
_GATED = re.compile(r"swiglu|geglu|siluandmul", re.IGNORECASE)
_WEIGHT_BITS = {"MxE2m1": 4, "MxE4m3": 8, "E2m1": 4, "E4m3": 8, "Bfloat16": 16, "Fp16": 16}
# The Mx formats have a scale of one byte for as many elements.
_MX_BLOCK = 32


def expert_sizes(
    kernels: list[tuple[str, list[int] | None]], *, tokens: tuple[int, ...], logits: tuple[int, ...]
) -> tuple[tuple[str, int], ...] | None:
    """Returns inner size, experts per token and bits of a weight of a mixture of experts, from its launches.

    The first product has ``columns = grid.x * tile`` columns: the inner size, or twice the inner size if it
    gates. The second product has as many as the hidden size. Its ``grid.y`` blocks of ``tile`` token rows are
    enough for any routing: with E experts and T * k rows, E + (T * k - E) / tile of them. That determines k.

    Shapes: ``tokens`` ``(T, hidden)``, ``logits`` ``(T, E)``; ``kernels`` are names and grids.
    Source: TensorRT-LLM, cpp/tensorrt_llm/kernels/trtllmGenKernels/blockScaleMoe (getMaxNumCtasInBatchDim).
    Example: 888 tokens, 128 experts, grid (8, 342), tile 128 x 16, gated: inner size 512, 4 experts each.
    """
    count, hidden, experts = tokens[0], tokens[-1], logits[-1]
    sizes = _ragged_sizes(kernels, count, hidden, experts)
    if sizes is not None:
        return sizes
    for name, grid in kernels:
        match = _BMM.match(name)
        if match is None or grid is None or min(*grid[:2], count, experts) < 1:
            continue
        columns, tile, blocks = grid[0] * int(match["rows"]), int(match["tokens"]), grid[1]
        gated = _GATED.search(name) is not None
        if columns == hidden and not gated:
            continue
        rows = blocks if blocks <= experts else (blocks - experts) * tile + experts
        top_k = min((rows + tile - 1) // count if blocks > experts else rows // count, experts)
        if top_k < 1:
            continue
        inner = columns // 2 if gated else columns
        return _sizes(inner, top_k, gated=gated, bits=_WEIGHT_BITS.get(match["a"]), weights=match["a"])
    return None


def _sizes(
    inner: int, top_k: int, *, gated: bool, bits: int | None, weights: str
) -> tuple[tuple[str, int], ...]:
    sizes = {"inner_size": inner, "top_k": top_k, "gated": int(gated)}
    if bits is not None:
        sizes["weight_bits"] = bits
    if weights.lower().startswith("mx"):
        sizes["scale_block"] = _MX_BLOCK
    return tuple(sizes.items())


# Ragged products of Triton: ``_matmul_ogs_<layouts>_<out>x<in>x<weights>_<rows>x<columns>x<depth>x<split>``.
_RAGGED = re.compile(
    r"^_matmul_ogs_[A-Z]+_[a-wyz0-9]+x[a-wyz0-9]+x(?P<weights>(?:mx)?[a-wyz0-9]+)"
    r"_(?P<rows>[1-9]\d{0,5})x(?P<columns>[1-9]\d{0,5})x\d+x(?P<split>[1-9]\d{0,5})(?P<gate>_swiglu\w*)?$"
)
_RAGGED_BITS = {"mxfp4": 4, "mxfp8": 8, "fp8": 8, "bf16": 16, "fp16": 16}


def _ragged_sizes(
    kernels: list[tuple[str, list[int] | None]], count: int, hidden: int, experts: int
) -> tuple[tuple[str, int], ...] | None:
    """The same from two products of Triton, each with a grid of row blocks times column tiles.

    The second has as many columns as the hidden size, so that its grid tells the row blocks; with E experts
    and R rows these are R, or E - 1 + (R - E + 1) / rows, rounded up, where R is more than E. The first has
    as many blocks, which tells its columns, in whole tiles: twice the inner size, or up to a tile more.

    Source: triton_kernels, routing.py (RoutingData.n_blocks) and matmul_ogs.py.
    Example: 32 tokens of 3072, 32 experts, grids 1748 and 912, tiles 16 x 128: 38 blocks, 4 experts each,
    inner size 46 * 128 / 2 = 2944.
    """
    found = [(match, grid[0]) for name, grid in kernels if grid and (match := _RAGGED.match(name))]
    gates = [(match, size) for match, size in found if match["gate"]]
    others = [(match, size) for match, size in found if not match["gate"]]
    if len(gates) != 1 or len(others) != 1 or min(count, hidden, experts) < 1:
        return None
    (gate, first), (other, second) = gates[0], others[0]
    tiles = -(-hidden // int(other["columns"])) * int(other["split"])
    if second % tiles or gate["rows"] != other["rows"]:
        return None
    blocks, tile = second // tiles, int(other["rows"])
    # More experts per token than fill the blocks need more; a file may tell any number of experts.
    chosen = range(1, min(experts, blocks * tile // count) + 1)
    first_k, end_k = (
        search(chosen, blocks, key=lambda k: _row_blocks(count * k, experts, tile))
        for search in (bisect_left, bisect_right)
    )
    per_tile = blocks * int(gate["split"])
    if end_k - first_k != 1 or first % per_tile:
        return None
    inner = first // per_tile * int(gate["columns"]) // 2
    bits = _RAGGED_BITS.get(gate["weights"])
    return _sizes(inner, chosen[first_k], gated=True, bits=bits, weights=gate["weights"])


def _row_blocks(rows: int, experts: int, tile: int) -> int:
    return rows if rows <= experts else experts - 1 - (experts - rows - 1) // tile


def attention_lengths(annotations: list[str], query: tuple[int, ...]) -> tuple[tuple[str, int], ...] | None:
    """Returns query-key pairs of one head, the pairs of decoding among them, and keys read, for a step.

    A request with q new tokens and k keys, including its own, attends under a causal mask to all keys before
    its own position: q * k - (q * q - q) / 2 pairs in total.

    Shapes: ``query`` ``(tokens, heads, size)``. A replayed graph may have more tokens than the step. Returns
    None if the annotations do not agree with it or with each other.
    Source: the annotations of vLLM and SGLang that TraceLens reads.
    """
    told = [lengths for text in annotations if (lengths := _traceparse.step_lengths(text))]
    if not told or any(lengths != told[0] for lengths in told):
        return None
    prompts, decoded = told[0]
    tokens = prompts[0] + decoded[0]
    prompt_pairs, decode_pairs = attention_pairs(*prompts), attention_pairs(*decoded)
    if not 0 < tokens <= query[0] or prompt_pairs is None or decode_pairs is None:
        return None
    return (
        ("attended_pairs", prompt_pairs + decode_pairs),
        ("decode_pairs", decode_pairs),
        ("kv_tokens", prompts[1] + decoded[1]),
    )


def attention_pairs(q: int, k: int, qq: int, qk: int) -> int | None:
    """Returns query-key pairs of one head under a causal mask, from the sums over requests of a step.

    ``q`` and ``k`` are the sums of new tokens and of keys, ``qq`` and ``qk`` those of the squares and of the
    products. Returns None if no requests can have these sums.
    """
    is_possible = q <= k and q <= qq <= q * q and qq <= qk <= q * k
    return qk - (qq - q) // 2 if is_possible else None
