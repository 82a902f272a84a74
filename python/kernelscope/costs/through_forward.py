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
    "attention_libraries": (5, 2),
}


FAMILIES = frozenset(_PRODUCTS)
"""Families whose gradients can be estimated from the forward."""


def gradient_cost(forward: Cost, family: str) -> Cost | None:
    """Returns an estimate of the gradient's cost, or None if the family does not allow one.

    Formula: FLOPs twice the forward's (attention: 5/2). Reads the forward's inputs and a gradient of the size
        of its result; writes gradients of the size of the inputs.
    Source: torch/utils/flop_counter.py (conv_backward_flop, sdpa_backward_flop).
    Example: a product of 32768 FLOP that reads 5120 and writes 512 bytes: 65536 FLOP, reads 5632, writes
        5120.
    """
    ratio = _PRODUCTS.get(family)
    if ratio is None or forward.flops is None:
        return None
    flops = forward.flops * ratio[0] // ratio[1]
    note = "from the forward operator, both gradients"
    if forward.bytes_read is None or forward.bytes_written is None:
        return Cost(flops, None, None, forward.dtype, "unknown_dtype", note, forward.model)
    read, written = forward.bytes_read + forward.bytes_written, forward.bytes_read
    return Cost(flops, read, written, forward.dtype, "estimate", note, forward.model)
