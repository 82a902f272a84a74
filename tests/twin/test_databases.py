"""Answers about nsys databases beside what plain SQL and loops give.

What ``nsys stats`` prints of the same databases is compared in ``tests/oracles``; here are the answers that
it has none of.
"""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, seed, settings

import draws
import kernelscope as ks
import slow_reader
from kernelscope import analysis
from kernelscope.cli import main
from nvprof_database import Database as NvprofWriter
from oracles.traces import ORACLES, SHARED, files
from twin import beside, databases, drawn
from twin.figures import Rows, compare

RECORDED = [
    *files(SHARED / "traces" / "nsys", "*.sqlite"),
    *files(ORACLES / "nsys-stats" / "edge", "*.sqlite"),
]

NVPROF = [*files(ORACLES / "pyprof", "*nvprof.sql")]


def both(path: Path) -> tuple[ks.Trace, Rows]:
    trace = ks.read(path)
    tables = trace.meta.properties["tables"]
    if trace.meta.format == "nvprof":
        names = slow_reader.demangled(trace.gpu_ops.iter_rows(named=True))
        rows = databases.NvprofDatabase(path, tables).read(names)
    else:
        rows = databases.Database(path, tables).read()
    # Which ranges mark the steps of databases, and what GPUs are, have their own tests.
    rows["steps"], rows["devices"] = trace.steps.to_dicts(), trace.devices.to_dicts()
    steps = dict(trace.gpu_ops.select("row", "step").iter_rows())
    for work in rows["gpu_ops"]:
        work["step"] = steps[work["row"]]
    return trace, rows


def compare_work(trace: ks.Trace, rows: Rows) -> None:
    links = trace.gpu_ops.select("row", "launch_row", "device", "stream", "start_ns", "is_communication")
    twin = {
        work["row"]: {name: work[name] for name in links.columns if name != "row"} for work in rows["gpu_ops"]
    }
    compare(links, twin, "row")
    beside.compare_gpu(trace, rows, beside.every)
    flags = beside.flags_of(trace)
    for by in (("name",), ("device", "stream")):
        table = analysis.kernel_table(trace, by=by)
        compare(table, beside.kernels.kernel_table(rows, flags, *by), *by)


@pytest.mark.parametrize("path", [*RECORDED, *NVPROF])
def test_work_and_its_launches(path: Path) -> None:
    trace, rows = both(path)
    compare_work(trace, rows)
    if trace.meta.format != "nvprof":  # whose calls have numbers for names
        beside.compare_launching(trace, rows, beside.every)


@pytest.mark.parametrize("path", [*RECORDED, *NVPROF])
def test_ranges_on_the_gpu(path: Path) -> None:
    compare_ranges(*both(path))


def compare_ranges(trace: ks.Trace, rows: Rows) -> None:
    projection = databases.nvtx_projection(rows)
    compare(analysis.nvtx_projection(trace), projection, "row")
    names = trace.ranges.select("row", "domain", "name")
    keys = {row: tuple(None if v is None else str(v) for v in key) for row, *key in names.iter_rows()}
    compare(analysis.nvtx_table(trace), databases.sums_by(projection, keys), "domain", "name")
    around = databases.around(rows)
    linked = dict(trace.gpu_ops.select("row", "range_row").iter_rows())
    for work in rows["gpu_ops"]:
        # Of several ranges of the process none is that of the work.
        enclosing = around.get(work["launch_row"]) or [{"row": None, "crosses": False}]
        is_sure = not enclosing[-1]["crosses"] or len(enclosing) == 1
        assert linked[work["row"]] == (enclosing[-1]["row"] if is_sure else None), work["row"]


def draw(random: Random, path: Path) -> Path:
    """A database of nvprof: ranges nest on threads, calls start works or none, and works may have no call."""
    database = NvprofWriter(path)
    database.insert(
        "CUPTI_ACTIVITY_KIND_DEVICE", id=0, name=database.text("Tesla V100"), globalMemorySize=2**34,
        numMultiprocessors=80, numThreadsPerWarp=32, maxWarpsPerMultiprocessor=64, computeCapabilityMajor=7,
        computeCapabilityMinor=0, maxRegistersPerMultiprocessor=65_536,
        maxSharedMemoryPerMultiprocessor=98_304,
    )  # fmt: skip
    for thread in (7, -5):
        ranges(random, database, thread, (1, 300))
        for _ in range(random.randrange(12)):
            at = random.randrange(1, 300)
            number = random.randrange(1, 1_000_000)
            if random.random() < 0.8:
                api = random.choice(("RUNTIME", "DRIVER"))
                database.call(at, at + random.randrange(9), correlation=number, tid=thread, api=api)
            for _ in range(random.randrange(3)):
                work(random, database, at + random.randrange(60), number)
    return database.close()


def ranges(random: Random, database: NvprofWriter, thread: int, within: tuple[int, int]) -> None:
    """Ranges one after the other, with others in them; the last may stay open."""
    at, stop = within
    while at < stop and random.random() < 0.6:
        begin = random.randrange(at, stop)
        until = random.randrange(begin, stop)
        kind = {"objectKind": 1} if random.random() < 0.1 else {}
        text = random.choice(("model", "aten::mm, seq = 3, op_id = 9"))
        database.range(text, begin, until, tid=thread % 2**32, **kind)
        ranges(random, database, thread, (begin, until))
        at = until + 1


def work(random: Random, database: NvprofWriter, at: int, number: int) -> None:
    times = {"start": at, "end": at + random.randrange(30)}
    where = {"deviceId": random.choice((0, 0, 1)), "contextId": 1, "streamId": random.randrange(2**31)}
    kind = random.randrange(4)
    if kind == 0:
        size = random.randrange(9) * 64
        copied = random.choice(list(databases.COPIES))
        database.insert(
            "CUPTI_ACTIVITY_KIND_MEMCPY", **times, **where, correlationId=number, copyKind=copied, bytes=size
        )
    elif kind == 1:
        database.insert("CUPTI_ACTIVITY_KIND_MEMSET", **times, **where, correlationId=number, bytes=64)
    else:
        name = random.choice(("_Z4gemmPf", "volta_h884gemm", "ncclAllReduceRingLLKernel_sum_f32(ncclColl)"))
        grid = random.randrange(1, 200)
        database.kernel(*times.values(), name, correlation=number, gridX=grid, **where)


@seed(draws.seed)
@settings(max_examples=draws.count(30, 1_000))
@given(chosen=drawn.randoms())
def test_drawn_databases_of_nvprof(chosen: Random) -> None:
    with TemporaryDirectory() as folder:
        trace, rows = both(draw(chosen, Path(folder, "drawn.sql")))
    compare_work(trace, rows)
    compare_ranges(trace, rows)


def test_a_generated_database_of_nvprof(tmp_path: Path) -> None:
    main(["demo", "--kind", "nvprof", "--size", "1MB", "--out", str(tmp_path)])
    (path,) = tmp_path.glob("*.sql")
    trace, rows = both(path)
    compare_work(trace, rows)
    compare_ranges(trace, rows)
