"""FLOPs equal those of torch's own counter, operator by operator and for whole models."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import draws
import kernelscope
from kernelscope.costs import CONVENTIONS, cost_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed; its FLOP counter is compared with")

from recording import recording, texts_of  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: E402

EXAMPLES = settings(max_examples=draws.count(200, 4_000), suppress_health_check=[HealthCheck.too_slow])
aten = torch.ops.aten

SIZE = st.integers(1, 24)
DTYPE = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])


def _empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _check(run: Callable[[], Any], *, same: bool = True) -> int:
    """Compares both counts of what ``run`` does; ``same``: kernelscope's own convention agrees."""
    with FlopCounterMode(display=False) as counter, recording() as rows:
        run()
    counted = [cost_of(row.name, *row.texts, convention="torch") for row in rows]
    total = counter.get_total_flops()
    assert sum(cost.flops or 0 for cost in counted) == total
    if same:
        registered = [row for row in rows if row.name in CONVENTIONS["torch"].counted]
        own = [cost_of(row.name, *row.texts).flops for row in registered]
        assert sum(flops or 0 for flops in own) == total
    return total


def _formula(packet: Any, args: list[Any], out: Any) -> int:
    return flop_registry[packet](*args, out_val=out)


def test_every_operator_of_the_registry_is_counted() -> None:
    packets = [op for op in flop_registry if hasattr(op, "overloads")]
    registered = {f"aten::{op._qualified_op_name.partition('::')[2]}" for op in packets}
    assert registered == CONVENTIONS["torch"].counted


@EXAMPLES
@given(st.data(), DTYPE)
def test_products(data: st.DataObject, dtype: torch.dtype) -> None:
    m, n, k, b = (data.draw(SIZE) for _ in range(4))
    a, c = _empty(m, k, dtype=dtype), _empty(k, n, dtype=dtype)
    ba, bc = _empty(b, m, k, dtype=dtype), _empty(b, k, n, dtype=dtype)
    _check(lambda: torch.mm(a, c))
    _check(lambda: torch.addmm(_empty(n, dtype=dtype), a, c))
    _check(lambda: torch.addmm(_empty(m, n, dtype=dtype), a, c, beta=0))
    _check(lambda: torch.bmm(ba, bc))
    _check(lambda: torch.baddbmm(_empty(b, m, n, dtype=dtype), ba, bc))
    _check(lambda: F.linear(ba, _empty(n, k, dtype=dtype)))


@EXAMPLES
@given(SIZE, SIZE, SIZE)
def test_scaled_product(m: int, n: int, k: int) -> None:
    a = torch.empty((16 * m, 16 * k), dtype=torch.float8_e4m3fn, device="meta")
    b = torch.empty((16 * n, 16 * k), dtype=torch.float8_e4m3fn, device="meta").t()
    scale = torch.empty((), device="meta")
    args = [a, b, scale, scale, None, None, torch.bfloat16, False]
    cost = cost_of("aten::_scaled_mm", *texts_of(args), convention="torch")
    assert cost.flops == _formula(aten._scaled_mm, args, _empty(16 * m, 16 * n))
    assert cost.flops == cost_of("aten::_scaled_mm", *texts_of(args)).flops


def test_complex_products_are_four_real_ones() -> None:
    texts = texts_of([torch.empty((2, 3), dtype=torch.complex64), torch.empty((3, 4), dtype=torch.complex64)])
    assert cost_of("aten::mm", *texts, convention="torch").flops == 48
    assert cost_of("aten::mm", *texts).flops == 192


def _convolution(data: st.DataObject, rank: int) -> tuple[list[Any], bool]:
    """Input, weight, bias and geometry of a valid convolution."""
    groups, transposed = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    c_in, c_out = groups * data.draw(st.integers(1, 4)), groups * data.draw(st.integers(1, 4))
    window = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    stride = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    dilation = [data.draw(st.integers(1, 2)) for _ in range(rank)]
    padding = [data.draw(st.integers(0, w // 2)) for w in window]
    extra = [data.draw(st.integers(0, s - 1)) if transposed else 0 for s in stride]
    size = [data.draw(st.integers(d * (w - 1) + 1, 12)) for w, d in zip(window, dilation, strict=True)]
    x = _empty(data.draw(st.integers(1, 3)), c_in, *size)
    weight = _empty(*((c_in, c_out // groups) if transposed else (c_out, c_in // groups)), *window)
    bias = _empty(c_out) if data.draw(st.booleans()) else None
    return [x, weight, bias, stride, padding, dilation, transposed, extra, groups], groups == 1


@EXAMPLES
@given(st.data(), st.integers(1, 3))
def test_convolutions(data: st.DataObject, rank: int) -> None:
    args, _ = _convolution(data, rank)
    _check(lambda: aten.convolution(*args))


@EXAMPLES
@given(st.data(), st.integers(1, 3))
def test_convolution_gradients(data: st.DataObject, rank: int) -> None:
    args, one_group = _convolution(data, rank)
    grad = aten.convolution(*args)
    mask = [data.draw(st.booleans()) for _ in range(3)]
    x, weight, bias, *geometry = args
    sizes = [grad.shape[1]] if bias is not None else [0]
    # torch counts the gradient by a grouped weight once too often per group.
    _check(
        lambda: aten.convolution_backward(grad, x, weight, sizes, *geometry, mask),
        same=one_group or not mask[1],
    )


@EXAMPLES
@given(st.data(), st.booleans())
def test_cudnn_convolution_reads_benchmark_as_transposed(data: st.DataObject, benchmark: bool) -> None:
    (x, weight, _, stride, padding, dilation, transposed, extra, groups), _ = _convolution(data, 2)
    if transposed:
        return
    out = aten.convolution(x, weight, None, stride, padding, dilation, False, extra, groups)
    args = [x, weight, padding, stride, dilation, groups, benchmark, False, True]
    cost = cost_of("aten::cudnn_convolution", *texts_of(args), convention="torch")
    assert cost.flops == _formula(aten.cudnn_convolution, args, out)
    args[6] = False
    own = cost_of("aten::cudnn_convolution", *texts_of(args))
    assert own.flops == _formula(aten.cudnn_convolution, args, out)


def _heads(data: st.DataObject, *, heads_first: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    b, groups, kv, q_len, k_len, d = (data.draw(st.integers(1, 9)) for _ in range(6))
    size_v = data.draw(st.integers(1, 9))

    def tensor(heads: int, length: int, size: int) -> torch.Tensor:
        return _empty(b, heads, length, size) if heads_first else _empty(b, length, heads, size)

    return tensor(groups * kv, q_len, d), tensor(kv, k_len, d), tensor(kv, k_len, size_v)


@EXAMPLES
@given(st.data(), st.booleans())
def test_scaled_dot_product_attention(data: st.DataObject, causal: bool) -> None:
    q, k, v = _heads(data, heads_first=True)
    out, lse = _empty(*q.shape[:-1], v.shape[-1]), _empty(*q.shape[:-1])
    seed = torch.empty((), dtype=torch.int64, device="meta")
    calls = {
        aten._scaled_dot_product_flash_attention: [q, k, v, 0.0, causal, False],
        aten._scaled_dot_product_flash_attention_for_cpu: [q, k, v, 0.0, causal],
        aten._scaled_dot_product_efficient_attention: [q, k, v, None, True, 0.0, causal],
        aten._scaled_dot_product_cudnn_attention: [q, k, v, None, True, 0.0, causal, False],
        aten._scaled_dot_product_flash_attention_backward: [
            *(out, q, k, v, out, lse, None, None, q.shape[2], k.shape[2], 0.0, causal, seed, seed)
        ],
        aten._scaled_dot_product_flash_attention_for_cpu_backward: [out, q, k, v, out, lse, 0.0, causal],
        aten._scaled_dot_product_efficient_attention_backward: [
            *(out, q, k, v, None, out, lse, seed, seed, 0.0, [True, True, True, False], causal)
        ],
        aten._scaled_dot_product_cudnn_attention_backward: [
            *(out, q, k, v, out, lse, seed, seed, None, None, None, q.shape[2], k.shape[2], 0.0, causal)
        ],
    }
    for packet, args in calls.items():
        name, want = packet._qualified_op_name, _formula(packet, args, out)
        assert cost_of(name, *texts_of(args), convention="torch").flops == want, name
        own = cost_of(name, *texts_of(args)).flops
        # A causal mask leaves less than all pairs, unless every query sees the only key.
        assert own == want if not causal else 0 < (own or 0) <= want, name


@EXAMPLES
@given(st.data(), st.booleans())
def test_flash_attention(data: st.DataObject, causal: bool) -> None:
    q, k, v = _heads(data, heads_first=False)
    out, lse = _empty(*q.shape[:-1], v.shape[-1]), _empty(*q.shape[:-1])
    args = [q, k, v, None, None, q.shape[1], k.shape[1], 0.0, causal, False]
    cost = cost_of("aten::_flash_attention_forward", *texts_of(args), convention="torch")
    assert cost.flops == _formula(aten._flash_attention_forward, args, out)
    args = [out, q, k, v, out, lse, None, None, q.shape[1], k.shape[1], 0.0, causal, None, None]
    cost = cost_of("aten::_flash_attention_backward", *texts_of(args), convention="torch")
    assert cost.flops == _formula(aten._flash_attention_backward, args, out)


@EXAMPLES
@given(st.data(), st.integers(1, 4))
def test_packed_attention(data: st.DataObject, count: int) -> None:
    heads, d, q_len, k_len = (data.draw(st.integers(1, 9)) for _ in range(4))
    q, k = _empty(count * q_len, heads, d), _empty(count * k_len, heads, d)
    offsets = torch.empty((count + 1,), dtype=torch.int32, device="meta")
    args = [q, k, k, offsets, offsets, q_len, k_len, 0.0, False, False]
    want = _formula(aten._flash_attention_forward, args, q)
    assert cost_of("aten::_flash_attention_forward", *texts_of(args), convention="torch").flops == want
    # Equal lengths are what kernelscope assumes.
    assert cost_of("aten::_flash_attention_forward", *texts_of(args)).flops == want
    sums = _empty(heads, count * q_len)
    args = [q, q, k, k, q, sums, offsets, offsets, q_len, k_len, 0.0, False, None, None]
    want = _formula(aten._flash_attention_backward, args, q)
    assert cost_of("aten::_flash_attention_backward", *texts_of(args), convention="torch").flops == want
    assert cost_of("aten::_flash_attention_backward", *texts_of(args)).flops == want


@EXAMPLES
@given(st.data())
def test_efficient_attention_reads_lengths_as_heads(data: st.DataObject) -> None:
    b, s, h, d = (data.draw(st.integers(1, 9)) for _ in range(4))
    q = _empty(b, s, h, d)
    args = [q, q, q, None, None, None, None, None, 0.0, 0, True]
    cost = cost_of("aten::_efficient_attention_forward", *texts_of(args), convention="torch")
    assert cost.flops == _formula(aten._efficient_attention_forward, args, q)
    # The right count has every head over its own length.
    assert cost_of("aten::_efficient_attention_forward", *texts_of(args)).flops == 4 * b * h * s * s * d
    args = [q, q, q, q, None, q, None, None, s, s, _empty(b, h, s), 0.0, None, None, 0, False]
    cost = cost_of("aten::_efficient_attention_backward", *texts_of(args), convention="torch")
    assert cost.flops == _formula(aten._efficient_attention_backward, args, q)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(-2))


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norms = _Attention(), nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])
        self.inner = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.inner(self.norms[1](x))


class _Experts(nn.Module):
    """Every token goes to its best two of four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)) for _ in range(4)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(0, -2)
        weights, chosen = self.router(flat).softmax(-1).topk(2, -1)
        out = torch.zeros_like(flat)
        for index, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == index)
            out = out.index_add(0, rows, expert(flat[rows]) * weights[rows, places, None])
        return out


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(16, 24, num_layers=2, bidirectional=True), nn.Linear(48, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(x)[0])


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.deep = nn.Sequential(
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.SiLU(), nn.ConvTranspose2d(16, 8, 2, 2)
        )
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(16, 3, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shallow = self.down(x)
        return self.up(torch.cat([shallow, self.deep(shallow)], 1))


class _ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.MaxPool2d(3, 2, 1)
        )
        self.block = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head(x + self.block(x))


class _ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, 32, 8, 8), nn.Sequential(_Block(), _Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.patches(x).flatten(2).transpose(1, 2))


MODELS = {
    "resnet": (_ResNet, (2, 3, 64, 64)),
    "vit": (_ViT, (2, 3, 32, 32)),
    "gpt": (lambda: nn.Sequential(_Block(), _Block(), nn.Linear(32, 100)), (2, 12, 32)),
    "lstm": (_Recurrent, (7, 2, 16)),
    "unet": (_UNet, (1, 3, 16, 16)),
    "experts": (_Experts, (2, 6, 32)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, tmp_path: Path) -> None:
    """Forward and backward, as dispatched, and from the profile that torch exports."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), torch.randn(shape, requires_grad=True)
    total = _check(lambda: model(x).sum().backward(), same=False)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, record_shapes=True) as profile:
        model(x).sum().backward()
    path = tmp_path / "trace.json"
    profile.export_chrome_trace(os.fspath(path))
    assert sum(_outermost_flops(json.loads(path.read_text())["traceEvents"])) == total
    trace = kernelscope.read(path)
    assert kernelscope.analysis.costs(trace, convention="torch")["flops"].sum() == total


def _outermost_flops(events: list[dict[str, Any]]) -> list[int]:
    """FLOPs of the counted operators that run in no other counted one: convolution wraps _convolution."""
    ops = [event for event in events if event.get("cat") == "cpu_op"]
    found: list[int] = []
    ends: dict[int, float] = {}
    for op in sorted(ops, key=lambda op: (op["ts"], -op["dur"])):
        args = op["args"]
        recorded = [json.dumps(args[key]) if key in args else None for key in _KEYS]
        cost = cost_of(op["name"], *recorded, convention="torch")
        if cost.flops is None or op["ts"] < ends.get(op["tid"], 0.0):
            continue
        ends[op["tid"]] = op["ts"] + op["dur"]
        found.append(cost.flops)
    return found


_KEYS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
