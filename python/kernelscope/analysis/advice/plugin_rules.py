"""The seven rules of the TensorBoard plugin, with its thresholds.

Three of them are more cautious than the plugin where it was wrong. They do not recommend NCCL if kernels
belong to NCCL. They do not recommend mixed precision on GPUs of other vendors or if tensor cores may be in
use. They do not judge the memory of the host.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from kernelscope.analysis.advice.facts import Facts, PartOfSteps
from kernelscope.analysis.advice.kernel_rules import narrower_type, on_tensor_cores
from kernelscope.analysis.advice.record import Advice, Cited, citing, matching, rule
from kernelscope.analysis.advice.remedies import RULE_OF, WAITED_FOR, remedy, serving_engine
from kernelscope.analysis.gpu.summary import gpu_summary
from kernelscope.analysis.gpu.time import temporal_breakdown
from kernelscope.analysis.gpu.unrecorded import unrecorded_activity
from kernelscope.analysis.ops.table import call_eligibility, eligible_share
from kernelscope.units import format_bytes, format_ns, format_percent

_DATA, _COMMUNICATION, _BUSY, _MEMORY = 0.05, 0.1, 0.5, 0.9
# An engine that serves takes nearly all memory for its cache, as it is told to.
_SERVING = (
    "No action is needed if the engine was configured to use this much (--gpu-memory-utilization, "
    "--mem-fraction-static). Lower the setting if other programs need memory."
)
_TRAINING = "Checkpoint activations, compute in a narrower type, or reduce the batch size."
_NCCL_CAPABILITY = 3.5
_TENSOR_CORES_SINCE = 7


@rule("Steps wait for data", _DATA, needs_all_times=True)
def data_loading(facts: Facts) -> Iterator[Advice]:
    """Finds steps that wait for data for more than 5 % of their time."""
    part = facts.parts["dataloader_ns"]
    value = facts.share(part.worst_ns)
    if value <= _DATA:
        return
    idle = max((causes.get("data", 0) for causes in facts.waited.values()), default=0)
    calls, ranges = facts.ops_doing("data_loading"), facts.ranges_doing("data_loading")
    here = " The loader has no workers." if matching(calls["name"], "_SingleProcess").len() else ""
    meanwhile = f" A GPU waited {format_ns(idle)} for data in gaps between its operations." if idle else ""
    yield Advice(
        f"{facts.who(part.device)}Only data loading runs for {format_percent(value)} of the step "
        f"time{_on_average(facts, part)}.{meanwhile}{here}",
        remedy(facts, "data"),
        value,
        change=facts.savings.without(pl.concat(part.select("row", "dur_ns") for part in (calls, ranges))),
        device=part.device if facts.who(part.device) else None,
        cites=citing("ops", calls) if calls.height else citing("ranges", ranges),
    )


@rule("DataParallel copies the model in every step", 1, "GPUs")
def data_parallel(facts: Facts) -> Iterator[Advice]:
    """Finds DataParallel on more than one GPU."""
    calls = facts.ops_named(r"^DataParallel\.forward$")
    if calls.is_empty():
        return
    devices = facts.trace.gpu_ops["device"].drop_nulls().n_unique()
    if devices > 1:
        yield Advice(
            f"DataParallel.forward ran {calls.height:,} x on {devices} GPUs.",
            "Use DistributedDataParallel: one process per GPU, with gradients sent during the backward pass.",
            devices,
            severity="high",
            cites=citing("ops", calls),
        )


@rule("Gradients are not sent by NCCL", _NCCL_CAPABILITY, "compute capability")
def ddp_backend(facts: Facts) -> Iterator[Advice]:
    """Finds DistributedDataParallel without NCCL on GPUs that support it."""
    calls = facts.ops_named(r"^DistributedDataParallel\.forward$")
    if calls.is_empty() or not facts.is_nvidia or _runs_nccl(facts):
        return
    capability = pl.col("compute_major") + pl.col("compute_minor") / 10
    best = facts.trace.devices.select(capability.max()).item()
    if best is not None and best >= _NCCL_CAPABILITY:
        yield Advice(
            f"DistributedDataParallel.forward ran {calls.height:,} x, but no kernel or operator "
            "belongs to NCCL.",
            'Create the process group with backend="nccl", which is made for these GPUs.',
            best,
            severity="medium",
            cites=citing("ops", calls),
        )


def _runs_nccl(facts: Facts) -> bool:
    return facts.trace.meta.backend == "nccl" or facts.any_named("(?i)nccl")


@rule("Steps wait for communication", _COMMUNICATION)
def communication(facts: Facts) -> Iterator[Advice]:
    """Finds steps that wait for communication for more than 10 % of their time."""
    part = facts.parts["communication_ns"]
    value = facts.share(part.worst_ns)
    if value <= _COMMUNICATION:
        return
    own = facts.communication.filter(pl.col("device").eq_missing(part.device))
    yield Advice(
        f"{facts.who(part.device)}Ranks communicate without computing for {format_percent(value)} of "
        f"the step time{_on_average(facts, part)}.",
        _less_communication(facts),
        value,
        change=facts.faster(own),
        device=part.device if facts.who(part.device) else None,
        cites=citing("gpu_ops", own),
        cause=tuple(facts.communication_causes(part.device, part.worst_ns)),
    )


def _on_average(facts: Facts, part: PartOfSteps) -> str:
    """What GPUs have of a part on average, where the trace has several."""
    several = facts.who(part.device)
    return f" ({format_percent(facts.share(part.mean_ns))} on average over the GPUs)" if several else ""


def _less_communication(facts: Facts) -> str:
    if serving_engine(facts) is not None:
        return (
            "Use fewer GPUs per model (a smaller tensor parallel size). If the GPUs reach each other "
            "directly, use the engine's own all-reduce (do not pass --disable-custom-all-reduce)."
        )
    batch = " A larger batch communicates less often. It may need another learning rate."
    return (
        "Compress gradients (DDP communication hooks), accumulate them over several steps (no_sync), "
        f"or overlap communication with the backward pass.{batch if facts.may_grow else ''}"
    )


@rule("GPUs run kernels for less than half of the time", _BUSY, "share of time", needs_all_times=True)
def low_utilisation(facts: Facts) -> Iterator[Advice]:
    """Finds GPUs that compute for less than half of the time, unless samples show other activity."""
    # The share itself may be a bit off: Polars multiplies by the reciprocal of what all rows are divided by.
    is_little = pl.col("busy_ns") < _BUSY * pl.col("window_ns")
    idle = gpu_summary(facts.trace).filter(is_little & (pl.col("kernels") > 0))
    idle = idle.join(unrecorded_activity(facts.trace), on="device", how="anti")
    if idle.is_empty():
        return
    lowest = idle.sort("utilisation", "device").row(0, named=True)
    shares = idle.select("device", "utilisation").rows()
    listed = ", ".join(f"GPU {device} {format_percent(share)}" for device, share in shares[:8])
    more = f" and {len(shares) - 8} more" if len(shares) > 8 else ""
    of_idle = pl.col("device").is_in(idle["device"].implode())
    waits = facts.gaps.all.filter(of_idle)
    kernels = facts.rows_of(facts.are_kernels).filter(of_idle)
    cause, rest = _unused(facts, lowest)
    yield Advice(
        f"Share of time with a kernel: {listed}{more}. {rest}",
        remedy(facts, cause),
        lowest["utilisation"],
        severity="medium",
        device=shares[0][0] if len(shares) == 1 else None,
        cites=citing("gpu_ops", waits if waits.height else kernels),
        cause=(RULE_OF[cause], "serving_without_graphs") if cause == "launch" else (RULE_OF[cause],),
    )


def _unused(facts: Facts, gpu: dict[str, Any]) -> tuple[str | None, str]:
    """What keeps a GPU from running kernels most of all, and how its time divides, in words.

    Of ``gpu``, a row of ``gpu_summary``.
    """
    of_gpu = pl.col("device").eq_missing(gpu["device"])
    time = temporal_breakdown(facts.trace).filter(of_gpu).row(0, named=True)
    outside = gpu["window_ns"] - time["span_ns"]
    who = "The least used GPU" if facts.who(gpu["device"]) else "It"
    if time["memory_ns"] > max(time["idle_ns"], outside):
        return "copies", f"{who} only copies for {format_percent(time['memory_share'])} of the time."
    waits = facts.waited.get(gpu["device"], {})
    if outside > time["idle_ns"] or not waits:
        share = format_percent(max(outside, 0) / gpu["window_ns"])
        return "host", f"{who} is idle for {share} of it, before its first and after its last operation."
    cause = next(iter(waits))
    idle = format_percent(time["idle_share"])
    note = ""
    if in_graphs := waits.get("graph", 0):
        note = (
            f" {format_ns(in_graphs)} are between the nodes of graphs. The host has no part in these "
            "gaps, and recording lengthens them."
        )
    idles = f"{who} is idle for {idle} of the time between its first and last operation"
    return cause, f"{idles}, mostly waiting for {WAITED_FOR[cause]}.{note}"


@rule("No kernel uses tensor cores", 0.0, "share of kernel time")
def mixed_precision(facts: Facts) -> Iterator[Advice]:
    """Finds operators that could use tensor cores if no kernel uses them."""
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
    kernels = facts.rows_of(facts.are_kernels, "op_row").join(lowest, on="op_row", how="semi")
    change = on_tensor_cores(facts, kernels)
    yield Advice(
        f"{format_percent(share)} of the kernel time is in operators that could use tensor cores, but "
        "none of their kernels do.",
        narrower_type(capability),
        share,
        change=change,
        severity=None if change else "high" if share > 0.5 else "medium",
        cites=citing("gpu_ops", kernels),
    )


@rule("Memory is nearly exhausted", _MEMORY, "share of memory")
def memory_near_capacity(facts: Facts) -> Iterator[Advice]:
    """Finds GPUs whose memory is nearly all allocated at the peak."""
    if not facts.may_use("total_allocated_bytes", _MEMORY):
        return
    serves = serving_engine(facts) is not None
    for row in facts.memory.iter_rows(named=True):
        share = row["peak_share"]
        if share is not None and share > _MEMORY:
            yield Advice(
                f"{row['device']} had {format_bytes(row['peak_bytes'])} of "
                f"{format_bytes(row['capacity_bytes'])} allocated at its peak.",
                _SERVING if serves else _TRAINING,
                share,
                severity="low" if serves else "high",
                device=int(row["device"].removeprefix("GPU")),
                cites=Cited("memory", (row["peak_row"],), 1),
                cause=("out_of_memory",),
            )
