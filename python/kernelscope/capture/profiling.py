"""Records a complete trace with PyTorch's profiler: one file per rank."""

import contextlib
import importlib
import os
import re
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

from kernelscope.capture.annotation import annotate as annotate_calls
from kernelscope.errors import InvalidArgumentError

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@contextlib.contextmanager
def profile(
    folder: str | os.PathLike[str],
    *,
    wait: int = 0,
    warmup: int = 0,
    active: int = 1,
    repeat: int = 1,
    annotate: bool = False,
    stack: bool = True,
    memory: bool = True,
) -> Generator[Any]:
    """Records with ``torch.profiler`` and every option that makes a trace complete; gives the profiler.

    Call ``step()`` of what it gives after each step of the program: ``wait`` steps are passed by, ``warmup``
    are recorded and thrown away, ``active`` are kept, all that ``repeat`` times. With none of them set,
    everything is one step. ``annotate`` adds the ranges of ``kernelscope.capture.annotate``, ``stack``
    Python's call stacks, ``memory`` allocations. Each recording becomes a file of its own in ``folder``,
    named after host, rank and step, compressed.

    Raises: InvalidArgumentError: a number of steps makes no sense.
        ImportError: PyTorch is not installed.

    Example: ``with profile("traces", warmup=1, active=3) as recorder: train(after_step=recorder.step)``
    """
    if min(wait, warmup) < 0 or active < 1 or repeat < 1:
        raise InvalidArgumentError("wait and warmup must be at least 0, active and repeat at least 1")
    profiler: Any = importlib.import_module("torch.profiler")
    torch: Any = importlib.import_module("torch")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    activities = [profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(profiler.ProfilerActivity.CUDA)
    schedule = None
    if (wait, warmup, active, repeat) != (0, 0, 1, 1):
        schedule = profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)

    def write(recorder: Any) -> None:
        path = target / f"{_file_name(recorder.step_num)}.pt.trace.json.gz"
        recorder.export_chrome_trace(str(path))

    ranges = annotate_calls(backend="profiler") if annotate else contextlib.nullcontext()
    recorder: Any = profiler.profile(
        activities=activities,
        schedule=schedule,
        on_trace_ready=write,
        record_shapes=True,
        with_stack=stack,
        profile_memory=memory,
    )
    with recorder, ranges:
        yield recorder


def _file_name(step: int) -> str:
    host = _UNSAFE.sub("-", socket.gethostname()) or "host"
    return f"{host}.rank{rank()}.step{step}.{os.getpid()}"


def rank() -> int:
    """The rank of this process: of the process group, else as launchers set it, else 0."""
    distributed: Any = importlib.import_module("torch.distributed")
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return 0
