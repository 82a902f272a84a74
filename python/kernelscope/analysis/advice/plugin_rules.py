"""The seven rules of the TensorBoard plugin, with its thresholds.

Three of them say less than the plugin where that was wrong: nothing about NCCL to a job whose kernels are
NCCL's, nothing about mixed precision on GPUs of another make or where tensor cores may be in use, and nothing
about the memory of the host.
"""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, Cited, citing, rule
from kernelscope.analysis.gpu.summary import gpu_summary
from kernelscope.analysis.ops.table import call_eligibility, eligible_share
from kernelscope.units import format_bytes, format_percent

_DATA, _COMMUNICATION, _BUSY, _MEMORY = 0.05, 0.1, 0.5, 0.9
_NCCL_CAPABILITY = 3.5
_TENSOR_CORES_SINCE = 7


@rule("Steps wait for data", _DATA)
def data_loading(facts: Facts) -> Iterator[Advice]:
    """Steps that wait for data for more than a twentieth of their time."""
    waited = facts.parts["dataloader_ns"]
    value = facts.share(waited)
    if value <= _DATA:
        return
    yield Advice(
        f"{format_percent(value)} of the step time passes while only data is loaded.",
        "Give the DataLoader more workers (num_workers) and let them prefetch, or make samples cheaper.",
        value,
        saving_ns=waited,
        cites=citing("ops", facts.ops_doing("data_loading")),
    )


@rule("DataParallel copies the model in every step", 1, "GPUs")
def data_parallel(facts: Facts) -> Iterator[Advice]:
    """DataParallel on more than one GPU."""
    calls = facts.ops_named(r"^DataParallel\.forward$")
    if calls.is_empty():
        return
    devices = facts.trace.gpu_ops["device"].drop_nulls().n_unique()
    if devices > 1:
        yield Advice(
            f"DataParallel.forward ran {calls.height:,} x on {devices} GPUs.",
            "Use DistributedDataParallel: a process per GPU, gradients that travel during the backward.",
            devices,
            severity="high",
            cites=citing("ops", calls),
        )


@rule("Gradients do not travel by NCCL", _NCCL_CAPABILITY, "compute capability")
def ddp_backend(facts: Facts) -> Iterator[Advice]:
    """DistributedDataParallel without NCCL on GPUs that have it."""
    calls = facts.ops_named(r"^DistributedDataParallel\.forward$")
    if calls.is_empty() or not facts.is_nvidia or _runs_nccl(facts):
        return
    capability = pl.col("compute_major") + pl.col("compute_minor") / 10
    best = facts.trace.devices.select(capability.max()).item()
    if best is not None and best >= _NCCL_CAPABILITY:
        yield Advice(
            f"DistributedDataParallel.forward ran {calls.height:,} x, and no kernel or operator is NCCL's.",
            'Start the process group with backend="nccl": it is the one made for these GPUs.',
            best,
            severity="medium",
            cites=citing("ops", calls),
        )


def _runs_nccl(facts: Facts) -> bool:
    return facts.trace.meta.backend == "nccl" or facts.any_named("(?i)nccl")


@rule("Steps wait for communication", _COMMUNICATION)
def communication(facts: Facts) -> Iterator[Advice]:
    """Steps that wait for communication for more than a tenth of their time."""
    exposed = facts.parts["communication_ns"]
    value = facts.share(exposed)
    if value <= _COMMUNICATION:
        return
    gpu_ops = facts.trace.gpu_ops.select("row", "dur_ns", "step", "is_communication")
    work = facts.inside(gpu_ops.filter(pl.col("is_communication").fill_null(value=False)))
    cited, table = (work, "gpu_ops") if work.height else (_outermost(facts.ops_doing("communication")), "ops")
    yield Advice(
        f"{format_percent(value)} of the step time passes while ranks communicate and nothing is computed.",
        "Compress gradients (DDP communication hooks), accumulate them over several steps, or enlarge the "
        "batch; a larger one may need another learning rate or an optimizer such as LAMB.",
        value,
        saving_ns=exposed,
        cites=citing(table, cited),
    )


def _outermost(calls: pl.DataFrame) -> pl.DataFrame:
    """Those of ``calls`` that lie directly in none of the others."""
    return calls.filter(~pl.col("parent_row").is_in(calls["row"].implode()).fill_null(value=False))


@rule("GPUs run kernels less than half of the time", _BUSY, "share of time")
def low_utilisation(facts: Facts) -> Iterator[Advice]:
    """GPUs that compute for less than half of the time."""
    idle = gpu_summary(facts.trace).filter((pl.col("utilisation") < _BUSY) & (pl.col("kernels") > 0))
    if idle.is_empty():
        return
    shares = idle.select("device", "utilisation").rows()
    listed = ", ".join(f"GPU {device} {format_percent(share)}" for device, share in shares[:8])
    more = f" and {len(shares) - 8} more" if len(shares) > 8 else ""
    of_idle = pl.col("device").is_in(idle["device"].implode())
    waits = facts.gaps.all.filter(of_idle)
    yield Advice(
        f"Share of the time with a kernel: {listed}{more}.",
        "Enlarge the batch, and see what the GPUs wait for.",
        min(share for _, share in shares),
        severity="medium",
        device=shares[0][0] if len(shares) == 1 else None,
        cites=citing("gpu_ops", waits if waits.height else facts.rows_of(None, "device").filter(of_idle)),
    )


@rule("Nothing runs on tensor cores", 0.0, "share of kernel time")
def mixed_precision(facts: Facts) -> Iterator[Advice]:
    """Tensor cores that nothing uses, though operators could."""
    capability = facts.capability()
    if not facts.is_nvidia or capability is None or capability < _TENSOR_CORES_SINCE:
        return
    used = facts.kernels.filter(pl.col("works") > 0)["tensor_cores"]
    if used.is_empty() or used.null_count() or used.any():
        return
    share = eligible_share(facts.trace)
    if not share:
        return
    lowest = call_eligibility(facts.trace).lowest.select(op_row="row")
    kernels = facts.rows_of(None, "op_row")
    kernels = kernels.join(lowest, on="op_row", how="semi")
    yield Advice(
        f"{format_percent(share)} of the kernel time is in operators that tensor cores could run, and none "
        "of their kernels uses them.",
        "Compute in bfloat16 or float16 (torch.autocast), or let float32 products use TF32 "
        '(torch.set_float32_matmul_precision("high")) where the GPU has it.',
        share,
        severity="high" if share > 0.5 else "medium",
        cites=citing("gpu_ops", kernels),
    )


@rule("Memory is nearly used up", _MEMORY, "share of memory")
def memory_near_capacity(facts: Facts) -> Iterator[Advice]:
    """GPUs whose memory is nearly all allocated at the peak."""
    if not facts.may_use("total_allocated_bytes", _MEMORY):
        return
    for row in facts.memory.iter_rows(named=True):
        share = row["peak_share"]
        if share is not None and share > _MEMORY:
            yield Advice(
                f"{row['device']} had {format_bytes(row['peak_bytes'])} allocated at its peak, of "
                f"{format_bytes(row['capacity_bytes'])}.",
                "Checkpoint activations, compute in a narrower type, or make the batch smaller.",
                share,
                severity="high",
                device=int(row["device"].removeprefix("GPU")),
                cites=Cited("memory", (row["peak_row"],), 1),
            )
