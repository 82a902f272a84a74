"""Waiting for a state.

No wait here or in a test has an end of its own: what hangs fails by the time limit of every test, which
``pyproject.toml`` sets, and whose stacks say what was waited for.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

LIMIT_S = 240
"""For what ends a wait by itself and says more than a stack; less than the time limit of a test."""


def wait_until(is_so: Callable[[], bool]) -> None:
    """Waits until something is so."""
    while not is_so():
        time.sleep(0.005)


def wait_for(process: subprocess.Popen[Any], is_so: Callable[[], bool]) -> None:
    """Waits until something is so, or a process has ended."""
    wait_until(lambda: is_so() or process.poll() is not None)
