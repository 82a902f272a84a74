"""The seven rules of the TensorBoard plugin, with its thresholds.

Three of them say less than the plugin where that was wrong: nothing about NCCL to a job whose kernels are
NCCL's, nothing about mixed precision on GPUs of another make or where tensor cores may be in use, and nothing
about the memory of the host.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from kernelscope.analysis.advice.facts import Facts, PartOfSteps
from kernelscope.analysis.advice.kernel_rules import narrower_type, products_saving
from kernelscope.analysis.advice.record import Advice, Cited, citing, names_like, rule
from kernelscope.analysis.advice.remedies import RULE_OF, WAITED_FOR, remedy, serving_engine
from kernelscope.analysis.gpu.summary import gpu_summary
from kernelscope.analysis.gpu.time import temporal_breakdown
from kernelscope.analysis.gpu.unrecorded import unrecorded_activity
from kernelscope.analysis.ops.table import call_eligibility, eligible_share
from kernelscope.units import format_bytes, format_ns, format_percent

_DATA, _COMMUNICATION, _BUSY, _MEMORY = 0.05, 0.1, 0.5, 0.9
# An engine that serves takes nearly all memory for its cache, as it is told to.
_SERVING = (
    "Nothing, if that is what the engine was told to take (--gpu-memory-utilization, --mem-fraction-static); "
    "tell it less where other programs need memory."
)
_TRAINING = "Checkpoint activations, compute in a narrower type, or make the batch smaller."
_NCCL_CAPABILITY = 3.5
_TENSOR_CORES_SINCE = 7


@rule("Steps wait for data", _DATA, needs_all_times=True)
def data_loading(facts: Facts) -> Iterator[Advice]:
    """Steps that wait for data for more than a twentieth of their time."""
    part = facts.parts["dataloader_ns"]
    waited, value = part.worst_ns, facts.share(part.worst_ns)
    if value <= _DATA:
        return
    idle = max((causes.get("data", 0) for causes in facts.waited.values()), default=0)
    calls = facts.ops_doing("data_loading")
    here = " The loader has no workers." if names_like(calls["name"], "_SingleProcess").len() else ""
    meanwhile = f" In gaps between its works a GPU waited {format_ns(idle)} for it." if idle else ""
    yield Advice(
        f"{facts.who(part.device)}{format_percent(value)} of the step time passes while only data is loaded"
        f"{_on_average(facts, part)}.{meanwhile}{here}",
        remedy(facts, "data"),
        value,
        saving_ns=waited,
        device=part.device if facts.who(part.device) else None,
        cites=citing("ops", calls) if calls.height else citing("ranges", facts.ranges_doing("data_loading")),
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
    part = facts.parts["communication_ns"]
    value = facts.share(part.worst_ns)
    if value <= _COMMUNICATION:
        return
    own = facts.communication.filter(pl.col("device").eq_missing(part.device))
    yield Advice(
        f"{facts.who(part.device)}{format_percent(value)} of the step time passes while ranks communicate "
        f"and nothing is computed{_on_average(facts, part)}.",
        _less_communication(facts),
        value,
        saving_ns=facts.saving_ns(own),
        device=part.device if facts.who(part.device) else None,
        cites=citing("gpu_ops", own),
    )


def _on_average(facts: Facts, part: PartOfSteps) -> str:
    """What GPUs have of a part on average, where the trace has several."""
    several = facts.who(part.device)
    return f" ({format_percent(facts.share(part.mean_ns))} on average over the GPUs)" if several else ""


def _less_communication(facts: Facts) -> str:
    if serving_engine(facts) is not None:
        return (
            "Spread a model over fewer GPUs (a smaller tensor parallel size), and have GPUs that reach one "
            "another directly use the engine's own all-reduce (--disable-custom-all-reduce turns it off)."
        )
    batch = " A larger batch communicates less often; it may need another learning rate."
    return (
        "Compress gradients (DDP communication hooks), accumulate them over several steps (no_sync), or let "
        f"communication overlap with the backward.{batch if facts.may_grow else ''}"
    )


@rule("GPUs run kernels less than half of the time", _BUSY, "share of time", needs_all_times=True)
def low_utilisation(facts: Facts) -> Iterator[Advice]:
    """GPUs that compute for less than half of the time, as far as samples do not show other work."""
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
        f"Share of the time with a kernel: {listed}{more}. {rest}",
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
    who = "The least used of them" if facts.who(gpu["device"]) else "It"
    if time["memory_ns"] > max(time["idle_ns"], outside):
        return "copies", f"{who} only copies for {format_percent(time['memory_share'])} of the time."
    waits = facts.waited.get(gpu["device"], {})
    if outside > time["idle_ns"] or not waits:
        share = format_percent(max(outside, 0) / gpu["window_ns"])
        return "host", f"{who} has no work for {share} of it, before its first and after its last."
    cause = next(iter(waits))
    idle = format_percent(time["idle_share"])
    note = ""
    if in_graphs := waits.get("graph", 0):
        note = (
            f" {format_ns(in_graphs)} lie between the nodes of graphs, in which the host has no part and"
            " recording adds time."
        )
    idles = f"{who} idles for {idle} of the time from its first work to its last"
    return cause, f"{idles}, and waits most of all for {WAITED_FOR[cause]}.{note}"


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
    kernels = facts.rows_of(facts.are_kernels, "op_row").join(lowest, on="op_row", how="semi")
    savings = [products_saving(facts, gpu.works) for gpu in facts.on_gpus(kernels)]
    known = [saving for saving in savings if saving is not None]
    yield Advice(
        f"{format_percent(share)} of the kernel time is in operators that tensor cores could run, and none "
        "of their kernels uses them.",
        narrower_type(capability),
        share,
        saving_ns=max(known, default=None),
        severity=None if known else "high" if share > 0.5 else "medium",
        cites=citing("gpu_ops", kernels),
    )


@rule("Memory is nearly used up", _MEMORY, "share of memory")
def memory_near_capacity(facts: Facts) -> Iterator[Advice]:
    """GPUs whose memory is nearly all allocated at the peak."""
    if not facts.may_use("total_allocated_bytes", _MEMORY):
        return
    serves = serving_engine(facts) is not None
    for row in facts.memory.iter_rows(named=True):
        share = row["peak_share"]
        if share is not None and share > _MEMORY:
            yield Advice(
                f"{row['device']} had {format_bytes(row['peak_bytes'])} allocated at its peak, of "
                f"{format_bytes(row['capacity_bytes'])}.",
                _SERVING if serves else _TRAINING,
                share,
                severity="low" if serves else "high",
                device=int(row["device"].removeprefix("GPU")),
                cites=Cited("memory", (row["peak_row"],), 1),
                cause=("out_of_memory",),
            )
