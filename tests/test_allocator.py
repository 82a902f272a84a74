"""How commands set the allocators."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kernelscope import allocator
from kernelscope.allocator import VARIABLE, near_peak


def settings_after(program: str, **environment: str) -> str:
    """What the variable holds after ``program``, in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
    program += f"; import os; print(os.environ.get({VARIABLE!r}))"
    command = [sys.executable, "-c", f"from kernelscope.allocator import keep_freed; {program}"]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_memory_is_given_back_when_it_is_asked_for() -> None:
    found = settings_after("keep_freed(25)").split(",")
    assert "dirty_decay_ms:25" in found
    assert f"narenas:{os.cpu_count()}" in found


def test_settings_of_the_user_stay() -> None:
    assert settings_after("keep_freed(25)", **{VARIABLE: "narenas:7"}) == "narenas:7"


def test_nothing_is_set_once_polars_is_there() -> None:
    assert "narenas" not in settings_after("import polars; keep_freed(25)")


@pytest.mark.parametrize(("held", "is_near"), [(94, False), (96, True), (None, True)])
def test_what_is_nearly_as_much_as_ever(
    monkeypatch: pytest.MonkeyPatch, held: int | None, is_near: bool
) -> None:
    sizes = {"VmRSS": held, "VmHWM": 100}
    monkeypatch.setattr(allocator, "status_bytes", sizes.get)
    assert near_peak() is is_near
