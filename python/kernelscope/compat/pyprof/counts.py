"""What PyProf prints for a kernel: parameters, FLOPs, bytes and tensor cores, by its own models."""

from functools import lru_cache
from typing import NamedTuple

from kernelscope.compat.pyprof.markers import marker_of
from kernelscope.compat.pyprof.params import Call, params, plain_params
from kernelscope.costs.pyprof import Kernel, Marker, PyProfCost, pyprof_cost

NO_MARKER = "na=na,"
"""Parameters of a kernel whose function nothing says."""

# Parts of the short name of a kernel that PyProf takes for one that multiplies, and for tensor cores.
_LINEAR = ("gemm", "gemv", "dot_kernel", "splitKreduce_kernel", "reduce_1Block_kernel", "cutlass")
_BIAS = (
    *("kernelReduceContigDim", "kernelReduceNoncontigDim_shared", "elementwise_kernel", "reduce_kernel"),
    *("kernelPointwiseApply2", "2d_grouped_direct_kernel"),
)
_NO_PRODUCT = ("kernelPointwiseApply2", "reduce_1Block_kernel", "elementwise_kernel", "dot_kernel")
_TENSOR_CORES = (
    *("h884", "s884", "h1688", "s1688", "hmma", "i8816", "16816", "dgrad_1x1_stride_2x2", "conv1x1"),
    *("first_layer_wgrad_kernel", "conv2d_c1_k1", "direct_group", "xmma_implicit_gemm", "xmma_sparse_conv"),
    *("xmma_warp_specialized_implicit_gemm", "xmma_gemm", "xmma_sparse_gemm", "c1688"),
)
_CONVOLUTIONS = frozenset({"conv1d", "conv2d"})
_PRODUCTS = frozenset({"linear", "addmm", "addmm_", "mm", "bmm"})
_INVALID = (LookupError, TypeError, ValueError, ArithmeticError)


class Counts(NamedTuple):
    """Of a kernel: the name of its function where PyProf changes it, and what it counts.

    ``aborts``: PyProf ends its report at this kernel.
    """

    op: str | None
    params: str
    flops: float | None
    bytes: float | None
    tensor_cores: str
    aborts: bool = False


NOTHING = Counts(None, NO_MARKER, 0, 0, "na")
"""What PyProf prints for a kernel without a marker."""


@lru_cache(maxsize=1 << 14)
def compat_counts(text: str, kernel: Kernel) -> Counts:
    """What PyProf prints for a kernel launched by the function that the marker ``text`` says."""
    marker = marker_of(text)
    if marker is None:
        return NOTHING
    cost = pyprof_cost(marker, kernel)
    is_bias = marker.op == "linear" and not any(part in kernel.name for part in _LINEAR)
    if is_bias and not any(part in kernel.name for part in _BIAS):
        cost = None
    said, fits = _params(marker, kernel, cost, is_bias=is_bias)
    if cost is None or not fits:
        return Counts(None, said, None, None, "-", aborts=True)
    flops, moved = float(cost.flops), float(cost.bytes)
    is_fraction = marker.op in _CONVOLUTIONS and cost.flops and "calc_bias_diff" not in kernel.name
    return Counts(
        "bias" if is_bias else None,
        said,
        flops if is_fraction else cost.flops,
        moved if is_fraction else cost.bytes,
        _compat_tensor_cores(marker, kernel.name, is_bias=is_bias, is_modelled=cost.modelled),
    )


def _params(marker: Marker, kernel: Kernel, cost: PyProfCost | None, *, is_bias: bool) -> tuple[str, bool]:
    """The parameters, and whether they are those of a model."""
    call = Call(marker, kernel)
    try:
        if cost is not None and cost.modelled:
            return params(call, is_bias=is_bias), True
        return plain_params(call), cost is not None
    except _INVALID:
        return NO_MARKER, False


def _compat_tensor_cores(marker: Marker, name: str, *, is_bias: bool, is_modelled: bool) -> str:
    used = any(part in name for part in _TENSOR_CORES)
    if not is_modelled or is_bias:
        return "-"
    if marker.op in _CONVOLUTIONS:
        return "1" if used else "-"
    if marker.op in ("matmul", "__matmul__"):
        return "-" if name in _NO_PRODUCT else str(int(used))
    if marker.op == "forward":
        return str(int(used)) if "gemm" in name else "-"
    return str(int(used)) if marker.op in _PRODUCTS else "-"
