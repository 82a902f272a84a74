"""The column of parameters: what a function was called with, in the words of its family."""

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, cast

from kernelscope.compat.pyprof.markers import UNKNOWN_DTYPE
from kernelscope.costs.pyprof import Kernel, Marker

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
_TENSOR_ONLY = frozenset(
    "celu elu elu_ hardshrink hardtanh hardtanh_ leaky_relu leaky_relu_ logsigmoid prelu relu relu_ relu6 "
    "rrelu rrelu_ selu softplus softshrink softsign tanhshrink threshold threshold_ softmax log_softmax "
    "dropout batch_norm mean zero_ zeros_like ones_like fill_ "
    "byte char double float half int long short to".split()
)
_SIZED = frozenset("sum norm reshape gather masked_scatter_ nonzero clone contiguous any".split())
_PRODUCTS = frozenset("mm addmm addmm_ bmm".split())

Arg = Mapping[str, Any]


class Call:
    """A function with its arguments, and the kernel that it launched."""

    def __init__(self, marker: Marker, kernel: Kernel) -> None:
        self.op, self.mod, self.args, self.kernel = marker.op, marker.mod, marker.args, kernel
        self.tensors = [arg for arg in marker.args if arg.get("type") == "tensor"]
        self.unnamed = [arg for arg in marker.args if not arg.get("name")]

    def option(self, name: str, place: int, default: int) -> tuple[int, ...]:
        """A number or tuple by its place among the unnamed arguments, or by name."""
        found = self.unnamed[place : place + 1] or [arg for arg in self.args if arg.get("name") == name]
        return _whole(found[0]["value"]) if found else (default,)


def params(call: Call, *, is_bias: bool = False) -> str:
    """The text of the column for a function that PyProf has a model for; ``is_bias``: of a bias kernel.

    Raises: LookupError, TypeError, ValueError: the arguments are not those of the function.
    """
    if call.op == "linear":
        return _linear(call, is_bias=is_bias)
    if call.op in _PRODUCTS:
        return _product(call)
    if call.op in _SPECIAL:
        return _SPECIAL[call.op](call)
    if call.op == "forward":
        return _cell(call)
    if call.op in _SIZED:
        return _sized(call.tensors[0])
    if call.op in _TENSOR_ONLY:
        return _text(call.tensors[0])
    return ";".join(map(_text, call.tensors if call.op in ("cat", "embedding") else call.unnamed))


def plain_params(call: Call) -> str:
    """The text for a function without a model: the shapes and types of its tensors."""
    shapes, types = [arg["shape"] for arg in call.tensors], [arg["dtype"] for arg in call.tensors]
    return f"T={shapes},{types}".replace(" ", "")


def sizes_params(marker: Marker) -> str | None:
    """``[2,3];[3,4]`` where only the sizes of the inputs are known; null where their types are, too."""
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
        raise TypeError(f"{value!r} is no whole number")
    return tuple(cast("Sequence[int]", values))


def _dtype(name: str) -> str:
    return _SHORT.get(name, name)


def _text(arg: Arg) -> str:
    """``[8,64]fp16`` for a tensor, ``[]int32`` for a number."""
    if arg["type"] == "tensor":
        return f"[{','.join(map(str, arg['shape']))}]{_dtype(arg['dtype'])}"
    if arg["type"] not in ("int", "float"):
        raise ValueError(f"a {arg['type']} is no operand")
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


_SPECIAL: Mapping[str, Callable[[Call], str]] = {
    **dict.fromkeys(("conv1d", "conv2d"), _convolution),
    **dict.fromkeys(("matmul", "__matmul__"), _matmul),
    **dict.fromkeys(("zeros", "ones", "full"), _filled),
    "mse_loss": _mse_loss,
    "index_select": _index_select,
    "masked_select": _masked_select,
    "copy_": _copy,
    "adam": _adam,
    "randperm": _randperm,
}
