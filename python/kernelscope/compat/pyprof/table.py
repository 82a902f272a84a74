"""PyProf's columns as a frame."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import polars as pl

from kernelscope.analysis.kernels.tensor_cores import kernel_flags
from kernelscope.compat.pyprof.record import KernelRecord
from kernelscope.compat.pyprof.records import records
from kernelscope.compat.pyprof.rows import COLUMNS, Row, rows
from kernelscope.trace import Trace

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_TYPES: "dict[str, PolarsDataType]" = {
    **dict.fromkeys(("idx", "tid", "sub", "sil", "device", "stream"), pl.Int64),
    **dict.fromkeys(("seq", "altseq", "grid", "block"), pl.List(pl.Int64)),
    **dict.fromkeys(("layer", "trace"), pl.List(pl.String)),
    **dict.fromkeys(("dir", "mod", "op", "kernel", "params", "tc", "long_name"), pl.String),
    **dict.fromkeys(("flops", "bytes"), pl.Int64),
}
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
    return pl.DataFrame(
        {"device": used},
        schema_overrides={"device": pl.Int32},
    ).with_columns(
        name=pl.lit(None, dtype=pl.String),
        warp_size=pl.lit(None, dtype=pl.Int64),
        compute_major=pl.lit(_RECENT, dtype=pl.Int64),
    )
