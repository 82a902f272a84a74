"""What README and the page of commands show first is run, on a small demo trace."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelscope import _traceparse

ROOT = Path(__file__).resolve().parents[1]
START = (ROOT / "README.md").read_text().split("## Start\n")[1].split("\n## ")[0]
TEXTS = {"README.md": START, "docs/commands.md": (ROOT / "docs/commands.md").read_text()}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the traces that the pages name."""
    layout = _traceparse.demo_layouts()[0]
    for name, is_gzip in (("rank0.pt.trace.json.gz", True), ("after.json", False)):
        folder = tmp_path / "demo"
        folder.mkdir()
        _traceparse.write_demo(
            folder, size_bytes=300_000, ranks=1, seed=0, layout=layout, gzip=is_gzip, truth=False
        )
        (path,) = folder.iterdir()
        path.rename(tmp_path / name)
        shutil.rmtree(folder)
    return tmp_path


@pytest.mark.parametrize("page", TEXTS)
def test_programs(place: Path, page: str) -> None:
    for program in re.findall(r"```python\n(.*?)```", TEXTS[page], flags=re.DOTALL):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, check=False, cwd=place, text=True)
        assert done.returncode == 0, done.stderr


def test_commands(place: Path, cli: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    commands = re.findall(r"^\$ kernelscope (.*?)(?: +#.*)?$", START, flags=re.MULTILINE)
    assert commands
    for command in commands:
        done = cli(*shlex.split(command))
        assert done.returncode == 0, done.stderr


def test_links_lead_to_files() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for link in re.findall(r"\]\(([\w./-]+?)(?:#[\w-]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
