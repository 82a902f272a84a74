"""Runs one measurement in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from contestants import Contestant, Program
from inputs import ROOT

TIMEOUT_S = 900
PEERS = ROOT / ".venv-bench" / "bin" / "python"


@dataclass(frozen=True)
class Sample:
    """One measurement. ``imports_bytes`` is what was resident before the call; null: not looked at."""

    seconds: float
    peak_bytes: int | None = None
    imports_bytes: int | None = None
    events: int | None = None


class FailedError(Exception):
    """A measurement failed; the message says how."""


def call(contestant: Contestant, path: Path) -> Sample:
    """Measures one call of a contestant.

    Raises: FailedError: it did not read the file.
    """
    if contestant.home == "rust":
        name, *options = contestant.example
        outcome = run([str(_example(name)), *options, str(path)])
        measured = json.loads(outcome.output)
        return Sample(measured["seconds"], events=measured.get("events"))
    python = sys.executable if contestant.home == "own" else str(PEERS)
    if not Path(python).exists():
        raise FailedError("the environment .venv-bench is missing; make bench installs it")
    measure = Path(__file__).with_name("measure.py")
    outcome = run([python, str(measure), contestant.task, str(path)])
    return Sample(**json.loads(outcome.output.splitlines()[-1]))


def program(wanted: Program, trace: Path | None) -> Sample:
    """Measures a whole process.

    Raises: FailedError: it ended with an error.
    """
    head, *rest = wanted.arguments
    # The console script lies beside the interpreter it belongs to.
    executable = str(Path(sys.executable).with_name(head))
    outcome = run([executable, *(str(trace) if argument == "{trace}" else argument for argument in rest)])
    return Sample(outcome.seconds, outcome.peak_bytes)


@dataclass(frozen=True)
class Outcome:
    """A process that ended well."""

    seconds: float
    peak_bytes: int
    output: str


def run(command: list[str]) -> Outcome:
    """Runs a command to its end.

    The peak is that of the process itself. It cannot be below the size of this one at the time
    of the start, which is why nothing large is imported here.

    Raises: FailedError: it ended with an error, or took too long.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=messages)
        timer = threading.Timer(TIMEOUT_S, process.kill)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        messages.seek(0)
        if process.returncode:
            lines = messages.read().decode(errors="replace").strip().splitlines()
            raise FailedError(lines[-1] if lines else f"ended with {process.returncode} and no message")
        return Outcome(seconds, usage.ru_maxrss * 1024, output.read().decode())


@cache
def _example(name: str) -> Path:
    """The release build of an example of the reader."""
    arguments = ["--quiet", "--locked", "--release", "--package", "traceparse", "--example", name]
    subprocess.run(["cargo", "build", *arguments], cwd=ROOT, check=True)
    metadata = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
    done = subprocess.run(metadata, cwd=ROOT, check=True, capture_output=True)
    return Path(json.loads(done.stdout)["target_directory"]) / "release" / "examples" / name
