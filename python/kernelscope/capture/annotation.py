"""Starts and stops the annotation of a program."""

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from kernelscope.capture.ranges import Ranges, Writer, writer
from kernelscope.errors import InvalidArgumentError

if TYPE_CHECKING:
    from kernelscope.capture.marks import Marks

P = ParamSpec("P")
R = TypeVar("R")


class _Session(NamedTuple):
    """What is annotated now."""

    ranges: Ranges
    marks: "Marks"


class _Current:
    """The session of the process, and how to end the one that ``init`` started."""

    session: _Session | None = None
    stop: contextlib.ExitStack | None = None


_current = _Current()
_lock = threading.Lock()


@contextlib.contextmanager
def annotate(
    *,
    backend: str = "nvtx",
    modules: bool = True,
    backward: bool | None = None,
    stack: int = 1,
    to: Writer | None = None,
) -> Generator[None]:
    """Annotates the PyTorch calls of the current thread inside the context, and every module.

    ``backend`` is ``nvtx`` for a recording with nsys, or ``profiler`` for one with ``torch.profiler``.
    ``modules`` adds ranges around the forward of modules. ``backward`` adds ranges around the nodes of the
    backward pass. The profiler links these itself, so the default is off there. ``stack`` is the number of
    lines of the user's program recorded with each call. ``to`` replaces the backend.

    Raises: InvalidArgumentError: the backend is unknown or not installed, or annotation is already on.
        ImportError: PyTorch is not installed.

    Example: ``with annotate(): loss = model(batch); loss.backward()``
    """
    from kernelscope.capture.hooks import BackwardHooks, FunctionMode, ModuleHooks
    from kernelscope.capture.marks import Marks

    if stack < 0:
        raise InvalidArgumentError(f"stack must be at least 0, not {stack}")
    ranges = Ranges(to or writer(backend))
    follow = backward if backward is not None else backend == "nvtx"
    hooks = BackwardHooks(ranges) if follow else None
    with _lock:
        if _current.session is not None:
            raise InvalidArgumentError("annotation is already on; it cannot be nested")
        _current.session = session = _Session(ranges, Marks(stack=stack))
    module_hooks = ModuleHooks(ranges) if modules else None
    try:
        with FunctionMode(ranges, session.marks, hooks):
            yield
    finally:
        if module_hooks is not None:
            module_hooks.remove()
        if hooks is not None:
            hooks.is_active = False
        ranges.close(0)
        _current.session = None


def init(
    *, backend: str = "nvtx", modules: bool = True, backward: bool | None = None, stack: int = 1
) -> None:
    """Starts annotation until ``stop`` or the end of the program, with the options of ``annotate``.

    Raises: InvalidArgumentError: see ``annotate``.
    """
    opened = contextlib.ExitStack()
    opened.enter_context(annotate(backend=backend, modules=modules, backward=backward, stack=stack))
    _current.stop = opened


def stop() -> None:
    """Stops the annotation started by ``init``. Does nothing if it is off.

    Call it in the thread that called ``init``.
    """
    opened, _current.stop = _current.stop, None
    if opened is not None:
        opened.close()


def wrap(function: Callable[P, R], *, op: str | None = None, mod: str | None = None) -> Callable[P, R]:
    """Wraps ``function`` so that each call has a range while annotation is on.

    This is for functions unknown to torch, such as extensions. For a subclass of ``torch.autograd.Function``,
    the call of ``apply`` is wrapped. ``op`` and ``mod`` name the range (default: the names of the function
    and of its class or module).

    Example: ``swish = wrap(Swish); y = swish(x)``
    """
    called: Any = function
    of_class = isinstance(function, type) and hasattr(function, "apply")
    if of_class:
        called = called.apply
    owner = getattr(function, "__self__", None)
    home = (
        function.__name__ if of_class else type(owner).__name__ if owner is not None else function.__module__
    )
    range_mod = mod or home
    range_op = op or ("forward" if of_class else getattr(function, "__name__", type(function).__name__))

    @functools.wraps(called)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        session = _current.session
        if session is None:
            return called(*args, **kwargs)
        ranges, owner = session.ranges, object()
        ranges.push(owner, session.marks.text(range_mod, range_op, ranges.path, args, kwargs))
        try:
            return called(*args, **kwargs)
        finally:
            ranges.pop(owner)

    return wrapped
