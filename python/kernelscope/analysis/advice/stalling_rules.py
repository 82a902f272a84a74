"""Rules about stalls of training: garbage collection, clipping, checkpoints and slow first steps."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, counted, rows_like, rule
from kernelscope.analysis.advice.source_lines import called_from
from kernelscope.analysis.grouping import gather_rows
from kernelscope.analysis.intervals import common, merged
from kernelscope.units import format_ns

_COLLECTING, _CLIPPING, _SAVING, _SLOW = 0.01, 0.01, 0.01, 0.5
_FEWEST_STEPS = 3
_COLLECTOR = r"^Python GC$|^<built-in function collect>$"
"""Frames of a profiler with ``record_python_gc_info=True``, and calls of ``gc.collect``."""


@rule("Python collects garbage in steps", _COLLECTING)
def garbage_collection(facts: Facts) -> Iterator[Advice]:
    """Finds collections of garbage inside steps that delay them."""
    found = rows_like(facts.trace, "python", _COLLECTOR, "row", "track", "start_ns", "dur_ns")
    yield from _skipping(
        facts,
        found.drop_nulls("dur_ns").with_columns(table=pl.lit("python")),
        _COLLECTING,
        "{} of garbage delayed the steps by {}.",
        "collection",
        "Collect at the same step on all ranks: gc.disable(), then gc.collect() every few hundred steps. "
        "gc.freeze() after the set-up leaves fewer objects to look at.",
    )


@rule("Steps save checkpoints", _SAVING)
def checkpoint_saving(facts: Facts) -> Iterator[Advice]:
    """Finds checkpoints that are saved inside steps and delay them."""
    if facts.trace.python.is_empty() and facts.trace.ops.is_empty():
        return
    from kernelscope.analysis.training.phases import named_phases

    found = named_phases(facts.trace).filter(phase="checkpoint_saving")
    outermost = found.filter(~pl.col("parent_row").is_in(found["row"].implode()).fill_null(value=False))
    yield from _skipping(
        facts,
        outermost.with_columns(row="table_row"),
        _SAVING,
        "Saving {} delayed the steps by {}.",
        "checkpoint",
        "Save in the background (torch.distributed.checkpoint.async_save), each rank its own shard, and less "
        "often.",
    )


def _skipping(
    facts: Facts, found: pl.DataFrame, least: float, evidence: str, noun: str, remedy: str
) -> Iterator[Advice]:
    """Advice about parts of threads without which steps are shorter.

    Columns: ``found`` needs ``track``, ``start_ns``, ``dur_ns``, and ``table`` and ``row`` to cite.
    """
    parts = found.with_columns(end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    parts = common(parts, facts.spans)
    if parts.is_empty():
        return
    separate = merged(parts.select("track", "start_ns", "end_ns"), by=["track"])
    change = facts.savings.idle(separate)
    saving_ns = facts.savings.of(change)
    value = facts.share(saving_ns)
    if value <= least:
        return
    table = parts.sort("dur_ns", "row")["table"][-1]
    # A call of the collector has the collection inside.
    text = evidence.format(counted(separate.height, noun), format_ns(saving_ns))
    yield Advice(
        text + called_from(facts.trace, parts),
        remedy,
        value,
        change=change,
        saving_ns=saving_ns,
        cites=citing(table, parts.filter(table=table)),
    )


@rule("Clipping gradients waits for the GPU", _CLIPPING, needs_all_times=True)
def gradient_norm_waits(facts: Facts) -> Iterator[Advice]:
    """Finds GPUs that are idle after the host had waited for the norm of the gradients."""
    for gpu in facts.norm_waits:
        value = facts.share(gpu.spent_ns)
        if value <= _CLIPPING:
            continue
        calls = gather_rows(
            gpu.works["sync_row"].unique(), facts.trace.launches, "row", "dur_ns", "track", "start_ns"
        )
        yield Advice(
            f"{gpu.who}The GPU was idle for {format_ns(gpu.spent_ns)} after {counted(calls.height, 'call')} "
            f"that waited for the norm of gradients.{called_from(facts.trace, calls)}",
            "Keep the norm on the GPU: clip_grad_norm_ without error_if_nonfinite, and no .item() of its "
            "result. Log it some steps later.",
            value,
            change=facts.savings.unwaited(calls),
            device=gpu.device,
            cites=citing("launches", calls),
        )


@rule("The first step is slow", _SLOW, "share of a usual step")
def slow_first_step(facts: Facts) -> Iterator[Advice]:
    """Finds a first step that takes much longer than the others, which have similar lengths."""
    numbers, steps = facts.breakdown.sort("start_ns").select("step", "total_ns").get_columns()
    if not facts.marked or steps.len() < _FEWEST_STEPS:
        return
    rest = steps.slice(1)
    usual, longest = rest.median(), rest.max()
    if not isinstance(usual, float) or not isinstance(longest, int) or usual <= 0:
        return
    value = int(steps[0]) / usual - 1
    if value <= _SLOW or int(steps[0]) <= longest:
        return
    of_step = pl.col("step") == numbers[0]
    inside = facts.trace.gpu_ops.filter(of_step)
    yield Advice(
        f"The first step takes {format_ns(int(steps[0]))}, the others {format_ns(usual)} in the median.",
        "Leave it out of comparisons: run a few steps before recording (schedule(wait=..., warmup=...)), "
        "in which code is compiled and loaded and memory is allocated.",
        value,
        severity="low",
        cites=citing("gpu_ops", inside) if inside.height else citing("ops", facts.trace.ops.filter(of_step)),
    )
