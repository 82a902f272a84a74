"""The records of an allocator: on which device, and in which operator each was made."""

from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.classes import Classes, classes_of
from kernelscope.analysis.innermost import innermost
from kernelscope.analysis.memory.allocations import DEVICE_TYPES, HOST_TYPES
from kernelscope.analysis.ops import operator_classes

if TYPE_CHECKING:
    from kernelscope.trace import Trace

OUT_OF_MEMORY = "[OutOfMemory]"
"""The name of a record that is no allocation, but the failure of one."""


def device_label() -> pl.Expr:
    """Where memory lies, as text: ``CPU``, ``GPU0`` ..., another kind by its number, or null if unknown."""
    kind, index = pl.col("device_type"), pl.col("device_id")
    number = pl.when(index >= 0).then(index.cast(pl.String)).otherwise(pl.lit(""))
    return (
        pl.when(kind.is_in(HOST_TYPES))
        .then(pl.lit("CPU"))
        # Databases of nsys have device memory only, and do not say so.
        .when(kind.is_in(DEVICE_TYPES) | (kind.is_null() & index.is_not_null()))
        .then(pl.lit("GPU") + number)
        .when(kind.is_not_null())
        .then(pl.lit("device type ") + kind.cast(pl.String))
    )


class AllocatorRecords:
    """The allocations and frees of a trace, found once for several questions."""

    def __init__(self, trace: "Trace") -> None:
        self._trace = trace

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The records in order of time, those of failures left out.

        Columns: ``row``, ``track``, ``start_ns``, ``address``, ``bytes``, ``total_allocated_bytes``,
            ``total_reserved_bytes`` and ``step`` of the table ``memory``; ``device`` (see
            :func:`device_label`), which sorts as text does.
        """
        memory = self._trace.memory
        columns = (
            "row", "track", "start_ns", "address", "bytes", "total_allocated_bytes", "total_reserved_bytes",
            "step",
        )  # fmt: skip
        found = memory.select(*columns, "name", "device_type", "device_id")
        left_out = _is_failure(memory["name"]) | memory["bytes"].is_null()
        if left_out.any():
            found = found.filter(~left_out)
        if not found["start_ns"].is_sorted() or not memory["row"].is_sorted():
            found = found.sort("start_ns", "row")
        return found.select(*columns, _devices(found).alias("device"))

    @cached_property
    def operators(self) -> Classes:
        """The classes of the operators of the trace."""
        return operator_classes(self._trace.ops)

    @cached_property
    def devices(self) -> list[str | None]:
        """The devices whose memory is recorded, in order; first null, if some is of an unknown one."""
        found = self.frame["device"].unique().sort(nulls_last=False)
        return found.cast(pl.String).to_list()

    def of_device(self, device: str | None) -> pl.DataFrame:
        """The times, bytes, totals, steps and rows of the records of one device."""
        frame = self.frame.drop("track", "address", "device")
        if len(self.devices) == 1:
            return frame
        devices = self.frame["device"]
        return frame.filter(devices.eq_missing(pl.lit(device, devices.dtype)))

    @cached_property
    def partner(self) -> pl.Series:
        """The place in ``frame`` of the free of each allocation and of the allocation of each free.

        An allocation is matched with the next record of its address on its device, if that is a free.
        """
        return self.partner_by(pl.col("device").to_physical().cast(pl.UInt32).fill_null(2**32 - 1))

    def partner_by(self, device: pl.Expr) -> pl.Series:
        """The same with a number of one's own for what tells equal addresses apart."""
        if self.frame.is_empty():
            return pl.Series("partner", [], dtype=pl.UInt32)
        records = self.frame.select("address", "bytes", device=device)
        return pl.DataFrame(_traceparse.pair_allocations(records)).to_series()


def _is_failure(names: pl.Series) -> pl.Series:
    """Which records tell that memory was out; there are few distinct names."""
    return (names == OUT_OF_MEMORY).fill_null(value=False)


def failures(trace: "Trace") -> dict[str | None, int]:
    """How often memory was out, by device."""
    failed = trace.memory.filter(_is_failure(trace.memory["name"]))
    counts = failed.group_by(device_label().alias("device")).agg(pl.len().cast(pl.Int64))
    return dict(counts.iter_rows())


def _devices(frame: pl.DataFrame) -> pl.Series:
    """The device of each record; told once for each pair of a kind and an index."""
    pairs = classes_of(frame.select("device_type", "device_id"))
    told = pairs.keys.select(device_label()).to_series()
    return pairs.spread(told.cast(pl.Enum(told.unique().drop_nulls().sort())))


def with_operators(records: pl.DataFrame, trace: "Trace", classes: Classes | None = None) -> pl.DataFrame:
    """Adds ``op_row``: the innermost operator that ran on the record's thread then; null for none.

    An operator runs from its start until just before its end. Annotations are not operators. ``classes``
    takes the answer of :func:`kernelscope.analysis.ops.operator_classes`.

    Columns: of ``records``, needs ``row``, ``track`` and ``start_ns``.
    Source: the memory view of the TensorBoard plugin.
    """
    classes = operator_classes(trace.ops) if classes is None else classes
    is_operator = classes.spread(classes.keys["is_operator"])
    moments = records.select("track", "start_ns", dur_ns=pl.lit(0, pl.Int64))
    return records.with_columns(innermost(moments, trace.ops, counts=is_operator).alias("op_row"))
