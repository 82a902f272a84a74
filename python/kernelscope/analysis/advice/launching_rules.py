"""Rules about a host that cannot keep GPUs busy."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, counted, most_common, rule
from kernelscope.analysis.advice.waits import LONGEST_LAUNCH_NS
from kernelscope.analysis.grouping import classes_of, gather_rows, positions, sum_by_group
from kernelscope.units import format_ns, format_percent

_LATE, _TINY, _SYNCING, _IDLE, _SMALL = 0.1, 0.5, 0.01, 0.1, 0.2
# About what one launch costs the host: a kernel that is shorter cannot keep up with its own launch.
_TINY_NS = 10_000
_FEWEST_KERNELS = 100
_OPTIMIZER_KERNELS = 100


def _worst(gaps: pl.DataFrame) -> tuple[int | None, pl.DataFrame, int]:
    """The GPU that waited longest, its gaps, and how long they are together."""
    sums = gaps.group_by("device").agg(pl.col("dur_ns").sum())
    if sums.is_empty():
        return None, gaps, 0
    device, waited = sums.sort("dur_ns", "device", descending=[True, False]).row(0)
    of_device = gaps if sums.height == 1 else gaps.filter(pl.col("device").eq_missing(device))
    return device, of_device, waited


@rule("The host launches too slowly", _LATE)
def launch_bound(facts: Facts) -> Iterator[Advice]:
    """GPUs that wait for the host to launch."""
    device, gaps, waited = _worst(facts.gaps.late.filter(pl.col("cause") == "launch"))
    value = facts.share(waited)
    if value <= _LATE:
        return
    mean = format_ns(facts.kernel_ns / facts.kernel_count if facts.kernel_count else None)
    yield Advice(
        f"In {counted(gaps.height, 'gap')} the GPU waited {format_ns(waited)} for a launch; "
        f"the mean kernel lasts {mean}.",
        "Launch less: torch.compile, CUDA or HIP graphs, fused and foreach operators, larger batches.",
        value,
        saving_ns=waited,
        device=device,
        cites=citing("gpu_ops", gaps),
    )


@rule("The host does something else while the GPU waits", _LATE)
def host_busy(facts: Facts) -> Iterator[Advice]:
    """GPUs that wait while the host does something else than to launch."""
    device, gaps, waited = _worst(facts.gaps.late.filter(pl.col("cause") == "host"))
    value = facts.share(waited)
    if value <= _LATE:
        return
    from kernelscope.analysis.launches.idle import longest_on_thread

    until = pl.min_horizontal("launch_ns", pl.col("start_ns") + pl.col("dur_ns"))
    hosts = longest_on_thread(facts.trace, gaps.with_columns(until_ns=until))
    longest = (
        hosts.group_by("host")
        .agg(pl.col("host_ns").sum())
        .sort("host_ns", "host", descending=[True, False], nulls_last=True)
    )
    doing = most_common(f"{name} ({format_ns(ns)})" for name, ns in longest.drop_nulls().iter_rows())
    yield Advice(
        f"In {counted(gaps.height, 'gap')} of more than {format_ns(LONGEST_LAUNCH_NS)} the GPU waited "
        f"{format_ns(waited)}. Meanwhile on the launching thread: {doing or 'nothing that was recorded'}.",
        "See what Python does there (with_stack=True); move it out of the step or to another thread.",
        value,
        saving_ns=waited,
        device=device,
        cites=citing("gpu_ops", gaps),
    )


@rule("Most kernels are too short to launch one by one", _TINY, "share of kernels")
def tiny_kernels(facts: Facts) -> Iterator[Advice]:
    """Kernels so short that launching them takes longer, on a GPU that waits for launches."""
    if facts.kernel_count < _FEWEST_KERNELS:
        return
    is_tiny = facts.are_kernels & (facts.trace.gpu_ops["dur_ns"].fill_null(0) < _TINY_NS)
    value = int(is_tiny.sum()) / facts.kernel_count
    if value <= _TINY:
        return
    tiny = facts.trace.gpu_ops.select("row", "name", pl.col("dur_ns").fill_null(0)).filter(is_tiny)
    gaps = facts.gaps.late.filter(pl.col("cause") == "launch")
    device, _, waited = _worst(gaps.filter(positions(tiny["row"], gaps["row"]).is_not_null()))
    if facts.share(waited) <= _LATE / 2:
        return
    names = tiny.group_by("name").len().sort("len", "name", descending=[True, False])["name"].cast(pl.String)
    yield Advice(
        f"{format_percent(value)} of {facts.kernel_count:,} kernels last less than {format_ns(_TINY_NS)}, "
        f"and the GPU waited {format_ns(waited)} for them; most often: {most_common(names)}.",
        "Fuse them (torch.compile), replay them as a graph, or give each more to do.",
        value,
        saving_ns=waited,
        device=device,
        cites=citing("gpu_ops", tiny),
    )


@rule("The host waits for the GPU, which then waits for the host", _SYNCING)
def synchronising_calls(facts: Facts) -> Iterator[Advice]:
    """Gaps that open because the host had waited for the GPU."""
    device, gaps, waited = _worst(facts.gaps.late.filter(pl.col("cause") == "sync"))
    value = facts.share(waited)
    if value <= _SYNCING:
        return
    calls = gather_rows(gaps["sync_row"].unique(), facts.trace.launches, "row", "name", "dur_ns", "op_row")
    ops = gather_rows(calls["op_row"], facts.trace.ops, "name")["name"].cast(pl.String)
    callers = calls.select(by=pl.coalesce(ops, pl.col("name").cast(pl.String)))
    names = callers.group_by("by").len().sort("len", "by", descending=[True, False])
    listed = most_common(f"{name} ({count:,} x)" for name, count in names.iter_rows())
    yield Advice(
        f"After {counted(calls.height, 'call')} that waited for the GPU it idled {format_ns(waited)}: "
        f"{listed}.",
        "Keep values on the GPU: no .item(), .cpu() or print in a step; copy with non_blocking=True.",
        value,
        saving_ns=waited,
        device=device,
        cites=citing("launches", calls),
    )


@rule("Kernels leave multiprocessors empty", _SMALL, "share of kernel time")
def small_grids(facts: Facts) -> Iterator[Advice]:
    """Kernels with fewer blocks than the GPU has multiprocessors."""
    if not facts.kernel_ns:
        return
    work = facts.trace.gpu_ops
    is_small = (work["blocks_per_sm"] < 1) & (work["blocks_per_sm"] > 0) & facts.are_kernels
    value = int(work["dur_ns"].filter(is_small).sum()) / facts.kernel_ns
    if value <= _SMALL:
        return
    small = work.select("row", "name", pl.col("dur_ns").fill_null(0), "blocks_per_sm").filter(is_small)
    idle = small.select((pl.col("dur_ns") * (1 - pl.col("blocks_per_sm"))).sum()).item()
    names = (
        small.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])
    )
    yield Advice(
        f"{format_percent(value)} of the kernel time has fewer blocks than the GPU has multiprocessors; "
        f"longest: {most_common(names['name'].cast(pl.String))}.",
        "Enlarge the batch or merge small operators, or run independent ones on several streams.",
        value,
        saving_ns=round(idle),
        cites=citing("gpu_ops", small),
    )


@rule("The GPU idles", _IDLE)
def gpu_idle(facts: Facts) -> Iterator[Advice]:
    """GPUs that do nothing for more than a tenth of the time, and what they wait for."""
    device, gaps, waited = _worst(facts.gaps.all)
    value = facts.share(waited)
    if value <= _IDLE:
        return
    causes = {
        "launch": "launches",
        "host": "a host that did something else",
        "sync": "the host after it had waited for the GPU",
        "data": "data",
        "queue": "events, copies or their turn",
        None: "work whose launch was not recorded",
    }
    groups = classes_of(gaps.select("cause"))
    sums = groups.keys.hstack(sum_by_group(groups.of, gaps["dur_ns"], groups.keys.height))
    sums = sums.select("cause", "sum").sort("sum", descending=True)
    listed = ", ".join(f"{format_ns(ns)} for {causes[cause]}" for cause, ns in sums.iter_rows())
    yield Advice(
        f"It did nothing for {format_percent(value)} of the step time: {listed}.",
        "Begin with the largest cause; the advice about it says how.",
        value,
        saving_ns=waited,
        device=device,
        cites=citing("gpu_ops", gaps),
    )


@rule("The optimizer updates parameters one by one", _OPTIMIZER_KERNELS, "kernels per step")
def optimizer_not_fused(facts: Facts) -> Iterator[Advice]:
    """An optimizer that launches kernels for each parameter."""
    if not facts.steps:
        return
    value = int(facts.updates.sum()) / facts.steps
    if value <= _OPTIMIZER_KERNELS:
        return
    kernels = facts.trace.gpu_ops.select("row", pl.col("dur_ns").fill_null(0)).filter(facts.updates)
    gaps = facts.gaps.late.join(kernels.select("row"), on="row", how="semi")
    device, _, waited = _worst(gaps.filter(pl.col("cause") == "launch"))
    mean = format_ns(kernels.select(pl.col("dur_ns").mean()).item())
    yield Advice(
        f"It launches {value:,.0f} kernels in a step, which last {mean} on average.",
        "Give the optimizer fused=True or foreach=True.",
        value,
        saving_ns=waited,
        device=device,
        cites=citing("gpu_ops", kernels),
    )
