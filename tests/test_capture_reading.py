"""What ``kernelscope.capture`` writes is read back with shapes, types, modules and lines."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import polars as pl
import torch
from torch import nn

import kernelscope as ks
from capture_recording import Recorder, ResNet, line_of
from kernelscope import capture
from kernelscope.compat import pyprof
from nsys_database import Database

if TYPE_CHECKING:
    from pathlib import Path


def test_the_profiler_backend_is_read_back(tmp_path: Path) -> None:
    model = ResNet()
    with capture.profile(tmp_path, warmup=1, active=1, annotate=True, memory=False) as profiler:
        for _ in range(2):
            model(torch.randn(2, 3, 16, 16)).sum().backward()
            profiler.step()
    (path,) = tmp_path.iterdir()
    assert path.name.endswith(".pt.trace.json.gz")
    assert ".rank0." in path.name
    trace = ks.read(path)
    calls = pyprof.captured_calls(trace)
    linear = calls.filter(op="linear").to_dicts()[0]
    assert (linear["shapes"], linear["dtypes"], linear["module"]) == (
        [[2, 8], [10, 8], [10]], ["float32"] * 3, "ResNet.fc",
    )  # fmt: skip
    assert linear["line"] == line_of("head")
    said = calls.select(call_row="row", op="op", path="module")
    linked = pyprof.call_of_ops(trace).join(said, on="call_row")
    ops = trace.ops.join(linked, on="row").with_columns(pl.col("name").cast(pl.String))
    addmm = ops.filter(name="aten::addmm")
    assert addmm.select("op", "path").unique().rows() == [("linear", "ResNet.fc")]
    # Whatever ran inside of the model is inside of a call, and every call has its shapes.
    forward = trace.ops.filter((pl.col("phase") == "forward") & (pl.col("name") == "aten::_convolution"))
    assert set(forward["row"]) <= set(linked["row"])


def record(ranges: list[tuple[int, str, int | None]], path: Path) -> ks.Trace:
    """A database of nsys as if these ranges had been recorded, with a kernel launched in each."""
    database = Database(path)
    database.insert(
        "NVTX_EVENTS", eventType=75, text="kernelscope", domainId=1, start=0, globalTid=1 << 48 | 7 << 24
    )
    now, open_ranges, rows = 100, [], []
    for depth, text, number in [*ranges, (0, "", None)]:
        while len(open_ranges) > depth:
            rows.append((*open_ranges.pop(), now := now + 1))
        now += 1
        if text:
            open_ranges.append((text, number, now))
            database.call(now + 1, now + 3, correlation=now)
            database.kernel(now + 2, now + 9, correlation=now)
            now += 10
    for text, number, start, end in rows:
        texts = database.insert("StringIds", value=text)
        database.range(None, start, end, textId=texts, domainId=1, int64Value=number)
    return ks.read(database.close())


def test_nvtx_ranges_are_read_back(tmp_path: Path) -> None:
    recorder = Recorder()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    with capture.annotate(to=recorder):
        model(torch.randn(2, 4)).sum().backward()
    table = pyprof.pyprof_table(record(recorder.ranges, tmp_path / "t.sqlite"))
    called = table.filter(pl.col("params") != "")
    linear = called.filter((pl.col("op") == "linear") & (pl.col("dir") == "fprop")).to_dicts()[0]
    assert (linear["params"], linear["layer"], linear["mod"]) == (
        "M=8,N=2,K=4,fp32,", ["Sequential", "0"], "torch.nn.functional",
    )  # fmt: skip
    assert linear["trace"][0].rpartition(":")[0] == __file__
    assert (linear["flops"], linear["bytes"]) == (2 * 2 * 4 * 8, 4 * (8 + 32 + 8 + 16))
    backward = table.filter(pl.col("dir") == "bprop")
    assert set(backward["op"]) >= {"linear", "relu", "sum"}
    relu = backward.filter(op="relu").to_dicts()[0]
    assert (relu["layer"], relu["params"]) == (["Sequential", "1"], "[2,8]fp32")


def test_a_script_runs_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "assert __name__ == '__main__'\n"
        "print('got', sys.argv[1:])\n"
        "torch.nn.Linear(2, 3)(torch.ones(1, 2))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "kernelscope.capture", "--out", "traces", "train.py", "--epochs", "3"],
        capture_output=True, check=False, cwd=tmp_path, encoding="utf-8", timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "got ['--epochs', '3']" in done.stdout
    (path,) = (tmp_path / "traces").iterdir()
    calls = pyprof.captured_calls(ks.read(path))
    assert calls.filter(op="linear").select("shapes", "line").rows() == [
        ([[1, 2], [3, 2], [3]], f"{script}:4"),
    ]  # fmt: skip
