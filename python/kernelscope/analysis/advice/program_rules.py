"""Rules about what a program does inside its steps that belongs before them."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, Cited, citing, counted, most_common, rule
from kernelscope.analysis.intervals import covered_ns
from kernelscope.units import format_bytes, format_ns, format_percent

_COMPILING, _LOADING, _ALLOCATING, _GROWING = 0.01, 0.01, 0.01, 0.01
_FULL, _FRAGMENTED = 0.8, 0.2
_FEWEST_STEPS = 3

_COMPILERS = r"\(dynamo_timed\)$|^_?compile_fx|^torch/_dynamo.*(?:_compile|convert_frame)|^CachingAutotuner"
_LOADERS = r"^(?:cu|hip)(?:Module|Library)Load|^cudaLibraryLoad|^hipModuleLoad"
_ALLOCATORS = (
    r"^(?:cuda|hip|cu)(?:Malloc|Free|MemAlloc|MemFree|MemCreate|MemMap|MemUnmap|MemRelease)"
    r"(?:_v2|Host|Managed)?$"
)


@rule("Steps compile", _COMPILING)
def recompilation(facts: Facts) -> Iterator[Advice]:
    """Compiling inside steps."""
    found = facts.ops_named(_COMPILERS)
    timed = found.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns").fill_null(0))
    spent = int(covered_ns(timed, by=[]).item() or 0)
    value = facts.share(spent)
    if value <= _COMPILING:
        return
    yield Advice(
        f"{format_ns(spent)} of the steps passed in torch.compile.",
        "Warm up before profiling. If it goes on, see TORCH_LOGS=recompiles: mark changing sizes as dynamic, "
        "and keep Python values that change out of compiled functions.",
        value,
        saving_ns=spent,
        cites=citing("ops", found),
    )


@rule("Steps load the code of kernels", _LOADING)
def module_loading(facts: Facts) -> Iterator[Advice]:
    """Loading the code of kernels inside steps."""
    found = facts.launches_named(_LOADERS)
    spent = int(found["dur_ns"].sum())
    value = facts.share(spent)
    if value <= _LOADING:
        return
    yield Advice(
        f"{counted(found.height, 'call')} that load code took {format_ns(spent)}.",
        "Run a few steps before the ones that are recorded: code is loaded when it is first used.",
        value,
        saving_ns=spent,
        cites=citing("launches", found),
    )


@rule("Steps ask the driver for memory", _ALLOCATING)
def allocator_calls(facts: Facts) -> Iterator[Advice]:
    """Memory of the device that is asked for and given back inside steps."""
    found = facts.launches_named(_ALLOCATORS)
    first = facts.breakdown["step"].min()
    if facts.steps > 1:
        # The first step fills the cache of the allocator.
        found = found.filter(pl.col("step") != first)
    spent = int(found["dur_ns"].sum())
    value = facts.share(spent)
    if value <= _ALLOCATING:
        return
    names = found.group_by("name").len().sort("len", "name", descending=[True, False])
    listed = most_common(f"{name} ({count:,} x)" for name, count in names.iter_rows())
    yield Advice(
        f"{listed} took {format_ns(spent)}; a free in a step says that the allocator gave its cache back.",
        "Use less memory or steadier sizes, set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and do not "
        "call torch.cuda.empty_cache() in a step.",
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
