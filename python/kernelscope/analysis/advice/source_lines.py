"""Lines of the user's program around the evidence of a rule."""

import re
import sys

import polars as pl

from kernelscope.analysis.advice.record import most_common
from kernelscope.analysis.call_tree import innermost, nest
from kernelscope.analysis.grouping import gather_rows
from kernelscope.trace import Trace

_LINE = re.compile(r"(?:.*/)?([^/]+)\.py\(\d+\): ")
_LIBRARY = re.compile(r"^(?:torch|<)|(?:site|dist)-packages/")


def called_from(trace: Trace, points: pl.DataFrame) -> str:
    """Returns a sentence with the lines of the user's program around most of some moments.

    It begins with a space, and is empty without Python frames.

    Columns: ``points`` needs ``track`` and ``start_ns``.
    """
    names = trace.python["name"].unique()
    own = names.filter(pl.Series([_is_own(name) for name in names.cast(pl.String)], dtype=pl.Boolean))
    # Collections of garbage have no frame around them that they name.
    frames = trace.python.filter(pl.col("name").is_in(own.implode())).drop_nulls("dur_ns")
    frames = nest(frames.select("row", "track", "start_ns", "dur_ns", "name"))
    moments = points.select("track", "start_ns", dur_ns=pl.lit(0, pl.Int64))
    lines = gather_rows(innermost(moments, frames), frames, "name").drop_nulls().group_by("name").len()
    lines = lines.with_columns(pl.col("name").cast(pl.String)).sort("len", "name", descending=[True, False])
    return f" Called from {most_common(lines['name'])}." if lines.height else ""


def _is_own(name: str | None) -> bool:
    """Whether a frame has a line of source outside torch, installed packages and Python's library."""
    found = _LINE.match(name or "")
    return bool(found) and not _LIBRARY.search(name or "") and found[1] not in sys.stdlib_module_names
