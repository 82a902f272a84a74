"""Parameters of a kernel's function, and its cost by PyProf's own models and by kernelscope's.

kernelscope's models count the call that launched the kernel.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, cast

from kernelscope.compat.pyprof.markers import UNKNOWN_DTYPE, Meaning, marker_of
from kernelscope.costs import Cost, cost_of
from kernelscope.costs.pyprof import Kernel, Marker, PyProfCost, pyprof_cost

_SHORT = {
    **dict.fromkeys(("float16", "half"), "fp16"),
    **dict.fromkeys(("float32", "float"), "fp32"),
    **dict.fromkeys(("float64", "double"), "fp64"),
    **dict.fromkeys(("byte", "char"), "uint8"),
    "bfloat16": "bf16",
    "int": "int32",
    "short": "int16",
    "long": "int64",
    UNKNOWN_DTYPE: "",
}
_TENSOR_ONLY = (
    "celu elu elu_ hardshrink hardtanh hardtanh_ leaky_relu leaky_relu_ logsigmoid prelu relu relu_ relu6 "
    "rrelu rrelu_ selu softplus softshrink softsign tanhshrink threshold threshold_ softmax log_softmax "
    "dropout batch_norm mean zero_ zeros_like ones_like fill_ "
    "byte char double float half int long short to".split()
)
_SIZED = "sum norm reshape gather masked_scatter_ nonzero clone contiguous any".split()
_PRODUCTS = "mm addmm addmm_ bmm".split()

Arg = Mapping[str, Any]


class Call:
    """A function with its arguments, and the kernel that it launched."""

    def __init__(self, marker: Marker, kernel: Kernel) -> None:
        self.op, self.mod, self.args, self.kernel = marker.op, marker.mod, marker.args, kernel
        self.tensors = [arg for arg in marker.args if arg.get("type") == "tensor"]
        self.unnamed = [arg for arg in marker.args if not arg.get("name")]

    def option(self, name: str, place: int, default: int) -> tuple[int, ...]:
        """Returns a number or tuple by its position among the unnamed arguments, or by name."""
        found = self.unnamed[place : place + 1] or [arg for arg in self.args if arg.get("name") == name]
        return _whole(found[0]["value"]) if found else (default,)


def params(call: Call, *, is_bias: bool = False) -> str:
    """Returns the text of the column for a function with a PyProf model; ``is_bias`` for a bias kernel.

    Raises: LookupError, TypeError, ValueError: the arguments do not match the function.
    """
    if call.op == "linear":
        return _linear(call, is_bias=is_bias)
    return _PARAMS.get(call.op, _operands)(call)


def _operands(call: Call) -> str:
    return ";".join(map(_text, call.tensors if call.op in ("cat", "embedding") else call.unnamed))


def plain_params(call: Call) -> str:
    """Returns the text for a function without a model: the shapes and types of its tensors."""
    shapes, types = [arg["shape"] for arg in call.tensors], [arg["dtype"] for arg in call.tensors]
    return f"T={shapes},{types}".replace(" ", "")


def sizes_params(marker: Marker) -> str | None:
    """Returns ``[2,3];[3,4]`` if only the sizes of the inputs are known, or null if their types are, too."""
    shapes: list[object] = []
    for arg in marker.args:
        if arg.get("type") == "tensor" and arg["dtype"] != UNKNOWN_DTYPE:
            return None
        shapes += [arg["shape"]] if arg.get("type") == "tensor" else _shapes(arg)
    return ";".join(str(list(cast("tuple[int, ...]", shape))).replace(" ", "") for shape in shapes)


def _shapes(arg: Arg) -> list[object]:
    """The shapes of a list of tensors."""
    return list(arg["value"]) if arg.get("type") == "list" else []


def _whole(value: object) -> tuple[int, ...]:
    """A number, or several. Raises: TypeError: it is neither."""
    values = cast("Sequence[object]", value) if isinstance(value, (tuple, list)) else (value,)
    if not all(isinstance(number, int) for number in values):
        raise TypeError(f"{value!r} is not a whole number")
    return tuple(cast("Sequence[int]", values))


def _dtype(name: str) -> str:
    return _SHORT.get(name, name)


def _text(arg: Arg) -> str:
    """``[8,64]fp16`` for a tensor, ``[]int32`` for a number."""
    if arg["type"] == "tensor":
        return f"[{','.join(map(str, arg['shape']))}]{_dtype(arg['dtype'])}"
    if arg["type"] not in ("int", "float"):
        raise ValueError(f"a {arg['type']} is not an operand")
    return f"[]{_dtype(arg['type'])}"


def _shape(shape: object) -> str:
    return str(shape).replace(" ", "")


def _sized(arg: Arg) -> str:
    return f"T={_shape(arg['shape'])},{_dtype(arg['dtype'])},"


def _pairs(dtype: str, **sizes: object) -> str:
    return "".join(f"{key}={_shape(value)}," for key, value in sizes.items()) + f"{_dtype(dtype)},"


def _linear(call: Call, *, is_bias: bool) -> str:
    x, w = call.tensors[:2]
    rows = x["shape"][:-1]
    n: Any = rows[0] if len(rows) == 1 else tuple(rows)
    m, k = w["shape"]
    if is_bias:
        return _pairs(x["dtype"], M=m, N=n)
    if call.kernel.backward and call.kernel.sub > 1:
        return _pairs(x["dtype"], X=x["shape"], W=w["shape"])
    if call.kernel.backward:
        m, n, k = (k, n, m) if call.kernel.sub == 0 else (k, m, n)
    return _pairs(x["dtype"], M=m, N=n, K=k)


def _product(call: Call) -> str:
    """Sizes as a library that stores columns one after the other sees them."""
    a, b = call.tensors[-2:]
    batch = {"B": prod(a["shape"][:-2])} if call.op == "bmm" else {}
    return _pairs(a["dtype"], **batch, M=b["shape"][-1], N=a["shape"][-2], K=a["shape"][-1])


def _matmul(call: Call) -> str:
    a, b = call.tensors
    return _pairs(a["dtype"], A=tuple(a["shape"]), B=tuple(b["shape"]))


def _convolution(call: Call) -> str:
    x, w = call.tensors[:2]
    (n, c, *space), (k, _, *window) = x["shape"], w["shape"]
    rank = len(space)
    stride, padding, dilation = (
        values * rank if len(values) == 1 else values
        for values in (
            call.option("stride", 3, 1),
            call.option("padding", 4, 0),
            call.option("dilation", 5, 1),
        )
    )
    out = [
        int(1 + (size + 2 * pad - ((r - 1) * d + 1)) / step)
        for size, r, step, pad, d in zip(space, window, stride, padding, dilation, strict=True)
    ]
    # One dimension is the second of two.
    if rank == 1:
        space, out, window = [1, *space], [1, *out], [1, *window]
        padding, stride, dilation = (0, *padding), (1, *stride), (1, *dilation)
    names = dict(
        zip(("N", "C", "H", "W", "K", "P", "Q", "R", "S"), (n, c, *space, k, *out, *window), strict=True)
    )
    rest = dict(zip(("ph", "pw", "U", "V", "dh", "dw"), (*padding, *stride, *dilation), strict=True))
    return _pairs(x["dtype"], **names, **rest, g=call.option("groups", 6, 1)[0])


def _cell(call: Call) -> str:
    """Forward by the place: input product, recurrent product, gates; backward by the kernel's tile."""
    x, state = call.tensors[:2]
    (batch, size), hidden = x["shape"], state["shape"][1]
    rows = {"LSTMCell": 4, "GRUCell": 3}.get(call.mod, 1) * hidden
    kernel = call.kernel
    if not kernel.backward and kernel.sub % 3 < 2:
        name, inner = (("layer", size), ("recur", hidden))[kernel.sub % 3]
        return _pairs(x["dtype"], gemm=name, M=rows, N=batch, K=inner)
    tile = re.search(r"(\d+)x\d+", kernel.name)
    m = int(tile[1]) * kernel.grid_x if tile and kernel.backward and "gemm" in kernel.name else None
    n, k = (batch, rows) if kernel.name.endswith("_nn") else (rows, batch)
    if m in (hidden, size) and kernel.name.endswith(("_nn", "_nt")):
        return _pairs(x["dtype"], gemm="recur" if m == hidden else "layer", M=m, N=n, K=k)
    return _pairs(x["dtype"], cell=call.mod, X=size, H=hidden, B=batch)


def _mse_loss(call: Call) -> str:
    x = call.tensors[0]
    reduction = [arg["value"] for arg in call.args if arg.get("type") == "str"]
    return f"{_sized(x)}red={reduction[0] if reduction else 'mean'},"


def _index_select(call: Call) -> str:
    t, index = call.tensors[:2]
    return _pairs(t["dtype"], T=t["shape"], D=call.args[1]["value"], I=index["shape"][0])


def _masked_select(call: Call) -> str:
    t, mask = call.tensors[:2]
    return _pairs(t["dtype"], T=t["shape"], M=mask["shape"])


def _copy(call: Call) -> str:
    to, source = call.args[:2]
    kind = source["dtype"] if source["type"] == "tensor" else source["type"]
    return f"T={_shape(to['shape'])},{_dtype(kind)},{_dtype(to['dtype'])},"


def _adam(call: Call) -> str:
    weights, gradients = call.tensors[0], call.tensors[4]
    return f"{_sized(weights)}{_dtype(gradients['dtype'])},"


def _randperm(call: Call) -> str:
    return f"N={call.args[0]['value']},"


def _filled(call: Call) -> str:
    """``zeros((3, 4))`` and ``zeros(3, 4)``: float32 unless a whole number fills it."""
    sizes = call.args[:1] if call.args[0]["type"] in ("tuple", "list") else call.unnamed
    shape = [size for arg in sizes for size in _whole(arg["value"])]
    kind = call.args[1]["type"] if call.op == "full" else "float"
    return _text({"type": "tensor", "shape": shape, "dtype": kind})


_PARAMS: Mapping[str, Callable[[Call], str]] = {
    **dict.fromkeys(_TENSOR_ONLY, lambda call: _text(call.tensors[0])),
    **dict.fromkeys(_SIZED, lambda call: _sized(call.tensors[0])),
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(("conv1d", "conv2d"), _convolution),
    **dict.fromkeys(("matmul", "__matmul__"), _matmul),
    **dict.fromkeys(("zeros", "ones", "full"), _filled),
    "forward": _cell,
    "mse_loss": _mse_loss,
    "index_select": _index_select,
    "masked_select": _masked_select,
    "copy_": _copy,
    "adam": _adam,
    "randperm": _randperm,
}


NO_MARKER = "na=na,"
"""Parameters of a kernel with an unknown function."""

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
_INVALID = (LookupError, TypeError, ValueError, ArithmeticError)

_PYTHON = ("torch", "Tensor", "torch.nn.functional")
# Functions of Python whose operator has another name.
_OPERATORS = {
    "cross_entropy": "cross_entropy_loss",
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and": "bitwise_and",
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
    **dict.fromkeys(("add", "add_", "sub", "sub_"), ("input", "other", "alpha")),
    **dict.fromkeys(("addcmul", "addcmul_", "addcdiv", "addcdiv_"), ("input", "tensor1", "tensor2", "value")),
    **dict.fromkeys(("lerp", "lerp_"), ("input", "end", "weight")),
    **dict.fromkeys(("addmm", "addmm_"), ("input", "mat1", "mat2", "beta", "alpha")),
    **dict.fromkeys(("sum", "mean"), ("input", "dim", "keepdim")),
    **dict.fromkeys(
        ("max_pool1d", "max_pool2d", "max_pool3d"),
        ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    ),
    "cross_entropy_loss": ("input", "target", "weight"),
    "layer_norm": ("input", "normalized_shape", "weight", "bias", "eps"),
    "softmax": ("input", "dim"),
    "log_softmax": ("input", "dim"),
}
# Arguments that change no count.
_IDLE = frozenset(
    "inplace training dtype out reduction eps momentum _stacklevel memory_format return_indices size_average "
    "ignore_index reduce label_smoothing".split()
)


class Counts(NamedTuple):
    """Counts of a kernel, and the name of its function if PyProf changes it.

    ``aborts``: PyProf ends its report at this kernel.
    """

    op: str | None
    params: str
    flops: float | None
    bytes: float | None
    tensor_cores: str
    aborts: bool = False


_NOTHING = Counts(None, NO_MARKER, 0, 0, "na")


@lru_cache(maxsize=1 << 14)
def compat_counts(text: str, kernel: Kernel) -> Counts:
    """Returns PyProf's output for a kernel launched by the function in the marker ``text``."""
    marker = marker_of(text)
    if marker is None:
        return _NOTHING
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
    return str(int(used)) if marker.op == "linear" or marker.op in _PRODUCTS else "-"


@lru_cache(maxsize=1 << 14)
def operator_cost(text: str) -> Cost | None:
    """Returns the cost of the call in a marker by kernelscope's own models, or None if no model knows it."""
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
    """Cost of a kernel, and the call that the cost belongs to: null if it is the kernel's own.

    ``place`` is the position of its range in the stack, ``text`` its marker if there are no ranges.
    """

    counts: Counts
    place: int | None = None
    text: str | None = None


_FAMILIES = frozenset("linear addmm addmm_ mm bmm matmul __matmul__ conv1d conv2d conv3d".split())
_MULTIPLIES = re.compile(r"(?i)gemm|gemv|nvjet|cutlass|cudnn|dgrad|wgrad|xmma|winograd|conv(?!ert)|fft")
_REDUCES = re.compile(r"(?i)splitkreduce|nchwtonhwc|nhwctonchw|offsets|elementwise|generatewinogradtiles")
_BIAS_GRADIENT = "calc_bias_diff"
_UNKNOWN = Counts(None, "", None, None, "na")


def compat_work_of(meaning: Meaning, kernel: Kernel) -> Work:
    """Returns PyProf's output for a kernel whose launch has the context ``meaning``."""
    return Work(compat_counts(meaning.arguments[0], kernel) if meaning.arguments else _NOTHING)


def work_of(meaning: Meaning, kernel: Kernel) -> Work:
    """Returns the cost of a kernel whose launch has the context ``meaning``.

    The outermost enclosing function with a model counts as the call, and functions that it calls are part of
    it. A backward kernel inside operators with sizes is counted by these, otherwise by its forward function.
    """
    texts = [text for text in meaning.arguments if marker_of(text) is not None]
    if not texts:
        return Work(_UNKNOWN)
    shown = compat_counts(texts[0], kernel)
    sizes = _sizes(texts[0])
    inputs = sizes if sizes is not None else shown.params.replace(NO_MARKER, "")
    shown = shown._replace(params=inputs, tensor_cores="na")
    # Only ranges have places, and only those of operators are work of the backward pass itself.
    if meaning.is_backward and not meaning.calls:
        return Work(_of_gradient(texts[0], kernel, shown))
    for at, text in enumerate(texts):
        cost = operator_cost(text)
        if cost is not None:
            counts = shown._replace(flops=cost.flops, bytes=_moved(cost))
            return Work(counts, meaning.calls[at]) if meaning.calls else Work(counts, text=text)
    return Work(_as_pyprof(texts[0], kernel, shown))


def _as_pyprof(text: str, kernel: Kernel, shown: Counts) -> Counts:
    """What PyProf's own model of a function counts at this kernel; nothing where it has none."""
    marker = marker_of(text)
    modelled = None if marker is None else pyprof_cost(marker, kernel)
    if modelled is None or not modelled.modelled or shown.aborts:
        return shown._replace(flops=None, bytes=None)
    # Of convolutions PyProf prints fractions.
    return shown._replace(flops=modelled.flops, bytes=modelled.bytes)


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
    if marker.op not in _FAMILIES or kernel.name.startswith(_BIAS_GRADIENT):
        return _as_pyprof(text, kernel, shown)
    if _REDUCES.search(kernel.name) or not _MULTIPLIES.search(kernel.name):
        return unknown
    # The bias has a gradient of its own.
    cost = _cost(marker._replace(args=marker.args[:2]) if marker.op == "linear" else marker)
    return unknown if cost is None else shown._replace(flops=cost.flops, bytes=_moved(cost))
