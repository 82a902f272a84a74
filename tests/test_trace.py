"""``ks.read`` and the trace it returns."""

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import schema
from process_tree import bytes_read
from waiting import wait_until


def test_tables_have_the_documented_columns(tiny: Path) -> None:
    trace = ks.read(tiny)
    assert list(trace.tables) == list(schema.TABLES)
    for name, frame in trace.tables.items():
        documented = [(column.name, column.dtype) for column in schema.TABLES[name].columns]
        assert [(column, str(dtype)) for column, dtype in frame.schema.items()] == documented, name
        assert frame is getattr(trace, name)


def test_rows_of_a_known_trace(tiny: Path) -> None:
    trace = ks.read(tiny)
    op = trace.ops.row(by_predicate=pl.col("name") == "aten::mm", named=True)
    assert (op["start_ns"], op["dur_ns"], op["input_dims"]) == (10_001, 20_000, "[[2, 3], [3, 4]]")
    (kernel,) = trace.gpu_ops.to_dicts()
    assert (kernel["start_ns"], kernel["dur_ns"], kernel["bytes"]) == (40_000, 30_500, None)
    assert kernel["op_row"] == op["row"]
    assert trace.launches["row"].to_list() == [kernel["launch_row"]]
    assert trace.extent() == (0, 100_000)


def test_meta(tiny: Path) -> None:
    meta = ks.read(tiny).meta
    assert (meta.path, meta.format, meta.compression) == (str(tiny), "kineto", "none")
    assert meta.file_bytes == meta.content_bytes == tiny.stat().st_size
    assert (meta.rank, meta.world_size, meta.backend, meta.host) == (3, 8, "nccl", "node1")
    assert meta.base_time_ns == 1_767_189_312_000_000_000
    assert meta.recorder == "Kineto of September 2024 or later"
    assert meta.flags == {"record_shapes": True}
    assert meta.versions == {"cupti_version": "28", "cuda_runtime_version": "12090"}
    assert (meta.seen, meta.kept, meta.dropped) == (4, 4, 0)
    assert meta.properties["distributedInfo"] == {"backend": "nccl", "rank": 3, "world_size": 8}
    assert "traceEvents" not in meta.properties


def test_unknown_meta_is_null(tmp_path: Path) -> None:
    path = tmp_path / "bare.json"
    path.write_text('[{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": "CPU functions", "tid": 1}]')
    meta = ks.read(path).meta
    unknown = (meta.rank, meta.world_size, meta.host, meta.base_time_ns, meta.trace_id, meta.backend)
    assert unknown == (None,) * 6
    assert (meta.flags, meta.versions) == ({}, {})


def test_trace_is_frozen(tiny: Path) -> None:
    trace = ks.read(tiny)
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.ops = trace.launches  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.meta.rank = 0  # pyright: ignore[reportAttributeAccessIssue]


def test_trace_survives_pickling(tiny: Path) -> None:
    trace = ks.read(tiny)
    copy = pickle.loads(pickle.dumps(trace))
    assert copy.meta == trace.meta
    for name, frame in trace.tables.items():
        assert copy.tables[name].equals(frame), name


def test_repr_says_what_is_in_it(tiny: Path) -> None:
    text = repr(ks.read(tiny))
    assert text.startswith(f"Trace '{tiny}' (kineto, ")
    assert "rank 3 of 8, 100.0 us)" in text
    assert "\n  gpu_ops: 1" in text
    assert "ranges" not in text


def test_progress_ends_with_everything(tiny: Path) -> None:
    calls: list[tuple[int, int]] = []
    ks.read(tiny, progress=lambda done, total: calls.append((done, total)))
    size = tiny.stat().st_size
    assert calls[-1] == (size, size)
    assert calls == sorted(calls)


def test_exception_of_progress_stops_reading(large: Path) -> None:
    class EnoughError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise EnoughError

    before = bytes_read("self")
    with pytest.raises(EnoughError):
        ks.read(large, threads=1, progress=stop)
    assert bytes_read("self") - before < large.stat().st_size


@pytest.mark.usefixtures("interruptible")
def test_interrupt_stops_reading(large: Path) -> None:
    before = bytes_read("self")

    def interrupt() -> None:
        wait_until(lambda: bytes_read("self") - before > 10_000_000)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        ks.read(large, threads=1)
    thread.join()
    assert bytes_read("self") - before < large.stat().st_size


def test_a_program_may_end_while_a_thread_of_it_reads(large: Path) -> None:
    program = """if True:
        import sys, threading, time
        import kernelscope as ks

        class Late:
            # The interpreter is going, and takes long enough for the thread to look for it.
            def __del__(self, sleep=time.sleep):
                sleep(0.5)

        begun, late = threading.Event(), Late()
        progress = lambda *_: begun.set()
        options = {"threads": 1, "progress": progress}
        threading.Thread(target=ks.read, args=sys.argv[1:], kwargs=options, daemon=True).start()
        begun.wait()
    """
    done = subprocess.run([sys.executable, "-c", program, large], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_other_threads_run_while_reading(large: Path) -> None:
    ticks = 0
    done = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not done.wait(0.005):
            ticks += 1

    thread = threading.Thread(target=count)
    thread.start()
    ks.read(large, threads=1)
    done.set()
    thread.join()
    # Reading takes more than a second; without the lock released, next to no tick falls into it.
    assert ticks > 5
