"""Records complete traces with the PyTorch profiler: one file per rank and cycle."""

import contextlib
import importlib
import os
import re
import socket
import subprocess
import warnings
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path
from typing import Any

from kernelscope.capture.annotation import annotate as annotate_calls
from kernelscope.errors import InvalidArgumentError
from kernelscope.processes import command_of

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@contextlib.contextmanager
def profile(
    folder: str | os.PathLike[str],
    *,
    skip_first: int = 0,
    wait: int = 0,
    warmup: int = 0,
    active: int = 1,
    repeat: int = 1,
    annotate: bool = False,
    stack: bool = True,
    memory: bool = True,
    page: bool = False,
) -> Generator[Any]:
    """Records with ``torch.profiler`` and all options for a complete trace. Returns the profiler.

    Call ``step()`` on the result after each step of the program. The profiler skips ``skip_first`` steps,
    then repeats cycles: it skips ``wait`` steps, discards ``warmup`` steps, and keeps ``active`` steps,
    ``repeat`` times. With none of these set, everything is one step. ``annotate`` adds the ranges of
    ``kernelscope.capture.annotate``, ``stack`` Python call stacks, ``memory`` allocations. All devices known
    to PyTorch are recorded. ``trace_handler`` writes the recording, and with ``page`` its page.

    Raises: InvalidArgumentError: a number of steps is invalid. ImportError: PyTorch is not installed.

    Example: ``with profile("traces", warmup=1, active=3) as recorder: train(after_step=recorder.step)``
    """
    if min(skip_first, wait, warmup) < 0 or active < 1 or repeat < 1:
        raise InvalidArgumentError(
            "skip_first, wait and warmup must be at least 0, active and repeat at least 1"
        )
    profiler: Any = importlib.import_module("torch.profiler")
    schedule = None
    if (skip_first, wait, warmup, active, repeat) != (0, 0, 0, 1, 1):
        schedule = profiler.schedule(
            skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat
        )
    ranges = annotate_calls(backend="profiler") if annotate else contextlib.nullcontext()
    recorder = complete_profiler(
        trace_handler(folder, page=page), stack=stack, memory=memory, schedule=schedule
    )
    with recorder, ranges:
        yield recorder


def complete_profiler(
    on_trace_ready: Callable[[Any], None], *, stack: bool, memory: bool, schedule: Any = None
) -> Any:
    """Returns a ``torch.profiler.profile`` with all options for a complete trace."""
    profiler: Any = importlib.import_module("torch.profiler")
    return profiler.profile(
        activities=sorted(profiler.supported_activities(), key=lambda activity: activity.value),
        schedule=schedule,
        on_trace_ready=on_trace_ready,
        record_shapes=True,
        with_stack=stack,
        profile_memory=memory,
        experimental_config=_details(stack=stack),
    )


def trace_handler(folder: str | os.PathLike[str], *, page: bool = False) -> Callable[[Any], None]:
    """Returns an ``on_trace_ready`` for ``torch.profiler`` that writes each recording into ``folder``.

    The file name contains host, rank, cycle (index of the recording of this handler, from 0), step and
    process. The file is compressed. With ``page``, another process writes its page next to it while the
    program waits. If that fails, a warning gives the reason.

    Example: ``torch.profiler.profile(on_trace_ready=trace_handler("traces"), with_stack=True)``
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    cycles = count()

    def write(recorder: Any) -> None:
        name = f"{_host()}.rank{rank()}.cycle{next(cycles)}.step{recorder.step_num}.{os.getpid()}"
        path = target / f"{name}.pt.trace.json.gz"
        recorder.export_chrome_trace(str(path))
        if page:
            _write_page(path, target / f"{name}.html")

    return write


def _write_page(path: Path, page: Path) -> None:
    command = [*command_of("kernelscope.cli.main"), "analyze", path, "--format", "html", "--out", page]
    done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", errors="replace")
    if done.returncode != 0:
        warnings.warn(f"the page of {path} was not written: {done.stderr.strip()}", stacklevel=3)


def _details(*, stack: bool) -> Any:
    """What the profiler records only if it is asked: call stacks of operators, and waits for streams.

    PyTorch promises to keep neither of these options.
    """
    # Torch has no public name for it.
    found: Any = vars(importlib.import_module("torch._C._profiler"))["_ExperimentalConfig"]
    for options in ({"verbose": stack, "enable_cuda_sync_events": True}, {"verbose": stack}, {}):
        with contextlib.suppress(TypeError):
            return found(**options)
    return None


def _host() -> str:
    return _UNSAFE.sub("-", socket.gethostname()) or "host"


def rank() -> int:
    """Returns the rank of this process: from the process group, the launcher's environment, or 0."""
    distributed: Any = importlib.import_module("torch.distributed")
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return 0
