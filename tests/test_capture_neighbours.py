"""``kernelscope.capture`` beside other parts of torch, those that patched functions break above all."""

from __future__ import annotations

import importlib.util
import threading
from typing import TYPE_CHECKING

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everyone calls it
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from capture_recording import Recorder
from kernelscope import capture

if TYPE_CHECKING:
    from collections.abc import Callable


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


@pytest.mark.parametrize(
    "program",
    [
        *(_adam, _compiled, _transforms, _subclass, _checkpoints, _second_derivative, _twice_backward),
        *(_counted, _another_thread),
    ],
)
def test_works_as_without(program: Callable[[], None]) -> None:
    recorder = Recorder()
    with capture.annotate(to=recorder):
        program()
    assert recorder.open == []
    assert recorder.ranges
