"""Rules about kernels that are unnecessary or could run faster."""

from collections.abc import Iterator

import polars as pl

from kernelscope.analysis.advice.attention_rules import attention
from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, citing, counted, longest_names, most_common, rule
from kernelscope.analysis.advice.savings import Change
from kernelscope.analysis.grouping import describe_by_group
from kernelscope.analysis.ops.table import operator_flags
from kernelscope.units import format_ns, format_percent

_CONVERTING, _CHAINED, _OFF_TENSOR_CORES, _SMALL = 0.02, 0.05, 0.05, 0.2
# Compute capabilities; the later has TF32, too.
_TENSOR_CORES_SINCE, _BF16_SINCE = 7, 8

# Kernels that multiply matrices, not those that prepare them.
_PRODUCTS = r"(?i)gemm|gemv|wgrad|dgrad|fprop|winograd|convolve|scudnn|fmha|attention"
_LAYOUTS = r"(?i)nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|batched_transpose|tensorTransform"
_POINTWISE = r"(?:vectorized_|unrolled_|legacy_)?elementwise_kernel"


@rule("Some matrix products do not use tensor cores", _OFF_TENSOR_CORES, "share of kernel time")
def off_tensor_cores(facts: Facts) -> Iterator[Advice]:
    """Finds matrix products without tensor cores in a trace that uses tensor cores for others."""
    capability = facts.capability()
    if not facts.is_nvidia or capability is None or capability < _TENSOR_CORES_SINCE or not facts.kernel_ns:
        return
    counted = facts.kernels["works"] > 0
    uses_them = facts.kernels["tensor_cores"]
    if not uses_them.filter(counted).any():
        return
    plain = counted & facts.named(_PRODUCTS) & ~uses_them.fill_null(value=True)
    eligible = operator_flags(facts.work.launches.keys.select("is_annotation", name="op"))["eligible"]
    for gpu in facts.on_gpus(facts.rows_of(facts.marked_kernels(plain & (eligible > 0)), "name")):
        if gpu.share <= _OFF_TENSOR_CORES:
            continue
        yield Advice(
            f"{gpu.who}Matrix products without tensor cores take {format_percent(gpu.share)} of the "
            f"kernel time: {most_common(longest_names(gpu.works))}.",
            f"{narrower_type(capability)} Sizes that are multiples of 8 help.",
            gpu.share,
            change=on_tensor_cores(facts, gpu.works),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )


def narrower_type(capability: float) -> str:
    """Returns the advice for running matrix products on tensor cores.

    It depends on the compute capability of an NVIDIA GPU.
    """
    if capability < _BF16_SINCE:
        return (
            "Compute in float16: torch.autocast(dtype=torch.float16), with a GradScaler if there are "
            "gradients."
        )
    return (
        "Compute in bfloat16 (torch.autocast(dtype=torch.bfloat16)), or let float32 products use TF32 "
        '(torch.set_float32_matmul_precision("high")).'
    )


def on_tensor_cores(facts: Facts, works: pl.DataFrame) -> Change | None:
    """Returns the change that these matrix products run on tensor cores.

    Returns None if the GPU's peaks are unknown.

    Columns: ``works`` needs ``row`` and ``dur_ns``.
    """
    from kernelscope.analysis.costs.peaks import device_peaks

    for peaks in device_peaks(facts.trace):
        plain, fast = peaks.plain("fp32"), peaks.product("bf16", tensor_cores=True)
        fast = fast if peaks.on_tensor_cores("bf16") else peaks.product("fp16", tensor_cores=True)
        if plain and fast and fast > plain and peaks.on_tensor_cores("fp16"):
            return facts.faster(works.with_columns(saved=pl.col("dur_ns") * (1 - plain / fast)), "saved")
    return None


@rule("Convolutions convert the layout of their tensors", _CONVERTING, "share of kernel time")
def layout_conversions(facts: Facts) -> Iterator[Advice]:
    """Finds kernels that only convert channels-first tensors to channels-last, or back."""
    converting = facts.named(_LAYOUTS)
    if facts.kernels["dur_ns"].filter(converting).sum() <= 0:
        return
    for gpu in facts.on_gpus(facts.rows_of(facts.marked_kernels(converting))):
        if gpu.share <= _CONVERTING:
            continue
        yield Advice(
            f"{gpu.who}{counted(gpu.works.height, 'kernel')} that only convert layouts took "
            f"{format_ns(gpu.spent_ns)}.",
            "Keep the model and its inputs in channels_last: model.to(memory_format=torch.channels_last).",
            gpu.share,
            change=facts.faster(gpu.works, launched=False),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )


@rule("Elementwise operators run one kernel each", _CHAINED, "share of kernel time")
def elementwise_chains(facts: Facts) -> Iterator[Advice]:
    """Finds chains of elementwise kernels, each of which reads the output of the previous one."""
    is_pointwise = facts.named(_POINTWISE)
    # Chains save less than what their kernels take.
    if facts.kernels["dur_ns"].filter(is_pointwise).sum() <= _CHAINED * facts.kernel_ns:
        return
    chains = _chains(facts, is_pointwise)
    # A fused kernel takes at least as long as the longest of those it replaces.
    count = chains["chain"].n_unique()
    longest = describe_by_group(chains["chain"], chains["dur_ns"], count)["max"]
    first = chains["chain"].is_first_distinct()
    # Of each chain the first row stands for its fused kernel.
    fused = pl.select(pl.when(first).then(longest[chains["chain"]]).otherwise(0)).to_series()
    for gpu in facts.on_gpus(chains.with_columns(saved=chains["dur_ns"] - fused)):
        value = int(gpu.works["saved"].sum()) / gpu.kernel_ns if gpu.kernel_ns else 0.0
        if value <= _CHAINED:
            continue
        lengths = gpu.works["chain"].value_counts()["count"]
        yield Advice(
            f"{gpu.who}{gpu.works.height:,} elementwise kernels run in "
            f"{counted(lengths.len(), 'chain')} of up to {lengths.max()} and took "
            f"{format_ns(gpu.spent_ns)}.",
            _fusing(facts),
            value,
            change=facts.faster(gpu.works, "saved", launched=False),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )


def _fusing(facts: Facts) -> str:
    if facts.is_compiled:
        return (
            "Compile the operators that still run eagerly (TORCH_LOGS=graph_breaks), or use a fused operator."
        )
    return "Fuse them with torch.compile, or use a fused operator (layer norm, activation, optimizer)."


def _chains(facts: Facts, is_pointwise: pl.Series) -> pl.DataFrame:
    """Elementwise kernels in a row on a stream, in one step: ``row``, ``device``, ``dur_ns``, ``chain``."""
    work = facts.trace.gpu_ops
    # An optimizer that goes through parameters one by one makes chains of another kind, attention too.
    marks = facts.marked_kernels(is_pointwise) & ~facts.updates & ~attention(facts).marks
    streams = facts.work.on_streams.part(facts.are_kernels)
    chains = streams.runs(marks, work["step"] - (work["step"].min() or 0))
    kernels = work.select("row", "device", pl.col("dur_ns").fill_null(0))[chains["at"]]
    return kernels.with_columns(chain=chains["run"])


@rule("Kernels do not fill the multiprocessors", _SMALL, "share of kernel time")
def small_grids(facts: Facts) -> Iterator[Advice]:
    """Finds kernels with fewer blocks than the GPU has multiprocessors."""
    blocks = facts.trace.gpu_ops["blocks_per_sm"]
    is_small = ((blocks < 1) & (blocks > 0)).fill_null(value=False) & facts.are_kernels
    for gpu in facts.on_gpus(facts.rows_of(is_small, "name", "blocks_per_sm")):
        if gpu.share <= _SMALL:
            continue
        idle = (pl.col("dur_ns") * (1 - pl.col("blocks_per_sm"))).cast(pl.Int64)
        batch = "Enlarge the batch, merge" if facts.may_grow else "Merge"
        yield Advice(
            f"{gpu.who}{format_percent(gpu.share)} of the kernel time is in kernels with fewer blocks "
            f"than the GPU has multiprocessors. The longest: {most_common(longest_names(gpu.works))}.",
            f"{batch} small operators, or run independent ones on several streams.",
            gpu.share,
            change=facts.faster(gpu.works.with_columns(idle=idle), "idle"),
            device=gpu.device,
            cites=citing("gpu_ops", gpu.works),
        )
