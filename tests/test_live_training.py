"""Models trained by the installed PyTorch: recomputation, micro-batches and phases as they really were."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.analysis.training.micro_batches import micro_batches
from kernelscope.analysis.training.phases import phased

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

WIDTH = 8
BLOCKS = 6


class Scale(torch.autograd.Function):
    """Calls no operator of the dispatcher while gradients are recorded, and one in its gradient."""

    @staticmethod
    def forward(ctx: Any, batch: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(batch)
        return batch * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        assert ctx.saved_tensors[0].shape == gradients[0].shape
        return gradients[0] * 2


class Twice(torch.autograd.Function):
    """Calls a Function in its gradient, as exchanges between experts do, which recomputes nothing."""

    @staticmethod
    def forward(ctx: Any, batch: torch.Tensor) -> torch.Tensor:
        return batch.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return Twice.apply(gradients[0])


class Rerun(torch.autograd.Function):
    """Checkpoints as Megatron and DeepSpeed do."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., torch.Tensor], batch: torch.Tensor) -> torch.Tensor:
        ctx.function, ctx.is_mixed = function, torch.is_autocast_enabled("cpu")
        ctx.save_for_backward(batch)
        with torch.no_grad():
            return function(batch)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor | None]:
        batch = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16, enabled=ctx.is_mixed):
            again = ctx.function(batch)
        torch.autograd.backward(again, gradients)
        return None, batch.grad


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)
        self.runs = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        hidden = torch.nn.functional.gelu(self.up(batch))
        with torch.no_grad():
            hidden.square().mean()
        return Scale.apply(self.dropout(self.down(Twice.apply(hidden)))) * 3


def _plain(block: Block, batch: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = block(batch)
    return result


def _selective(block: Block, batch: torch.Tensor) -> torch.Tensor:
    def contexts() -> Any:
        return create_selective_checkpoint_contexts([torch.ops.aten.addmm.default])

    return checkpoint(block, batch, use_reentrant=False, context_fn=contexts)  # type: ignore[no-any-return]


def _nested(block: Block, batch: torch.Tensor) -> torch.Tensor:
    def inside(batch: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, batch, use_reentrant=False)  # type: ignore[no-any-return]

    return checkpoint(inside, batch, use_reentrant=False)  # type: ignore[no-any-return]


KINDS: dict[str, Callable[[Block, torch.Tensor], torch.Tensor]] = {
    "none": _plain,
    "reentrant": lambda block, batch: checkpoint(block, batch, use_reentrant=True),
    "not reentrant": lambda block, batch: checkpoint(block, batch, use_reentrant=False),
    "selective": _selective,
    "nested": _nested,
    "function": Rerun.apply,
}


def record(
    kind: str, path: Path, *, stack: bool = False, mixed: bool = False, penalty: bool = False
) -> tuple[ks.Trace, int]:
    """Trains two steps, in which every second block is checkpointed; also says how often one ran again."""
    torch.manual_seed(0)
    blocks = [Block() for _ in range(BLOCKS)]
    model = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batch = torch.randn(4, WIDTH, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], with_stack=stack) as profiler:
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                hidden = batch
                for number, block in enumerate(blocks):
                    hidden = (KINDS[kind] if number % 2 else _plain)(block, hidden)
                loss = hidden.sum()
            if penalty:
                [gradient] = torch.autograd.grad(loss, batch, create_graph=True)
                loss = loss + gradient.square().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    profiler.export_chrome_trace(str(path))
    return ks.read(path, strict=True), sum(block.runs for block in blocks) - 2 * BLOCKS


def calls(trace: ks.Trace, name: str) -> dict[str, int]:
    """Outermost calls of an operator, by phase."""
    ops = {row: at for row, *at in trace.ops.select("row", "parent_row", "name", "phase").iter_rows()}

    def is_inside(row: int | None) -> bool:
        return row is not None and (ops[row][1] == name or is_inside(ops[row][0]))

    return dict(
        Counter(phase for parent, own, phase in ops.values() if own == name and not is_inside(parent))
    )


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("stack", [False, True])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_forward_operators_that_run_again(kind: str, stack: bool, mixed: bool, tmp_path: Path) -> None:
    trace, again = record(kind, tmp_path / "trace.json", stack=stack, mixed=mixed)
    assert (again > 0) == (kind != "none")
    recomputed = {"recompute": again} if again else {}
    for name, count in {"aten::gelu": 1, "aten::linear": 2, "aten::dropout": 1, "Scale": 1}.items():
        expected = {"forward": 2 * BLOCKS * count} | {key: value * count for key, value in recomputed.items()}
        assert calls(trace, name) == expected, name
    # Not numbered, as it records no gradients.
    assert calls(trace, "aten::mean").get("recompute", 0) == again
    # A Function that its own gradient calls is no recomputation.
    assert calls(trace, "Twice") == {"forward": 2 * BLOCKS, "backward": 2 * BLOCKS} | recomputed
    assert calls(trace, "aten::gelu_backward") == {"backward": 2 * BLOCKS}
    nodes = trace.ops.filter(pl.col("name").cast(pl.String).str.starts_with("autograd::engine"))
    assert nodes["phase"].unique().to_list() == ["backward"]


def test_gradients_of_gradients_are_not_recomputation(tmp_path: Path) -> None:
    trace, again = record("none", tmp_path / "trace.json", penalty=True)
    assert again == 0
    assert "recompute" not in trace.ops["phase"]
    assert calls(trace, "aten::gelu_backward")["backward"] >= 2 * BLOCKS


def evaluate(model: nn.Module) -> None:
    with torch.no_grad():
        model(torch.randn(4, WIDTH))


def test_accumulated_gradients_and_phases_with_names(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        for _ in range(3):
            model(torch.randn(4, WIDTH)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        evaluate(model)
        torch.save(model.state_dict(), tmp_path / "model.pt")
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = ks.read(tmp_path / "trace.json", strict=True)
    phases = phased(trace)
    ops = trace.ops.select(
        "name", "parent_row", phase=phases["phase"], batch=micro_batches(trace)["micro_batch"]
    )
    layers = ops.filter(pl.col("name").is_in(["aten::linear", "AddmmBackward0"]))
    counts = layers.group_by("phase", "batch").len().sort("phase", "batch").rows()
    passes = [(phase, batch, 2) for phase in ("backward", "forward") for batch in range(3)]
    assert counts == [*passes[:3], ("evaluation", None, 2), *passes[3:]]
    clipping = ops.filter(phase="gradient_clipping")["name"].cast(pl.String).to_list()
    assert "aten::_foreach_norm" in clipping
    assert "aten::_foreach_mul_" in clipping
    assert not {"aten::_foreach_norm", "aten::_foreach_mul_"} & set(
        ops.filter(phase="other")["name"].cast(pl.String)
    )
