"""What docs/analyses.md shows is run, and every question that it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelscope import _traceparse, analysis
from kernelscope.batch import run

TEXT = (Path(__file__).resolve().parents[1] / "docs/analyses.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces of eight ranks and two lakes of them."""
    folder = tmp_path_factory.mktemp("docs")
    _traceparse.write_demo(
        folder,
        size_bytes=300_000,
        ranks=8,
        seed=0,
        layout=_traceparse.demo_layouts()[0],
        gzip=True,
        truth=False,
    )
    traces = [str(path) for path in sorted(folder.glob("rank*.gz"))]
    assert len(traces) == 8
    for lake in ("lake", "other-lake"):
        run(traces, folder / lake)
    return folder


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_program(place: Path, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=place, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_question_exists() -> None:
    asked = set(re.findall(r"ks\.analysis\.(\w+)\(", TEXT))
    assert len(asked) > 20
    assert asked <= set(analysis.__all__)
