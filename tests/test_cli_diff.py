"""``kernelscope diff``: what it prints, and how it ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., subprocess.CompletedProcess[str]]

HOSTILE = "<script>1</script>|a`b\n# x\u202e[link](x:y) *y*\x1b[31m"


def write(path: Path, kernel: float, name: str = "gemm") -> Path:
    host: dict[str, Any] = {"ph": "X", "pid": 7, "tid": 7}
    events: list[dict[str, Any]] = []
    for step in (0, 1, 2):
        at, ids = 1000 * step, {"External id": step + 1, "correlation": step + 1}
        events += [
            {**host, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 500},
            {**host, "cat": "cpu_op", "name": name, "ts": at, "dur": 20, "args": {"External id": step + 1}},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 5, "dur": 5, "args": ids},
            {
                "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": at + 400,
                "dur": kernel + step, "args": {**ids, "device": 0, "stream": 7},
            },
        ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """The kernel that ends a step takes 200 us, and then 260 us."""
    return write(tmp_path / "a.json", 200), write(tmp_path / "b.json", 260)


def test_nothing_changed(cli: Cli, pair: tuple[Path, Path]) -> None:
    done = cli("diff", pair[0], pair[0], "--fail-on", "step>0%")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing changed" in done.stdout
    assert "kept" in done.stdout


def test_a_broken_bound_fails(cli: Cli, pair: tuple[Path, Path]) -> None:
    done = cli("diff", *pair, "--fail-on", "step>5%", "--fail-on", "kernel:gemm>1ms")
    assert done.returncode == 1
    assert done.stderr == "kernelscope: bound broken: 'step>5%'\n"
    assert "601.0 us -> 661.0 us, +60.00 us (+10.0 %), mean of 3 steps" in done.stdout
    assert "BROKEN  step>5%" in done.stdout
    assert "kept    kernel:gemm>1ms" in done.stdout


def test_bounds_of_significance(cli: Cli, tmp_path: Path) -> None:
    before, after = write(tmp_path / "a.json", 200), write(tmp_path / "b.json", 201)
    assert cli("diff", before, after, "--fail-on", "step>0.1%").returncode == 1
    assert cli("diff", before, after, "--fail-on", "step>0.1%", "--significant").returncode == 0


def test_json(cli: Cli, pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "diff.json"
    assert cli("diff", *pair, "--format", "json", "--out", out, "--fail-on", "step>5%").returncode == 1
    document = json.loads(out.read_text())
    assert document["step"] == {"before_ns": 601e3, "after_ns": 661e3, "delta_ns": 60e3, "steps": 3}
    assert sum(row["delta_ns"] for row in document["changes"]) == pytest.approx(60e3)
    assert [bound["is_broken"] for bound in document["bounds"]] == [True]
    assert {"operators", "kernels", "modules", "parts", "before", "after"} <= set(document)


def test_names_stay_text(cli: Cli, tmp_path: Path) -> None:
    before, after = write(tmp_path / "a.json", 200, HOSTILE), write(tmp_path / "b.json", 260, HOSTILE)
    markdown = cli("diff", before, after, "--format", "markdown").stdout
    table = [line for line in markdown.splitlines() if "script" in line]
    assert table
    for line in table:
        assert "<script>" not in line
        assert "\x1b" not in line
        assert "\u202e" not in line
        assert "\\|a" in line
        assert "\\[link\\]" in line
    text = cli("diff", before, after).stdout
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("bound", ["step", "op:nowhere>5%", "__import__('os').system('id')>1%"])
def test_a_bound_that_means_nothing_is_a_usage_error(cli: Cli, pair: tuple[Path, Path], bound: str) -> None:
    done = cli("diff", *pair, "--fail-on", bound)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kernelscope: ")


def test_a_trace_with_nothing_in_it(cli: Cli, pair: tuple[Path, Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": []}')
    done = cli("diff", pair[0], empty)
    assert done.returncode == 1
    assert "nothing to compare" in done.stderr
