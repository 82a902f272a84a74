"""The report as one JSON object."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from kernelscope.report import views
from kernelscope.trace import Trace

SCHEMA_VERSION = 1


def to_json(trace: Trace) -> str:
    """The report as JSON: ``schema_version``, ``trace``, then a list of rows per frame of a view."""
    found = {name: frame.to_dicts() for name, frame in views.frames(trace).items()}
    return dump({"schema_version": SCHEMA_VERSION, "trace": describe(trace), **found})


def describe(trace: Trace) -> dict[str, Any]:
    """What is known of the file, and how many rows each table has."""
    return {**asdict(trace.meta), "tables": {name: frame.height for name, frame in trace.tables.items()}}


def dump(value: object) -> str:
    """JSON text in ASCII, so that any output can hold it; numbers that JSON cannot write are null."""
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
