"""What ``kernelscope.capture`` says of models that run on the CPU, and that the package reads it back."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

import capture_recording as recording
from capture_recording import Recorder, ResNet
from kernelscope import capture, errors
from kernelscope.capture.marks import Arguments
from kernelscope.costs.pyprof import parse_marker

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    assert stem[1:] == (
        "conv2d", [(2, 3, 16, 16), (8, 3, 7, 7), (8,)], ["float32"] * 3, "ResNet.stem",
        recording.line_of("stem"),
    )  # fmt: skip
    assert first[2:5] == ([(2, 8, 8, 8), (8, 8, 3, 3)], ["float32"] * 2, "ResNet.layer1.0.conv1")
    relu = [call for call in calls if call[1] == "relu"][1]
    assert (relu[0], relu[2], relu[4], relu[5]) == (
        "torch.nn.functional",
        [(2, 8, 8, 8)],
        "ResNet.layer1.1",
        recording.line_of("residual"),
    )
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
    assert attention == (
        "torch.nn.functional", "scaled_dot_product_attention", [(2, 2, 5, 8)] * 3, ["bfloat16"] * 3,
        "Sequential.0", recording.line_of("attend", HERE),
    )  # fmt: skip


def test_inside_of_multi_head_attention(recorder: Recorder) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
    with capture.annotate(to=recorder):
        layer(torch.randn(1, 3, 8))
    calls = recorder.calls()
    inside = [call[1] for call in calls if call[4] == "TransformerEncoderLayer.self_attn"]
    assert inside[0] == "multi_head_attention_forward"
    assert inside.count("linear") == 2
    assert "scaled_dot_product_attention" in inside
    assert [call[4] for call in calls if call[1] == "layer_norm"] == [
        "TransformerEncoderLayer.norm1", "TransformerEncoderLayer.norm2",
    ]  # fmt: skip


def test_an_lstm(recorder: Recorder) -> None:
    with capture.annotate(to=recorder):
        nn.LSTM(8, 4)(torch.randn(3, 2, 8))  # lstm
    call = next(call for call in recorder.calls() if call[1] == "lstm")
    assert (call[0], call[2][0], call[4], call[5]) == (
        "torch",
        (3, 2, 8),
        "LSTM",
        recording.line_of("lstm", HERE),
    )


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
    assert calls[0] == (
        "Double",
        "forward",
        [(4,)],
        ["float32"],
        None,
        recording.line_of("call double", HERE),
    )
    assert [call[:2] for call in calls[1:3]] == [("Tensor", "mul"), ("Tensor", "sum")]
    assert calls[-1][5] == recording.line_of("gradient of double", HERE)
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
    assert [entry.get("shape", entry.get("value")) for entry in arguments.entries(key)] == [
        (2, 3), (2, 3), (2, 3), (), None, "inf", 1,
    ]  # fmt: skip
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
