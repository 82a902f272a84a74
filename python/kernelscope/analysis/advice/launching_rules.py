"""Rules about a host that cannot keep GPUs busy."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts, OnGpu
from kernelscope.analysis.advice.record import Advice, citing, counted, most_common, names_like, rule
from kernelscope.analysis.advice.remedies import (
    WAITED_FOR,
    fewer_launches,
    other_work,
    remedy,
    serving_engine,
    slow_call,
)
from kernelscope.analysis.advice.savings import together
from kernelscope.analysis.advice.source_lines import called_from
from kernelscope.analysis.advice.waits import LONGEST_LAUNCH_NS, longest_calls
from kernelscope.analysis.grouping import gather_rows
from kernelscope.units import format_ns, format_percent

_LATE, _TINY, _SYNCING, _IDLE, _FED = 0.1, 0.5, 0.01, 0.1, 0.05
# About what one launch costs the host: a kernel that is shorter cannot keep up with its own launch.
_TINY_NS = 10_000
_FEWEST_KERNELS = 100
_OPTIMIZER_KERNELS = 100

_DECODING = r"context_0(?:\(|_).*generation_[1-9]"


@rule("A serving engine launches its kernels one by one", _LATE, needs_all_times=True)
def serving_without_graphs(facts: Facts) -> Iterator[Advice]:
    """Finds GPUs that wait for the launches of a serving engine without graph replays."""
    if facts.graph_launches or facts.captures_graphs:
        return
    engine = serving_engine(facts)
    if engine is None:
        return
    for gpu in facts.waits("launch"):
        value = facts.share(gpu.spent_ns)
        if value <= _LATE:
            continue
        decoding = names_like(facts.trace, "ops", _DECODING).len()
        steps = "decode steps" if decoding else "steps"
        yield Advice(
            f"{gpu.who}{steps} of {engine} replay no graph.",
            fewer_launches(facts),
            value,
            change=facts.sooner(gpu.works),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )


@rule("The host launches too slowly", _LATE, needs_all_times=True)
def launch_bound(facts: Facts) -> Iterator[Advice]:
    """Finds GPUs that wait for the host to launch."""
    for gpu in facts.waits("launch"):
        value = facts.share(gpu.spent_ns)
        if value <= _LATE:
            continue
        mean = format_ns(facts.kernel_ns / facts.kernel_count if facts.kernel_count else None)
        yield Advice(
            f"{gpu.who}The GPU waited {format_ns(gpu.spent_ns)} in {counted(gpu.works.height, 'gap')} "
            f"for the next launch. Kernels take {mean} on average.",
            fewer_launches(facts),
            value,
            change=facts.sooner(gpu.works),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
            cause=("serving_without_graphs",),
        )


@rule("Most kernels are too short to launch one by one", _TINY, "share of kernels", needs_all_times=True)
def tiny_kernels(facts: Facts) -> Iterator[Advice]:
    """Finds kernels shorter than their launch, on a GPU that waits for launches."""
    if facts.kernel_count < _FEWEST_KERNELS:
        return
    is_tiny = facts.are_kernels & (facts.trace.gpu_ops["dur_ns"].fill_null(0) < _TINY_NS)
    value = int(is_tiny.sum()) / facts.kernel_count
    if value <= _TINY:
        return
    tiny = facts.rows_of(is_tiny, "name")
    for gpu in facts.waits("launch"):
        waits = gpu.works.join(tiny.select("row"), on="row", how="semi")
        waited = int(waits["dur_ns"].sum())
        if facts.share(waited) <= _LATE / 2:
            continue
        names = tiny.group_by("name").len().sort("len", "name", descending=[True, False])["name"]
        yield Advice(
            f"{gpu.who}{format_percent(value)} of {facts.kernel_count:,} kernels take less than "
            f"{format_ns(_TINY_NS)}, and the GPU waited {format_ns(waited)} for them. Most frequent: "
            f"{most_common(names.cast(pl.String))}.",
            fewer_launches(facts),
            value,
            change=facts.sooner(waits),
            device=gpu.device,
            cites=citing("gpu_ops", waits),
            cause=("serving_without_graphs", "launch_bound"),
        )


@rule("The host is busy with other work while the GPU waits", _LATE, needs_all_times=True)
def host_busy(facts: Facts) -> Iterator[Advice]:
    """Finds GPUs that wait while the host is busy with other work."""
    for gpu in facts.waits("host"):
        value = facts.share(gpu.spent_ns)
        if value <= _LATE:
            continue
        doing, remedy = _doing(facts, gpu.works)
        yield Advice(
            f"{gpu.who}The GPU waited {format_ns(gpu.spent_ns)} in {counted(gpu.works.height, 'gap')} "
            f"of more than {format_ns(LONGEST_LAUNCH_NS)}. Meanwhile on the launching thread: {doing}.",
            remedy,
            value,
            change=facts.sooner(gpu.works),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )


def _doing(facts: Facts, gaps: pl.DataFrame) -> tuple[str, str]:
    """What the launching thread did in the gaps (operators, annotations, runtime calls), and what to do."""
    from kernelscope.analysis.launches.idle import longest_on_thread

    until = pl.min_horizontal("launch_ns", pl.col("start_ns") + pl.col("dur_ns"))
    hosts = longest_on_thread(facts.trace, gaps.with_columns(until_ns=until))
    calls = longest_calls(facts.trace, gaps)
    found = pl.concat(
        part.select(pl.col(name).cast(pl.String).alias("name"), ns=ns, is_call=pl.lit(is_call))
        for part, name, ns, is_call in (
            (hosts, "host", "host_ns", False), (calls, "name", "shared_ns", True)
        )
    )  # fmt: skip
    known = facts.explained["name"].unique().implode()
    longest = found.drop_nulls().filter(~pl.col("name").is_in(known)).group_by("name", "is_call")
    longest = longest.agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False])
    waited = int(gaps["dur_ns"].sum())
    doing = most_common(f"{name[:40]} ({format_ns(ns)})" for name, _, ns in longest.iter_rows())
    if not doing:
        return "nothing that was recorded", other_work(facts)
    name, is_call, ns = longest.row(0)
    if 2 * ns < waited:
        doing = f"mostly nothing that was recorded, then {doing}"
    return doing, slow_call(name) if is_call and 2 * ns >= waited else other_work(facts)


@rule("The host waits for the GPU, which then waits for the host", _SYNCING, needs_all_times=True)
def synchronising_calls(facts: Facts) -> Iterator[Advice]:
    """Finds gaps that exist because the host had waited for the GPU."""
    for gpu in facts.waits("sync"):
        value = facts.share(gpu.spent_ns)
        if value <= _SYNCING:
            continue
        of_calls = gpu.works["sync_row"].unique()
        columns = ("row", "name", "dur_ns", "op_row", "track", "start_ns")
        calls = gather_rows(of_calls, facts.trace.launches, *columns)
        ops = gather_rows(calls["op_row"], facts.trace.ops, "name")["name"].cast(pl.String)
        callers = calls.select(by=pl.coalesce(ops, pl.col("name").cast(pl.String)))
        names = callers.group_by("by").len().sort("len", "by", descending=[True, False])
        listed = most_common(f"{name} ({count:,} x)" for name, count in names.iter_rows())
        yield Advice(
            f"{gpu.who}The GPU was idle for {format_ns(gpu.spent_ns)} after "
            f"{counted(calls.height, 'call')} that waited for it: {listed}."
            f"{called_from(facts.trace, calls)}",
            remedy(facts, "sync"),
            value,
            change=facts.savings.unwaited(calls),
            device=gpu.device,
            cites=citing("launches", calls),
            cause=("gradient_norm_waits",) if _waits_for_norms(facts, gpu) else (),
        )


def _waits_for_norms(facts: Facts, gpu: OnGpu) -> bool:
    """Whether at least half of what a GPU waits for are norms of gradients."""
    own = (norms.spent_ns for norms in facts.norm_waits if norms.device == gpu.device)
    return 2 * sum(own) >= gpu.spent_ns


@rule("The GPU idles", _IDLE, needs_all_times=True)
def gpu_idle(facts: Facts) -> Iterator[Advice]:
    """Finds GPUs that are idle for more than a tenth of the time, by causes without a rule of their own."""
    limits: dict[str | None, float] = {"launch": _LATE, "host": _LATE, "sync": _SYNCING, "data": 1.0}
    if facts.share(facts.parts["dataloader_ns"].worst_ns) > _FED:
        limits["data"] = 0.0
    for device, causes in facts.waited.items():
        # The host has no part in what lies between the nodes of a graph, and recorders add to it.
        found = ((cause, ns) for cause, ns in causes.items() if cause != "graph")
        left = {cause: ns for cause, ns in found if facts.share(ns) <= limits.get(cause, 1.0)}
        waited = sum(left.values())
        if facts.share(waited) <= _IDLE:
            continue
        listed = ", ".join(
            f"{format_ns(ns)} for {WAITED_FOR[cause]}" for cause, ns in left.items() if 20 * ns > waited
        )
        is_left = pl.col("cause").cast(pl.String).is_in(list(left), nulls_equal=True)
        gaps = facts.gaps.all.with_row_index("place")
        gaps = gaps.filter(pl.col("device").eq_missing(device) & is_left)
        launched = facts.gaps.late.select("place", "track")
        yield Advice(
            f"{facts.who(device)}The GPU was idle for {format_percent(facts.share(waited))} of the "
            f"step time: {listed}.",
            remedy(facts, next(iter(left))),
            facts.share(waited),
            change=facts.sooner(gaps.join(launched, on="place", how="left")),
            device=device,
            cites=citing("gpu_ops", gaps),
        )


@rule(
    "The optimizer updates parameters one by one",
    _OPTIMIZER_KERNELS,
    "kernels per step",
    needs_all_times=True,
)
def optimizer_not_fused(facts: Facts) -> Iterator[Advice]:
    """Finds an optimizer that launches kernels for each parameter."""
    if not facts.steps:
        return
    waits = {gpu.device: gpu.works for gpu in facts.waits("launch")}
    for gpu in facts.on_gpus(facts.rows_of(facts.updates)):
        value = gpu.works.height / facts.steps
        if value <= _OPTIMIZER_KERNELS:
            continue
        # What the shortest takes, every kernel takes that is launched; a fused one does so once.
        least = int(gpu.works["dur_ns"].min() or 0)  # type: ignore[arg-type]
        works = gpu.works.with_columns(saved=pl.lit(least))
        changes = [facts.faster(works, "saved", launched=False)]
        if gpu.device in waits:
            gaps = waits[gpu.device].join(gpu.works, on="row", how="semi")
            changes.append(facts.sooner(gaps))
        yield Advice(
            f"{gpu.who}The optimizer launches {value:,.0f} kernels per step, which take "
            f"{format_ns(gpu.spent_ns / gpu.works.height)} on average.",
            "Pass fused=True or foreach=True to the optimizer.",
            value,
            change=together(changes),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )
