"""The convention of NVIDIA's PyProf, including its known errors, for comparison with its reports.

PyProf counts kernels, not operators. The count of a kernel depends on the marker of the launching function,
the kernel's name, the direction and its index among the kernels of the function. The table maps functions to
models and counts per element. Functions without a model have 0.
"""

import ast
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from kernelscope.costs import pyprof_models as models
from kernelscope.costs.bind import Call
from kernelscope.costs.pyprof_models import Inputs, Kernel, PyProfCost
from kernelscope.costs.registry import Function
from kernelscope.costs.types import Cost, ShapeError, Tensor

__all__ = ["Kernel", "Marker", "PyProfCost", "parse_marker", "pyprof_cost"]


class Marker(NamedTuple):
    """A marker's module, function and arguments, as ``pyprof.nvtx`` wrote them."""

    mod: str
    op: str
    args: tuple[Mapping[str, Any], ...]


def parse_marker(text: str) -> Marker | None:
    """Parses the marker in ``text``, a Python dictionary as text, or returns None.

    Only literals are parsed.
    """
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    fields = cast("dict[object, object]", value)
    mod, op, args = fields.get("mod"), fields.get("op"), fields.get("args")
    if not isinstance(mod, str) or not isinstance(op, str) or not isinstance(args, list):
        return None
    entries = [cast("dict[str, Any]", arg) for arg in cast("list[object]", args) if isinstance(arg, dict)]
    return Marker(mod, op, tuple(entries))


def pyprof_cost(marker: Marker, kernel: Kernel) -> PyProfCost | None:
    """FLOPs and bytes that PyProf prints for a kernel, or None if it aborts its report.

    Example: ``linear`` of (8, 64) by (32, 64) in float16 under a GEMM kernel: 32768 FLOP, 3328 bytes.
    """
    gates = _CELLS.get(marker.mod) if marker.op == "forward" else None
    model = _Model(partial(models.cell, gates=gates)) if gates else _MODELS.get(marker.op)
    if model is None or (model.mods and marker.mod not in model.mods):
        return None if model and model.aborts else PyProfCost(0, 0, modelled=False)
    try:
        return model.function(Inputs(marker.op, marker.args), kernel)
    except (ShapeError, LookupError, ValueError, TypeError, ArithmeticError):
        return None


class _Model(NamedTuple):
    """A model; ``mods`` are the modules it takes (none named: all), and elsewhere it ``aborts`` or is
    passed by.
    """

    function: Callable[[Inputs, Kernel], PyProfCost]
    mods: frozenset[str] = frozenset()
    aborts: bool = True


_FUNCTIONAL = frozenset({"torch.nn.functional"})
_TORCH = frozenset({"torch"})
_TENSOR = frozenset({"Tensor"})

_SIMPLE = "abs neg reciprocal ceil clamp floor frac round sign trunc"
_CURVES = (
    "exp exp1m log log10 log1p log2 rsqrt sqrt acos asin atan cos cosh sin sinh tan "
    "sigmoid tanh erf erfc erfinv"
)
_ARITHMETIC = "add div mul remainder sub fmod"
_DUNDERS = (
    "add sub mul floordiv truediv mod radd rsub rmul rdiv rtruediv rfloordiv iadd isub "
    "imul itruediv and or xor "
    "lshift rshift iand ior ixor ilshift irshift"
)
_COMPARISONS = "lt gt ge le eq ne"
_ACTIVATIONS = (
    "celu elu elu_ hardshrink hardtanh hardtanh_ leaky_relu leaky_relu_ logsigmoid prelu "
    "relu relu_ relu6 rrelu "
    "rrelu_ selu softplus softshrink softsign tanhshrink threshold threshold_"
)


def _both(names: str) -> list[str]:
    """The names and their in-place forms."""
    return [form for name in names.split() for form in (name, f"{name}_")]


def _dunder(names: str) -> list[str]:
    return [f"__{name}__" for name in names.split()]


def _table() -> Mapping[str, _Model]:
    unary = _Model(partial(models.unary, per_element=1))
    binary = _Model(partial(models.binary, per_element=1))
    power = _Model(partial(models.binary, per_element=20))
    compare = _Model(partial(models.binary, per_element=1, bool_out=True))
    moves, convert = _Model(models.moves), _Model(models.convert, _TENSOR, aborts=False)
    return {
        **dict.fromkeys([*_both(_SIMPLE), *_dunder("abs neg invert")], unary),
        **dict.fromkeys(_both(_CURVES), _Model(partial(models.unary, per_element=20))),
        **dict.fromkeys([*_both(_ARITHMETIC), *_dunder(_DUNDERS)], binary),
        **dict.fromkeys([*_both(_COMPARISONS), *_dunder(_COMPARISONS)], compare),
        **dict.fromkeys(["pow", "pow_", "__pow__", "__rpow__"], power),
        **dict.fromkeys(_both("addcdiv addcmul"), _Model(partial(models.binary, per_element=3))),
        **dict.fromkeys(_ACTIVATIONS.split(), _Model(partial(models.unary, per_element=1, back=3))),
        **dict.fromkeys(["addmm", "addmm_"], _Model(models.mm)),
        **dict.fromkeys(["mm", "bmm"], _Model(models.mm, _TORCH)),
        "matmul": _Model(models.matmul, _TORCH),
        "__matmul__": _Model(models.matmul),
        **dict.fromkeys(["conv1d", "conv2d"], _Model(models.convolution, _FUNCTIONAL)),
        **dict.fromkeys(["sum", "mean", "norm"], _Model(models.reduction)),
        **dict.fromkeys(
            "cat reshape masked_scatter_ gather nonzero index_select masked_select zero_ "
            "zeros_like ones_like zeros "
            "ones fill_ full copy_ contiguous any".split(),
            moves,
        ),
        **dict.fromkeys("byte char double float half int long short to".split(), convert),
        "linear": _Model(models.linear, _FUNCTIONAL),
        "clone": _Model(models.moves, _TENSOR),
        "embedding": _Model(models.embedding, _FUNCTIONAL),
        "dropout": _Model(partial(models.unary, per_element=5), _FUNCTIONAL),
        "softmax": _Model(partial(models.unary, per_element=40, passes=3, back=5), _FUNCTIONAL),
        "log_softmax": _Model(partial(models.unary, per_element=21, passes=3, back=5)),
        "mse_loss": _Model(models.mse_loss, _FUNCTIONAL),
        "batch_norm": _Model(models.batch_norm),
        "adam": _Model(models.adam),
        "randperm": _Model(models.randperm),
    }


_MODELS = _table()
_CELLS = {"LSTMCell": 4, "GRUCell": 3}

# Operators whose function PyProf marks by another name, and whether they are its gradient.
_RENAMED = {
    "_softmax": ("softmax", False),
    "_softmax_backward_data": ("softmax", True),
    "_log_softmax": ("log_softmax", False),
    "_log_softmax_backward_data": ("log_softmax", True),
    "native_batch_norm": ("batch_norm", False),
    "cudnn_batch_norm": ("batch_norm", False),
    "native_batch_norm_backward": ("batch_norm", True),
    "cudnn_batch_norm_backward": ("batch_norm", True),
    "native_dropout": ("dropout", False),
    "threshold_backward": ("relu", True),
}
# It distinguishes products from helpers by these parts of kernels' names.
_PRODUCT_KERNEL = "_s884cudnn_gemm"


def _argument(value: object) -> dict[str, Any] | None:
    if isinstance(value, Tensor):
        return {"name": "", "type": "tensor", "shape": value.shape, "dtype": value.dtype.name}
    kind = next((kind for kind in (int, float, tuple) if isinstance(value, kind)), None)
    return None if kind is None else {"name": "", "type": kind.__name__, "value": value}


def _recorded(call: Call, *, op: str, backward: bool) -> Cost:
    """An operator of a Kineto trace as if its function had been marked and launched one kernel.

    One figure for the traffic: PyProf does not separate reading from writing.
    """
    mod = min(_MODELS[op].mods or {"torch"})
    args = [entry for arg in call.args if (entry := _argument(arg)) is not None]
    cost = pyprof_cost(Marker(mod, op, tuple(args)), Kernel(_PRODUCT_KERNEL, backward=backward))
    if cost is None:
        call.fail("PyProf aborts on these inputs")
    tensors = call.tensors()
    return Cost(cost.flops, cost.bytes, 0, tensors[0].dtype if tensors else None)


OWN: Mapping[str, Function] = {
    **{f"aten::{op}": partial(_recorded, op=op, backward=False) for op in _MODELS if not op.startswith("_")},
    **{
        f"aten::{name}": partial(_recorded, op=op, backward=backward)
        for name, (op, backward) in _RENAMED.items()
    },
}
