"""The process that runs an SQL statement over given frames, and opens nothing."""

import io
import json
import os
import sys
from typing import Any

import polars as pl

NO_MEMORY = 3
"""Exit code if Python ran out of memory. Failures of lower levels end the process with a signal."""

_STREAMS = 3


def main() -> None:
    """Reads a statement and frames from standard input; writes an error or null, and the result."""
    given = sys.stdin.buffer
    order = json.loads(given.readline())
    frames = {
        name: pl.read_ipc_stream(io.BytesIO(given.read(int(given.readline())))) for name in order["tables"]
    }
    # Its threads and what it looks up of the machine are there before nothing can be opened any more.
    pl.SQLContext({"warm": pl.DataFrame({"up": [1]})}).execute("select sum(up) from warm", eager=True)
    _confine(order["memory_bytes"], order["seconds"])
    answer, error = None, None
    try:
        answer = _answer(order["statement"], order["rows"], frames)
    except MemoryError:
        sys.exit(NO_MEMORY)
    except BaseException as failed:  # noqa: BLE001 - a panic of Polars is no Exception
        error = str(failed)
    out = sys.stdout.buffer
    out.write(json.dumps({"error": error}).encode() + b"\n")
    if answer is not None:
        answer.write_ipc_stream(out)
    out.flush()


def _answer(statement: str, rows: int | None, frames: dict[str, pl.DataFrame]) -> pl.DataFrame:
    # Polars compares a categorical with no text.
    texts = pl.col(pl.Categorical, pl.Enum).cast(pl.String)
    found = pl.SQLContext({name: frame.lazy().with_columns(texts) for name, frame in frames.items()}).execute(
        statement, eager=False
    )
    return (found if rows is None else found.head(rows)).collect()


def _confine(memory_bytes: int, seconds: float) -> None:
    """Lets the process open no more files, and take so much more memory and time of its processors."""
    if sys.platform == "win32":
        return
    import resource

    def limit(what: int, most: int) -> None:
        hard: Any = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))

    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        limit(resource.RLIMIT_AS, taken + memory_bytes)
    # One that outlives who asked ends all the same.
    limit(resource.RLIMIT_CPU, int(seconds * (os.cpu_count() or 1)) + 1)
    limit(resource.RLIMIT_FSIZE, 0)
    limit(resource.RLIMIT_NOFILE, _STREAMS)
