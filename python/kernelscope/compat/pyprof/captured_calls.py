"""The calls that NVTX ranges or annotations mark, as a frame."""

from typing import TYPE_CHECKING, Any

import polars as pl

from kernelscope.compat.pyprof.markers import marker_frames, marker_module, marker_of
from kernelscope.trace import Trace

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_CALL: "dict[str, PolarsDataType]" = {
    "name": pl.String,
    "mod": pl.String,
    "op": pl.String,
    "shapes": pl.List(pl.List(pl.Int64)),
    "dtypes": pl.List(pl.String),
    "module": pl.String,
    "line": pl.String,
}
# Deeper trees are none.
_MOST_LEVELS = 10_000


def captured_calls(trace: Trace) -> pl.DataFrame:
    """The calls that ``kernelscope.capture`` or PyProf marked, from NVTX ranges or from annotations.

    Columns: ``row`` (in ``ranges`` or ``ops``), ``mod``, ``op``, ``shapes`` and ``dtypes`` of the tensors
        among the arguments in order, ``module`` (path, null outside of modules), ``line`` (innermost line of
        the program, null if it is not known), ``pid``, ``tid``, ``start_ns``, ``dur_ns``.
    Units: ns.
    Order: of the source.

    Example: ``captured_calls(ks.read("report.sqlite")).group_by("module").len()``
    """
    columns = ["row", "name", "pid", "tid", "start_ns", "dur_ns"]
    found = [
        table.select(columns).filter(pl.col("name").cast(pl.String).str.starts_with("{"))
        for table in (trace.ranges, trace.ops)
    ]
    marked = pl.concat([frame.with_columns(pl.col("name").cast(pl.String)) for frame in found]).sort("row")
    calls = [_call(text) for text in marked["name"].unique(maintain_order=True)]
    texts = pl.DataFrame([call for call in calls if call is not None], schema=_CALL, orient="row")
    return marked.join(texts, on="name", how="inner", maintain_order="left").select(
        "row", *list(_CALL)[1:], *columns[2:]
    )


def _call(text: str) -> tuple[Any, ...] | None:
    marker = marker_of(text)
    if marker is None:
        return None
    tensors = [arg for arg in marker.args if arg.get("type") == "tensor"]
    lines, module = marker_frames(text), marker_module(text)
    return (
        text,
        marker.mod,
        marker.op,
        [list(arg["shape"]) for arg in tensors],
        [arg["dtype"] for arg in tensors],
        module[0] if module else None,
        lines[-1] if lines else None,
    )


def call_of_ops(trace: Trace) -> pl.DataFrame:
    """Which marked call each operator of a profiler trace belongs to: the innermost around it.

    Columns: ``row`` of the operator in ``ops``, ``call_row`` of the call in ``captured_calls``; operators
        outside of any call are left out.
    """
    calls = captured_calls(trace).select("row").to_series()
    ops = trace.ops.select("row", "parent_row")
    found = ops.select("row", call_row="parent_row").drop_nulls()
    parents = ops.select(call_row="row", above="parent_row")
    done: list[pl.DataFrame] = []
    for _ in range(_MOST_LEVELS):
        is_call = pl.col("call_row").is_in(calls.implode())
        done.append(found.filter(is_call))
        found = found.filter(~is_call).join(parents, on="call_row", how="inner")
        found = found.select("row", call_row="above").drop_nulls()
        if found.is_empty():
            break
    return pl.concat(done).sort("row")
