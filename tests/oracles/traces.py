"""Where the real traces and the other tools' answers are, and how they are read."""

from __future__ import annotations

import csv
import gzip
import io
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks

SHARED = Path(__file__).resolve().parents[3] / "shared"
TRACES = SHARED / "traces" / "kineto"
ORACLES = SHARED / "oracles"
NO_SHARED = "the real traces of ../shared are not here"


def files(folder: Path, pattern: str) -> list[object]:
    """One parameter per file; where there is none, one that is skipped and says why."""
    found = sorted(folder.glob(pattern))
    if not found:
        return [pytest.param(None, marks=pytest.mark.skip(reason=NO_SHARED), id="no-shared-traces")]
    return [pytest.param(path, id=path.name.removesuffix(".gz").removesuffix(".json")) for path in found]


def need(path: Path) -> Path:
    """``path``, or a skip that says what is missing."""
    if not path.exists():
        pytest.skip(NO_SHARED)
    return path


# Several tests in a row look at one trace.
@lru_cache(maxsize=4)
def read(path: Path) -> ks.Trace:
    """A trace, whose frames are shared by the tests that read it."""
    return ks.read(path)


def load_json(path: Path) -> Any:
    """A JSON file, plain or gzip."""
    return json.loads(text_of(path))


def text_of(path: Path) -> str:
    """What a file says, plain or gzip."""
    raw = path.read_bytes()
    return gzip.decompress(raw).decode() if path.suffix == ".gz" else raw.decode()


def rows_of(text: str) -> list[dict[str, str]]:
    """The rows of a CSV text by their headings."""
    return list(csv.DictReader(io.StringIO(text)))


# Kineto files that are whole and valid, the captures of torch 2.13 among them.
VALID = [
    *files(TRACES, "*.json.gz"),
    *(
        case
        for pattern in ("cnn-*.json*", "lm-*.json*")
        for case in files(ORACLES / "torch-cpu", pattern)
        if ".oracle" not in str(getattr(case, "values", ""))
    ),
]
