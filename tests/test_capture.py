"""``kernelscope.capture``: its records, what reads them back, and other patches of torch beside it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import polars as pl
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everyone calls it
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import kernelscope as ks
from capture_recording import Recorder, ResNet, line_of
from kernelscope import capture, errors
from kernelscope.capture.marks import Arguments
from kernelscope.capture.profiling import complete_profiler
from kernelscope.compat import pyprof
from kernelscope.costs.pyprof import parse_marker
from nsys_database import Database

HERE = str(Path(__file__).resolve())


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    assert made.open == []


def test_a_resnet(recorder: Recorder) -> None:
    model, batch = ResNet(), torch.randn(2, 3, 16, 16)
    with capture.annotate(to=recorder):
        model(batch)
    calls = [call for call in recorder.calls() if call[1] != "add_"]
    assert [call[1] for call in calls] == [
        "conv2d", "conv2d", "batch_norm", "add", "relu", "conv2d", "batch_norm", "add", "relu",
        "adaptive_avg_pool2d", "linear",
    ]  # fmt: skip
    # Each batch norm counts its batches.
    assert recorder.ops().count("add_") == 2
    stem, first = calls[0], calls[1]
    assert stem[1:3] == ("conv2d", [(2, 3, 16, 16), (8, 3, 7, 7), (8,)])
    assert stem[3:] == (["float32"] * 3, "ResNet.stem", line_of("stem"))
    assert first[2:5] == ([(2, 8, 8, 8), (8, 8, 3, 3)], ["float32"] * 2, "ResNet.layer1.0.conv1")
    relu = [call for call in calls if call[1] == "relu"][1]
    assert (relu[0], relu[2]) == ("torch.nn.functional", [(2, 8, 8, 8)])
    assert relu[4:] == ("ResNet.layer1.1", line_of("residual"))
    assert calls[-1][2:5] == ([(2, 8), (10, 8), (10,)], ["float32"] * 3, "ResNet.fc")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(2, 5, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)  # attend


def test_a_transformer(recorder: Recorder) -> None:
    model = nn.Sequential(Attention().to(torch.bfloat16))
    with capture.annotate(to=recorder):
        model(torch.randn(2, 5, 16, dtype=torch.bfloat16))
    attention = next(call for call in recorder.calls() if call[1] == "scaled_dot_product_attention")
    assert attention[0] == "torch.nn.functional"
    assert attention[2:4] == ([(2, 2, 5, 8)] * 3, ["bfloat16"] * 3)
    assert attention[4:] == ("Sequential.0", line_of("attend", HERE))


def test_inside_of_multi_head_attention(recorder: Recorder) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    with capture.annotate(to=recorder):
        layer(torch.randn(1, 3, 8))
    calls = recorder.calls()
    inside = [call[1] for call in calls if call[4] == "TransformerEncoderLayer.self_attn"]
    assert inside[0] == "multi_head_attention_forward"
    assert inside.count("linear") == 2
    assert "scaled_dot_product_attention" in inside
    norms = [call[4] for call in calls if call[1] == "layer_norm"]
    assert norms == ["TransformerEncoderLayer.norm1", "TransformerEncoderLayer.norm2"]


def test_an_lstm(recorder: Recorder) -> None:
    with capture.annotate(to=recorder):
        nn.LSTM(8, 4)(torch.randn(3, 2, 8))  # lstm
    call = next(call for call in recorder.calls() if call[1] == "lstm")
    assert (call[0], call[2][0], *call[4:]) == ("torch", (3, 2, 8), "LSTM", line_of("lstm", HERE))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return gradient * 2  # gradient of double


def test_a_custom_autograd_function(recorder: Recorder) -> None:
    double = capture.wrap(Double)
    x = torch.randn(4, requires_grad=True)
    with capture.annotate(to=recorder):
        double(x).sum().backward()  # call double
    calls = recorder.calls()
    line = line_of("call double", HERE)
    assert calls[0] == ("Double", "forward", [(4,)], ["float32"], None, line)
    assert [call[:2] for call in calls[1:3]] == [("Tensor", "mul"), ("Tensor", "sum")]
    assert calls[-1][5] == line_of("gradient of double", HERE)
    assert torch.equal(x.grad, torch.full((4,), 2.0))


def test_wrapped_functions_work_without_annotation(recorder: Recorder) -> None:
    def scale(x: torch.Tensor, by: float) -> torch.Tensor:
        """Scales."""
        return x * by

    wrapped = capture.wrap(scale, op="scale_it")
    assert (wrapped.__name__, wrapped.__doc__) == ("scale", "Scales.")
    assert wrapped(torch.ones(2), by=3.0).tolist() == [3.0, 3.0]
    with capture.annotate(to=recorder):
        wrapped(torch.ones(2), by=3.0)
    assert recorder.ops() == ["ones", "scale_it", "mul"]


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner(x)
        return torch.matmul(x, torch.ones(7, 7))


def test_exceptions_leave_no_range_open(recorder: Recorder) -> None:
    model = nn.Sequential(Fails())
    with capture.annotate(to=recorder):
        for _ in range(2):
            with pytest.raises(RuntimeError):
                model(torch.ones(3, 2))
            assert recorder.open == []
        F.relu(torch.ones(1))
    assert recorder.ops()[-1] == "relu"
    assert recorder.calls()[-1][4] is None


def test_an_exception_that_leaves_the_region(recorder: Recorder) -> None:
    with pytest.raises(RuntimeError), capture.annotate(to=recorder):
        nn.Sequential(Fails())(torch.ones(3, 2))
    assert recorder.open == []
    assert not torch.nn.modules.module._global_forward_hooks
    torch.ones(1) + 1
    assert recorder.ops()[-1] == "matmul"


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise RuntimeError("no gradient")


def test_an_exception_in_the_backward_pass(recorder: Recorder) -> None:
    x = torch.randn(4, requires_grad=True)
    with capture.annotate(to=recorder):
        with pytest.raises(RuntimeError, match="no gradient"):
            (Broken.apply(x * 2) * 3).sum().backward()
        assert recorder.open == []
        (x * 3).sum().backward()
    assert recorder.open == []


def test_nodes_of_the_backward_pass_have_the_number_of_their_operator(recorder: Recorder) -> None:
    layer, x = nn.Linear(3, 4), torch.randn(2, 5, 3)
    with capture.annotate(to=recorder):
        F.relu(layer(x)).sum().backward()
    numbers = {parse_marker(text).op: n for _, text, n in recorder.ranges if parse_marker(text) is not None}  # type: ignore[union-attr]
    nodes = {text: number for _, text, number in recorder.ranges if "Backward" in text}
    assert nodes["ReluBackward0"] == numbers["relu"]
    assert nodes["AddmmBackward0"] == numbers["linear"]
    assert nodes["SumBackward0"] == numbers["sum"]
    assert len({numbers["linear"], numbers["relu"], numbers["sum"]}) == 3


def test_results_and_gradients_are_unchanged(recorder: Recorder) -> None:
    torch.manual_seed(0)
    model, batch = ResNet(), torch.randn(2, 3, 16, 16)
    plain = model(batch)
    plain.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with capture.annotate(to=recorder):
        watched = model(batch)
        watched.sum().backward()
    assert torch.equal(plain, watched)
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients, model.parameters(), strict=True))


def test_values_of_tensors_are_not_read() -> None:
    """A tensor of the device meta has no values: reading one fails, where on a GPU it would wait."""
    arguments = Arguments()
    x, scalar = torch.empty(2, 3, device="meta"), torch.empty((), device="meta", dtype=torch.float64)
    key = arguments.key((x, [x, x], scalar, 0.1234567891, float("inf")), {"dim": 1, "dtype": torch.int8})
    found = [entry.get("shape", entry.get("value")) for entry in arguments.entries(key)]
    assert found == [(2, 3), (2, 3), (2, 3), (), None, "inf", 1]
    assert arguments.entries(key)[3]["dtype"] == "float64"


def test_annotation_cannot_be_nested_and_ends(recorder: Recorder) -> None:
    with capture.annotate(to=recorder), pytest.raises(errors.InvalidArgumentError, match="already"):
        capture.init(backend="profiler")
    capture.init(backend="profiler")
    capture.stop()
    capture.stop()
    with pytest.raises(errors.InvalidArgumentError, match="no backend"), capture.annotate(backend="paper"):
        pass
    with capture.annotate(to=recorder):
        torch.ones(1)
    assert recorder.ops() == ["ones"]


def test_nvtx_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(errors.InvalidArgumentError, match="pip install nvtx"), capture.annotate():
        pass


@pytest.mark.slow
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
    assert (linear["shapes"], linear["dtypes"]) == ([[2, 8], [10, 8], [10]], ["float32"] * 3)
    assert (linear["module"], linear["line"]) == ("ResNet.fc", line_of("head"))
    said = calls.select(call_row="row", op="op", path="module")
    linked = pyprof.call_of_ops(trace).join(said, on="call_row")
    ops = trace.ops.join(linked, on="row").with_columns(pl.col("name").cast(pl.String))
    addmm = ops.filter(name="aten::addmm")
    assert addmm.select("op", "path").unique().rows() == [("linear", "ResNet.fc")]
    # Whatever ran inside of the model is inside of a call, and every call has its shapes.
    forward = trace.ops.filter((pl.col("phase") == "forward") & (pl.col("name") == "aten::_convolution"))
    assert set(forward["row"]) <= set(linked["row"])


# Each cycle is written, so that none has to be kept.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_recordings_have_stacks_and_names(tmp_path: Path) -> None:
    """After the steps that are skipped, each cycle is a file."""
    model = nn.Linear(4, 4)
    with capture.profile(tmp_path, skip_first=1, warmup=1, active=1, repeat=2, memory=False) as profiler:
        for _ in range(5):
            model(torch.randn(2, 4))
            profiler.step()
    paths = sorted(tmp_path.iterdir())
    names = [path.name.split(".")[-8:-4] for path in paths]
    assert [name[:3] for name in names] == [["rank0", "cycle0", "step3"], ["rank0", "cycle1", "step5"]]
    for path in paths:
        trace = ks.read(path)
        linear = trace.ops.filter(pl.col("name").cast(pl.String) == "aten::linear")
        assert linear["call_stack"].cast(pl.String).str.contains("test_capture.py").to_list() == [True]


def test_every_device_that_torch_knows_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also XPU and what registers itself as privateuse1, of which this machine has none."""
    activity = torch.profiler.ProfilerActivity
    known = [activity.CPU, activity.CUDA, activity.XPU, activity.PrivateUse1]
    asked: dict[str, Any] = {}
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: set(known))
    monkeypatch.setattr(torch.profiler, "profile", lambda **options: asked.update(options))
    complete_profiler(lambda _: None, stack=False, memory=False)
    assert set(asked["activities"]) == set(known)


@pytest.mark.slow
def test_a_page_beside_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = capture.trace_handler(tmp_path, page=True)
    with torch.profiler.profile(on_trace_ready=handler):
        torch.ones(2) + 1
    recorded, page = sorted(tmp_path.iterdir(), key=lambda path: path.suffix)
    assert (recorded.suffix, page.suffix) == (".gz", ".html")
    assert page.read_text().startswith("<!DOCTYPE html>")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.warns(UserWarning, match="was not written"), torch.profiler.profile(on_trace_ready=handler):
        torch.ones(2) + 1


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
    assert (linear["params"], linear["layer"]) == ("M=8,N=2,K=4,fp32,", ["Sequential", "0"])
    assert linear["mod"] == "torch.nn.functional"
    assert linear["trace"][0].rpartition(":")[0] == __file__
    assert (linear["flops"], linear["bytes"]) == (2 * 2 * 4 * 8, 4 * (8 + 32 + 8 + 16))
    backward = table.filter(pl.col("dir") == "bprop")
    assert set(backward["op"]) >= {"linear", "relu", "sum"}
    relu = backward.filter(op="relu").to_dicts()[0]
    assert (relu["layer"], relu["params"]) == (["Sequential", "1"], "[2,8]fp32")


class Mixed(nn.Module):
    """Convolution, recurrence and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.lstm, self.gru = nn.LSTM(8, 8, 2, bidirectional=True), nn.GRU(16, 16)
        self.attention, self.head = nn.MultiheadAttention(16, 2), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2).flatten(2).permute(2, 0, 1)
        x = self.gru(self.lstm(x)[0])[0]
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(x.mean(0))


def test_every_call_of_a_training_step_has_figures(tmp_path: Path) -> None:
    recorder, model = Recorder(), Mixed()
    optimizers = [
        torch.optim.SGD(model.conv.parameters(), lr=0.1, momentum=0.9, foreach=False),
        torch.optim.Adam([*model.lstm.parameters(), *model.head.parameters()], lr=0.1, foreach=False),
        torch.optim.Adam(model.attention.parameters(), lr=0.1, foreach=True),
    ]
    batch, target = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])
    for step in range(2):
        # The state of the optimizers is there from the second step on.
        with capture.annotate(to=recorder if step else Recorder()), FlopCounterMode(display=False) as counter:
            loss = F.cross_entropy(model(batch), target)
            counted = counter.get_total_flops()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
    table = pyprof.pyprof_table(record(recorder.ranges, tmp_path / "t.sqlite"))
    calls = table.filter((pl.col("dir") == "fprop") & pl.col("op").is_not_null())
    attention = pl.col("op") == "multi_head_attention_forward"
    assert {"conv2d", "lstm", "gru", "cross_entropy", "mul_", "add_", "lerp_", "addcdiv_"} <= set(calls["op"])
    # Of attention the layer itself and three views launch nothing; torch.tensor is made on the host.
    unknown = calls.filter(
        pl.any_horizontal(pl.col("flops", "bytes", "params").is_null()) & (pl.col("op") != "tensor")
    )
    assert unknown.select(attention.all(), pl.len()).row(0) == (True, 4)
    # As many in products as PyTorch counts, but for the LSTM, which is one operator of oneDNN.
    products = calls.filter(attention | pl.col("op").is_in(["conv2d", "gru", "linear"]))
    assert products["flops"].sum() == counted


@pytest.mark.slow
def test_a_script_runs_as_it_is(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "assert __name__ == '__main__'\n"
        "print('got', sys.argv[1:])\n"
        "torch.nn.Linear(2, 3)(torch.ones(1, 2))\n"
    )
    command = [sys.executable, "-m", "kernelscope.capture", "--out", "traces", "train.py", "--epochs", "3"]
    done = subprocess.run(command, capture_output=True, check=False, cwd=tmp_path, text=True)
    assert done.returncode == 0, done.stderr
    assert "got ['--epochs', '3']" in done.stdout
    (path,) = (tmp_path / "traces").iterdir()
    calls = pyprof.captured_calls(ks.read(path))
    (row,) = calls.filter(op="linear").select("shapes", "line").rows()
    assert row == ([[1, 2], [3, 2], [3]], f"{script}:4")


class Own(torch.Tensor):
    """A subclass of tensors, which goes through the same protocol."""


def _adam() -> None:
    layer = nn.Linear(4, 4)
    layer(torch.ones(2, 4)).sum().backward()
    torch.optim.Adam(layer.parameters()).step()


def _compiled() -> None:
    assert torch.compile(lambda x: F.relu(x) + 1, backend="eager")(torch.ones(2)).tolist() == [2, 2]


def _transforms() -> None:
    assert torch.func.grad(lambda x: (x * x).sum())(torch.ones(2)).tolist() == [2, 2]
    assert torch.func.vmap(lambda x: x * 2)(torch.ones(2)).tolist() == [2, 2]


def _subclass() -> None:
    assert isinstance(torch.ones(2).as_subclass(Own) + 1, Own)


def _checkpoints() -> None:
    layer, x = nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)
    for reentrant in (False, True):
        checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    assert x.grad is not None


def _second_derivative() -> None:
    x = torch.ones(2, requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [6, 6]


def _twice_backward() -> None:
    x = torch.ones(2, requires_grad=True)
    loss = (x * x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4, 4]


def _counted() -> None:
    with FlopCounterMode(display=False) as counter:
        nn.Linear(4, 4)(torch.ones(2, 4))
    assert counter.get_total_flops() == 2 * 2 * 4 * 4


def _another_thread() -> None:
    done: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: done.append(nn.Linear(2, 2)(torch.ones(1, 2))))
    thread.start()
    thread.join()
    assert done[0].shape == (1, 2)


PROGRAMS = [
    *(_adam, _compiled, _transforms, _subclass, _checkpoints, _second_derivative, _twice_backward),
    *(_counted, _another_thread),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_works_as_without(program: Callable[[], None], recorder: Recorder) -> None:
    with capture.annotate(to=recorder):
        program()
    assert recorder.ranges
