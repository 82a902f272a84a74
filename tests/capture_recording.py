"""Collects the ranges of ``kernelscope.capture``, and models to run under it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everyone calls it

from kernelscope.costs.pyprof import parse_marker

HERE = str(Path(__file__).resolve())


def line_of(text: str, file: str = HERE) -> str:
    """File and number of the one line of ``file`` that ends in ``text`` behind a comment sign."""
    lines = Path(file).read_text().splitlines()
    (number,) = [at for at, line in enumerate(lines, start=1) if line.endswith(f"# {text}")]
    return f"{file}:{number}"


class Recorder:
    """Collects ranges as a recorder would: text, number, depth, and whether each was closed in order."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, str, int | None]] = []
        self.open: list[int] = []

    def push(self, text: str, sequence: int | None) -> object:
        self.ranges.append((len(self.open), text, sequence))
        self.open.append(len(self.ranges))
        return self.open[-1]

    def pop(self, opened: object) -> None:
        assert self.open.pop() == opened, "ranges close in the order in which they were opened"

    def calls(self) -> list[tuple[str, str, list[Any], list[str], str | None, str | None]]:
        """Module of torch, function, shapes, types, path of modules, and line of each call."""
        found = []
        for _, text, _ in self.ranges:
            marker = parse_marker(text)
            if marker is None:
                continue
            tensors = [arg for arg in marker.args if arg["type"] == "tensor"]
            shapes, dtypes = ([arg[key] for arg in tensors] for key in ("shape", "dtype"))
            said = ast.literal_eval(text)
            where = said.get("module"), said["trace"][-1] if "trace" in said else None
            found.append((marker.mod, marker.op, shapes, dtypes, *where))
        return found

    def ops(self) -> list[str]:
        return [call[1] for call in self.calls()]


class Block(nn.Module):
    """The residual block of a ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.bn1(self.conv1(x))
        return F.relu(out + x)  # residual


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, stride=2, padding=3)
        self.layer1 = nn.Sequential(Block(8), Block(8))
        self.fc = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.layer1(self.stem(x))  # stem
        x = F.adaptive_avg_pool2d(x, 1)
        return self.fc(x.flatten(1))  # head
