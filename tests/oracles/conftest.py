"""Reads traces and answers for the tests against other tools."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
from traces import text_of

import kernelscope as ks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


# Several tests in a row look at one trace.
@lru_cache(maxsize=4)
def _read(path: Path) -> ks.Trace:
    return ks.read(path)


@pytest.fixture
def read() -> Callable[[Path], ks.Trace]:
    """Reads a trace; the frames of one file are shared by the tests that read it."""
    return _read


@pytest.fixture
def load_json() -> Callable[[Path], Any]:
    """Reads a JSON file, plain or gzip."""
    return lambda path: json.loads(text_of(path))
