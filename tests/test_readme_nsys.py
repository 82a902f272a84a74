"""The road from ``nsys profile`` to answers that README shows: each command of it is run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nsys_database import Database

if TYPE_CHECKING:
    from collections.abc import Callable

    Cli = Callable[..., subprocess.CompletedProcess[str]]

README = Path(__file__).resolve().parents[1] / "README.md"


def section() -> str:
    return README.read_text().split("## From `nsys profile` to answers\n")[1].split("\n## ")[0]


def commands() -> list[list[str]]:
    lines = re.findall(r"^\$ (kernelscope .*)$", section(), flags=re.MULTILINE)
    return [shlex.split(line)[1:] for line in lines]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A recording of two training steps, under the name that the commands use."""
    database = Database(tmp_path / "report.sqlite")
    for step in range(2):
        start = 10_000_000 * step
        database.range("train_step", start, start + 9_000_000)
        for number in range(3):
            at, correlation = start + 1_000_000 * number, 10 * step + number + 1
            database.range(f"aten::mm, op_id = {correlation}", at, at + 900_000)
            database.call(at + 100, at + 5_000, correlation=correlation)
            database.kernel(at + 50_000, at + 800_000, correlation=correlation)
    return database.close()


@pytest.mark.usefixtures("report")
@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_command(cli: Cli, arguments: list[str], tmp_path: Path) -> None:
    done = cli(*arguments)
    assert done.returncode == 0, done.stderr
    if "--out" in arguments:
        assert (tmp_path / arguments[arguments.index("--out") + 1]).stat().st_size > 0
    else:
        assert done.stdout.strip()


@pytest.mark.usefixtures("report")
def test_python(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", section(), flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, cwd=tmp_path, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_road_is_there() -> None:
    assert {arguments[0] for arguments in commands()} == {"info", "analyze", "stats"}
    assert len(commands()) >= 6


def test_analyze_shows_steps_and_ranges(cli: Cli, report: Path) -> None:
    text = cli("analyze", report, "--step-range", "train_step").stdout
    assert "Mean of 2 steps" in text or "2 steps" in text
    _, found, ranges = text.partition("NVTX ranges by their own time on the GPU")
    assert found
    row = next(line for line in ranges.splitlines() if line.startswith("aten::mm"))
    assert row.split()[1:4] == ["4.500", "ms", "100.0"]


def test_analyze_of_ranges_without_gpu_work(cli: Cli, tmp_path: Path) -> None:
    database = Database(tmp_path / "host.sqlite")
    database.range("load", 0, 4_000)
    text = cli("analyze", database.close()).stdout
    assert "NVTX ranges by their time on the host" in text
    assert "No range encloses a call with GPU work." in text
