"""Real traces written for Perfetto: valid JSON, every event in it, and the same tables when read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traces import ORACLES, VALID, files

import kernelscope as ks
from kernelscope.report.added_events import CATEGORY
from kernelscope.report.conversion import convert
from round_trips import differences

Read = Callable[[Path], Any]


@pytest.mark.parametrize("path", [*VALID, *files(ORACLES / "torch-cpu" / "invalid", "*.json*")])
def test_round_trip(read: Read, path: Path, tmp_path: Path) -> None:
    trace = read(path)
    out = tmp_path / "perfetto.json"
    convert(trace, "perfetto", out)
    events = json.loads(out.read_bytes())["traceEvents"]
    assert sum(event.get("cat") != CATEGORY for event in events) == trace.meta.kept
    assert differences(trace, ks.read(out)) == []
