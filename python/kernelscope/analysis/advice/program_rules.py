"""Rules about what a program does inside its steps that belongs before them."""

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
    """Loading the code of kernels inside steps."""
    found = facts.loads
    if found.is_empty():
        return
    spent = facts.critical.host_ns(found)
    value = facts.share(spent)
    if value <= _LOADING:
        return
    yield Advice(
        f"{counted(found.height, 'call')} that load code held the steps up for {format_ns(spent)}.",
        "Run a few steps before the ones that are recorded: code is loaded when it is first used.",
        value,
        saving_ns=spent,
        cites=citing("launches", found),
    )


@rule("Steps ask the driver for memory", _ALLOCATING)
def allocator_calls(facts: Facts) -> Iterator[Advice]:
    """Memory of the device that is asked for and given back inside steps."""
    found = facts.allocations
    if found.is_empty():
        return
    spent = facts.critical.host_ns(found)
    value = facts.share(spent)
    if value <= _ALLOCATING:
        return
    names = found.group_by("name").len().sort("len", "name", descending=[True, False])
    listed = most_common(f"{name} ({count:,} x)" for name, count in names.iter_rows())
    freed, less = ("; a free in a step says that the allocator gave its cache back", "less memory or ")
    yield Advice(
        f"{listed} held the steps up for {format_ns(spent)}{freed if facts.gives_back else ''}.",
        f"Use {less if facts.gives_back else ''}steadier sizes, set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and leave torch.cuda.empty_cache() out of steps.",
        value,
        saving_ns=spent,
        cites=citing("launches", found),
    )


@rule("Memory ran out", 0, "allocations")
def out_of_memory(facts: Facts) -> Iterator[Advice]:
    """Allocations that failed."""
    failed = facts.records.failed
    if failed.height:
        yield Advice(
            f"{counted(failed.height, 'allocation')} failed.",
            "See who held memory at the peak; checkpoint activations or make the batch smaller.",
            failed.height,
            severity="high",
            cites=citing("memory", failed, by="start_ns"),
        )


@rule("Memory grows from step to step", _GROWING, "share of the peak")
def memory_growth(facts: Facts) -> Iterator[Advice]:
    """Memory that is larger at the end of every step than at the end of the one before."""
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
                f"After {held.len()} steps {device} holds {format_bytes(growth)} more than after the first, "
                "and after each more than before.",
                "Look at what is not freed: losses kept with their graphs, outputs in lists, caches.",
                growth / peak,
                severity="medium",
                cites=Cited("memory", tuple(records.frame["row"].gather(last["at"])), last.height),
            )


@rule("Reserved memory lies idle", _FRAGMENTED, "share of reserved memory")
def fragmentation(facts: Facts) -> Iterator[Advice]:
    """Reserved memory that nobody uses, on a GPU that is nearly full."""
    if not facts.may_use("total_reserved_bytes", _FULL):
        return
    for row in facts.memory.iter_rows(named=True):
        reserved, capacity = row["peak_reserved_bytes"], row["capacity_bytes"]
        idle = row["fragmentation_share"] or 0.0
        if not reserved or not capacity or reserved / capacity <= _FULL or idle <= _FRAGMENTED:
            continue
        yield Advice(
            f"{row['device']} had {format_bytes(reserved)} of {format_bytes(capacity)} reserved, and "
            f"{format_percent(idle)} of that was not allocated.",
            "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or allocate the largest blocks first.",
            idle,
            severity="medium",
            cites=Cited("memory", (row["peak_row"],), 1),
        )
