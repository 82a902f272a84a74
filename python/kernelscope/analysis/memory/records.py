"""Records of an allocator, with their device and operator."""

from collections.abc import Sequence

import polars as pl

from kernelscope import _traceparse
from kernelscope.analysis.call_tree import DEVICE_TYPES, HOST_TYPES, innermost, nest
from kernelscope.analysis.grouping import classes_of, taken
from kernelscope.memo import Memo, per_trace
from kernelscope.trace import Trace

OUT_OF_MEMORY = "[OutOfMemory]"
"""Name of a record of a failed allocation."""


def device_label() -> pl.Expr:
    """Returns a memory device as text: ``CPU``, ``GPU0`` ..., the number of another kind, or null."""
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
    """Allocations and frees of a trace, matched once for several questions and threads."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @property
    def memo(self) -> Memo:
        """Memo of the trace, in which the answers are kept."""
        return self._trace.memo

    @property
    @per_trace
    def frame(self) -> pl.DataFrame:
        """Records in order of time, without failures.

        Columns: ``row``, ``track``, ``start_ns``, ``address``, ``bytes``, ``total_allocated_bytes``,
            ``total_reserved_bytes`` and ``step`` of the table ``memory``; ``device``, a position in
            ``devices``.
        """
        columns = (
            "row", "track", "start_ns", "address", "bytes", "total_allocated_bytes", "total_reserved_bytes",
            "step",
        )  # fmt: skip
        found = self._known.select(columns)
        return found.with_columns(self._placed[1].alias("device"))

    @property
    @per_trace
    def _known(self) -> pl.DataFrame:
        """The table ``memory`` in order of time, without failures and what has no bytes."""
        found = self._trace.memory
        if self.failed.height:
            found = found.filter(~_is_failure(found["name"]))
        if found["bytes"].null_count():
            found = found.filter(pl.col("bytes").is_not_null())
        if not found["start_ns"].is_sorted() or not found["row"].is_sorted():
            found = found.sort("start_ns", "row")
        return found

    @property
    @per_trace
    def failed(self) -> pl.DataFrame:
        """Rows of the table ``memory`` that report out-of-memory events."""
        memory = self._trace.memory
        if not _is_failure(classes_of(memory.select("name")).keys["name"]).any():
            return memory.clear()
        return memory.filter(_is_failure(memory["name"]))

    @property
    @per_trace
    def _placed(self) -> tuple[list[str | None], pl.Series]:
        """The devices, and the place among them of that of each record."""
        pairs = classes_of(self._known.select("device_type", "device_id"))
        labels = pairs.keys.select(device_label()).to_series()
        devices = labels.unique().sort(nulls_last=False)
        places = (labels.rank("dense") - 1 + devices.null_count()).fill_null(0).cast(pl.UInt32)
        return devices.to_list(), pairs.spread(places)

    @property
    @per_trace
    def owners(self) -> pl.Series:
        """``row`` of the operator that made each record; see :func:`owners_of`."""
        return owners_of(self.frame, self._trace.ops)

    @property
    def devices(self) -> list[str | None]:
        """Devices with recorded memory, in order; first null, if some device is unknown."""
        return self._placed[0]

    def device_names(self, places: pl.Series) -> pl.Series:
        """Returns the devices at these positions."""
        return pl.Series("device", self.devices, dtype=pl.String).gather(places)

    @property
    @per_trace
    def courses(self) -> pl.DataFrame:
        """Summary of the memory of each device, in their order.

        Columns: ``records``, ``allocations``, ``frees``, ``allocated_bytes`` (sum of all allocations),
            ``has_totals`` (whether each record has the allocator's total; otherwise records are summed from
            0), ``start_bytes``, ``end_bytes``, ``peak_bytes``, ``peak_at`` (a position in ``frame``),
            ``recorded_peak_bytes`` (the largest recorded total), ``peak_reserved_bytes``,
            ``fragmentation_bytes`` (reserved but not allocated at the reservation peak), ``has_addresses``,
            ``open_bytes`` and ``open_allocations`` (not freed).
        Units: bytes.
        """
        return pl.DataFrame(self._records.courses())

    def curve(self, device: int, *, most: int | None = None) -> pl.DataFrame:
        """Returns the allocated bytes on a device after each of its records, limited to a number of rows.

        Columns: ``at`` (a position in ``frame``), ``allocated_bytes``.
        """
        return pl.DataFrame(self._records.curve(device, most))

    def held(self, device: int, times: Sequence[int]) -> pl.DataFrame | None:
        """Returns the allocated bytes at each of ``times`` in ascending order.

        Null before the first record.
        """
        found = self._records.held(device, times)
        return None if found is None else pl.DataFrame(found)

    def alive(self) -> pl.Series:
        """Positions in ``frame`` of allocations that were alive at the recorded peak of their device."""
        return taken(self._records.alive(), "at")

    def partners(self, *, anywhere: bool = False) -> pl.Series:
        """Returns the position in ``frame`` of the free of each allocation and of the allocation of each
        free.

        An allocation is matched with the next record of its address on its device (or ``anywhere``), if that
        is a free.
        """
        return taken(self._records.partners(anywhere), "partner")

    @property
    @per_trace
    def _records(self) -> _traceparse.AllocatorRecords:
        return _traceparse.AllocatorRecords(self.frame, len(self.devices))


def _is_failure(names: pl.Series) -> pl.Series:
    """Which records tell that memory was out."""
    return (names == OUT_OF_MEMORY).fill_null(value=False)


def owners_of(records: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Returns ``row`` of the innermost operator on the thread of each record at its time; null for none.

    An operator includes its start but not its end. Annotations are not operators, and do not hide operators
    that they overlap in part.

    Columns: ``records`` needs ``track`` and ``start_ns``; ``ops`` is the table.
    Source: the memory view of the TensorBoard plugin.
    """
    moments = records.select("track", "start_ns", dur_ns=pl.lit(0, pl.Int64))
    columns = ("row", "track", "start_ns", "dur_ns")
    operators = ops.filter(~pl.col("is_annotation").fill_null(value=False)).select(columns)
    return innermost(moments, nest(operators)).alias("op_row")
