"""Sizes and element types that only the names and grids of the launched kernels tell."""

import re

# Operators over tensor lists run one of these; the type stands in the template.
_LIST_DTYPES = (
    re.compile(r"CatArrayBatchedCopy\w*<\s*(?:\(anonymous namespace\)::)?(?P<dtype>[\w:]+)\s*,"),
    re.compile(r"multi_tensor_apply_kernel<.*?(?:Functor|Op)\w*<\s*(?P<dtype>[\w:]+)\s*[,>]"),
)
# Where torch copies without regard to the type, only its size is in the template.
_OPAQUE = re.compile(r"OpaqueType<(?P<size>\d+)u?>")
_BY_SIZE = {1: "uint8", 2: "float16", 4: "float32", 8: "int64", 16: "complex128"}


def list_dtype(kernel: str) -> str | None:
    """The element type of the tensor lists that a kernel works on, from its name; None if it does not say.

    Of a copy by size a type of that size is given: its bytes are right, and it computes nothing.

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
    r"_Fp32_t(?P<rows>\d+)x(?P<tokens>\d+)x(?P<depth>\d+)"
)
_GATED = re.compile(r"swiglu|geglu|siluandmul", re.IGNORECASE)
_WEIGHT_BITS = {"MxE2m1": 4, "MxE4m3": 8, "E2m1": 4, "E4m3": 8, "Bfloat16": 16, "Fp16": 16}
# The Mx formats have a scale of one byte for as many elements.
_MX_BLOCK = 32


def expert_sizes(
    kernels: list[tuple[str, list[int] | None]], *, tokens: tuple[int, ...], logits: tuple[int, ...]
) -> tuple[tuple[str, int], ...] | None:
    """Inner size, experts per token and bits of a weight of a mixture of experts, from its launches.

    The first product gives ``columns = grid.x * tile`` columns: the inner size, or twice that if it gates;
    the second gives as many as the hidden size. Its ``grid.y`` blocks of ``tile`` token rows are enough for
    any routing: with E experts and T * k rows, E + (T * k - E) / tile of them. That gives k.

    Shapes: ``tokens`` ``(T, hidden)``, ``logits`` ``(T, E)``; ``kernels`` are names and grids.
    Source: TensorRT-LLM, cpp/tensorrt_llm/kernels/trtllmGenKernels/blockScaleMoe (getMaxNumCtasInBatchDim).
    Example: 888 tokens, 128 experts, grid (8, 342), tile 128 x 16, gated: inner size 512, 4 experts each.
    """
    count, hidden, experts = tokens[0], tokens[-1], logits[-1]
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
        sizes = {"inner_size": columns // 2 if gated else columns, "top_k": top_k, "gated": int(gated)}
        bits = _WEIGHT_BITS.get(match["a"])
        if bits is not None:
            sizes["weight_bits"] = bits
        if match["a"].startswith("Mx"):
            sizes["scale_block"] = _MX_BLOCK
        return tuple(sizes.items())
    return None


# vLLM's step: ``execute_context_<requests>(<tokens>_<sum of squares>)_generation_<requests>(<tokens>)``.
_STEP = re.compile(r"^execute_context_(?P<n>\d+)\((?P<tokens>\d+)_(?P<squares>\d+)\)_generation_0\(0\)$")


def attention_lengths(annotations: list[str], query: tuple[int, ...]) -> tuple[tuple[str, int], ...] | None:
    """Pairs of query and key of one head, and keys read, of a step that only takes in prompts.

    Of n prompts with together T tokens and the squares of their lengths summing to S, a causal mask keeps
    (S + T) / 2 pairs.

    Shapes: ``query`` ``(T, heads, size)``. None if the annotations do not agree with it or with each other.
    Source: the annotation of vLLM's execute_model that TraceLens reads.
    """
    found = {
        (int(match["tokens"]), int(match["squares"]))
        for text in annotations
        if (match := _STEP.match(text)) and len(text) < 200
    }
    if len(found) != 1:
        return None
    tokens, squares = next(iter(found))
    if tokens != query[0] or not tokens <= squares <= tokens * tokens:
        return None
    return (("attended_pairs", (squares + tokens) // 2), ("kv_tokens", tokens))
