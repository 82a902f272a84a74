"""Runs measurements, each in a process of its own."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from inputs import MB, ROOT
from tables import NotMeasuredError, Sample

PEERS = ROOT / ".venv-bench" / "bin" / "python"
"""The interpreter that has the readers of others."""
LOOK_S = 0.01


def run_task(name: str, *arguments: object, python: str | Path = sys.executable, **options: Any) -> Sample:
    """Runs a task of tasks.py; ``options`` are those of ``run``, whose figures the task's own replace.

    Raises: NotMeasuredError: it ended with an error, or there is no such interpreter.
    """
    if not Path(python).exists():
        raise NotMeasuredError("left out: the environment .venv-bench is missing; make bench installs it")
    found = run([python, Path(__file__).with_name("tasks.py"), name, *arguments], **options)
    return {**found, **json.loads(found.pop("output").splitlines()[-1])}


def run(
    command: list[Any],
    *,
    environment: Mapping[str, str] | None = None,
    rests: int | None = None,
    timeout_s: float = 3600,
) -> Sample:
    """Runs a command to its end, and says how long it took and what it printed.

    The peak is that of the process itself. It cannot be below the size of this one at the time
    of the start, which is why nothing large is imported here. ``rests`` adds the memory of all its
    processes together; a pause follows each look, ``rests`` times as long as that.

    Raises: NotMeasuredError: it ended with an error, or took too long.
    """
    streams = {"stdin": subprocess.DEVNULL, "env": {**os.environ, **(environment or {})}}
    looks: list[int] = []
    ended = threading.Event()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
        start = time.perf_counter()
        process = subprocess.Popen([*map(str, command)], stdout=output, stderr=messages, **streams)
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        if rests is not None:
            threading.Thread(target=_look, args=(process.pid, rests, ended, looks)).start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        ended.set()
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        messages.seek(0)
        if process.returncode:
            lines = messages.read().decode(errors="replace").strip().splitlines()
            reason = lines[-1] if lines else f"ended with {process.returncode} and no message"
            raise NotMeasuredError(f"failed: {reason}")
        return {
            "seconds": seconds,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_mb": usage.ru_maxrss * 1024 / MB,
            "tree_mb": max(looks, default=0) / MB,
            "output": output.read().decode(),
        }


def take_turns(
    measures: Mapping[str, Callable[[], Sample]], repeats: int, budget_s: float = float("inf")
) -> dict[str, Sample]:
    """Medians of every measurement, or the ``reason`` why there is none; they take turns.

    What else the machine does then meets all of them. None takes longer than ``budget_s`` in all, if one
    turn does not.
    """
    taken: dict[str, list[Sample]] = {name: [] for name in measures}
    failures: dict[str, Sample] = {}
    for _ in range(repeats):
        for name, measure in measures.items():
            spent = sum(sample["seconds"] for sample in taken[name])
            # Another turn must fit, too.
            if name in failures or (taken[name] and spent + spent / len(taken[name]) > budget_s):
                continue
            try:
                taken[name].append(measure())
            except NotMeasuredError as error:
                failures[name] = {"reason": str(error)}
    return {name: failures.get(name) or medians(samples) for name, samples in taken.items()}


def medians(samples: list[Sample]) -> Sample:
    """The median of every figure, and the samples."""
    figures = {
        key: statistics.median(sample[key] for sample in samples)
        for key, value in samples[0].items()
        if isinstance(value, float | int)
    }
    return {**figures, "samples": samples}


def _look(pid: int, rests: int, ended: threading.Event, looks: list[int]) -> None:
    """Adds up the memory of a process and its descendants until it has ended."""
    while not ended.is_set():
        start = time.perf_counter()
        looks.append(sum(map(_proportional_bytes, _descendants(pid))))
        ended.wait(max(LOOK_S, rests * (time.perf_counter() - start)))


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for listing in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in _text(listing).split()]
    return found


def _proportional_bytes(pid: int) -> int:
    """Resident memory, of which a page that two processes share counts half for each."""
    sizes = (line.split() for line in _text(Path(f"/proc/{pid}/smaps_rollup")).splitlines())
    return next((int(size[1]) * 1024 for size in sizes if size[0] == "Pss:"), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
