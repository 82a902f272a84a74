"""The 20 columns of PyProf's report."""

from typing import NamedTuple


class Column(NamedTuple):
    """A column: the name to ask for it by, its header, whether it is a number, and its width in characters.

    Kernel and parameters have no width of their own: they share what the others leave.
    """

    name: str
    header: str
    is_number: bool
    width: int
    doc: str


COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("idx", "Idx", True, 7, "number of the kernel, from 1"),
        Column("seq", "SeqId", False, 7, "autograd's sequence number"),
        Column("altseq", "AltSeqId", False, 7, "further sequence numbers of the ranges around the launch"),
        Column("tid", "TId", True, 12, "thread that launched"),
        Column("layer", "Layer", False, 10, "ranges named layer:..., outermost first"),
        Column("trace", "Trace", False, 25, "call stack, outermost first"),
        Column("dir", "Direction", False, 5, "fprop or bprop"),
        Column("sub", "Sub", True, 3, "place among the kernels of its operator, from 0"),
        Column("mod", "Module", False, 15, "module of the function"),
        Column("op", "Op", False, 15, "function or operator"),
        Column("kernel", "Kernel", False, 0, "short name of the kernel"),
        Column("params", "Params", False, 0, "sizes and types of the inputs"),
        Column("sil", "Sil(ns)", True, 10, "time on the GPU, ns"),
        Column("tc", "TC", False, 2, "tensor cores: 1 used, 0 not used, - not applicable, na unknown"),
        Column("device", "Device", True, 3, "GPU"),
        Column("stream", "Stream", True, 3, "stream"),
        Column("grid", "Grid", False, 12, "launch grid"),
        Column("block", "Block", False, 12, "thread block"),
        Column("flops", "FLOPs", True, 12, "floating-point operations, a multiply-add as two"),
        Column("bytes", "Bytes", True, 12, "bytes read and written"),
    )
}
"""The columns in the order in which PyProf documents them, by name."""

DEFAULT_COLUMNS = ("idx", "dir", "sub", "mod", "op", "kernel", "params", "sil")
"""The columns that are shown unless others are asked for."""
