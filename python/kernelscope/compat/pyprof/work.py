"""What a kernel did, by kernelscope's own models: the work of the call that launched it."""

import json
import re
from functools import lru_cache
from typing import NamedTuple, cast

from kernelscope.compat.pyprof.counts import NO_MARKER, Counts, compat_counts
from kernelscope.compat.pyprof.markers import UNKNOWN_DTYPE, marker_of
from kernelscope.compat.pyprof.params import Arg, sizes_params
from kernelscope.compat.pyprof.record import KernelRecord
from kernelscope.costs import Cost, cost_of
from kernelscope.costs.pyprof import Kernel, Marker, pyprof_cost

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
    said = sizes if sizes is not None else shown.params.replace(NO_MARKER, "")
    shown = shown._replace(params=said, tensor_cores="na")
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
    if marker is None or marker.op not in _FAMILIES:
        return shown if _is_modelled(text, kernel) else shown._replace(flops=None, bytes=None)
    if _REDUCES.search(kernel.name) or not _MULTIPLIES.search(kernel.name):
        return shown._replace(flops=None, bytes=None)
    # The bias has a gradient of its own.
    bare = marker._replace(args=marker.args[:2]) if marker.op == "linear" else marker
    cost = _cost(bare)
    if cost is None:
        return shown._replace(flops=None, bytes=None)
    return shown._replace(flops=cost.flops, bytes=_moved(cost))


def _is_modelled(text: str, kernel: Kernel) -> bool:
    marker = marker_of(text)
    cost = None if marker is None else pyprof_cost(marker, kernel)
    return cost is not None and cost.modelled
