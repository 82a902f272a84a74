"""Rules about activity inside steps that belongs before them."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, Cited, citing, counted, most_common, rule
from kernelscope.units import format_bytes, format_ns, format_percent

_LOADING, _ALLOCATING, _GROWING = 0.01, 0.01, 0.01
_FULL, _FRAGMENTED = 0.8, 0.2
_FEWEST_STEPS = 3


@rule("Steps load the code of kernels", _LOADING)
def module_loading(facts: Facts) -> Iterator[Advice]:
    """Finds calls inside steps that load kernel code."""
    found = facts.loads
    if found.is_empty():
        return
    change, saving_ns = facts.without(found)
    value = facts.share(saving_ns)
    if value <= _LOADING:
        return
    yield Advice(
        f"{counted(found.height, 'call')} that load kernel code delayed the steps by {format_ns(saving_ns)}.",
        "Run a few steps before recording: kernel code is loaded at first use.",
        value,
        change=change,
        saving_ns=saving_ns,
        cites=citing("launches", found),
    )


@rule("Steps allocate memory from the driver", _ALLOCATING)
def allocator_calls(facts: Facts) -> Iterator[Advice]:
    """Finds device memory that is allocated and freed inside steps."""
    found = facts.allocations
    if found.is_empty():
        return
    change, saving_ns = facts.without(found)
    value = facts.share(saving_ns)
    if value <= _ALLOCATING:
        return
    names = found.group_by("name").len().sort("len", "name", descending=[True, False])
    listed = most_common(f"{name} ({count:,} x)" for name, count in names.iter_rows())
    freed, less = (". A free in a step means that the allocator returned its cache", "less memory or ")
    yield Advice(
        f"{listed} delayed the steps by {format_ns(saving_ns)}{freed if facts.gives_back else ''}.",
        f"Use {less if facts.gives_back else ''}steadier sizes, set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and do not call torch.cuda.empty_cache() "
        "in steps.",
        value,
        change=change,
        saving_ns=saving_ns,
        cites=citing("launches", found),
    )


@rule("Memory ran out", 0, "allocations")
def out_of_memory(facts: Facts) -> Iterator[Advice]:
    """Finds failed allocations."""
    failed = facts.records.failed
    if failed.height:
        yield Advice(
            f"{counted(failed.height, 'allocation')} failed.",
            "See the owners of memory at the peak. Checkpoint activations or reduce the batch size.",
            failed.height,
            severity="high",
            cites=citing("memory", failed, by="start_ns"),
        )


@rule("Memory grows from step to step", _GROWING, "share of the peak")
def memory_growth(facts: Facts) -> Iterator[Advice]:
    """Finds memory that is larger at the end of every step than at the end of the previous one."""
    if facts.trace.memory.is_empty() or facts.steps < _FEWEST_STEPS or not facts.marked:
        return
    ends = facts.breakdown.select(pl.col("start_ns") + pl.col("total_ns")).to_series().sort().to_list()
    records = facts.records
    for place, (device, peak) in enumerate(zip(records.devices, records.courses["peak_bytes"], strict=True)):
        last = records.held(place, ends)
        # Nothing is known where a step ends before the first record.
        if last is None:
            continue
        held = last["allocated_bytes"]
        if not (held.diff().drop_nulls() > 0).all():
            continue
        growth = int(held[-1]) - int(held[0])
        if peak > 0 and growth / peak > _GROWING:
            yield Advice(
                f"After {held.len()} steps {device} has {format_bytes(growth)} more allocated than "
                "after the first step, and it grew in every step.",
                "Look for objects that are never freed: losses kept with their graphs, outputs in "
                "lists, caches.",
                growth / peak,
                severity="medium",
                cites=Cited("memory", tuple(records.frame["row"].gather(last["at"])), last.height),
            )


@rule("Reserved memory is unused", _FRAGMENTED, "share of reserved memory")
def fragmentation(facts: Facts) -> Iterator[Advice]:
    """Finds unused reserved memory on a GPU that is nearly full."""
    if not facts.may_use("total_reserved_bytes", _FULL):
        return
    for row in facts.memory.iter_rows(named=True):
        reserved, capacity = row["peak_reserved_bytes"], row["capacity_bytes"]
        idle = row["fragmentation_share"] or 0.0
        if not reserved or not capacity or reserved / capacity <= _FULL or idle <= _FRAGMENTED:
            continue
        yield Advice(
            f"{row['device']} had {format_bytes(reserved)} of {format_bytes(capacity)} reserved, "
            f"{format_percent(idle)} of it not allocated.",
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or allocate the largest blocks first.",
            idle,
            severity="medium",
            cites=Cited("memory", (row["peak_row"],), 1),
        )
