"""Rules about kernels and copies that need not be, or could run faster."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, counted, most_common, names_like, rule
from kernelscope.analysis.grouping import describe_by_group
from kernelscope.analysis.ops.table import operator_flags
from kernelscope.units import format_ns, format_percent

_COPYING, _CONVERTING, _CHAINED, _OFF_TENSOR_CORES = 0.01, 0.02, 0.05, 0.05
_TENSOR_CORES_SINCE, _TF32_SINCE = 7, 8

# Kernels that multiply matrices, not those that prepare them.
_PRODUCTS = r"(?i)gemm|gemv|wgrad|dgrad|fprop|winograd|convolve|scudnn|fmha|attention"
_LAYOUTS = r"(?i)nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|batched_transpose|tensorTransform"
_POINTWISE = r"(?:vectorized_|unrolled_|legacy_)?elementwise_kernel"
_PAGEABLE = r"(?i)HtoD.*Pageable|Host-to-Device.*Pageable|Pageable *-> *Device|HostToDevice.*Pageable"


@rule("Data is copied from pageable memory", _COPYING)
def pageable_copies(facts: Facts) -> Iterator[Advice]:
    """Copies to the GPU from memory that is not pinned."""
    of, keys = facts.work.launches
    is_copy = keys.select(pl.col("kind") == "memcpy").to_series().fill_null(value=False)
    # Few traces have copies that take so long.
    if (facts.share(int(facts.work.totals["sum"].filter(is_copy).sum())) or 0) <= _COPYING:
        return
    columns = ("row", "name", "dur_ns", "step", "bytes", "copy_kind", "source_memory")
    copies = facts.inside(facts.trace.gpu_ops.select(columns).filter(is_copy.gather(of)))
    stated = (pl.col("copy_kind") == "Host-to-Device") & (pl.col("source_memory") == "Pageable")
    named = pl.col("name").is_in(names_like(copies["name"], _PAGEABLE).implode())
    copies = copies.filter(stated.fill_null(value=False) | named.fill_null(value=False))
    spent = int(copies["dur_ns"].sum())
    value = facts.share(spent)
    if value <= _COPYING:
        return
    size = int(copies["bytes"].sum())
    rate = f", {size / spent:.1f} GB/s" if size and spent else ""
    yield Advice(
        f"{copies.height:,} x data was copied to the GPU from memory that is not pinned: "
        f"{format_ns(spent)}{rate}.",
        "Pin the memory (DataLoader(pin_memory=True)) and copy with non_blocking=True, while kernels run.",
        value,
        # What kernels hide is not gained.
        saving_ns=min(spent, facts.parts["memcpy_ns"]),
        cites=citing("gpu_ops", copies),
    )


@rule("Some products do not run on tensor cores", _OFF_TENSOR_CORES, "share of kernel time")
def off_tensor_cores(facts: Facts) -> Iterator[Advice]:
    """Products on ordinary cores, of a trace that uses tensor cores for others."""
    capability = facts.capability()
    if not facts.is_nvidia or capability is None or capability < _TENSOR_CORES_SINCE or not facts.kernel_ns:
        return
    counted = facts.kernels["works"] > 0
    on_tensor_cores = facts.kernels["tensor_cores"]
    if not on_tensor_cores.filter(counted).any():
        return
    plain = counted & facts.named(_PRODUCTS) & ~on_tensor_cores.fill_null(value=True)
    eligible = operator_flags(facts.work.launches.keys.select("is_annotation", name="op"))["eligible"]
    plain = facts.rows_of(plain & (eligible > 0), "name")
    spent = int(plain["dur_ns"].sum())
    value = spent / facts.kernel_ns
    if value <= _OFF_TENSOR_CORES:
        return
    tf32 = ", or let float32 products use TF32" if capability >= _TF32_SINCE else ""
    names = (
        plain.group_by("name").agg(pl.col("dur_ns").sum()).sort("dur_ns", "name", descending=[True, False])
    )
    yield Advice(
        f"{format_percent(value)} of the kernel time is products on ordinary cores: "
        f"{most_common(names['name'].cast(pl.String))}.",
        f"Compute them in bfloat16 or float16{tf32}; sizes that are multiples of 8 help.",
        value,
        saving_ns=products_saving(facts, spent),
        cites=citing("gpu_ops", plain),
    )


def products_saving(facts: Facts, spent_ns: int) -> int | None:
    """What products that take ``spent_ns`` on ordinary cores could save at most on tensor cores.

    Units: ns. Null where the GPU's peaks are not known.
    """
    from kernelscope.analysis.costs.peaks import device_peaks

    for peaks in device_peaks(facts.trace):
        plain, fast = peaks.plain("fp32"), peaks.product("bf16", tensor_cores=True)
        fast = fast if peaks.on_tensor_cores("bf16") else peaks.product("fp16", tensor_cores=True)
        if plain and fast and fast > plain:
            return round(spent_ns * (1 - plain / fast))
    return None


@rule("Convolutions convert the layout of their tensors", _CONVERTING, "share of kernel time")
def layout_conversions(facts: Facts) -> Iterator[Advice]:
    """Kernels that only turn channels-first tensors into channels-last ones, or back."""
    converting = facts.named(_LAYOUTS)
    spent = int(facts.kernels["dur_ns"].filter(converting).sum())
    if not facts.kernel_ns or spent / facts.kernel_ns <= _CONVERTING:
        return
    found = facts.rows_of(converting)
    yield Advice(
        f"{counted(found.height, 'kernel')} that only convert layouts took {format_ns(spent)}.",
        "Keep model and inputs in channels_last: model.to(memory_format=torch.channels_last).",
        spent / facts.kernel_ns,
        saving_ns=spent,
        cites=citing("gpu_ops", found),
    )


@rule("Elementwise operators run one kernel each", _CHAINED, "share of kernel time")
def elementwise_chains(facts: Facts) -> Iterator[Advice]:
    """Elementwise kernels one after the other, each of which reads what the last one wrote."""
    is_pointwise = facts.named(_POINTWISE)
    # Chains save less than what their kernels take.
    if facts.kernels["dur_ns"].filter(is_pointwise).sum() <= _CHAINED * facts.kernel_ns:
        return
    chains = _chains(facts, is_pointwise)
    # A fused kernel takes at least as long as the longest of those it replaces.
    count = chains["chain"].n_unique()
    links = describe_by_group(chains["chain"], chains["dur_ns"], count)
    saved = int((links["sum"] - links["max"]).sum())
    value = saved / facts.kernel_ns
    if value <= _CHAINED:
        return
    yield Advice(
        f"{chains.height:,} elementwise kernels follow one another in {links.height:,} chains, up to "
        f"{links['rows'].max()} in a row; together they took {format_ns(int(chains['dur_ns'].sum()))}.",
        "Fuse them with torch.compile, or use a fused operator (layer norm, activation, optimizer).",
        value,
        saving_ns=saved,
        cites=citing("gpu_ops", chains),
    )


def _chains(facts: Facts, is_pointwise: pl.Series) -> pl.DataFrame:
    """Elementwise kernels in a row on a stream, in one step: ``row``, ``dur_ns``, ``chain``."""
    work = facts.trace.gpu_ops
    # An optimizer that goes through parameters one by one makes chains of another kind.
    marks = facts.marked_kernels(is_pointwise) & ~facts.updates
    streams = facts.work.on_streams.part(facts.are_kernels)
    chains = streams.runs(marks, work["step"] - (work["step"].min() or 0))
    kernels = work.select("row", pl.col("dur_ns").fill_null(0))[chains["at"]]
    return kernels.with_columns(chain=chains["run"])
