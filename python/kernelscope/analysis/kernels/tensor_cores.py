"""Kernels that run on tensor cores, and operators that could.

The lists are from NVIDIA's PyProf and the PyTorch Profiler's TensorBoard plugin, extended by later kernel
families. Names do not indicate the use of AMD's matrix cores, so there the answer is unknown.
"""

import re
from functools import lru_cache

import polars as pl

from kernelscope.analysis.grouping import classes_of
from kernelscope.analysis.kernels.kernel_math import kernel_math

KERNEL_MARKS = (
    "h884",
    "s884",
    "h1688",
    "s1688",
    "hmma",
    "i8816",
    "16816",
    "dgrad_1x1_stride_2x2",
    "first_layer_wgrad_kernel",
    "conv1x1",
    "conv2d_c1_k1",
    "direct_group",
    "xmma_implicit_gemm",
    "xmma_sparse_conv",
    "xmma_warp_specialized_implicit_gemm",
    "xmma_gemm",
    "xmma_sparse_gemm",
    "c1688",
    # Hopper and Blackwell: warp-group instructions, cuBLAS's nvjet kernels, flash attention.
    "gmma",
    "tensorop",
    "TensorOp",
    "nvjet_",
    "flash_fwd",
    "flash_bwd",
)
"""Parts of the name of a kernel that uses tensor cores."""

_ATEN = (
    "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d "
    "convolution cudnn_convolution cudnn_convolution_transpose prelu addmm addmm_ addmv addr matmul mm mv "
    "linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell "
    "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
    "cudnn_convolution_backward cudnn_convolution_backward_input cudnn_convolution_backward_weight "
    "cudnn_convolution_transpose_backward cudnn_convolution_transpose_backward_input "
    "cudnn_convolution_transpose_backward_weight"
)
_AUTOGRAD = (
    "CudnnConvolutionBackward CudnnConvolutionTransposeBackward BmmBackward0 MmBackward AddmvBackward "
    "MvBackward AddmmBackward AddbmmBackward"
)
ELIGIBLE_OPS = frozenset([f"aten::{name}" for name in _ATEN.split()] + _AUTOGRAD.split())
"""Names of operators that can run on tensor cores."""


# Names of kernels that multiply matrices, and of those among them that never use tensor cores.
_MATRIX = re.compile("(?i)gemm|bmm_|matmul|conv|fmha|mha_|attention|attn|cutlass|mma")
_PLAIN = re.compile("(?i)[sdcz]gemm|gemv|simt|splitkreduce")


# The compute capability of the first GPU with tensor cores.
_SINCE = 7


def is_nvidia(devices: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows of ``devices`` that describe NVIDIA GPUs.

    Profilers do not record the vendor. NVIDIA's warps have 32 threads, AMD's data-centre GPUs 64, and other
    AMD GPUs have AMD in their names.
    """
    return devices.filter((pl.col("warp_size") == 32) & ~_says_amd())


def _says_amd() -> pl.Expr:
    named = pl.col("name").cast(pl.String).str.contains("(?i)amd|radeon|gfx")
    is_amd = (pl.col("warp_size") == 64) | named
    # A GPU that the recorder did not describe is of the make of those it did.
    return pl.when(pl.col("warp_size").is_null()).then(is_amd.any()).otherwise(is_amd.fill_null(value=False))


def kernel_flags(kernels: pl.DataFrame, devices: pl.DataFrame) -> pl.DataFrame:
    """Adds ``tensor_cores``: whether a kernel runs on tensor cores, judged by its name.

    The grammar of kernel names decides first, then the name parts that other tools use.

    Columns: ``kernels`` needs ``name`` and ``device``. Null if neither decides: on AMD GPUs, and for kernels
        that multiply matrices on GPUs that may have tensor cores (all but NVIDIA GPUs of compute capabilities
        below 7), because many use them without a mark in the name.
    """
    of_kernel, kinds = classes_of(kernels[["name", "device"]])
    makes = devices.select_seq("device", _says_amd().alias("amd"), pl.col("compute_major") < _SINCE).rows()
    amd, without = ({make[0] for make in makes if make[at]} for at in (1, 2))
    flags = [
        _uses_tensor_cores(name, is_amd=device in amd, has_none=device in without)
        for name, device in kinds.iter_rows()
    ]
    return kernels.with_columns(tensor_cores=pl.Series(flags, dtype=pl.Boolean)[of_kernel])


def _uses_tensor_cores(name: str | None, *, is_amd: bool, has_none: bool) -> bool | None:
    if name is None:
        return None
    known = kernel_math(name).tensor_cores
    if known is not None:
        return known
    is_marked, multiplies = _marks(name)
    if is_marked:
        return True
    return None if is_amd or (multiplies and not has_none) else False


# Several answers about one trace ask for the same names.
@lru_cache(maxsize=4_096)
def _marks(name: str) -> tuple[bool, bool]:
    """Whether a name has one of ``KERNEL_MARKS``, and whether it is of a product that may use them."""
    is_marked = any(mark in name for mark in KERNEL_MARKS)
    return is_marked, bool(_MATRIX.search(name)) and not _PLAIN.search(name)
