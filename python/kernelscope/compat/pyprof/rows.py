"""The 20 columns of PyProf's report: one row of them per kernel, and all rows as a frame."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, cast

import polars as pl
from polars._typing import PolarsDataType

from kernelscope.analysis.kernels.tensor_cores import kernel_flags
from kernelscope.compat.pyprof.records import KernelRecord, records
from kernelscope.compat.pyprof.work import NOTHING, Counts, compat_counts, work_of
from kernelscope.costs.pyprof import Kernel
from kernelscope.trace import Trace


class Column(NamedTuple):
    """A column: the name to ask for it by, its header, its type, and its width in characters.

    Kernel and parameters have no width of their own: they share what the others leave.
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
        Column("tid", "TId", pl.Int64, 12, "thread that launched"),
        Column("layer", "Layer", _TEXTS, 10, "ranges named layer:..., outermost first"),
        Column("trace", "Trace", _TEXTS, 25, "call stack, outermost first"),
        Column("dir", "Direction", pl.String, 5, "fprop or bprop"),
        Column("sub", "Sub", pl.Int64, 3, "place among the kernels of its operator, from 0"),
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
"""The columns in the order in which PyProf documents them, by name."""

DEFAULT_COLUMNS = ("idx", "dir", "sub", "mod", "op", "kernel", "params", "sil")
"""The columns that are shown unless others are asked for."""


class Row(NamedTuple):
    """The values of the 20 columns; what is not known is null.

    ``aborts``: PyProf ends its report here. ``long_name`` is the whole name of the kernel.
    """

    idx: int
    seq: list[int]
    altseq: list[int]
    tid: int | None
    layer: list[str]
    trace: list[str]
    dir: str
    sub: int
    mod: str
    op: str
    kernel: str
    params: str
    sil: int | None
    tc: str | None
    device: int | None
    stream: int | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    flops: float | None
    bytes: float | None
    aborts: bool = False
    long_name: str = ""


class ForwardKernels:
    """Finds the forward kernel of a backward one: the last before it with its sequence number.

    A number found among the alternate ones counts only where no kernel has it as its own.
    """

    def __init__(self) -> None:
        self._own: dict[Hashable, KernelRecord] = {}
        self._alternate: dict[Hashable, KernelRecord] = {}

    def add(self, record: KernelRecord) -> None:
        """Takes note of a kernel."""
        if record.is_backward:
            return
        self._own.update(((record.pid, number), record) for number in record.sequence_ids)
        self._alternate.update(((record.pid, number), record) for number in record.alternate_ids)

    def find(self, record: KernelRecord, *, compat: bool) -> KernelRecord | None:
        """The forward kernel of ``record``."""
        numbers = record.sequence_ids[:1] if compat else [*record.sequence_ids, *record.alternate_ids]
        for number in numbers:
            found = self._own.get((record.pid, number)) or self._alternate.get((record.pid, number))
            # An operator that needs no gradient has the number 0, or that of the next which does.
            if found is not None and (compat or number != 0):
                return found
        return None


def rows(records: Iterable[KernelRecord], *, compat: bool = False) -> Iterator[Row]:
    """The row of each record, in order.

    A kernel of the backward pass without a marker of its own gets marker, layer and trace of the forward
    kernel that has its sequence number. With ``compat`` every kernel is counted by PyProf's models, and
    the rows come one by one; else the work of a call is given to its longest kernel, for which all rows
    are held.
    """
    completed = _completed_all(records, compat=compat)
    if compat:
        return (_row(index, record, _compat(record)) for index, record in enumerate(completed, start=1))
    return iter(_shared_out(completed))


def _completed_all(records: Iterable[KernelRecord], *, compat: bool) -> Iterator[KernelRecord]:
    forward = ForwardKernels()
    for record in records:
        # A kernel is no forward kernel of its own, and only those before it count.
        completed = _completed(record, forward, compat=compat)
        forward.add(record)
        yield completed


_OF_FORWARD = ("markers", "repr_markers", "mods", "ops", "layers", "trace")


def _completed(record: KernelRecord, forward: ForwardKernels, *, compat: bool) -> KernelRecord:
    if not record.is_backward or (record.markers and compat):
        return record
    found = forward.find(record, compat=compat)
    if found is None:
        return record
    if record.markers:
        # Its own markers say what it computes; where in the model it stands, those of the forward pass.
        return replace(record, layers=record.layers or found.layers, trace=record.trace or found.trace)
    return replace(record, **{name: getattr(found, name) for name in _OF_FORWARD})


def _kernel(record: KernelRecord) -> Kernel:
    name = record.short_name.replace(" ", "_")
    return Kernel(name, record.is_backward, record.sub, record.grid[0] if record.grid else 1)


def _compat(record: KernelRecord) -> Counts:
    text = record.markers[0] if record.markers else None
    return NOTHING if text is None else compat_counts(text, _kernel(record))


def _shared_out(records: Iterable[KernelRecord]) -> list[Row]:
    """The rows, the work of each call at its longest kernel and 0 at the others."""
    made: list[Row] = []
    longest: dict[Hashable, int] = {}
    groups: dict[Hashable, Hashable] = {}
    for index, record in enumerate(records):
        work = work_of(record, _kernel(record))
        made.append(_row(index + 1, record, work.counts))
        if work.call is None:
            continue
        # A file of records does not say which call it was: its kernels follow one another.
        thread = (record.pid, record.tid)
        group = work.call if record.calls else (thread, work.call, groups.get(thread))
        if not record.calls and record.sub == 0:
            groups[thread] = index
            group = (thread, work.call, index)
        best = longest.get(group)
        longest[group] = index if best is None or (made[best].sil or 0) < (record.duration_ns or 0) else best
        loser = {best, index} - {longest[group]}
        for at in loser - {None}:
            made[cast("int", at)] = made[cast("int", at)]._replace(flops=0, bytes=0)
    return made


def _row(index: int, record: KernelRecord, counts: Counts) -> Row:
    return Row(
        idx=index,
        seq=record.sequence_ids,
        altseq=record.alternate_ids,
        tid=record.tid,
        layer=record.layers,
        trace=record.trace,
        dir=record.direction,
        sub=record.sub,
        mod=(record.mods or [""])[0],
        op=counts.op or (record.ops or [""])[0],
        kernel=record.short_name.replace(" ", "_"),
        params=counts.params,
        sil=record.duration_ns,
        tc=counts.tensor_cores,
        device=record.device,
        stream=record.stream,
        grid=record.grid,
        block=record.block,
        flops=counts.flops,
        bytes=counts.bytes,
        aborts=counts.aborts,
        long_name=record.long_name,
    )


_TYPES = {**{name: column.type for name, column in COLUMNS.items()}, "long_name": pl.String}
# A compute capability from which on a kernel's name does not settle whether it uses tensor cores.
_RECENT = 9


def pyprof_table(source: "Trace | Iterable[KernelRecord]") -> pl.DataFrame:
    """PyProf's 20 columns, with its faults repaired: a row per kernel.

    ``source`` is a trace with NVTX ranges, or the records of a file.

    Columns: those of ``COLUMNS`` by name: ``seq``, ``altseq``, ``layer``, ``trace``, ``grid`` and ``block``
        as lists; ``tc`` is 1, 0 or null; ``flops`` and ``bytes`` are the work of a call at its longest
        kernel, 0 at its others, and null where no model knows it. Also ``long_name``.
    Units: ``sil`` ns; ``flops`` FLOP; ``bytes`` bytes of DRAM traffic.
    Order: of the launches, or of the records.

    Example: ``pyprof_table(ks.read("report.sqlite")).group_by("layer").agg(pl.col("sil").sum())``
    """
    taken = records(source) if isinstance(source, Trace) else source
    frame = _frame(list(rows(taken)))
    devices = source.devices if isinstance(source, Trace) else _unknown_devices(frame)
    named = frame.select("idx", name="long_name", device=pl.col("device").cast(pl.Int32))
    flags = kernel_flags(named, devices).select("idx", tc="tensor_cores")
    flagged = frame.drop("tc").join(flags, on="idx", how="left", maintain_order="left")
    return flagged.with_columns(pl.col("tc").cast(pl.Int64)).select(*COLUMNS, "long_name")


def _frame(made: list[Row]) -> pl.DataFrame:
    whole = {name: [getattr(row, name) for row in made] for name in _TYPES}
    return pl.DataFrame([pl.Series(name, values, dtype=_TYPES[name]) for name, values in whole.items()])


def _unknown_devices(frame: pl.DataFrame) -> pl.DataFrame:
    """A file of records does not say what its GPUs are: the answer must hold for the latest."""
    used = frame.get_column("device").drop_nulls().unique().sort().cast(pl.Int32)
    return pl.DataFrame({"device": used}, schema_overrides={"device": pl.Int32}).with_columns(
        name=pl.lit(None, dtype=pl.String),
        warp_size=pl.lit(None, dtype=pl.Int64),
        compute_major=pl.lit(_RECENT, dtype=pl.Int64),
    )
