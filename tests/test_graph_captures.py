"""``kernelscope.capture.profile_captures``: files of captures that make replays known, without a GPU."""

from __future__ import annotations

import gzip
import importlib.util
import json
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import polars as pl
import torch
from torch import nn

import kernelscope as ks
from events import Events
from kernelscope import capture
from kernelscope.analysis import op_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FailedError(Exception):
    """What a capture fails with."""


class Graph:
    """A graph that captures nothing, for machines without a GPU; its capture may be made to fail."""

    fails = False

    def capture_begin(self, *args: object, **options: Any) -> None:
        del args
        if options.get("fails"):
            raise FailedError
        with torch.profiler.record_function("cudaStreamBeginCapture"):
            pass

    def capture_end(self) -> str:
        if self.fails:
            raise FailedError
        with torch.profiler.record_function("cudaStreamEndCapture"):
            pass
        return "captured"


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts the graphs of above where PyTorch has its own; their methods must be put back as they were."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    own = (Graph.capture_begin, Graph.capture_end)
    yield
    assert (Graph.capture_begin, Graph.capture_end) == own


class Layer(nn.Module):
    """A product and an activation: each would launch one kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.mm(x, x))


def captured(graph: Any, model: nn.Module, size: int) -> None:
    graph.capture_begin(pool=None)
    model(torch.ones(size, size))
    assert graph.capture_end() == "captured"


KERNELS = {"aten::mm": "sgemm", "aten::relu": "relu_kernel"}


def as_recorded(path: Path) -> None:
    """Makes of a recording what a GPU's would be: operators launch, and those that ran have kernels."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    events, ids, is_open = [], count(1), False
    for event in sorted(document["traceEvents"], key=lambda event: event.get("ts", 0)):
        name = event.get("name", "")
        events.append(event)
        if name.startswith("cudaStream"):
            is_open = "Begin" in name
            event |= {"cat": "cuda_runtime", "args": {"correlation": next(ids)}}
        elif event.get("cat") == "cpu_op" and name in KERNELS:
            launch = {**event, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": event["dur"] / 2}
            args = {"correlation": next(ids), "device": 0, "stream": 7}
            events.append({**launch, "args": {"correlation": args["correlation"]}})
            if not is_open:
                work = {"cat": "kernel", "name": KERNELS[name], "pid": 0, "tid": 7, "args": args}
                events.append({**event, **work})
    path.write_bytes(gzip.compress(json.dumps({**document, "traceEvents": events}).encode()))


def test_replays_find_their_operators(tmp_path: Path) -> None:
    folder, model = tmp_path / "captures", Layer()
    with capture.profile_captures(folder, eager=True):
        for size in (8, 4):
            model(torch.ones(size, size))
            captured(Graph(), model, size)
        model(torch.ones(2, 2))
    files = sorted(folder.iterdir())
    assert [path.name.split(".")[-7] for path in files] == ["cycle0", "cycle1"]
    for path in files:
        as_recorded(path)
    replay = Events()
    replay.call(0, 5, 1, name="cudaGraphLaunch")
    for number, kernel in enumerate(KERNELS.values()):
        replay.kernel(kernel, 10 + 2 * number, 2, 1)
    path = replay.write(tmp_path / "trace.json")
    # Both sizes launch the same kernels: which one was replayed is unknown.
    assert ks.read(path, capture=folder).gpu_ops["match"].null_count() == 2
    trace = ks.read(path, capture=files[0])
    assert trace.gpu_ops["match"].cast(pl.String).to_list() == ["inferred"] * 2
    table = dict(op_table(trace, by=("name", "input_dims")).select("name", "input_dims").rows())
    dims = {name: json.loads(str(table[name]))[0] for name in KERNELS}
    assert dims == {"aten::mm": [8, 8], "aten::relu": [8, 8]}
    modules = trace.captured_nodes["module_path"].cast(pl.String).to_list()
    assert [path.split("/")[-1].startswith("Layer") for path in modules] == [True] * 2


def test_sizes_are_told(tmp_path: Path) -> None:
    sizes = iter([32, None])
    with capture.profile_captures(tmp_path, eager=False, batch_size=lambda: next(sizes)):
        torch.ones(1) + 1
        captured(Graph(), Layer(), 2)
        captured(Graph(), Layer(), 2)
    marked, unmarked = sorted(tmp_path.iterdir())
    names = ks.read(marked).ops["name"].cast(pl.String).to_list()
    assert names[0] == "capture_32"
    # What ran before the capture is not in it.
    assert "aten::add" not in names
    assert "aten::mm" in names
    assert "capture" not in " ".join(ks.read(unmarked).ops["name"].cast(pl.String))


def test_captures_that_fail_are_not_kept(tmp_path: Path) -> None:
    with capture.profile_captures(tmp_path, eager=False):
        with pytest.raises(FailedError):
            Graph().capture_begin(fails=True)
        failing = Graph()
        failing.fails = True
        failing.capture_begin()
        with pytest.raises(FailedError):
            failing.capture_end()
        captured(Graph(), Layer(), 2)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_program_that_raises_leaves_torch_as_it_was(tmp_path: Path) -> None:
    def run() -> None:
        with capture.profile_captures(tmp_path, eager=True):
            Graph().capture_begin()
            raise FailedError

    with pytest.raises(FailedError):
        run()
    assert list(tmp_path.iterdir()) == []
    assert not torch.autograd._profiler_enabled()


def test_overlapping_captures_share_a_file(tmp_path: Path) -> None:
    with capture.profile_captures(tmp_path, eager=False):
        outer = Graph()
        outer.capture_begin()
        thread = threading.Thread(target=captured, args=(Graph(), Layer(), 2))
        thread.start()
        thread.join()
        outer.capture_end()
    assert len(list(tmp_path.iterdir())) == 1


def test_within_another_profiler_a_warning_says_so(tmp_path: Path) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as other:
        with (
            pytest.warns(UserWarning, match="another PyTorch profiler"),
            capture.profile_captures(tmp_path, eager=True),
        ):
            pass
        with (
            pytest.warns(UserWarning, match="another PyTorch profiler"),
            capture.profile_captures(tmp_path, eager=False),
        ):
            captured(Graph(), Layer(), 2)
    assert list(tmp_path.iterdir()) == []
    assert any(event.key == "aten::mm" for event in other.key_averages())
