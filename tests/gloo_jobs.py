"""Small training jobs of several ranks on gloo, in which one rank is late in every second step.

``python tests/gloo_jobs.py ddp 2 traces --delay-ms 200`` writes a trace of each rank; the traces in
``tests/recorded/gloo`` were made so.
"""

from __future__ import annotations

import argparse
import gzip
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributed.device_mesh import init_device_mesh
from torch.profiler import ProfilerActivity, profile, record_function, schedule

LATE_RANK = 1
LATE_PHASES = {"ddp": "forward", "fsdp": "backward", "tp": "optimizer", "pp": "forward"}
"""The phase in which the rank is late, by the parallelism of the job: data, sharded, tensor and pipeline."""

PHASES = ("loader", "forward", "backward", "optimizer")
WIDTH = 32
DEVICE_S = "DEVICE_S"
"""Environment variable with the time that each block waits, as for a device, which leaves cores to others."""
_BATCH = 8
_MICRO_BATCHES = 4


class Sleep:
    """Sleeps where it is asked to, once in each step that is late."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_due = False

    def now(self, *_: Any) -> None:
        if self.is_due:
            self.is_due = False
            with record_function("sleep"):
                time.sleep(self.seconds)


class Block(nn.Module):
    """Two layers, between which the forward or the backward pass may be late."""

    def __init__(self, sleep: Sleep, phase: str, width: int) -> None:
        super().__init__()
        self.device_s = float(os.environ.get(DEVICE_S, "0"))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.sleep, self.phase = sleep, phase

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.up(batch))
        time.sleep(self.device_s)
        if self.phase == "forward":
            self.sleep.now()
        if self.phase == "backward":
            hidden = LateBackward.apply(hidden, self.sleep)
        return batch + self.down(hidden)


class LateBackward(torch.autograd.Function):
    """Changes nothing, and sleeps in the backward pass."""

    @staticmethod
    def forward(ctx: Any, batch: torch.Tensor, sleep: Sleep) -> torch.Tensor:
        ctx.sleep = sleep
        return batch.view_as(batch)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.sleep.now()
        return gradients[0], None


def _model(sleep: Sleep, phase: str, width: int) -> nn.Sequential:
    return nn.Sequential(Block(sleep, phase, width), Block(Sleep(0), phase, width))


def _trained(model: nn.Module, sleep: Sleep, phase: str, width: int) -> Callable[[], None]:
    optimizer = optim.SGD(model.parameters(), 1e-3)
    if phase == "optimizer":
        optimizer.register_step_pre_hook(sleep.now)

    def step() -> None:
        if phase == "loader":
            sleep.now()
        model(torch.ones(_BATCH, width)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _ddp(sleep: Sleep, phase: str, width: int) -> Callable[[], None]:
    model = nn.parallel.DistributedDataParallel(_model(sleep, phase, width))
    return _trained(model, sleep, phase, width)


def _fsdp(sleep: Sleep, phase: str, width: int) -> Callable[[], None]:
    from torch.distributed.fsdp import fully_shard

    model = _model(sleep, phase, width)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _trained(model, sleep, phase, width)


def _tp(sleep: Sleep, phase: str, width: int) -> Callable[[], None]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = _model(sleep, phase, width)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return _trained(model, sleep, phase, width)


def _pp(sleep: Sleep, phase: str, width: int) -> Callable[[], None]:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, ranks = dist.get_rank(), dist.get_world_size()
    stage = PipelineStage(Block(sleep, phase, width), rank, ranks, torch.device("cpu"))
    optimizer = optim.SGD(stage.submod.parameters(), 1e-3)
    pipeline = Schedule1F1B(stage, _MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
    batch, target = (fill(_BATCH * _MICRO_BATCHES, width) for fill in (torch.ones, torch.zeros))

    def step() -> None:
        if rank == 0:
            pipeline.step(batch)
        elif rank == ranks - 1:
            pipeline.step(target=target, losses=[])
        else:
            pipeline.step()
        optimizer.step()
        optimizer.zero_grad()

    return step


_JOBS = {"ddp": _ddp, "fsdp": _fsdp, "tp": _tp, "pp": _pp}


def train(
    rank: int,
    kind: str,
    ranks: int,
    folder: str,
    port: int,
    delay_s: float,
    steps: int,
    phase: str | None,
    width: int,
) -> None:
    """Trains as one rank, and writes its trace: ``KIND-rankN.json.gz``. Steps with odd numbers are late."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    sleep = Sleep(delay_s)
    step = _JOBS[kind](sleep, phase or LATE_PHASES[kind], width)
    for _ in range(3):
        step()
    path = Path(folder) / f"{kind}-rank{rank}.json"

    def timed(number: int) -> None:
        sleep.is_due = rank == LATE_RANK and number % 2 == 1
        step()

    record(timed, steps, path, record_shapes=True)


def record(
    step: Callable[[int], None],
    steps: int,
    path: Path,
    *,
    record_shapes: bool = False,
    with_stack: bool = False,
) -> None:
    """Records steps after a first one, writes their trace to ``path`` with ``.gz``, and leaves the job."""
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=record_shapes,
        with_stack=with_stack,
        schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for number in range(steps + 1):
            step(number)
            profiler.step()
    with gzip.open(f"{path}.gz", "wb") as packed:
        packed.write(path.read_bytes())
    path.unlink()
    dist.barrier()
    dist.destroy_process_group()


def spawn(train: Callable[..., None], kind: str, ranks: int, folder: Path, *more: Any) -> list[Path]:
    """Trains in one process per rank, with a free port, and returns the traces of the ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.multiprocessing.spawn(train, (kind, ranks, str(folder), port, *more), nprocs=ranks)
    return [folder / f"{kind}-rank{rank}.json.gz" for rank in range(ranks)]


def run(
    kind: str,
    ranks: int,
    folder: Path,
    *,
    delay_s: float,
    steps: int = 8,
    phase: str | None = None,
    width: int = WIDTH,
) -> list[Path]:
    """Runs a job that is late in one of ``PHASES``, and returns the traces of its ranks."""
    return spawn(train, kind, ranks, folder, delay_s, steps, phase, width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(_JOBS))
    parser.add_argument("ranks", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay-ms", type=float, default=200)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--phase", choices=PHASES, help="that is late (default: as in the recorded traces)")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the layers")
    parser.add_argument("--device-ms", type=float, default=0, help="wait of each block, as for a device")
    options = parser.parse_args()
    os.environ[DEVICE_S] = str(options.device_ms / 1000)
    run(
        options.kind,
        options.ranks,
        options.folder,
        delay_s=options.delay_ms / 1000,
        steps=options.steps,
        phase=options.phase,
        width=options.width,
    )


if __name__ == "__main__":
    main()
