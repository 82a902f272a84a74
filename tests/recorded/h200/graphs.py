"""Records captures and replays of CUDA graphs, and the same steps eagerly: ``python graphs.py FOLDER``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from kernelscope.capture import profile_captures

HIDDEN, HEADS, LAYERS, VOCABULARY, LENGTH = 512, 8, 2, 4096, 256
SIZES = (8, 4, 2, 1)
REQUESTS = (8, 8, 4, 2, 1, 8, 3, 1, 4)
"""How many requests each step has; three are padded to four."""

Step: TypeAlias = Callable[[], object]


class Norm(nn.Module):
    """Divides by the root of the mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (HIDDEN,), self.weight)


class Attention(nn.Module):
    """Attends to a cache that has room for ``LENGTH`` keys."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor, keys: Any, values: Any, position: Any, mask: Any) -> torch.Tensor:
        batch = x.shape[0]
        q, k, v = (part.view(batch, 1, HEADS, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, 1, HIDDEN))


class Mlp(nn.Module):
    """Two linear layers, of which the first is gated."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(HIDDEN, 8 * HIDDEN, bias=False)
        self.down = nn.Linear(4 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    """Attention and an MLP, each behind a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2, self.mlp = Norm(), Attention(), Norm(), Mlp()

    def forward(self, x: torch.Tensor, *cache: Any) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), *cache)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """A decoder that gives the next token of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor, caches: Any, position: Any, mask: Any) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer, (keys, values) in zip(self.layers, caches, strict=True):
            x = layer(x, keys, values, position, mask)
        return torch.softmax(self.head(self.norm(x)).float(), -1).argmax(-1)


class Classifier(nn.Module):
    """A small network to train."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(256, 512)
        self.norm = nn.LayerNorm(512)
        self.second = nn.Linear(512, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.dropout(F.gelu(self.norm(self.first(x))), 0.1))


def decoder_inputs(batch: int) -> tuple[Any, ...]:
    """Tokens, caches, position and mask of a step of ``batch`` requests."""
    options: Any = {"device": "cuda", "dtype": torch.bfloat16}
    shape = (batch, HEADS, LENGTH, HIDDEN // HEADS)
    caches = [(torch.zeros(shape, **options), torch.zeros(shape, **options)) for _ in range(LAYERS)]
    tokens = torch.zeros((batch, 1), dtype=torch.long, device="cuda")
    position = torch.zeros(1, dtype=torch.long, device="cuda")
    return tokens, caches, position, torch.zeros((batch, 1, 1, LENGTH), **options)


def record(path: Path, steps: list[tuple[str, Step]]) -> None:
    """Records steps, each within an annotation if it has a name; each ends before the next begins."""

    def run() -> None:
        for name, step in steps:
            with record_function(name) if name else contextlib.nullcontext():
                step()
                torch.cuda.synchronize()

    run()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as recorder:
        run()
    recorder.export_chrome_trace(str(path))


def captured(step: Step) -> torch.cuda.CUDAGraph:
    """The graph of ``step``, which ran twice on another stream before, as PyTorch wants it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
        step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


@torch.no_grad()
def decode(folder: Path) -> None:
    """Decode steps of several batch sizes."""
    model = Decoder().cuda().bfloat16().eval()
    inputs = {size: decoder_inputs(size) for size in SIZES}
    for held in inputs.values():
        model(*held)
    torch.cuda.synchronize()
    graphs: dict[int, torch.cuda.CUDAGraph] = {}
    size = 0
    with profile_captures(folder / "capture_traces", batch_size=lambda: size):
        for size in SIZES:
            graphs[size] = captured(partial(model, *inputs[size]))
    sizes = [min(size for size in SIZES if size >= count) for count in REQUESTS]
    names = [f"execute_context_0(0)_generation_{count}({count})" for count in REQUESTS]
    replays = [graphs[size].replay for size in sizes]
    eager = [partial(model, *inputs[size]) for size in sizes]
    record(folder / "replay.json.gz", list(zip(names, replays, strict=True)))
    record(folder / "replay_unmarked.json.gz", [("", step) for step in replays])
    record(folder / "eager.json.gz", list(zip(names, eager, strict=True)))


@torch.no_grad()
def two_streams(folder: Path) -> None:
    """Two layers side by side, what follows one of them, and a fill and a copy after both."""
    first, second = (Mlp().cuda().bfloat16() for _ in range(2))
    small, large = (torch.randn(count, 64, HIDDEN, device="cuda", dtype=torch.bfloat16) for count in (16, 48))
    filled, copied, other = torch.empty(1 << 22, device="cuda"), torch.empty_like(large), torch.cuda.Stream()

    def step() -> None:
        here = torch.cuda.current_stream()
        other.wait_stream(here)
        with torch.cuda.stream(other):
            first(small)
        second(large)
        F.layer_norm(large, (HIDDEN,))
        here.wait_stream(other)
        filled.zero_()
        copied.copy_(large)

    with profile_captures(folder / "capture_streams"):
        graph = captured(step)
    record(folder / "streams.json.gz", [("", graph.replay)] * 4)
    record(folder / "streams_eager.json.gz", [("", step)] * 2)


def train(folder: Path) -> None:
    """A whole training step, with its optimizer."""
    model = Classifier().cuda()
    optimizer: Any = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x, y = torch.randn(128, 256, device="cuda"), torch.randint(0, 64, (128,), device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        loss: Any = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    with profile_captures(folder / "capture_train"):
        graph = captured(step)
    names = [f"ProfilerStep#{number}" for number in range(3)]
    record(folder / "train.json.gz", [(name, graph.replay) for name in names])
    record(folder / "train_eager.json.gz", [(name, step) for name in names])


@torch.no_grad()
def compiled(folder: Path) -> None:
    """A compiled model, which captures its graph in the second call."""
    model: Any = torch.compile(Classifier().cuda().half(), mode="reduce-overhead")
    x = torch.randn(512, 256, device="cuda", dtype=torch.half)
    model(x)
    torch.cuda.synchronize()
    with profile_captures(folder / "capture_compiled"):
        model(x)
        torch.cuda.synchronize()
    record(
        folder / "compiled.json.gz", [(f"ProfilerStep#{number}", partial(model, x)) for number in range(4)]
    )


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for part in (decode, two_streams, train, compiled):
        part(target)
