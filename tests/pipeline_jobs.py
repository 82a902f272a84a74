"""Small jobs of torch's pipeline schedules on gloo.

``python tests/pipeline_jobs.py interleaved 2 traces`` writes a trace of each rank; the traces in
``tests/recorded/pipelines`` were made so.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributed import pipelining

from gloo_jobs import record, spawn

WIDTH = 16
BATCH = 4
MICRO_BATCHES = 4
DEVICE_S = 0.004
"""Time of each pass of a stage, as on a device: longer than what the host adds."""

SCHEDULES = {
    "gpipe": pipelining.ScheduleGPipe,
    "1f1b": pipelining.Schedule1F1B,
    "interleaved": pipelining.ScheduleInterleaved1F1B,
    "zero-bubble": pipelining.ScheduleInterleavedZeroBubble,
    "dualpipe": pipelining.ScheduleDualPipeV,
}
_SINGLE = ("gpipe", "1f1b")


class Slow(torch.autograd.Function):
    """Changes nothing, and takes time in both passes."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(DEVICE_S)
        return batch.view_as(batch)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: torch.Tensor) -> torch.Tensor:
        time.sleep(2 * DEVICE_S)
        return gradients[0]


class Stage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.down(Slow.apply(torch.relu(self.up(batch))))


def stages_of(kind: str, rank: int, ranks: int) -> list[int]:
    """The stages of a rank, by their place in the pipeline."""
    if kind in _SINGLE:
        return [rank]
    return [rank, 2 * ranks - 1 - rank] if kind == "dualpipe" else [rank, rank + ranks]


def train(
    rank: int, kind: str, ranks: int, folder: str, port: int, micro_batches: int, steps: int, with_stack: bool
) -> None:
    """Trains as one rank, and writes its trace: ``KIND-rankN.json.gz``."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    own = stages_of(kind, rank, ranks)
    count = ranks if kind in _SINGLE else 2 * ranks
    stages = [pipelining.PipelineStage(Stage(), place, count, torch.device("cpu")) for place in own]
    optimizer = optim.SGD([weight for stage in stages for weight in stage.submod.parameters()], 1e-3)
    given = stages[0] if kind in _SINGLE else stages
    pipeline = SCHEDULES[kind](given, micro_batches, loss_fn=nn.functional.mse_loss)
    batch, target = (fill(BATCH * micro_batches, WIDTH) for fill in (torch.ones, torch.zeros))

    def step() -> None:
        inputs = (batch,) if 0 in own else ()
        pipeline.step(*inputs, **({"target": target, "losses": []} if count - 1 in own else {}))
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(2):
        step()
    record(lambda _: step(), steps, Path(folder) / f"{kind}-rank{rank}.json", with_stack=with_stack)


def run(
    kind: str,
    ranks: int,
    folder: Path,
    *,
    micro_batches: int = MICRO_BATCHES,
    steps: int = 2,
    with_stack: bool = False,
) -> list[Path]:
    """Runs a job, and returns the traces of its ranks."""
    return spawn(train, kind, ranks, folder, micro_batches, steps, with_stack)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(SCHEDULES))
    parser.add_argument("ranks", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--micro-batches", type=int, default=MICRO_BATCHES)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--stack", action="store_true", help="record Python frames, also of modules")
    given = parser.parse_args()
    options = {"micro_batches": given.micro_batches, "steps": given.steps, "with_stack": given.stack}
    run(given.kind, given.ranks, given.folder, **options)


if __name__ == "__main__":
    main()
