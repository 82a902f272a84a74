"""Rules about copies that kernels do not hide."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, counted, rule
from kernelscope.analysis.gpu.time import temporal_breakdown
from kernelscope.analysis.grouping import classes_of
from kernelscope.units import format_bytes, format_ns, format_percent

_PAGEABLE, _EXPOSED = 0.01, 0.1
# Recorders name what is copied where in columns of their own, or in the name of the copy.
_NAMED = {
    "Host-to-Device": "HtoD|Host-to-Device|HostToDevice|(?:Pageable|Pinned|Host) *-> *Device",
    "Device-to-Host": "DtoH|Device-to-Host|DeviceToHost|Device *-> *(?:Pageable|Pinned|Host)",
    "Device-to-Device": "DtoD|Device-to-Device|DeviceToDevice|Device *-> *Device",
}
_DIRECTIONS = {
    "Host-to-Device": (
        "to the GPU",
        (
            "Keep data on the GPU that every step copies again (weights, offloaded state, caches). "
            "Send inputs in a narrower type. Copy the rest in advance with non_blocking=True on a "
            "separate stream, while kernels run. Load the model before the recorded steps."
        ),
    ),
    "Device-to-Host": (
        "to the host",
        (
            "Reduce on the GPU and copy only results, less often. Copy to pinned memory with "
            "non_blocking=True on a separate stream."
        ),
    ),
    "Device-to-Device": (
        "within the GPU",
        "Replace copies of whole tensors (clone(), contiguous(), cat()) by views or out=.",
    ),
}
_ELSEWHERE = ("from elsewhere", "Copy in advance on a separate stream, while kernels run.")

_IS_PAGEABLE = ((pl.col("where") == "Host-to-Device") & (pl.col("memory") == "pageable")).fill_null(
    value=False
)


def _copies(facts: Facts) -> pl.DataFrame:
    """The copies of whole steps.

    Columns: ``row``, ``device``, ``dur_ns``, ``bytes``, ``where`` (its direction), ``memory`` (of the host:
        pageable or pinned).
    """
    of, keys = facts.work.launches
    is_copy = keys.select(pl.col("kind") == "memcpy").to_series().fill_null(value=False)
    columns = ("row", "device", "dur_ns", "step", "bytes", "name", "copy_kind", "source_memory")
    copies = facts.inside(facts.trace.gpu_ops.select(columns).filter(is_copy.gather(of)))
    classes = classes_of(copies.select("name", "copy_kind", "source_memory"))
    text = pl.concat_str(
        pl.col("copy_kind", "source_memory", "name").cast(pl.String), separator=" ", ignore_nulls=True
    )
    kind = pl.coalesce(
        *(pl.when(text.str.contains(f"(?i){names}")).then(pl.lit(where)) for where, names in _NAMED.items())
    )
    kinds = classes.keys.select(
        where=kind, memory=text.str.extract("(?i)(pageable|pinned)").str.to_lowercase()
    )
    return copies.select("row", "device", pl.col("dur_ns").fill_null(0), "bytes").hstack(kinds[classes.of])


def _take(facts: Facts, share: float) -> bool:
    """Whether copies take more than a share of the time of steps; few traces have such."""
    is_copy = facts.work.launches.keys["kind"] == "memcpy"
    spent = facts.work.totals["sum"].filter(is_copy.fill_null(value=False)).sum()
    return facts.share(int(spent)) > share


def _rate(copies: pl.DataFrame) -> str:
    size, spent = int(copies["bytes"].sum()), int(copies["dur_ns"].sum())
    return f", {format_bytes(size)} at {size / spent:.1f} GB/s" if size and spent else ""


@rule("Data is copied from pageable memory", _PAGEABLE)
def pageable_copies(facts: Facts) -> Iterator[Advice]:
    """Finds copies to the GPU from memory that is not pinned."""
    if not _take(facts, _PAGEABLE):
        return
    for gpu in facts.on_gpus(_copies(facts).filter(_IS_PAGEABLE)):
        value = facts.share(gpu.spent_ns)
        if value <= _PAGEABLE:
            continue
        yield Advice(
            f"{gpu.who}{counted(gpu.works.height, 'copy', 'copies')} to the GPU came from memory that "
            f"is not pinned and took {format_ns(gpu.spent_ns)}{_rate(gpu.works)}.",
            "Pin the memory (DataLoader(pin_memory=True)) and copy with non_blocking=True, while "
            "kernels run.",
            value,
            change=facts.faster(gpu.works),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )


@rule("The GPU copies while it could compute", _EXPOSED)
def exposed_copies(facts: Facts) -> Iterator[Advice]:
    """Finds GPUs that only copy for more than a tenth of the time, from memory that is not pageable."""
    if not _take(facts, _EXPOSED):
        return
    copies = _copies(facts).filter(~_IS_PAGEABLE)
    change = facts.faster(copies, launched=False)
    saving_ns = facts.savings.of(change)
    value = facts.share(saving_ns)
    if value <= _EXPOSED:
        return
    for gpu in facts.on_gpus(copies):
        if facts.share(gpu.spent_ns) <= _EXPOSED:
            continue
        sums = gpu.works.group_by("where", "memory").agg(pl.col("dur_ns").sum())
        where, memory, _ = sums.sort("dur_ns", "where", descending=[True, False]).row(0)
        of_kind = gpu.works.filter(pl.col("where").eq_missing(where) & pl.col("memory").eq_missing(memory))
        direction, remedy = _DIRECTIONS.get(where, _ELSEWHERE)
        pinned = " from pinned memory" if where == "Host-to-Device" and memory == "pinned" else ""
        times = temporal_breakdown(facts.trace).filter(pl.col("device").eq_missing(gpu.device))
        yield Advice(
            f"{gpu.who}Only copies run for {format_percent(times['memory_share'].item())} of the "
            f"GPU's time. {counted(of_kind.height, 'copy', 'copies')} {direction}{pinned} took "
            f"{format_ns(int(of_kind['dur_ns'].sum()))}{_rate(of_kind)}.",
            remedy,
            value,
            change=change,
            saving_ns=saving_ns,
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )
