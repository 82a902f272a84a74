"""What the texts of NVTX ranges say: by kind those around a launch, its pass and operator, and marked calls.

PyTorch numbers the operators that need a gradient; the node of the backward pass carries the number of
its operator. A kernel may lie in several numbered ranges.
"""

import ast
import re
import warnings
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple, cast

import polars as pl
from polars._typing import PolarsDataType

from kernelscope.analysis.call_tree import CallTree
from kernelscope.analysis.grouping import positions
from kernelscope.costs.pyprof import Marker, parse_marker
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
"""Element type of a tensor of which only the sizes are known."""
_LAYER = "layer:"
# A record holds a call stack and the arguments of a call; a line beyond this is none.
MAX_LINE_CHARS = 4 << 20


class Text(NamedTuple):
    """The row of a range, its text, and the sizes of an operator's inputs where PyTorch appended them."""

    row: int
    text: str
    sequence: int | None = None
    sizes: str | None = None

    def full(self) -> str:
        """The text with its sequence number, as PyTorch wrote it before it appended more."""
        is_plain = self.sequence is None or self.text.startswith("{")
        return self.text if is_plain else f"{self.text}{_SEQUENCE}{self.sequence}"


class Markers(NamedTuple):
    """Texts by kind, each outermost first but for ``sequences``.

    ``calls`` are the rows of the ranges of ``arguments``; ``node`` is the row of the outermost range that
    is a call or an operator.
    """

    arguments: list[str]
    calls: tuple[int, ...]
    node: int | None
    layers: list[str]
    trace: list[str]
    reprs: list[str]
    sequences: list[str]
    ids: list[int]
    others: list[str]


def sort_markers(texts: Iterable[Text], *, compat: bool) -> Markers:
    """The texts of the ranges around a launch, outermost first, by kind."""
    found: list[tuple[int, str]] = []
    numbered: list[int] = []
    layers: list[str] = []
    trace: list[str] = []
    reprs: list[str] = []
    # Each once, in order.
    sequences: dict[tuple[str, int], None] = {}
    others: dict[str, None] = {}
    for entry in texts:
        text = entry.full()
        if "CheckpointFunctionBackward" in text:
            continue
        if _is_arguments(text, compat=compat):
            found.append((entry.row, text))
            marker = marker_of(text)
            if entry.sequence is not None and marker is not None:
                sequences[marker.op, entry.sequence] = None
        elif _LAYER in text if compat else text.startswith(_LAYER):
            layers.append(text.split(":")[1] if compat else text.removeprefix(_LAYER))
        elif "traceMarker" in text:
            # The last stack contains the others.
            trace = _frames(text, compat=compat)
        elif "strRepr" in text:
            reprs.append(text)
        else:
            if not compat and (operator := _operator_marker(entry)) is not None:
                found.append((entry.row, operator))
            sequence = _sequence(entry)
            if sequence is None:
                others[text] = None
            else:
                sequences[sequence] = None
                numbered.append(entry.row)
    arguments = [text for _, text in found]
    innermost = arguments[-1] if arguments and not compat else ""
    pruned = _pruned(sequences)
    calls = tuple(row for row, _ in found)
    return Markers(
        arguments=arguments,
        calls=calls,
        node=next(iter((*calls, *numbered)), None),
        layers=layers or marker_module(innermost),
        trace=trace or marker_frames(innermost),
        reprs=reprs,
        sequences=[f"{name}{_SEQUENCE}{number}" for name, number in pruned],
        ids=sorted({number for _, number in pruned}),
        others=list(others),
    )


@lru_cache(maxsize=1 << 14)
def marker_of(text: str) -> Marker | None:
    """The function and arguments that a text says, if it is such a marker."""
    return parse_marker(text)


def parse_literal(text: str) -> object:
    """The value of a Python literal.

    Raises: ValueError: the text is no literal, or too long or too deep for one.
    """
    if len(text) > MAX_LINE_CHARS:
        raise ValueError(f"it is longer than {MAX_LINE_CHARS} characters")
    try:
        with warnings.catch_warnings():
            # An unknown escape sequence is read as it stands.
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("it is no literal") from error


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
    """The call stack that ``kernelscope.capture`` adds to a marker, outermost first."""
    return [str(line) for line in _items(_fields(text).get("trace"))]


def marker_module(text: str) -> list[str]:
    """The module that ``kernelscope.capture`` adds to a marker, as one layer; none if it says none."""
    module = _fields(text).get("module")
    return [module] if isinstance(module, str) else []


def _is_arguments(text: str, *, compat: bool) -> bool:
    if compat:
        return all(part in text for part in ("mod", "op", "args", "type"))
    return text.startswith("{") and marker_of(text) is not None


def _operator_marker(entry: Text) -> str | None:
    """The marker of an operator with the sizes of its inputs, whose types PyTorch does not write."""
    namespace, separator, op = entry.text.rpartition("::")
    if entry.sizes is None or not separator:
        return None
    args = _arguments(entry.sizes)
    return None if args is None else repr({"mod": namespace, "op": op, "args": args})


@lru_cache(maxsize=1 << 12)
def _arguments(sizes: str) -> list[dict[str, object]] | None:
    try:
        values = parse_literal(sizes)
    except ValueError:
        return None
    return [_argument(value) for value in cast("list[object]", values)] if isinstance(values, list) else None


def _argument(value: object) -> dict[str, object]:
    """A tensor, a list of tensors, or what has no sizes: a number, or a tensor without dimensions."""
    sizes = _items(value)
    if sizes and all(isinstance(size, int) for size in sizes):
        return {"name": "", "type": "tensor", "shape": tuple(sizes), "dtype": UNKNOWN_DTYPE}
    if sizes:
        shapes = [tuple(cast("list[object]", shape)) for shape in sizes if isinstance(shape, list)]
        return {"name": "", "type": "list", "value": shapes}
    return {"name": "", "type": "unknown", "value": None}


def _sequence(entry: Text) -> tuple[str, int] | None:
    """The name and the number of a text with a sequence number."""
    if entry.sequence is not None:
        return entry.text, entry.sequence
    name, separator, rest = entry.text.partition(_SEQUENCE)
    digits = rest.partition(",")[0].strip()
    return (name, int(digits)) if separator and digits.isdecimal() and len(digits) < 19 else None


def _pruned(sequences: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """In order of the number as text, without those that repeat the one before: a part of its name."""
    ordered = sorted(sequences, key=lambda entry: f"{entry[1]}{entry[0]}, seq")
    kept = ordered[:1]
    for before, entry in pairwise(ordered):
        is_similar = entry[0] in before[0] or before[0] in entry[0]
        if entry[1] != before[1] or not is_similar:
            kept.append(entry)
    return kept


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
    """The calls that ``kernelscope.capture`` or PyProf marked, from NVTX ranges or from annotations.

    Columns: ``row`` (in ``ranges`` or ``ops``), ``mod``, ``op``, ``shapes`` and ``dtypes`` of the tensors
        among the arguments in order, ``module`` (path, null outside of modules), ``line`` (innermost line of
        the program, null if it is not known), ``pid``, ``tid``, ``start_ns``, ``dur_ns``.
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
    """Which marked call each operator of a profiler trace belongs to: the innermost around it.

    Columns: ``row`` of the operator in ``ops``, ``call_row`` of the call in ``captured_calls``; operators
        outside of any call are left out.
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


def direction(markers: Markers, *, compat: bool) -> str:
    """``bprop`` for a kernel of the backward pass, else ``fprop``."""
    if compat:
        found = any(part in text for text in markers.sequences for part in _COMPAT_BACKWARD)
    else:
        names = [text.partition(", seq = ")[0] for text in markers.sequences]
        found = any(_BACKWARD_NODE.search(name) for name in names)
        found = found or any(text.startswith(_ENGINE) for text in markers.others)
    return "bprop" if found else "fprop"


def functions(markers: Markers, *, compat: bool) -> tuple[list[str], list[str]]:
    """Modules and functions around the kernel, outermost first: from arguments, else from numbered ranges."""
    named = [marker for text in markers.arguments if (marker := marker_of(text)) is not None]
    if named:
        return [marker.mod for marker in named], [marker.op for marker in named]
    numbered = [text.partition(", seq = ")[0] for text in markers.sequences]
    if compat:
        ops = [_compat_operator(name) for name in numbered if name.endswith(("backward", "Backward"))]
    else:
        ops = [_operator(name) for name in numbered if _BACKWARD_NODE.search(name)]
    ops = ops or numbered
    if ops:
        return ["na"] * len(ops), ops
    return ["na"], markers.others[:1] if compat else _innermost(markers.others)


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


class Place(NamedTuple):
    """The numbers of a kernel and its place among the kernels of its operator."""

    ids: list[int]
    alternate: list[int]
    sub: int


class CompatNumbering:
    """Numbers the kernels of each operator as PyProf does: by sequence numbers, in the order of the file.

    The state is one for the whole file, which mixes up the numbers of processes and threads.
    """

    def __init__(self) -> None:
        self._sequence: int = -1
        self._sub: int = -1
        self._ops: list[str] = ["na"]

    def place(self, ids: Sequence[int], ops: Sequence[str], mods: Sequence[str], way: str) -> Place:
        """The numbers of the next kernel, whose ranges have the numbers ``ids`` in ascending order."""
        numbers = [number for number in ids if number != 0] or list(ids)
        if not numbers:
            return Place([], [], 0)
        if way == "bprop":
            current = numbers[0]
        else:
            current = next((number for number in numbers if number > self._sequence), self._sequence)
        is_cell = bool(ops) and ops[0] == "forward" and bool(mods) and mods[0] in _CELLS
        is_same = list(ops) == self._ops and (current == self._sequence or is_cell)
        sub = self._sub + 1 if is_same else 0
        self._sequence, self._sub, self._ops = current, sub, list(ops)
        return _split(numbers, current, sub)


def _split(numbers: list[int], current: int, sub: int) -> Place:
    """PyProf removes from the list that it walks, and so passes over the number behind each."""
    own, alternate, at = list(numbers), list[int](), 0
    while at < len(own):
        if own[at] != current:
            alternate.append(own.pop(at))
        at += 1
    return Place(own, sorted(set(alternate)), sub)


class Numbering:
    """Numbers the kernels of each operator by the ranges that they lie in, thread by thread."""

    def __init__(self) -> None:
        self._last: dict[Hashable, tuple[int | None, int]] = {}

    def place(self, thread: Hashable, ids: Sequence[int], node: int | None, way: str) -> Place:
        """The numbers of the thread's next kernel, which lies in the range ``node``.

        Forward, the innermost range makes the node of the backward pass, and numbers grow inwards;
        backward, the outermost is that node.
        """
        last, sub = self._last.get(thread, (None, -1))
        sub = sub + 1 if node is not None and node == last else 0
        self._last[thread] = (node, sub)
        numbers = [number for number in ids if number != 0] or list(ids)
        if not numbers:
            return Place([], [], sub)
        current = numbers[0] if way == "bprop" else numbers[-1]
        return Place([current], [number for number in numbers if number != current], sub)
