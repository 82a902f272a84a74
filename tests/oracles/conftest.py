"""Readers and traces for the tests against other tools."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks
import slow_reader

READERS: dict[str, Callable[[Path], Any]] = {"kernelscope": ks.read, "slow": slow_reader.read}


# Two, since tests of one trace run next to each other, for each reader.
@lru_cache(maxsize=4)
def _read(name: str, path: Path) -> Any:
    return READERS[name](path)


@pytest.fixture(params=list(READERS))
def read(request: pytest.FixtureRequest) -> Callable[[Path], Any]:
    """Reads a trace: with the package, and with the slow reader that shares no code with it."""
    return lambda path: _read(request.param, path)


@pytest.fixture
def load_json() -> Callable[[Path], Any]:
    """Reads a JSON file, plain or gzip."""

    def load(path: Path) -> Any:
        raw = path.read_bytes()
        return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)

    return load
