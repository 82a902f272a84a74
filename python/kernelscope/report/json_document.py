"""The report as one JSON object."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import polars as pl

from kernelscope.report import views
from kernelscope.trace import Trace
from kernelscope.units import format_count

SCHEMA_VERSION = 1
MOST_ROWS = 20_000
"""Maximum number of rows of a list: there may be as many names as events."""

# What the rows of an answer have each for themselves, so that it sums up.
_ADDITIVE = frozenset(
    "after_ns before_ns calls count delta_ns device_ns device_self_ns dur_ns gaps gpu_exclusive_ns gpu_ops"
    " host_self_ns idle_ns launches ranges saveable_ns self_ns total_ns".split()
)


def to_json(trace: Trace) -> str:
    """Returns the report as JSON: ``schema_version``, ``trace``, then a list of rows per frame of a view.

    For a trace of several ranks, ``ranks`` contains all of this for each rank, instead of the lists.
    """
    return dump({"schema_version": SCHEMA_VERSION, **_answers(trace)})


def _answers(trace: Trace) -> dict[str, Any]:
    ranks = [_answers(part) for part in trace.parts]
    return {"trace": describe(trace), **({"ranks": ranks} if ranks else listed(views.frames(trace)))}


def listed(frames: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """Returns the rows of each frame, and ``left_out``.

    If a frame is very long, this is the number of its rows that are merged into one.

    The merged row comes last. Its name contains the number of rows, and it has sums where values can be
    added, and null elsewhere. The frames are in their own order, which starts with the largest.
    """
    rows = {name: frame.head(MOST_ROWS).to_dicts() for name, frame in frames.items()}
    left_out = {name: frame.height - MOST_ROWS for name, frame in frames.items() if frame.height > MOST_ROWS}
    for name, count in left_out.items():
        rows[name].append(_others(frames[name].tail(count)))
    return {**rows, "left_out": left_out} if left_out else rows


def _others(rows: pl.DataFrame) -> dict[str, Any]:
    """The row that stands for ``rows``."""
    texts = [name for name, dtype in rows.schema.items() if dtype == pl.String]
    called = "name" if "name" in texts else texts[0] if texts else None
    sums = {
        name: rows[name].sum() for name in rows.columns if name in _ADDITIVE and rows[name].dtype.is_integer()
    }
    named = {} if called is None else {called: f"{format_count(rows.height)} others"}
    return {**dict.fromkeys(rows.columns), **sums, **named}


def describe(trace: Trace) -> dict[str, Any]:
    """Returns the properties of the file, and the number of rows of each table."""
    return {**asdict(trace.meta), "tables": {name: frame.height for name, frame in trace.tables.items()}}


def dump(value: object) -> str:
    """Returns JSON text in ASCII, so that any output can show it.

    Numbers that JSON cannot represent are null.
    """
    return json.dumps(_writable(value), indent=1, allow_nan=False) + "\n"


def _writable(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _writable(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_writable(item) for item in cast("list[object]", value)]
    if isinstance(value, str):
        # Half a surrogate pair, which a file's metadata may hold, has no bytes in UTF-8.
        return value.encode("utf-8", "replace").decode("utf-8")
    return value
