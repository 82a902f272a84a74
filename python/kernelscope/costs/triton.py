"""Kernels that Inductor generates with Triton: their names list the operators that were fused."""

from kernelscope.costs.bind import Call
from kernelscope.costs.elementwise import PER_ELEMENT, count_by_name
from kernelscope.costs.registry import operator_prefix
from kernelscope.costs.types import Cost, Tensor

_KINDS = ("triton_poi_fused_", "triton_red_fused_", "triton_per_fused_")

# FLOPs per element of fused operators that are not pointwise, or that Inductor names otherwise.
_OTHERS = {
    0: "_to_copy clone cat view permute expand slice unsqueeze squeeze index select where copy full "
    "scalar_tensor zeros ones arange embedding transpose t constant_pad_nd convolution addmm mm bmm "
    "new_zeros zeros_like masked_fill stack split unbind detach select_scatter slice_scatter scatter "
    "index_put fill empty unsafe_index lift_fresh _unsafe_view _unsafe_index alias reshape repeat flip roll",
    1: "sum mean amax amin max min argmax any all",
    2: "native_dropout",
    4: "var_mean var _fused_rms_norm _softmax_backward_data",
    5: "_softmax _log_softmax gelu",
    8: "native_layer_norm _native_batch_norm_legit_functional native_group_norm",
    13: "native_layer_norm_backward native_batch_norm_backward",
}
_FUSED = PER_ELEMENT | count_by_name(_OTHERS)


def _known(part: str) -> int | None:
    return _FUSED.get(f"aten::{part}")


def fused_operators(name: str) -> list[str] | None:
    """The operators in a kernel's name, longest names first matched; None if some part is not known.

    Example: ``triton_poi_fused_add_cos_sin_0`` gives add, cos, sin.
    """
    kind = next((kind for kind in _KINDS if name.startswith(kind)), None)
    if kind is None:
        return None
    words = name[len(kind) :].split("_")
    if words and words[-1].isdigit():
        words.pop()
    found: list[str] = []
    start = 0
    while start < len(words):
        for end in range(min(len(words), start + 8), start, -1):
            part = "_".join(words[start:end])
            if _known(part) is not None:
                found.append(part)
                start = end
                break
        else:
            return None
    return found


@operator_prefix(*_KINDS)
def _inductor(call: Call) -> Cost:
    """A generated kernel, recorded with its tensors and, behind them, the sizes of its loops.

    Formula: FLOPs per element of each operator in the name, times the largest tensor's elements. Every
    tensor is touched once; those that are written come last, and one is taken to be.
    Source: torch/_inductor/codegen/triton.py (names), torch/_inductor/runtime/triton_heuristics.py (inputs).
    Example: add, cos and sin over (10, 10) float32 with two inputs: 300 FLOP, reads 800, writes 400.
    """
    tensors = [arg for arg in call.args if isinstance(arg, Tensor)]
    if not tensors:
        call.fail("no tensor was recorded")
    parts = fused_operators(call.name)
    size = max(t.numel for t in tensors)
    *inputs, out = tensors
    read = sum(t.read for t in inputs) if inputs else out.read
    if parts is None:
        return Cost(None, read, out.nbytes, tensors[0].dtype, "estimate", "not all fused operators are known")
    flops = size * sum(_known(part) or 0 for part in parts)
    note = "from the operators in the kernel's name; the last tensor is taken as the one written"
    return Cost(flops, read, out.nbytes, tensors[0].dtype, "estimate", note)
