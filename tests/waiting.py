"""Waiting for a state.

No wait here or in a test has an end of its own: what hangs fails by the time limit of every test, which
``pyproject.toml`` sets, and whose stacks say what was waited for.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

LIMIT_S = 240
"""For what ends a wait by itself and says more than a stack; less than the time limit of a test."""


def wait_until(ask: Callable[[], T]) -> T:
    """Asks until the answer is something, or true, and gives it."""
    while not (answer := ask()):
        time.sleep(0.005)
    return answer


def wait_for(process: subprocess.Popen[Any], is_so: Callable[[], bool]) -> None:
    """Waits until something is so, or a process has ended."""
    wait_until(lambda: is_so() or process.poll() is not None)
