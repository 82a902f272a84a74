"""Registry of cost models by operator.

A model is a function from a :class:`~kernelscope.costs.bind.Call` to a
:class:`~kernelscope.costs.types.Cost`, registered with :func:`operator` under the names of its operators. The
names are those in traces: ``aten::mm``, ``vllm::all_reduce``. Overloads (``.Tensor``), in-place forms (a
trailing ``_``) and ``_out`` forms use the model of the plain name unless they have their own.
"""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kernelscope.costs.bind import Call
from kernelscope.costs.types import Cost
from kernelscope.errors import InvalidArgumentError

Function = Callable[[Call], Cost]


class Model(NamedTuple):
    """A registered cost model; ``composite`` if other modelled operators run inside it."""

    name: str
    family: str
    function: Function
    composite: bool


_MODELS: dict[str, Model] = {}
_PREFIXES: dict[str, Model] = {}
_FOUND: dict[str, Model | None] = {}


def _model(function: Function, *, composite: bool = False) -> Model:
    return Model(function.__name__.strip("_"), function.__module__.rpartition(".")[2], function, composite)


# Wrappers that a recorder generates, with a number behind the name.
_NUMBERED = "sglang_profiler::"


def operator(*names: str, composite: bool = False) -> Callable[[Function], Function]:
    """Registers the decorated function as the model of the operators ``names``.

    A later registration replaces an earlier one, so that a user's file can correct a model. ``composite``
    marks a wrapper, which calls operators with models of their own and must not be counted in addition to
    them.

    Raises: InvalidArgumentError: no name, or an empty one.

    Example::

        @operator("mylib::scale")
        def scale(call: Call) -> Cost:
            x = call.tensor(0)
            return Cost(x.numel, x.read, x.nbytes, x.dtype)
    """
    if not names or not all(names):
        raise InvalidArgumentError("a cost model needs the name of an operator")

    def register(function: Function) -> Function:
        _MODELS.update(dict.fromkeys(names, _model(function, composite=composite)))
        _FOUND.clear()
        return function

    return register


def candidates(name: str) -> list[str]:
    """Returns the names under which a model may be registered, the most specific first.

    Example: ``aten::add_.Tensor`` gives ``aten::add_.Tensor``, ``aten::add_``, ``aten::add``.
    """
    found, base = [name], name
    if "::" in name:
        namespace, _, rest = name.rpartition("::")
        base = f"{namespace}::{rest.partition('.')[0]}"
        found.append(base)
        if base.endswith("_out"):
            found.append(base[:-4])
    if base.endswith("_") and not base.endswith("__"):
        found.append(base[:-1])
    if name.startswith(_NUMBERED):
        found.append(name.rstrip("0123456789").removesuffix("_"))
    return found


def find_model(name: str) -> Model | None:
    """Returns the model of an operator with this name, or None."""
    if name in _FOUND:
        return _FOUND[name]
    model = next((_MODELS[known] for known in candidates(name) if known in _MODELS), None)
    if model is None:
        model = next((model for prefix, model in _PREFIXES.items() if name.startswith(prefix)), None)
    if len(_FOUND) < 100_000:
        _FOUND[name] = model
    return model


def operator_prefix(*prefixes: str) -> Callable[[Function], Function]:
    """Registers a model for every operator with this name prefix, such as generated Triton kernels."""

    def register(function: Function) -> Function:
        _PREFIXES.update(dict.fromkeys(prefixes, _model(function)))
        _FOUND.clear()
        return function

    return register


def models() -> dict[str, Model]:
    """Every operator name with its registered model, sorted."""
    return dict(sorted(_MODELS.items()))


def load_models(path: str) -> int:
    """Runs a user's Python file, which registers models with :func:`operator`.

    Returns the number of added names.

    Raises: InvalidArgumentError: the file is missing or fails. Models that it registered before the failure
    stay.
    """
    before = dict(_MODELS)
    if not Path(path).is_file():
        raise InvalidArgumentError(f"the cost models {path} do not exist", path=path)
    try:
        runpy.run_path(path, run_name="kernelscope_user_models")
    except Exception as error:
        # Anything can go wrong in a user's file; the cause stays attached.
        raise InvalidArgumentError(f"the cost models {path} failed: {error!r}", path=path) from error
    return sum(before.get(name) is not model for name, model in _MODELS.items())
