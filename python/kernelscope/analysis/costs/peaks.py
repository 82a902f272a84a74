"""Peaks of the GPUs of a trace: from the table of GPUs, or as measured by the user."""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.gpu.devices import UNNAMED, working_devices
from kernelscope.errors import InvalidArgumentError
from kernelscope.hardware import Gpu, find_gpu, gpus
from kernelscope.trace import Trace

PRODUCTS = frozenset(
    {
        "attention",
        "attention_functions",
        "attention_libraries",
        "convolution",
        "convolution_backward",
        "gemm",
        "mixture_of_experts",
        "packed_weights",
        "quantized",
        "recurrent",
        "state_space",
        "triton_templates",
    }
)
"""Families of operators that multiply matrices, which tensor cores can execute."""

_NO_PRODUCTS = r"quant|fp8$|topk|conv1d|scan"

BANDWIDTH = "bandwidth"
"""Key for a measured memory bandwidth."""

_TYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8")
# The widest that ordinary cores compute narrow types in, where no figure of their own is stated.
_VECTOR = {"fp16": "fp32", "bf16": "fp32", "fp8": "fp32", "tf32": "fp32"}


class DevicePeaks(NamedTuple):
    """Peaks of one GPU. ``gpu`` is None if it is unknown; then ``note`` gives the reason.

    Units: ``measured`` in FLOP/s by type, and bytes/s under ``bandwidth``.
    """

    device: int
    name: str
    gpu: Gpu | None
    note: str
    measured: Mapping[str, float]

    @property
    def label(self) -> str:
        """Name of the GPU in the trace, and key of the table that provides its peaks."""
        name = self.name or UNNAMED
        return f"{name} ({self.gpu.key})" if self.gpu else name

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second of device memory."""
        stated = self.gpu.bandwidth if self.gpu else None
        return self.measured.get(BANDWIDTH, stated)

    def product(self, dtype: str | None, *, tensor_cores: bool | None) -> float | None:
        """Returns the FLOP/s that a matrix product of this type can reach on the best cores of this GPU.

        Float32 does not use the peak of TF32, which rounds it, unless the kernel's cores are unknown.
        """
        if dtype is None:
            return None
        if dtype == "fp32" and tensor_cores is None and self._rate("tf32") is not None:
            return self._rate("tf32")
        return self._rate(dtype)

    def plain(self, dtype: str | None) -> float | None:
        """Returns the FLOP/s that ordinary cores reach in this type."""
        if dtype is None:
            return None
        stated: Mapping[str, float] = self.gpu.vector if self.gpu else {}
        return self.measured.get(dtype, stated.get(dtype, stated.get(_VECTOR.get(dtype, dtype))))

    def _rate(self, dtype: str) -> float | None:
        if dtype in self.measured:
            return self.measured[dtype]
        return (self.gpu.matrix.get(dtype) or self.plain(dtype)) if self.gpu else None

    def on_tensor_cores(self, dtype: str | None) -> bool:
        """Returns whether this GPU's tensor cores multiply this type."""
        return dtype is not None and self.gpu is not None and dtype in self.gpu.matrix


def device_peaks(
    trace: Trace, *, gpu: str | None = None, peak: Mapping[str, float] | None = None
) -> list[DevicePeaks]:
    """Returns the peaks of every active GPU in ``trace``. ``gpu`` names it, ``peak`` gives measured peaks.

    Units: ``peak`` is in FLOP/s by type (fp32, bf16 ...) and bytes/s as ``bandwidth``.
    Raises: InvalidArgumentError: ``gpu`` is not in the table, or ``peak`` has another key or is not a
        positive number.
    """
    measured = dict(peak or {})
    for key, value in measured.items():
        if key not in (*_TYPES, BANDWIDTH) or not value > 0:
            known = ", ".join((*_TYPES, BANDWIDTH))
            raise InvalidArgumentError(f"the peaks are {known}, and must be positive, not {key} = {value}")
    named = _named(gpu) if gpu else None
    found: list[DevicePeaks] = []
    for device, row in working_devices(trace).items():
        name = str(row.get("name") or "")
        if named is not None:
            found.append(DevicePeaks(device, name, named, "", measured))
        elif not name:
            note = f"The trace does not name GPU {device}. Name it, or pass its peaks."
            found.append(DevicePeaks(device, name, None, note, measured))
        else:
            match = find_gpu(name, memory_bytes=row["total_memory_bytes"], sm_count=row["sm_count"])
            found.append(DevicePeaks(device, name, match.gpu, match.note, measured))
    return found


def _named(gpu: str) -> Gpu:
    match = find_gpu(gpu)
    if match.gpu is None:
        raise InvalidArgumentError(f"{match.note} Known are {', '.join(gpus())}.")
    return match.gpu


def with_peaks(work: pl.DataFrame, devices: list[DevicePeaks]) -> pl.DataFrame:
    """Adds the limits of each GPU operation, once per distinct kind.

    Columns: ``work`` needs ``device``, ``family``, ``model``, ``peak`` (the operator's type), ``math`` (the
        kernels' type) and ``tensor_cores``; adds ``compute_peak``, ``bandwidth``, ``l2_bytes``, ``eligible``
        (tensor cores can compute it without rounding its inputs) and ``limit_type`` (the type of
        ``compute_peak``).
    Units: FLOP/s, bytes/s, bytes.
    """
    by = ["device", "product", "peak", "math", "tensor_cores"]
    work = work.with_columns(
        product=pl.col("family").is_in(PRODUCTS)
        & ~pl.col("model").str.contains(_NO_PRODUCTS).fill_null(value=False)
    )
    kinds = work.select(by).unique()
    peaks = {entry.device: entry for entry in devices}
    rows = [_limits(peaks.get(kind["device"]), kind) for kind in kinds.iter_rows(named=True)]
    schema = {
        "compute_peak": pl.Float64,
        "bandwidth": pl.Float64,
        "l2_bytes": pl.Int64,
        "eligible": pl.Boolean,
        "limit_type": pl.String,
    }
    limits = kinds.hstack(pl.DataFrame(rows, schema=schema, orient="row"))
    return work.join(limits, on=by, how="left", nulls_equal=True, maintain_order="left")


def _limits(peaks: DevicePeaks | None, kind: Mapping[str, object]) -> tuple[object, ...]:
    if peaks is None:
        return None, None, None, False, None
    own, math, cores = kind["peak"], kind["math"], kind["tensor_cores"]
    own = own if isinstance(own, str) else None
    product = kind["product"] is True
    dtype = math if isinstance(math, str) and product else own
    known = cores if isinstance(cores, bool) else None
    rate = peaks.product(dtype, tensor_cores=known) if product else peaks.plain(own)
    if product and dtype == "fp32" and known is None and rate is not None:
        dtype = "tf32" if peaks.on_tensor_cores("tf32") else "fp32"
    l2 = peaks.gpu.l2_bytes if peaks.gpu else None
    known_type = None if rate is None else dtype
    return rate, peaks.bandwidth, l2, product and peaks.on_tensor_cores(own), known_type
