"""Texts of ranges: function, arguments, module and source line of a call.

The values of tensors are not read, because reading one would wait for the GPU.
"""

import importlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any, cast

_MOST_TENSORS = 64
_LONGEST_TEXT = 64
_SHORT_FLOAT = 6
# Deeper stacks are machinery.
_MOST_FRAMES = 200
# Texts that differ; beyond, arguments are left out, so that neither this process nor the recorder
# collects texts without end.
_MOST_TEXTS = 1 << 16

Key = tuple[object, ...]


class Marks:
    """Creates the texts of ranges."""

    def __init__(self, *, stack: int) -> None:
        self._arguments = Arguments()
        self._frames = Frames(stack) if stack else None
        self._texts: dict[Key, str] = {}

    def text(
        self, mod: str, op: str, path: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> str:
        """Returns the marker of a call, in PyProf's form with module and source lines added."""
        where = self._frames.find() if self._frames is not None else ()
        given = self._arguments.key(args, kwargs)
        key = (mod, op, tuple(path), where, given)
        text = self._texts.get(key)
        if text is None:
            is_full = len(self._texts) >= _MOST_TEXTS
            text = self._make(mod, op, path, where, () if is_full else given)
            if not is_full:
                self._texts[key] = text
        return text

    def _make(
        self, mod: str, op: str, path: Sequence[str], where: Sequence[tuple[str, int]], given: Key
    ) -> str:
        marker: dict[str, object] = {"mod": mod, "op": op, "args": self._arguments.entries(given)}
        if path:
            marker["module"] = ".".join(path)
        if where:
            marker["trace"] = [f"{file}:{line}" for file, line in where]
        return repr(marker)


class Arguments:
    """Describes arguments: first as a key that is quick to compare, then as entries of a marker."""

    def __init__(self) -> None:
        torch: Any = importlib.import_module("torch")
        self._tensor: Any = torch.Tensor

    def key(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Key:
        """Returns a key that is equal for calls with equal descriptions."""
        found: list[object] = []
        for value in args:
            self._add(found, "", value)
        for name, value in kwargs.items():
            self._add(found, name, value)
        return tuple(found)

    def _add(self, found: list[object], name: str, value: Any) -> None:
        if isinstance(value, self._tensor):
            found.append((name, tuple(value.shape), value.dtype))
        elif value is None or isinstance(value, (bool, int)):
            found.append((name, value, type(value)))
        elif isinstance(value, float):
            # Learning rates and the like change from step to step; texts should not.
            found.append((name, str(value) if len(repr(value)) <= _SHORT_FLOAT else None, float))
        elif isinstance(value, str):
            found.append((name, value[:_LONGEST_TEXT], str))
        elif isinstance(value, (list, tuple)):
            self._add_list(found, name, cast("Sequence[object]", value))

    def _add_list(self, found: list[object], name: str, values: Sequence[object]) -> None:
        if not values or isinstance(values[0], (bool, int, float)):
            plain = tuple(v for v in values if isinstance(v, (bool, int, float)))
            if len(plain) == len(values) <= _MOST_TENSORS:
                found.append((name, plain, type(values)))
            return
        for value in values[:_MOST_TENSORS]:
            if not isinstance(value, (list, tuple)):
                self._add(found, name, value)

    def entries(self, key: Key) -> list[dict[str, object]]:
        """Returns the entries of a marker for a key."""
        return [self._entry(*cast("tuple[str, Any, Any]", part)) for part in key]

    def _entry(self, name: str, value: Any, kind: Any) -> dict[str, object]:
        if not isinstance(kind, type):
            dtype = str(kind).removeprefix("torch.")
            return {"name": name, "type": "tensor", "shape": value, "dtype": dtype}
        if kind is float:
            number = None if value is None else _finite(float(value))
            return {"name": name, "type": "float", "value": number}
        if kind in (list, tuple):
            return {"name": name, "type": kind.__name__, "value": kind(map(_finite, value))}
        known = kind if kind in (bool, int, str, type(None)) else int
        return {"name": name, "type": known.__name__, "value": value}


def _finite(value: Any) -> object:
    """Numbers that have no literal stand as text."""
    is_odd = isinstance(value, float) and (value != value or abs(value) == float("inf"))
    return str(value) if is_odd else value


class Names:
    """Module and name of the functions that get a range."""

    # They launch no work: questions, settings, views.
    _IDLE = frozenset(
        "size dim numel stride storage_offset data_ptr element_size tolist item get_device backward grad "
        "is_contiguous is_complex is_floating_point is_nonzero is_same_size is_storage is_tensor "
        "requires_grad_ retain_grad register_hook detach detach_ view view_as transpose t permute expand "
        "expand_as squeeze unsqueeze narrow select unbind split chunk movedim swapaxes swapdims flatten "
        "unflatten ravel numpy empty empty_like new_empty empty_strided untyped_storage storage __len__ "
        "__hash__ __repr__ __format__ __bool__ __int__ __float__ __index__ __contains__ __iter__ "
        "__deepcopy__ __reduce_ex__ __dlpack__ set_ result_type can_cast broadcast_shapes manual_seed".split()
    )

    def __init__(self) -> None:
        overrides: Any = importlib.import_module("torch.overrides")
        self._resolve: Callable[[object], str | None] = overrides.resolve_name
        self._known: dict[object, tuple[str, str] | None] = {}

    def of(self, function: object) -> tuple[str, str] | None:
        """Returns module and name of a function, or None if it gets no range."""
        try:
            return self._known[function]
        except KeyError:
            found = self._known[function] = self._find(function)
            return found
        except TypeError:
            return self._find(function)

    def _find(self, function: object) -> tuple[str, str] | None:
        resolved = self._resolve(function)
        if resolved is None or ".__get__" in resolved or ".__set__" in resolved:
            return None
        module, _, name = resolved.rpartition(".")
        if name in self._IDLE or not module.startswith("torch") or ".init" in module:
            return None
        return ("Tensor" if module == "torch.Tensor" else module), name


class Frames:
    """Finds the frames of a call outside torch and this package."""

    def __init__(self, depth: int) -> None:
        torch: Any = importlib.import_module("torch")
        self._hidden = tuple(
            os.path.dirname(os.path.abspath(path)) + os.sep for path in (str(torch.__file__), __file__)
        )
        self._depth = depth
        self._shown: dict[CodeType, bool] = {}

    def find(self) -> tuple[tuple[str, int], ...]:
        """Returns file and line of the frames, outermost first."""
        found: list[tuple[str, int]] = []
        frame: FrameType | None = inspect.currentframe()
        for _ in range(_MOST_FRAMES):
            if frame is None or len(found) >= self._depth:
                break
            if self._is_shown(frame.f_code):
                found.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        return tuple(reversed(found))

    def _is_shown(self, code: CodeType) -> bool:
        known = self._shown.get(code)
        if known is None:
            path = os.path.abspath(code.co_filename)
            is_file = not code.co_filename.startswith("<frozen")
            known = self._shown[code] = is_file and not path.startswith(self._hidden)
        return known
