"""``kernelscope.capture`` is the only package that reaches for torch, and only when it is used."""

import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "python/kernelscope"
_REACHES = re.compile(r"import torch|from torch|import_module\(\"(?:torch|nvtx)")


def test_only_capture_names_torch() -> None:
    reaching = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if _REACHES.search(path.read_text())
    }
    assert reaching == {"capture"}


def test_importing_it_imports_no_torch() -> None:
    heavy = "('torch', 'nvtx', 'polars')"
    code = f"import kernelscope.capture, sys; sys.exit(any(m in sys.modules for m in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_says_what_it_takes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope.capture", "--help"],
        capture_output=True, check=False, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0
    assert "nsys profile" in done.stdout
