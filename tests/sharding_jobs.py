"""Small jobs of FSDP on gloo.

``python tests/sharding_jobs.py fsdp2-prefetch 2 traces`` writes a trace of each rank; the traces in
``tests/recorded/sharding`` were made so.
"""

from __future__ import annotations

import argparse
import os
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from gloo_jobs import record, spawn

WIDTH = 64
BATCH = 8
BLOCKS = 3
KINDS = ("fsdp2", "fsdp2-prefetch", "fsdp2-keep", "fsdp2-accumulate", "fsdp1", "fsdp1-prefetch")
"""The last word says what differs: prefetching in the forward pass, parameters kept until the backward pass,
or two backward passes in a step."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return batch + self.down(torch.relu(self.up(batch)))


def sharded(kind: str, ranks: int) -> nn.Module:
    """Returns blocks, each a unit, before a layer that belongs to the root."""
    blocks = [Block() for _ in range(BLOCKS)]
    model = nn.Sequential(*blocks, nn.Linear(WIDTH, WIDTH))
    if kind.startswith("fsdp1"):
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            device_id=torch.device("cpu"),
            forward_prefetch=kind.endswith("prefetch"),
        )
    mesh = init_device_mesh("cpu", (ranks,))
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=not kind.endswith("keep"))
    fully_shard(model, mesh=mesh)
    if kind.endswith("prefetch"):
        for block, following in pairwise(blocks):
            block.set_modules_to_forward_prefetch([following])
    return model


def train(rank: int, kind: str, ranks: int, folder: str, port: int) -> None:
    """Trains as one rank, and writes its trace: ``KIND-rankN.json.gz``."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    model = sharded(kind, ranks)
    optimizer = optim.SGD(model.parameters(), 1e-3)

    def step(_: int) -> None:
        for _ in range(2 if kind.endswith("accumulate") else 1):
            model(torch.ones(BATCH, WIDTH)).square().mean().backward()
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
