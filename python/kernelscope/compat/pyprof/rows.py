"""The 20 columns of PyProf's report, one row per kernel."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import polars as pl
from polars._typing import PolarsDataType

from kernelscope.analysis.grouping import classes_of
from kernelscope.analysis.kernels.tensor_cores import kernel_flags
from kernelscope.compat.pyprof.around import NO_NUMBERS
from kernelscope.compat.pyprof.forward import completed
from kernelscope.compat.pyprof.kernels import Kernels, kernels_of
from kernelscope.compat.pyprof.markers import Meaning
from kernelscope.compat.pyprof.records import KernelRecord, gathered
from kernelscope.compat.pyprof.work import Work, compat_work_of, work_of
from kernelscope.costs.pyprof import Kernel
from kernelscope.trace import Trace


class Column(NamedTuple):
    """A column: its name on the command line, its header, its type, and its width in characters.

    Kernel and parameters have no fixed width: they share the remaining characters.
    """

    name: str
    header: str
    type: PolarsDataType
    width: int
    doc: str


_NUMBERS, _TEXTS = pl.List(pl.Int64), pl.List(pl.String)
COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("idx", "Idx", pl.Int64, 7, "number of the kernel, from 1"),
        Column("seq", "SeqId", _NUMBERS, 7, "autograd's sequence number"),
        Column("altseq", "AltSeqId", _NUMBERS, 7, "further sequence numbers of the ranges around the launch"),
        Column("tid", "TId", pl.Int64, 12, "thread of the launch"),
        Column("layer", "Layer", _TEXTS, 10, "ranges named layer:..., outermost first"),
        Column("trace", "Trace", _TEXTS, 25, "call stack, outermost first"),
        Column("dir", "Direction", pl.String, 5, "fprop or bprop"),
        Column("sub", "Sub", pl.Int64, 3, "index among the kernels of its operator, from 0"),
        Column("mod", "Module", pl.String, 15, "module of the function"),
        Column("op", "Op", pl.String, 15, "function or operator"),
        Column("kernel", "Kernel", pl.String, 0, "short name of the kernel"),
        Column("params", "Params", pl.String, 0, "sizes and types of the inputs"),
        Column("sil", "Sil(ns)", pl.Int64, 10, "time on the GPU, ns"),
        Column("tc", "TC", pl.String, 2, "tensor cores: 1 used, 0 not used, - not applicable, na unknown"),
        Column("device", "Device", pl.Int64, 3, "GPU"),
        Column("stream", "Stream", pl.Int64, 3, "stream"),
        Column("grid", "Grid", _NUMBERS, 12, "launch grid"),
        Column("block", "Block", _NUMBERS, 12, "thread block"),
        Column("flops", "FLOPs", pl.Int64, 12, "floating-point operations, a multiply-add as two"),
        Column("bytes", "Bytes", pl.Int64, 12, "bytes read and written"),
    )
}
"""Columns in the order of PyProf's documentation, by name."""

DEFAULT_COLUMNS = ("idx", "dir", "sub", "mod", "op", "kernel", "params", "sil")
"""Default columns."""


def pyprof_table(source: "Trace | Iterable[KernelRecord]") -> pl.DataFrame:
    """PyProf's 20 columns, with its errors corrected: one row per kernel.

    A backward kernel without its own marker gets marker, layer and trace of the forward kernel with its
    sequence number. ``source`` is a trace with NVTX ranges, or the records of a file.

    Columns: the columns of ``COLUMNS`` by name: ``seq``, ``altseq``, ``layer``, ``trace``, ``grid`` and
        ``block`` as lists; ``tc`` is 1, 0 or null; ``flops`` and ``bytes`` are the cost of a call at its
        longest kernel, 0 at its others, and null if no model knows it. Also ``long_name``.
    Units: ``sil`` ns; ``flops`` FLOP; ``bytes`` bytes of DRAM traffic.
    Order: of the launches, or of the records.

    Example: ``pyprof_table(ks.read("report.sqlite")).group_by("layer").agg(pl.col("sil").sum())``
    """
    kernels = kernels_of(source, compat=False) if isinstance(source, Trace) else gathered(source)
    return pl.concat(table_parts(kernels, (*COLUMNS, "long_name")))


def table_parts(kernels: Kernels, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yields the ``columns`` of :func:`pyprof_table`, each once, in at least one part."""
    kernels = completed(kernels, compat=False)
    kinds, of = _kinds(kernels, work_of)
    frame = kernels.frame.with_columns(loses=_losers(kernels, kinds, of))
    if "tc" in columns:
        devices = _unknown_devices(frame) if kernels.devices is None else kernels.devices
        named = frame.select(name="long_name", device=pl.col("device").cast(pl.Int32))
        frame = frame.with_columns(uses=kernel_flags(named, devices)["tensor_cores"])
    # What is beyond int64 is beyond any GPU: the sizes are not true.
    known = {name: pl.col(name).cast(pl.Int64, strict=False) for name in ("flops", "bytes")}
    own = {name: pl.when(~pl.col("loses")).then(value).otherwise(0) for name, value in known.items()}
    own["tc"] = pl.col("uses").cast(pl.Int64)
    for part in _parts(frame, kinds, of):
        yield part.select(_value(name, own).alias(name) for name in dict.fromkeys(columns))


def compat_parts(kernels: Kernels, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yields PyProf's output in the ``columns``, each once, in at least one part.

    Columns: as in :func:`pyprof_table` with ``tc``, ``flops`` and ``bytes`` as text; and ``aborts``, true
        where PyProf ends its report.
    """
    kernels = completed(kernels, compat=True)
    own = {name: pl.col(name).fill_null("") for name in ("mod", "op", "kernel", "params")}
    for part in _parts(kernels.frame, *_kinds(kernels, compat_work_of)):
        yield part.select(*(_value(name, own).alias(name) for name in dict.fromkeys(columns)), "aborts")


_PART_ROWS = 1 << 16
_OF_FRAME = {"idx": "idx", "sil": "dur_ns", **{
    name: name for name in ("seq", "altseq", "tid", "sub", "device", "stream", "grid", "block", "long_name")
}}  # fmt: skip


def _value(name: str, own: Mapping[str, pl.Expr]) -> pl.Expr:
    """A column of a part as it is shown."""
    if name in own:
        return own[name]
    if name not in _OF_FRAME:
        return pl.col(name)
    value = pl.col(_OF_FRAME[name]).cast(pl.String if name == "long_name" else COLUMNS[name].type)
    return value.fill_null(NO_NUMBERS) if name in ("grid", "block") else value


def _parts(frame: pl.DataFrame, kinds: pl.DataFrame, of: pl.Series) -> Iterator[pl.DataFrame]:
    """Kernels together with what is known of their kinds."""
    numbered = frame.with_row_index("idx", offset=1)
    for first in range(0, max(frame.height, 1), _PART_ROWS):
        part = numbered.slice(first, _PART_ROWS)
        yield pl.concat([part, kinds[of.slice(first, _PART_ROWS)]], how="horizontal")


def _kinds(kernels: Kernels, count: Callable[[Meaning, Kernel], Work]) -> tuple[pl.DataFrame, pl.Series]:
    """What kernels count, once for those that nothing distinguishes, and of which kind each kernel is.

    Columns: ``dir``, ``layer``, ``trace``, ``mod``, ``op``, ``kernel``, ``params``, ``tc``, ``flops``,
        ``bytes`` and ``aborts``, figures as text; ``place`` and ``text`` of the call that is counted.
    """
    grid_x = kernels.frame["grid"].cast(pl.List(pl.Int64)).list.first().fill_null(1)
    of, keys = classes_of(kernels.frame.select("meaning", "short_name", "sub").with_columns(grid_x=grid_x))
    rows = cast("Iterator[tuple[int, str, int, int]]", keys.iter_rows())
    found = [
        _kind(kernels.meanings[of_kind], Kernel(name.replace(" ", "_"), sub=sub, grid_x=grid_x), count)
        for of_kind, name, sub, grid_x in rows
    ]
    return pl.DataFrame(found, schema=_KIND, orient="row"), of


_KIND: dict[str, PolarsDataType] = {
    "dir": pl.String, "layer": _TEXTS, "trace": _TEXTS, "mod": pl.String, "op": pl.String,
    "kernel": pl.String, "params": pl.String, "tc": pl.String, "flops": pl.String, "bytes": pl.String,
    "aborts": pl.Boolean, "place": pl.UInt32, "text": pl.String,
}  # fmt: skip


def _kind(meaning: Meaning, kernel: Kernel, count: Callable[[Meaning, Kernel], Work]) -> tuple[object, ...]:
    counts, place, text = count(meaning, kernel._replace(backward=meaning.is_backward))
    return (
        meaning.direction,
        meaning.layers,
        meaning.trace,
        (meaning.mods[0] if meaning.mods else "") or None,
        counts.op or (meaning.ops[0] if meaning.ops else "") or None,
        kernel.name or None,
        counts.params or None,
        counts.tensor_cores,
        None if counts.flops is None else str(counts.flops),
        None if counts.bytes is None else str(counts.bytes),
        counts.aborts,
        place,
        text,
    )


def _losers(kernels: Kernels, kinds: pl.DataFrame, of: pl.Series) -> pl.Series:
    """Whether a kernel is not the longest of its call, the first of equal ones: that has the work.

    A file of records does not say which call it was: its kernels follow one another on their thread.
    """
    calls = kinds.select("place", text=pl.col("text").cast(pl.Categorical).to_physical())[of]
    frame = kernels.frame.select("first", "sub", pl.col("dur_ns").fill_null(0)).with_columns(
        calls, thread=classes_of(kernels.frame.select("pid", "tid")).of
    )
    number = pl.int_range(pl.len(), dtype=pl.UInt32)
    begins = pl.col("text").is_not_null() & (pl.col("sub") == 0)
    frame = frame.with_columns(
        row=kernels.rows[frame["first"] + frame["place"]],
        begun=pl.when(begins).then(number).forward_fill().over("thread"),
    )
    counted = frame.with_row_index("at").filter(pl.col("row").is_not_null() | pl.col("text").is_not_null())
    of_call = pl.col("text").is_not_null()
    keys = counted.select(
        "row", "text", *(pl.when(of_call).then(name).alias(name) for name in ("thread", "begun"))
    )
    ordered = counted.select("at", "dur_ns", call=classes_of(keys).of).sort("call", -pl.col("dur_ns"), "at")
    losers = ordered.filter(pl.col("call") == pl.col("call").shift())["at"]
    return pl.repeat(value=False, n=frame.height, dtype=pl.Boolean, eager=True).scatter(losers, True)


# A compute capability from which on a kernel's name does not settle whether it uses tensor cores.
_RECENT = 9


def _unknown_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """A file of records does not say what its GPUs are: the answer must hold for the latest."""
    used = frame.get_column("device").drop_nulls().unique().sort().cast(pl.Int32)
    return pl.DataFrame({"device": used}, schema_overrides={"device": pl.Int32}).with_columns(
        name=pl.lit(None, dtype=pl.String),
        warp_size=pl.lit(None, dtype=pl.Int64),
        compute_major=pl.lit(_RECENT, dtype=pl.Int64),
    )
