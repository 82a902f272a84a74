"""Parses the texts of NVTX ranges: those around a launch by kind, its pass and operator, and marked calls.

PyTorch numbers the operators that need a gradient. The backward node has the number of its operator. A kernel
may be inside several numbered ranges.
"""

import ast
import re
import warnings
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

import polars as pl
from polars._typing import PolarsDataType

from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.grouping import positions
from kernelscope.costs.pyprof import Marker, parse_marker
from kernelscope.costs.types import find_dtype
from kernelscope.trace import Trace

# Frames of the machinery between a model and an operator. Later versions of torch renamed one of them.
_COMPAT_FRAMES = (
    *("/torch/nn/modules/", "/torch/nn/functional.py", "/torch/tensor.py", "/torch/autograd/__init__.py"),
    *("/torch/_jit_internal.py", "/pyprof/nvtx/nvmarker.py", "/apex/optimizers/", "/torch/_utils.py"),
    "/torch/optim/",
)
_FRAMES = (*_COMPAT_FRAMES, "/torch/_tensor.py", "/kernelscope/capture/")
_SEQUENCE = ", seq = "
UNKNOWN_DTYPE = "unknown"
"""Element type of a tensor with only known sizes."""
_LAYER = "layer:"
# A record holds a call stack and the arguments of a call; a line beyond this is none.
MAX_LINE_CHARS = 4 << 20


class Text(NamedTuple):
    """Text of a range or operator, with the known inputs of an operator.

    ``sizes``, ``types`` and ``values`` are lists as text: PyTorch appends sizes to ranges, and its profiler
    records all three. ``is_numbered`` says that each range with this text has its own sequence number.
    """

    text: str
    sizes: str | None = None
    types: str | None = None
    values: str | None = None
    is_numbered: bool = False


Kind = Literal["ignored", "arguments", "layer", "trace", "repr", "other"]


def kind_of(text: str, *, compat: bool) -> Kind:
    """Returns the kind of a range, by its text."""
    if "CheckpointFunctionBackward" in text:
        return "ignored"
    if _is_arguments(text, compat=compat):
        return "arguments"
    if _LAYER in text if compat else text.startswith(_LAYER):
        return "layer"
    if "traceMarker" in text:
        return "trace"
    return "repr" if "strRepr" in text else "other"


def text_with_number(text: str, number: int | None) -> str:
    """Returns the text as PyTorch wrote it, with its sequence number."""
    return text if number is None else f"{text}{_SEQUENCE}{number}"


class Meaning(NamedTuple):
    """Meaning of the ranges around a launch, each outermost first except ``sequences``.

    ``sequences`` are numbered texts with ``%d`` for the number, which differs between launches. ``calls`` are
    the positions in the stack of the ranges of ``arguments``; ``node`` is the position of the outermost range
    that is a call or a numbered operator.
    """

    layers: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    reprs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    sequences: tuple[str, ...] = ()
    direction: str = "fprop"
    mods: tuple[str, ...] = ("na",)
    ops: tuple[str, ...] = ()
    calls: tuple[int, ...] = ()
    node: int | None = None

    @property
    def is_backward(self) -> bool:
        """Returns whether a kernel with this meaning belongs to the backward pass."""
        return self.direction == "bprop"


class _Numbered(NamedTuple):
    """A numbered text: its place in the stack, its name, and its number if the text itself has it."""

    place: int
    name: str
    number: int | None


class Stack:
    """Texts of the ranges around a launch, outermost first, sorted by kind.

    The numbers determine which numbered texts count, so one stack has several meanings.
    """

    def __init__(self, texts: Sequence[Text], *, compat: bool) -> None:
        self._compat = compat
        self._arguments: list[tuple[int, str]] = []
        self._layers: list[str] = []
        self._trace: list[str] = []
        self._reprs: list[str] = []
        # Each once, in order.
        self._others: dict[str, None] = {}
        self._node: int | None = None
        self.numbered: list[_Numbered] = []
        for place, entry in enumerate(texts):
            self._add(place, entry)
        self._meanings: dict[tuple[int, ...], Meaning] = {}
        self._kept_of_one = self._pruned([0] * len(self.numbered))

    def _add(self, place: int, entry: Text) -> None:
        text, compat = entry.text, self._compat
        kind = kind_of(text, compat=compat)
        if kind == "arguments":
            self._arguments.append((place, text))
            marker = marker_of(text)
            if entry.is_numbered and marker is not None:
                self.numbered.append(_Numbered(place, marker.op, None))
        elif kind == "layer":
            self._layers.append(text.split(":")[1] if compat else text.removeprefix(_LAYER))
        elif kind == "trace":
            # The last stack contains the others.
            self._trace = _frames(text, compat=compat)
        elif kind == "repr":
            self._reprs.append(text)
        elif kind == "other":
            if not compat and (operator := _operator_marker(entry)) is not None:
                self._arguments.append((place, operator))
            numbered = _Numbered(place, text, None) if entry.is_numbered else _numbered_text(place, text)
            if numbered is None:
                self._others[text] = None
            else:
                self.numbered.append(numbered)
                self._node = place if self._node is None else self._node

    def kept(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Returns the positions in ``numbered`` of the texts that count with these ``numbers``, in order."""
        is_one = numbers.count(numbers[0]) == len(numbers) if numbers else True
        return self._kept_of_one if is_one else self._pruned(numbers)

    def _pruned(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """In order of the number as text, without those that repeat the one before: a part of its name."""
        first: dict[tuple[str, int], int] = {}
        for at, (entry, number) in enumerate(zip(self.numbered, numbers, strict=True)):
            first.setdefault((entry.name, number), at)
        ordered = sorted(first, key=lambda entry: f"{entry[1]}{entry[0]}, seq")
        kept = ordered[:1]
        for before, entry in pairwise(ordered):
            is_similar = entry[0] in before[0] or before[0] in entry[0]
            if entry[1] != before[1] or not is_similar:
                kept.append(entry)
        return tuple(first[entry] for entry in kept)

    def meaning(self, kept: tuple[int, ...]) -> Meaning:
        """Returns the meaning of the stack if the texts at ``kept`` count."""
        known = self._meanings.get(kept)
        if known is None:
            known = self._meanings[kept] = self._meaning([self.numbered[at] for at in kept])
        return known

    def _meaning(self, numbered: Sequence[_Numbered]) -> Meaning:
        compat = self._compat
        arguments, others = [text for _, text in self._arguments], list(self._others)
        names = [entry.name for entry in numbered]
        innermost = arguments[-1] if arguments and not compat else ""
        mods, ops = _functions(arguments, names, others, compat=compat)
        calls = tuple(place for place, _ in self._arguments)
        return Meaning(
            layers=_writable(self._layers or marker_module(innermost)),
            trace=_writable(self._trace or marker_frames(innermost)),
            reprs=tuple(self._reprs),
            arguments=tuple(arguments),
            sequences=tuple(f"{name.replace('%', '%%')}{_SEQUENCE}%d" for name in names),
            direction=_direction(names, others, compat=compat),
            mods=_writable(mods),
            ops=_writable(ops),
            calls=calls,
            node=calls[0] if calls else self._node,
        )


def _writable(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts of literals, which may say half a surrogate pair, as they can be written."""
    return tuple(text.encode("utf-8", "replace").decode() for text in texts)


@lru_cache(maxsize=1 << 14)
def marker_of(text: str) -> Marker | None:
    """Parses the function and arguments of a marker text, or returns None."""
    return parse_marker(text)


def parse_literal(text: str) -> object:
    """Parses a Python literal.

    Raises: ValueError: the text is not a literal, or too long or too deep.
    """
    if len(text) > MAX_LINE_CHARS:
        raise ValueError(f"it is longer than {MAX_LINE_CHARS} characters")
    try:
        with warnings.catch_warnings():
            # An unknown escape sequence is read as it stands.
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("it is not a literal") from error


@lru_cache(maxsize=1 << 14)
def _fields(text: str) -> dict[object, object]:
    """The dictionary that a text is; empty if it is none."""
    try:
        value = parse_literal(text)
    except ValueError:
        return {}
    return cast("dict[object, object]", value) if isinstance(value, dict) else {}


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def marker_frames(text: str) -> list[str]:
    """Returns the call stack that ``kernelscope.capture`` adds to a marker, outermost first."""
    return [str(line) for line in _items(_fields(text).get("trace"))]


def marker_module(text: str) -> list[str]:
    """Returns the module that ``kernelscope.capture`` adds to a marker, as one layer, or none."""
    module = _fields(text).get("module")
    return [module] if isinstance(module, str) else []


def _is_arguments(text: str, *, compat: bool) -> bool:
    if compat:
        return all(part in text for part in ("mod", "op", "args", "type"))
    return text.startswith("{") and marker_of(text) is not None


def _operator_marker(entry: Text) -> str | None:
    """The marker of an operator with its inputs, of whose types the ranges of PyTorch say nothing."""
    namespace, separator, op = entry.text.rpartition("::")
    if entry.sizes is None or not separator:
        return None
    args = _arguments(entry.sizes, entry.types, entry.values)
    return None if args is None else repr({"mod": namespace, "op": op, "args": args})


@lru_cache(maxsize=1 << 12)
def _arguments(sizes: str, types: str | None, values: str | None) -> list[dict[str, object]] | None:
    shapes = _list(sizes)
    if shapes is None:
        return None
    known = [
        (_list(text) or [None] * len(shapes)) if text else [None] * len(shapes) for text in (types, values)
    ]
    if any(len(found) != len(shapes) for found in known):
        return None
    return [_argument(*entry) for entry in zip(shapes, *known, strict=True)]


def _list(text: str) -> list[object] | None:
    """The list that a text is; null if it is none."""
    try:
        value = parse_literal(text)
    except ValueError:
        return None
    return cast("list[object]", value) if isinstance(value, list) else None


def _argument(shape: object, dtype: object, value: object) -> dict[str, object]:
    """A tensor, a list of tensors, or what has no sizes: a number, or a tensor without dimensions."""
    sizes = _items(shape)
    found = find_dtype(dtype) if isinstance(dtype, str) else None
    known = UNKNOWN_DTYPE if found is None else found.name
    if sizes and all(isinstance(size, int) for size in sizes):
        return {"name": "", "type": "tensor", "shape": tuple(sizes), "dtype": known}
    if sizes:
        shapes = [tuple(cast("list[object]", shape)) for shape in sizes if isinstance(shape, list)]
        return {"name": "", "type": "list", "value": shapes}
    if isinstance(value, str) and value:
        return _scalar(value)
    if found is not None:
        return {"name": "", "type": "tensor", "shape": (), "dtype": known}
    return {"name": "", "type": "unknown", "value": None}


def _scalar(text: str) -> dict[str, object]:
    """A number, a text or several numbers, as the profiler wrote them."""
    try:
        value = parse_literal(text)
    except ValueError:
        value = text
    value = tuple(cast("list[object]", value)) if isinstance(value, list) else value
    return {"name": "", "type": type(value).__name__, "value": value}


def _numbered_text(place: int, text: str) -> _Numbered | None:
    """A text that says its sequence number itself; null if it says none."""
    name, separator, rest = text.partition(_SEQUENCE)
    digits = rest.partition(",")[0].strip()
    is_number = separator and digits.isdecimal() and len(digits) < 19
    return _Numbered(place, name, int(digits)) if is_number else None


def _frames(text: str, *, compat: bool) -> list[str]:
    hidden = _COMPAT_FRAMES if compat else _FRAMES
    frames = [frame for frame in _items(_fields(text).get("traceMarker")) if isinstance(frame, str)]
    return [frame for frame in frames if not any(part in frame for part in hidden)]


_CALL: dict[str, PolarsDataType] = {
    "name": pl.String,
    "mod": pl.String,
    "op": pl.String,
    "shapes": pl.List(pl.List(pl.Int64)),
    "dtypes": pl.List(pl.String),
    "module": pl.String,
    "line": pl.String,
}


def captured_calls(trace: Trace) -> pl.DataFrame:
    """Calls marked by ``kernelscope.capture`` or PyProf, from NVTX ranges or annotations.

    Columns: ``row`` (in ``ranges`` or ``ops``), ``mod``, ``op``, ``shapes`` and ``dtypes`` of the tensors
        among the arguments in order, ``module`` (path, null outside modules), ``line`` (innermost line of the
        program, null if unknown), ``pid``, ``tid``, ``start_ns``, ``dur_ns``.
    Units: ns.
    Order: of the source.

    Example: ``captured_calls(ks.read("report.sqlite")).group_by("module").len()``
    """
    columns = ["row", "name", "pid", "tid", "start_ns", "dur_ns"]
    found = [
        table.select(columns).filter(pl.col("name").cast(pl.String).str.starts_with("{"))
        for table in (trace.ranges, trace.ops)
    ]
    marked = pl.concat([frame.with_columns(pl.col("name").cast(pl.String)) for frame in found]).sort("row")
    calls = [_call(text) for text in marked["name"].unique(maintain_order=True)]
    texts = pl.DataFrame([call for call in calls if call is not None], schema=_CALL, orient="row")
    return marked.join(texts, on="name", how="inner", maintain_order="left").select(
        "row", *list(_CALL)[1:], *columns[2:]
    )


def _call(text: str) -> tuple[Any, ...] | None:
    marker = marker_of(text)
    if marker is None:
        return None
    tensors = [arg for arg in marker.args if arg.get("type") == "tensor"]
    lines, module = marker_frames(text), marker_module(text)
    return (
        text,
        marker.mod,
        marker.op,
        [list(arg["shape"]) for arg in tensors],
        [arg["dtype"] for arg in tensors],
        module[0] if module else None,
        lines[-1] if lines else None,
    )


def call_of_ops(trace: Trace) -> pl.DataFrame:
    """The marked call of each operator of a profiler trace: the innermost one around it.

    Columns: ``row`` of the operator in ``ops``, ``call_row`` of the call in ``captured_calls``. Operators
        outside any call are left out.
    """
    ops = trace.ops
    tree = CallTree(ops)
    tree.keep_marked(ops["row"].is_in(captured_calls(trace)["row"].implode()))
    around = tree.kept().gather(positions(ops["row"], ops["parent_row"]))
    return ops.select("row", around.alias("call_row")).drop_nulls().sort("row")


_CELLS = ("LSTMCell", "GRUCell", "RNNCell")
_BACKWARD_NODE = re.compile(r"(?:Backward\d*|backward|AccumulateGrad)$")
_BACKWARD_SUFFIX = re.compile(r"(?:Backward\d*|_backward)$")
_ENGINE = "autograd::engine::evaluate_function: "
_NOT_SHOWN = ("torch", "autograd", "_backward", "::", "jit", "(anonymous namespace)")
# The backward forms that PyProf knows: later ones end in other numbers.
_COMPAT_BACKWARD = ("Backward, seq = ", "backward, seq = ", "Backward0, seq = ")


def _direction(names: Sequence[str], others: Sequence[str], *, compat: bool) -> str:
    """``bprop`` for a kernel of the backward pass, else ``fprop``."""
    if compat:
        found = any(part in f"{name}{_SEQUENCE}" for name in names for part in _COMPAT_BACKWARD)
    else:
        found = any(_BACKWARD_NODE.search(name.partition(_SEQUENCE)[0]) for name in names)
        found = found or any(text.startswith(_ENGINE) for text in others)
    return "bprop" if found else "fprop"


def _functions(
    arguments: Sequence[str], names: Sequence[str], others: Sequence[str], *, compat: bool
) -> tuple[list[str], list[str]]:
    """Modules and functions around the kernel, outermost first: from arguments, else from numbered ranges."""
    named = [marker for text in arguments if (marker := marker_of(text)) is not None]
    if named:
        return [marker.mod for marker in named], [marker.op for marker in named]
    numbered = [name.partition(_SEQUENCE)[0] for name in names]
    if compat:
        ops = [_compat_operator(name) for name in numbered if name.endswith(("backward", "Backward"))]
    else:
        ops = [_operator(name) for name in numbered if _BACKWARD_NODE.search(name)]
    ops = ops or numbered
    if ops:
        return ["na"] * len(ops), ops
    return ["na"], list(others[:1]) if compat else _innermost(others)


def _innermost(others: Sequence[str]) -> list[str]:
    """The operator among other ranges: PyTorch's own are the innermost."""
    operators = [text for text in others if text.startswith("aten::")]
    return (operators or list(others))[:1]


def _compat_operator(node: str) -> str:
    """The operator of a backward node, or of a function for one."""
    for part in _NOT_SHOWN:
        node = node.replace(part, "")
    return node.partition("Backward")[0]


def _operator(node: str) -> str:
    """``Addmm`` for ``AddmmBackward0``, ``threshold`` for ``aten::threshold_backward``."""
    name = node.rpartition("::")[2]
    return _BACKWARD_SUFFIX.sub("", name) or name
