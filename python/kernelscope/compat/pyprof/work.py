"""What a kernel did: by PyProf's own models, and by kernelscope's, which count the call that launched it."""

import json
import re
from functools import lru_cache
from typing import NamedTuple, cast

from kernelscope.compat.pyprof.markers import UNKNOWN_DTYPE, marker_of
from kernelscope.compat.pyprof.params import Arg, Call, params, plain_params, sizes_params
from kernelscope.compat.pyprof.record import KernelRecord
from kernelscope.costs import Cost, cost_of
from kernelscope.costs.pyprof import Kernel, Marker, PyProfCost, pyprof_cost

NO_MARKER = "na=na,"
"""Parameters of a kernel whose function nothing says."""

# Parts of the short name of a kernel that PyProf takes for one that multiplies, and for tensor cores.
_LINEAR = ("gemm", "gemv", "dot_kernel", "splitKreduce_kernel", "reduce_1Block_kernel", "cutlass")
_BIAS = (
    *("kernelReduceContigDim", "kernelReduceNoncontigDim_shared", "elementwise_kernel", "reduce_kernel"),
    *("kernelPointwiseApply2", "2d_grouped_direct_kernel"),
)
_NO_PRODUCT = ("kernelPointwiseApply2", "reduce_1Block_kernel", "elementwise_kernel", "dot_kernel")
_TENSOR_CORES = (
    *("h884", "s884", "h1688", "s1688", "hmma", "i8816", "16816", "dgrad_1x1_stride_2x2", "conv1x1"),
    *("first_layer_wgrad_kernel", "conv2d_c1_k1", "direct_group", "xmma_implicit_gemm", "xmma_sparse_conv"),
    *("xmma_warp_specialized_implicit_gemm", "xmma_gemm", "xmma_sparse_gemm", "c1688"),
)
_CONVOLUTIONS = frozenset({"conv1d", "conv2d"})
_PRODUCTS = frozenset({"linear", "addmm", "addmm_", "mm", "bmm"})
_INVALID = (LookupError, TypeError, ValueError, ArithmeticError)

_PYTHON = ("torch", "Tensor", "torch.nn.functional")
# Functions of Python whose operator has another name.
_OPERATORS = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "and": "bitwise_and"} | {
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "invert": "bitwise_not",
}
# Places of arguments that are usually given by name.
_NAMED = {
    "conv1d": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    "conv2d": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    "conv3d": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    "linear": ("input", "weight", "bias"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "softmax": ("input", "dim"),
    "log_softmax": ("input", "dim"),
}
# Arguments that change no count.
_IDLE = frozenset(
    {"inplace", "training", "dtype", "out", "reduction", "eps", "momentum", "_stacklevel", "memory_format"}
)


class Counts(NamedTuple):
    """Of a kernel: the name of its function where PyProf changes it, and what it counts.

    ``aborts``: PyProf ends its report at this kernel.
    """

    op: str | None
    params: str
    flops: float | None
    bytes: float | None
    tensor_cores: str
    aborts: bool = False


NOTHING = Counts(None, NO_MARKER, 0, 0, "na")
"""What PyProf prints for a kernel without a marker."""


@lru_cache(maxsize=1 << 14)
def compat_counts(text: str, kernel: Kernel) -> Counts:
    """What PyProf prints for a kernel launched by the function that the marker ``text`` says."""
    marker = marker_of(text)
    if marker is None:
        return NOTHING
    cost = pyprof_cost(marker, kernel)
    is_bias = marker.op == "linear" and not any(part in kernel.name for part in _LINEAR)
    if is_bias and not any(part in kernel.name for part in _BIAS):
        cost = None
    shown, fits = _params(marker, kernel, cost, is_bias=is_bias)
    if cost is None or not fits:
        return Counts(None, shown, None, None, "-", aborts=True)
    flops, moved = float(cost.flops), float(cost.bytes)
    is_fraction = marker.op in _CONVOLUTIONS and cost.flops and "calc_bias_diff" not in kernel.name
    return Counts(
        "bias" if is_bias else None,
        shown,
        flops if is_fraction else cost.flops,
        moved if is_fraction else cost.bytes,
        _compat_tensor_cores(marker, kernel.name, is_bias=is_bias, is_modelled=cost.modelled),
    )


def _params(marker: Marker, kernel: Kernel, cost: PyProfCost | None, *, is_bias: bool) -> tuple[str, bool]:
    """The parameters, and whether they are those of a model."""
    call = Call(marker, kernel)
    try:
        if cost is not None and cost.modelled:
            return params(call, is_bias=is_bias), True
        return plain_params(call), cost is not None
    except _INVALID:
        return NO_MARKER, False


def _compat_tensor_cores(marker: Marker, name: str, *, is_bias: bool, is_modelled: bool) -> str:
    used = any(part in name for part in _TENSOR_CORES)
    if not is_modelled or is_bias:
        return "-"
    if marker.op in _CONVOLUTIONS:
        return "1" if used else "-"
    if marker.op in ("matmul", "__matmul__"):
        return "-" if name in _NO_PRODUCT else str(int(used))
    if marker.op == "forward":
        return str(int(used)) if "gemm" in name else "-"
    return str(int(used)) if marker.op in _PRODUCTS else "-"


@lru_cache(maxsize=1 << 14)
def operator_cost(text: str) -> Cost | None:
    """The cost of the call that a marker says, by kernelscope's own models; null if it is none they know."""
    marker = marker_of(text)
    return None if marker is None else _cost(marker)


def _cost(marker: Marker) -> Cost | None:
    name = _operator(marker)
    args = _ordered(name.rpartition("::")[2], marker)
    if args is None:
        return None
    dims = [_dims(arg) for arg in args]
    types = [_type(arg) for arg in args]
    values = [_value(arg) for arg in args]
    cost = cost_of(name, json.dumps(dims), json.dumps(types), None, json.dumps(values))
    return cost if cost.flops is not None or cost.bytes_read is not None else None


def _operator(marker: Marker) -> str:
    op = marker.op
    if op.startswith("__") and op.endswith("__"):
        op = op[2:-2]
        is_swapped = op[:1] in ("r", "i") and op[1:] in (*_OPERATORS, "add", "sub", "mul", "pow", "matmul")
        op = op[1:] if is_swapped else op
        op = _OPERATORS.get(op, op)
    return f"aten::{op}" if marker.mod in _PYTHON else f"{marker.mod}::{op}"


def _ordered(op: str, marker: Marker) -> list[Arg] | None:
    """The arguments by place; null where one is given by name and its place is not known."""
    places = _NAMED.get(op, ())
    args: list[Arg] = [arg for arg in marker.args if not arg.get("name")]
    for arg in marker.args:
        name = arg.get("name")
        if not name or name in _IDLE:
            continue
        if name not in places:
            return None
        at = places.index(name)
        args += [{"name": "", "type": "NoneType", "value": None}] * (at + 1 - len(args))
        args[at] = arg
    return args


def _dims(arg: Arg) -> object:
    if arg.get("type") == "tensor":
        return list(arg["shape"])
    is_shapes = arg.get("type") == "list" and arg["value"] and isinstance(arg["value"][0], tuple)
    return [list(shape) for shape in arg["value"]] if is_shapes else []


def _type(arg: Arg) -> str:
    if arg.get("type") == "tensor":
        return "" if arg["dtype"] == UNKNOWN_DTYPE else arg["dtype"]
    return "TensorList" if _dims(arg) else "ScalarList" if arg.get("type") in ("list", "tuple") else "Scalar"


def _value(arg: Arg) -> str:
    value = arg.get("value")
    if arg.get("type") == "tensor" or _dims(arg) or isinstance(value, str):
        return ""
    return str(list(cast("tuple[object, ...]", value))) if isinstance(value, tuple) else str(value)


class Work(NamedTuple):
    """What a kernel counts, and the call that the count is of: null if it is the kernel's own."""

    counts: Counts
    call: int | str | None = None


_FAMILIES = frozenset("linear addmm addmm_ mm bmm matmul __matmul__ conv1d conv2d conv3d".split())
_MULTIPLIES = re.compile(r"(?i)gemm|gemv|nvjet|cutlass|cudnn|dgrad|wgrad|xmma|winograd|conv(?!ert)|fft")
_REDUCES = re.compile(r"(?i)splitkreduce|nchwtonhwc|nhwctonchw|offsets|elementwise|generatewinogradtiles")
_UNKNOWN = Counts(None, "", None, None, "na")


def work_of(record: KernelRecord, kernel: Kernel) -> Work:
    """What ``record`` counts.

    The outermost function around it that has a model counts as the call: what it calls is part of it. A
    kernel of the backward pass that lies in operators with sizes is counted by these, otherwise by its
    forward function.
    """
    texts = [text for text in record.markers if marker_of(text) is not None]
    if not texts:
        return Work(_UNKNOWN)
    shown = compat_counts(texts[0], kernel)
    sizes = _sizes(texts[0])
    inputs = sizes if sizes is not None else shown.params.replace(NO_MARKER, "")
    shown = shown._replace(params=inputs, tensor_cores="na")
    # Only ranges have rows, and only those of operators are work of the backward pass itself.
    is_own = bool(record.calls) or not record.is_backward
    if record.is_backward and not is_own:
        return Work(_of_gradient(texts[0], kernel, shown))
    for at, text in enumerate(texts):
        cost = operator_cost(text)
        if cost is not None:
            call = record.calls[at] if at < len(record.calls) else text
            return Work(shown._replace(flops=cost.flops, bytes=_moved(cost)), call)
    return Work(shown._replace(flops=None, bytes=None))


@lru_cache(maxsize=1 << 14)
def _sizes(text: str) -> str | None:
    """The sizes of the inputs, for an operator of PyTorch's own ranges."""
    marker = marker_of(text)
    return None if marker is None or marker.mod in _PYTHON else sizes_params(marker)


def _moved(cost: Cost) -> int | None:
    known = cost.bytes_read is not None and cost.bytes_written is not None
    return (cost.bytes_read or 0) + (cost.bytes_written or 0) if known else None


def _of_gradient(text: str, kernel: Kernel, shown: Counts) -> Counts:
    """A gradient of a product is a product of the same size; of other functions PyProf's model is taken."""
    marker = marker_of(text)
    unknown = shown._replace(flops=None, bytes=None)
    if marker is None:
        return unknown
    if marker.op not in _FAMILIES:
        modelled = pyprof_cost(marker, kernel)
        return shown if modelled is not None and modelled.modelled else unknown
    if _REDUCES.search(kernel.name) or not _MULTIPLIES.search(kernel.name):
        return unknown
    # The bias has a gradient of its own.
    cost = _cost(marker._replace(args=marker.args[:2]) if marker.op == "linear" else marker)
    return unknown if cost is None else shown._replace(flops=cost.flops, bytes=_moved(cost))
