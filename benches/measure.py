"""Measures one call in a process of its own: ``measure.py TASK PATH`` prints one JSON line.

Only the call is timed: interpreter start and imports come before. The high-water mark of the
resident memory is reset just before it, so that the peak is that of the call.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

Call = Callable[[str], int | None]
"""Reads a file and returns the number of its events, if that is known without more work."""


def kernelscope() -> Call:
    """From the path to linked Polars frames."""
    from kernelscope import read

    return lambda path: _keep(read(path)).meta.seen


def kernelscope_one_thread() -> Call:
    """The same on one core."""
    from kernelscope import read

    return lambda path: _keep(read(path, threads=1)).meta.seen


def json_load() -> Call:
    """Python's own JSON reader."""

    def call(path: str) -> int:
        with _opened(path) as file:
            return _count(json.load(file))

    return call


def orjson_loads() -> Call:
    """The fastest JSON reader that gives Python objects."""
    import orjson

    def call(path: str) -> int:
        with _opened(path) as file:
            return _count(orjson.loads(file.read()))

    return call


def python_gzip() -> Call:
    """Inflation alone, with Python's gzip."""
    import gzip

    def call(path: str) -> None:
        with gzip.open(path) as file:
            while file.read(1 << 20):
                pass

    return call


def libdeflate() -> Call:
    """Inflation alone, by a library that wants a whole file in memory; kernelscope streams."""
    import deflate  # pyright: ignore[reportMissingImports]

    def call(path: str) -> None:
        with open(path, "rb") as file:
            _keep(deflate.gzip_decompress(file.read()))

    return call


def hta() -> Call:
    """HolisticTraceAnalysis: its constructor loads, parses and links."""
    import logging

    from hta.trace_analysis import TraceAnalysis  # pyright: ignore[reportMissingImports]

    logging.disable(logging.CRITICAL)
    return lambda path: len(_keep(TraceAnalysis(trace_files={0: path}, trace_dir="/")).t.get_trace(0))


def tb_profiler() -> Call:
    """torch_tb_profiler: what it does with one worker's file, without TensorBoard around it."""
    import tempfile

    from torch_tb_profiler.profiler.data import (  # pyright: ignore[reportMissingImports]
        RunProfileData,
    )
    from torch_tb_profiler.profiler.run_generator import (  # pyright: ignore[reportMissingImports]
        RunGenerator,
    )

    def call(path: str) -> int:
        with tempfile.TemporaryDirectory() as cache:
            data = RunProfileData.parse("worker", None, path, cache)
            _keep(RunGenerator("worker", None, data).generate_run_profile())
        return len(data.events)

    return call


TASKS = {
    task.__name__: task
    for task in (
        kernelscope, kernelscope_one_thread, json_load, orjson_loads, python_gzip, libdeflate, hta,
        tb_profiler,
    )
}  # fmt: skip

_kept: list[Any] = []


def _keep(value: Any) -> Any:
    """Holds on to a result, so that letting go of it is not part of the time."""
    _kept.append(value)
    return value


def _count(document: Any) -> int:
    _keep(document)
    return len(document["traceEvents"] if isinstance(document, dict) else document)


def _opened(path: str) -> Any:
    if path.endswith(".gz"):
        import gzip

        return gzip.open(path)
    return open(path, "rb")


def memory_bytes(field: str) -> int:
    """A figure of this process' memory: ``VmRSS`` is resident now, ``VmHWM`` was at most."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def _reset_peak() -> None:
    # 5 sets the high-water mark to the present size; see proc_pid_clear_refs(5).
    with open("/proc/self/clear_refs", "w") as control:
        control.write("5")


def main() -> None:
    """Runs the task named on the command line."""
    task, path = sys.argv[1:]
    call = TASKS[task]()
    gc.collect()
    _reset_peak()
    imports_bytes = memory_bytes("VmRSS")
    start = time.perf_counter()
    events = call(path)
    seconds = time.perf_counter() - start
    peak_bytes = memory_bytes("VmHWM")
    result = {"seconds": seconds, "peak_bytes": peak_bytes, "imports_bytes": imports_bytes, "events": events}
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
