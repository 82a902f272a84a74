"""Kernels that Inductor generates with Triton. Their names list the fused operators."""

import re
from math import prod

from kernelscope.costs.bind import Call
from kernelscope.costs.elementwise import PER_ELEMENT, count_by_name
from kernelscope.costs.registry import operator_prefix
from kernelscope.costs.types import Cost, Tensor

_POINTWISE = "triton_poi_fused_"
_KINDS = (_POINTWISE, "triton_red_fused_", "triton_per_fused_")

# FLOPs per element of fused operators that are not pointwise, or that Inductor names otherwise. What a name
# says of products, attention and collectives is the layout of their inputs or results: they are kernels of
# their own.
_OTHERS = {
    0: "_to_copy clone cat view permute expand slice unsqueeze squeeze index select where copy full "
    "scalar_tensor zeros ones arange embedding transpose t constant_pad_nd convolution addmm mm bmm baddbmm "
    "new_zeros zeros_like masked_fill stack split unbind detach select_scatter slice_scatter scatter "
    "index_put fill empty unsafe_index lift_fresh _unsafe_view _unsafe_index alias reshape repeat flip roll "
    "split_with_sizes chunk narrow flatten contiguous to type_as ones_like full_like new_ones new_full "
    "new_empty empty_like lift_fresh_copy slice_backward select_backward index_select gather tril triu "
    "view_as_real view_as_complex real imag reflection_pad2d replication_pad2d pixel_shuffle "
    "pixel_unshuffle upsample_nearest2d unfold linear matmul _scaled_mm scaled_dot_product_attention "
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_backward "
    "_scaled_dot_product_efficient_attention_backward convolution_backward convert_element_type "
    "broadcast_in_dim inductor_random inductor_lookup_seed inductor_seeds rand randn moe_forward "
    "moe_forward_shared unified_attention unified_attention_with_output all_reduce "
    "all_gather_into_tensor reduce_scatter_tensor wait_tensor as_strided diagonal unflatten movedim "
    "broadcast_tensors view_as masked_select_backward _unsafe_masked_index randint bernoulli normal uniform "
    "_flash_attention_forward _efficient_attention_forward _flash_attention_backward "
    "_efficient_attention_backward reflection_pad1d replication_pad1d replication_pad3d upsample_nearest1d "
    "upsample_nearest3d empty_strided new_empty_strided native_channel_shuffle channel_shuffle rot90",
    1: "sum mean amax amin max min argmax any all cumsum prod nll_loss_forward nll_loss_backward "
    "max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d embedding_dense_backward "
    "native_dropout_backward scatter_add index_add _unsafe_masked_index_put_accumulate "
    "upsample_nearest2d_backward",
    2: "native_dropout linalg_vector_norm",
    4: "var_mean var _fused_rms_norm rms_norm _softmax_backward_data _log_softmax_backward_data",
    5: "_softmax _log_softmax softmax prepare_softmax_online gelu",
    8: "native_layer_norm layer_norm _native_batch_norm_legit_functional native_group_norm group_norm "
    "_native_batch_norm_legit_no_training _native_batch_norm_legit native_batch_norm cudnn_batch_norm "
    "miopen_batch_norm batch_norm",
    13: "native_layer_norm_backward native_batch_norm_backward native_group_norm_backward "
    "_fused_rms_norm_backward",
}
_FUSED = PER_ELEMENT | count_by_name(_OTHERS)

# Operators whose every iteration reads a window of an input: its size is not known.
_WINDOWS = re.compile(r"pool|fold|grid_sampler|upsample_[a-z0-9]+_backward|tion_pad\dd_backward")
# Reductions over fewer elements than these are unrolled into a pointwise kernel.
_UNROLLED = 8
_REDUCTIONS = frozenset("sum mean amax amin max min argmax any all prod var_mean linalg_vector_norm".split())
_ACTIVATIONS = frozenset("silu sigmoid gelu relu tanh silu_backward gelu_backward".split())


def _known(part: str) -> int | None:
    return _FUSED.get(f"aten::{part}")


def fused_operators(name: str) -> list[str] | None:
    """Returns the operators in a kernel's name, matching long names first, or None if some part is unknown.

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
        for end in range(min(len(words), start + 10), start, -1):
            part = "_".join(words[start:end])
            if _known(part) is not None:
                found.append(part)
                start = end
                break
        else:
            # What is left of a name in place, such as copy_.
            if words[start]:
                return None
            start += 1
    return found


def iterations(call: Call, tensors: list[Tensor]) -> int | None:
    """Returns the number of loop iterations of a generated kernel, or None if it was not recorded.

    The loop sizes are the last recorded numbers: up to three for a pointwise kernel; for a reduction, the
    last ones are the reduced sizes. Other numbers (dynamic sizes) may precede them. So the function takes as
    many as are needed to give the size of one of the tensors.

    Source: torch/_inductor/codegen/triton.py (add_numel_to_call_args).
    """
    sizes: list[int] = []
    for arg in reversed(call.args):
        if type(arg) is not int or arg < 1:
            break
        sizes.append(arg)
    least = 1 if call.name.startswith(_POINTWISE) else 2
    elements = {tensor.numel for tensor in tensors}
    for count in range(min(len(sizes), least + 2), least - 1, -1):
        # A reduction has its result's size without the loops that it sums over.
        results = {prod(sizes[:count]), *(prod(sizes[inner:count]) for inner in range(1, least))}
        if results & elements:
            return prod(sizes[:count])
    return prod(sizes) if len(sizes) == least else None


def _largest(call: Call, tensors: list[Tensor]) -> int:
    """The iterations of a kernel whose loops were not recorded: as many as the largest tensor has elements.

    Raises: ShapeError: an input is larger than all others together, which only a part of it can be read for.
    """
    sizes = [tensor.numel for tensor in tensors]
    is_partly_read = max(sizes[1:-1], default=0) > sum(sizes) - max(sizes)
    if call.values_recorded and is_partly_read and call.name.startswith(_POINTWISE):
        call.fail("the sizes of its loops were not recorded, and it does not read all of its inputs")
    return max(sizes)


def _reads(name: str, parts: list[str] | None, times: int, x: Tensor) -> int:
    """How many elements of the input ``x`` a kernel of ``times`` iterations can read at most."""
    if _WINDOWS.search(name):
        return x.touched
    known, each = set(parts or ()), x.numel // max(times, 1)
    is_unrolled = name.startswith(_POINTWISE) and each < _UNROLLED and known & _REDUCTIONS
    # Both halves of a gated activation lie in one tensor.
    is_gated = each == 2 and "mul" in known and known & _ACTIVATIONS
    if x.numel == each * times and (is_unrolled or is_gated):
        return x.touched
    return min(x.touched, times)


@operator_prefix(*_KINDS)
def _inductor(call: Call) -> Cost:
    """A generated kernel, recorded with its tensors and, behind them, the sizes of its loops.

    Formula: FLOPs per element of each operator in the name, times the iterations. An iteration reads an
    element of each tensor and writes one, so that of a slice no more counts than its size. Tensors that are
    written come last, and one is taken to be; one that is read and written comes first. Without the sizes of
    the loops whole tensors count.
    Source: torch/_inductor/codegen/triton.py (names), torch/_inductor/runtime/triton_heuristics.py (inputs).
    Example: add, cos and sin over (10, 10) float32 with two inputs: 300 FLOP, reads 800, writes 400.
    """
    tensors = [arg for arg in call.args if isinstance(arg, Tensor)]
    if not tensors:
        call.fail("no tensor was recorded")
    parts = fused_operators(call.name)
    times = iterations(call, tensors) or _largest(call, tensors)
    *inputs, out = tensors
    if call.name.startswith(_POINTWISE) and tensors[0].numel == times > out.numel:
        # Every iteration writes an element: one tensor is read and written, and such come first.
        inputs, out = tensors, tensors[0]
    read = sum(_reads(call.name, parts, times, x) * x.dtype.bytes for x in inputs or [out])
    written = min(out.numel, times) * out.dtype.bytes
    if not parts:
        note = "the kernel name does not list the fused operators"
        return Cost(None, read, written, tensors[0].dtype, "estimate", note)
    flops = times * sum(_known(part) or 0 for part in parts)
    note = "from the operators in the kernel name; the last tensor is assumed to be written"
    return Cost(flops, read, written, tensors[0].dtype, "estimate", note)
