"""Small jobs of experts on gloo, whose router sends most tokens of the second layer to one rank.

``python tests/expert_jobs.py grouped 2 traces`` writes a trace of each rank; the traces in
``tests/recorded/experts`` were made so.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributed._functional_collectives import (
    all_to_all_single,
    all_to_all_single_autograd,
    wait_tensor,
)
from torch.distributed.device_mesh import init_device_mesh

from gloo_jobs import record, spawn

WIDTH = 32
TOKENS = 32
LAYERS = 2
LOCAL = 2
"""Number of experts of a rank."""
FIRST = 3
"""Number of tokens that the first layer of the first rank sends to its own experts; the second sends all."""
KINDS = ("grouped", "loop")
"""How a rank multiplies: all experts at once, or one after the other."""


class Experts(nn.Module):
    """Sends each token to one expert, by its place, and back."""

    def __init__(self, group: dist.ProcessGroup, kind: str, own: int) -> None:
        super().__init__()
        self.group, self.kind, self.own = group, kind, own
        self.up = nn.Parameter(torch.randn(LOCAL, WIDTH, 2 * WIDTH) / 10)
        self.down = nn.Parameter(torch.randn(LOCAL, 2 * WIDTH, WIDTH) / 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        ranks = self.group.size()
        counts = torch.zeros(ranks, LOCAL, dtype=torch.int64)
        counts[0, 0] = self.own
        counts[-1, 1] = TOKENS - self.own
        incoming = wait_tensor(all_to_all_single(counts.view(-1), None, None, self.group)).view(ranks, LOCAL)
        sent, received = counts.sum(1).tolist(), incoming.sum(1).tolist()
        routed = all_to_all_single_autograd(tokens, received, sent, self.group)
        expert = torch.cat([torch.arange(LOCAL).repeat_interleave(row) for row in incoming])
        order = expert.argsort(stable=True)
        result = self.products(routed[order], incoming.sum(0))
        return all_to_all_single_autograd(result[order.argsort()], sent, received, self.group)

    def products(self, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        if self.kind == "loop":
            parts = tokens.split(counts.tolist())
            return torch.cat(
                [torch.relu(part @ up) @ down for part, up, down in zip(parts, self.up, self.down)]
            )
        ends = counts.cumsum(0).to(torch.int32)
        hidden = torch.relu(torch._grouped_mm(tokens.bfloat16(), self.up.bfloat16(), offs=ends))
        return torch._grouped_mm(hidden, self.down.bfloat16(), offs=ends).float()


def train(rank: int, kind: str, ranks: int, folder: str, port: int) -> None:
    """Trains as one rank, and writes its trace: ``KIND-rankN.json.gz``."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    group = init_device_mesh("cpu", (ranks,), mesh_dim_names=("ep",)).get_group()
    layers = [Experts(group, kind, own) for own in (FIRST, TOKENS)]
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *layers)
    optimizer = optim.SGD(model.parameters(), 1e-3)

    def step(_: int) -> None:
        model(torch.ones(TOKENS, WIDTH)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    for number in range(2):
        step(number)
    record(step, 1, Path(folder) / f"{kind}-rank{rank}.json", record_shapes=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("ranks", type=int)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    spawn(train, options.kind, options.ranks, options.folder)


if __name__ == "__main__":
    main()
