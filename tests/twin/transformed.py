"""The same trace written otherwise: what is recorded stays, and how it is written does not."""

from __future__ import annotations

import gzip
import json
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import slow_reader

Document = dict[str, Any]
_IDS = ("External id", "external id", "correlation", "Record function id")
_HOST = ("cpu_op", "user_annotation", "python_function", "cpu_instant_event")
_CALLS = ("_runtime", "_driver")
_WORK = ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events")
_GPU = (*_WORK, "gpu_user_annotation", "cuda_sync")


def _kind(event: Document) -> str:
    return str(event.get("cat") or "").lower()


def other_ids(document: Document) -> Document:
    """Ids of links, processes, threads, streams and frames that are larger by as much for all.

    An id of 0 is none, and what is told apart stays so.
    """
    changed = deepcopy(document)
    for event in changed["traceEvents"]:
        args: Document = event.get("args") or {}
        for name in _IDS:
            if isinstance(args.get(name), int) and args[name] > 0:
                args[name] += 1_000_003
        for name in ("Python id", "Python parent id"):
            if isinstance(args.get(name), int):
                args[name] += 40_000
        if _kind(event) in _GPU and isinstance(args.get("stream"), int) and args["stream"] >= 0:
            args["stream"] += 100
            event["tid"] = args["stream"]
        elif _kind(event) in _HOST or _kind(event).endswith(_CALLS):
            event |= {name: event[name] + 500_000 for name in ("pid", "tid") if isinstance(event[name], int)}
    return changed


def shuffled(document: Document) -> Document:
    """The events in another order."""
    events = list(document["traceEvents"])
    Random(7).shuffle(events)
    return {**document, "traceEvents": events}


def later(document: Document) -> Document:
    """Everything a whole number of microseconds later."""
    changed = deepcopy(document)
    for event in changed["traceEvents"]:
        if isinstance(event.get("ts"), int | float):
            event["ts"] += 4_096
    return changed


def believed(document: Document) -> Document:
    """Durations of GPU work as they are read: a window may leave out what made one impossible."""
    changed = deepcopy(document)
    works = [
        event for event in changed["traceEvents"] if _kind(event) in _WORK and event["name"] != "event_wait"
    ]
    rows: list[slow_reader.Row] = [
        {
            **{name: work["args"].get(name) for name in ("device", "context", "stream")},
            "start_ns": round(work["ts"] * 1000),
            "dur_ns": round(work["dur"] * 1000),
        }
        for work in works
    ]
    slow_reader.doubt(rows)
    for work, row in zip(works, rows, strict=True):
        work["dur"] = row["dur_ns"] / 1000
    return changed


def clipped(document: Document, start: float, stop: float) -> Document:
    """What lies in a window, cut at its ends; instants and metadata are left out. Times are in us."""
    events: list[Document] = []
    for event in document["traceEvents"]:
        if event.get("ph") != "X":
            continue
        begin, end = max(event["ts"], start), min(event["ts"] + event["dur"], stop)
        if begin < end:
            events.append({**event, "ts": begin, "dur": end - begin})
    return {**document, "traceEvents": events}


def write_compact(document: Document, path: Path) -> Path:
    path.write_text(json.dumps(document, separators=(",", ":")))
    return path


def write_indented(document: Document, path: Path) -> Path:
    path.write_text(json.dumps(document, indent=3, ensure_ascii=False).replace("\n", "\r\n"))
    return path


def write_sorted(document: Document, path: Path) -> Path:
    """Keys in another order, and the events before what describes them."""
    events = [dict(reversed(event.items())) for event in document["traceEvents"]]
    rest = {key: document[key] for key in sorted(document, reverse=True) if key != "traceEvents"}
    path.write_text(json.dumps({"traceEvents": events, **rest}))
    return path


def write_gzip(document: Document, path: Path) -> Path:
    found = path.with_suffix(".json.gz")
    found.write_bytes(gzip.compress(json.dumps(document).encode()))
    return found


def write_displayed_in_ns(document: Document, path: Path) -> Path:
    """The unit in which viewers show times, which is not that of the times."""
    return write_compact({**document, "displayTimeUnit": "ns"}, path)


def write_decimals(document: Document, path: Path) -> Path:
    """Times as decimals, with exponents, and as text."""

    def rewritten(event: Document, number: int) -> Document:
        exact = {name: Decimal(repr(event[name])) for name in ("ts", "dur") if name in event}
        times = {name: f"{us:.3f}" if number % 2 else f"{us * 1000:f}e-3" for name, us in exact.items()}
        return {**event, **{name: f"@{text}@" for name, text in times.items()}}

    events = [rewritten(event, number) for number, event in enumerate(document["traceEvents"])]
    text = json.dumps({**document, "traceEvents": events})
    path.write_text(text.replace('"@', "").replace('@"', ""))
    return path


LAYOUTS = (write_compact, write_indented, write_sorted, write_gzip, write_displayed_in_ns, write_decimals)
