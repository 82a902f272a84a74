"""Cost of a gradient without recorded inputs, from the cost of its forward operator."""

from kernelscope.costs.types import Cost

# Products of the gradient for each of the forward: two for one; flash attention computes its scores again,
# which makes five for two.
_PRODUCTS = {
    "gemm": (2, 1),
    "convolution": (2, 1),
    "quantized": (2, 1),
    "recurrent": (2, 1),
    "mixture_of_experts": (2, 1),
    "attention": (5, 2),
    "attention_functions": (5, 2),
    "attention_libraries": (5, 2),
}
# Models whose gradients differ from those of their family, if that has any.
_OWN_PRODUCTS = {
    "linear_with_frozen_weight": (1, 1),
    "mamba_2": (2, 1),
    "chunked_attention": (2, 1),
    "pooled_lookup": (2, 1),
}
# Their forward stores the gradients, which the backward multiplies by that of the loss.
_STORED = frozenset({"cross_entropy_function", "linear_cross_entropy"})


FAMILIES = frozenset(_PRODUCTS)
"""Families whose gradients can be estimated from the forward."""

MODELS = _STORED | frozenset(_OWN_PRODUCTS)
"""Further models with such gradients."""


def gradient_cost(forward: Cost, family: str, model: str) -> Cost | None:
    """Returns an estimate of the gradient's cost, or None if neither family nor model allow one.

    Formula: FLOPs twice the forward's (attention: 5/2). Reads the forward's inputs and a gradient of the size
        of its result; writes gradients of the size of the inputs. Losses that store their gradients multiply
        each number of their inputs once.
    Source: torch/utils/flop_counter.py (conv_backward_flop, sdpa_backward_flop).
    Example: a product of 32768 FLOP that reads 5120 and writes 512 bytes: 65536 FLOP, reads 5632, writes
        5120.
    """
    ratio = _OWN_PRODUCTS.get(model, _PRODUCTS.get(family))
    if forward.flops is None or (ratio is None and model not in _STORED):
        return None
    if model in _STORED:
        size = forward.bytes_read
        elements = size // forward.dtype.bytes if size is not None and forward.dtype else None
        note = "from the forward operator, which stores the gradients"
        return (
            Cost(elements, size, size, forward.dtype, "estimate", note, forward.model) if elements else None
        )
    return _by_products(forward, *(ratio or (0, 1)))


def _by_products(forward: Cost, products: int, of: int) -> Cost:
    flops = (forward.flops or 0) * products // of
    note = "from the forward operator, both gradients" if products > of else "from the forward operator"
    if forward.bytes_read is None or forward.bytes_written is None:
        return Cost(flops, None, None, forward.dtype, "unknown_dtype", note, forward.model)
    read, written = forward.bytes_read + forward.bytes_written, forward.bytes_read
    return Cost(flops, read, written, forward.dtype, "estimate", note, forward.model)
