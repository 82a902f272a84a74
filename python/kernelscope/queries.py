"""SQL over the tables of a trace, run by a separate process that can be stopped and opens no file.

Polars' SQL has table functions that read files, and a running statement cannot be interrupted. So a statement
is checked first, and then runs in a process in which the system refuses to open files, with a memory limit
and a time limit.
"""

import io
import json
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from typing import IO

import polars as pl

from kernelscope.errors import (
    InternalError,
    InvalidArgumentError,
    KernelscopeError,
    MemoryLimitError,
    TaskTimeoutError,
    did_you_mean,
)
from kernelscope.processes import command_of
from kernelscope.query_process import NO_MEMORY
from kernelscope.schema import TABLES
from kernelscope.trace import Trace
from kernelscope.units import format_bytes

_COMMENT = r"(?:--[^\n]*(?:\n|$)|/\*.*?\*/)"
_QUESTION = re.compile(rf"(?:\s|\(|{_COMMENT})*(?:select|with|from|values)\b", re.IGNORECASE | re.DOTALL)
# Also in a text or behind a comment, as Polars alone knows where these end.
_OF_FILES = re.compile(r"\b((?:read|scan)_\w+)[\"`\]\s]*(?:\(|/\*|--)", re.IGNORECASE)
_WORD = re.compile(r"\w+")


def sql(
    trace: Trace,
    statement: str,
    *,
    rows: int | None = None,
    seconds: float = 60.0,
    memory_bytes: int = 2 << 30,
) -> pl.DataFrame:
    """Returns the result of a ``SELECT`` over the tables of ``trace``.

    The tables have the names of ``kernelscope.schema``.

    ``rows`` limits the number of rows. The dialect is Polars SQL.

    Columns: the columns of the statement; names are text. Event numbers, such as ``row`` and ``op_row``,
        refer to the tables and the timeline.

    Raises: InvalidArgumentError: the statement is not SQL, is not a query, uses an unknown name, or reads a
        file. TaskTimeoutError: it takes longer than ``seconds``. MemoryLimitError: it needs more than
        ``memory_bytes`` in addition to the tables (Linux only).

    Example: ``ks.sql(trace, "select name, sum(dur_ns) as total_ns from gpu_ops group by name")``
    """
    check_statement(statement)
    words = {word.lower() for word in _WORD.findall(statement)}
    frames = {name: frame for name, frame in trace.tables.items() if name in words}
    order = {"statement": statement, "rows": rows, "memory_bytes": memory_bytes, "seconds": seconds}
    out_of_time = threading.Event()
    with subprocess.Popen(
        command_of("kernelscope.query_process"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:

        def end() -> None:
            out_of_time.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            said = _exchange(process, order, frames)
        finally:
            timer.cancel()
            process.kill()
    if out_of_time.is_set():
        raise TaskTimeoutError(f"the statement took longer than {seconds:g} seconds and was stopped")
    head, _, answer = said.partition(b"\n")
    if not head:
        raise _ended(process.returncode, memory_bytes)
    error = json.loads(head)["error"]
    if error is not None:
        raise InvalidArgumentError(_sentence(error))
    return pl.read_ipc_stream(io.BytesIO(answer))


def check_statement(statement: str) -> None:
    """Raises InvalidArgumentError if a statement modifies data or reads a file."""
    if not _QUESTION.match(statement):
        begin = " ".join(statement.split())[:40]
        raise InvalidArgumentError(f"a statement must begin with SELECT or WITH, not with {begin!r}")
    found = _OF_FILES.search(statement)
    if found is not None:
        raise InvalidArgumentError(
            f"{found[1]} reads files, but a statement may only query the tables of the trace: "
            f"{', '.join(TABLES)}"
        )


def _exchange(
    process: "subprocess.Popen[bytes]", order: Mapping[str, object], frames: Mapping[str, pl.DataFrame]
) -> bytes:
    """Tells the process what to answer, and gives what it says; nothing if it ended before."""
    if process.stdin is None or process.stdout is None:
        raise InternalError("a process has no pipes")
    try:
        with process.stdin as given:
            _tell(given, order, frames)
    except BrokenPipeError:
        return b""
    return process.stdout.read()


def _tell(given: IO[bytes], order: Mapping[str, object], frames: Mapping[str, pl.DataFrame]) -> None:
    given.write(json.dumps({**order, "tables": list(frames)}).encode() + b"\n")
    for frame in frames.values():
        buffer = io.BytesIO()
        # Polars locks a frame that it writes, and waits for Python: a thread that asks this frame meanwhile
        # would wait for the lock and keep Python from it, for ever.
        frame.clone().write_ipc_stream(buffer)
        given.write(b"%d\n" % buffer.tell())
        given.write(buffer.getbuffer())


def _ended(code: int, memory_bytes: int) -> KernelscopeError:
    """What is said of a process that ended by itself."""
    if code > 0 and code != NO_MEMORY:
        return InternalError(f"the process that answers statements failed with exit code {code}")
    how = signal.Signals(-code).name if code < 0 else "out of memory"
    most = format_bytes(memory_bytes)
    return MemoryLimitError(
        f"the statement needs more than {most} of memory in addition to the tables ({how})"
    )


def _sentence(error: str) -> str:
    """The first sentence of Polars, without its plan."""
    text = " ".join(error.partition("\n\n")[0].split())
    missing = re.match(r"relation '(.*)' was not found", text)
    if missing:
        meant = did_you_mean(missing[1], TABLES) or f"; the tables are {', '.join(TABLES)}"
        return f"there is no table {missing[1]!r}{meant}"
    return f"cannot answer the statement: {text}"
