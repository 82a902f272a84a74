"""Small files that mean harm: odd values wherever a recorder writes a number, a name or a list.

As a program it puts every question and every command to the files drawn for some numbers, and prints what is
neither an answer nor an error of the package: ``python tests/hostile.py FIRST LAST [WHAT]``.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import random
import re
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from events import V100, Events
from nsys_database import Database as NsysDatabase
from nvprof_database import Database as NvprofDatabase

MOST_BYTES = 1500 * 2**20
"""What a process may take for files of some kilobytes, one after the other."""
MOST_ADDRESSES = 16 * 2**30
"""Address space of the process, of which threads and libraries reserve more than they use."""

Values = tuple[Any, ...]

# fmt: off
NUMBERS: Values = (
    -1, 0, 1, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64 - 1, 2**64, 10**30, -1.5, 0.1, 1e18,
    1e308, float("nan"), float("inf"), -float("inf"), None, True, "7", "--1", "-", "NaN", "1e400", "", "x",
    [], {},
)
NAMES: Values = (
    "", "row", "name", "start_ns", "text", "correlation", "device", "rank", "value", "total_ns", "__proto__",
    "=1+1", "@x", "-2+3", "\x1b[31mred\x1b]0;title\x07", "\x9b31m", "a\nb\r\tc", "\u202egnp.exe", "\0",
    "\ud800", "é\U0001f600", "<script>alert(1)</script>", "</script>", "[bold]", "%s{}", "a,b;\"c'|`",
    "x" * 10**6, "::" * 5_000, "(" * 5_000, "<" * 5_000, "_Z" + "N" * 3_000, "aten::mm", "ProfilerStep#1",
    "ProfilerStep#99999999999999999999", "ncclDevKernel_AllReduce", "nn.Module: X_0", "a/b/../../c", None, 5,
    [], {},
)
LISTS: Values = (
    [], [[]], [[], []], [[2, 3], [3, 4]], [[10**9] * 9, [10**9] * 9], [[-1, 2], [2, -3]], [[0, 0], [0, 0]],
    [[[1, 2, 3], 10**8], [[4], 10**8]], [["a"], ["b"]], "x", 7, {"a": 1}, [[2**63, 2**64], [2**64, 1]],
    [None], [[1.5, 2], [2, 1e308]], [[2] * 2_000, [2] * 2_000], ["float", "float"], ["c10::Half", None],
    [["float"], 3], ["", "", "", "[0, 0]", "[0, 0]", "[0, 0]", "0"], ["1e400", "-", "[[[[", "[1, 2", "None"],
    "[[[", [["[1]"]],
)
CELLS: Values = (2**63 - 1, -(2**63), 2**62, 0, -1, 1e308, "x", "7", "", b"\xff\0", None)

_OPS = (
    "aten::mm", "aten::conv2d", "aten::convolution_backward", "aten::addmm", "aten::bmm", "aten::add",
    "aten::mul", "aten::scaled_dot_product_attention", "aten::_flash_attention_forward", "aten::embedding",
    "aten::sum", "aten::layer_norm", "aten::native_batch_norm", "aten::max_pool2d", "aten::index",
    "aten::copy_", "aten::to", "aten::lstm", "triton_poi_fused_0", "record_param_comms", "aten::softmax",
    "aten::topk", "c10d::allreduce_",
)
# fmt: on
_OP_ARGS: dict[str, tuple[Any, Values]] = {
    "Input Dims": ([[2, 3], [3, 4], [4]], LISTS),
    "Input type": (["float", "float", ""], LISTS),
    "Input Strides": ([[3, 1], [4, 1], [1]], LISTS),
    "Concrete Inputs": (["", "", "1"], LISTS),
    "Fwd thread id": (0, NUMBERS),
    "Ev Idx": (1, NUMBERS),
    "Call stack": ("a.py(1): f;b.py(2): g", NAMES),
    "Module Hierarchy": ("Net.layer", NAMES),
    "Collective name": ("allreduce", NAMES),
    "In msg nelems": (64, NUMBERS),
    "Out msg nelems": (64, NUMBERS),
    "Group size": (8, NUMBERS),
    "dtype": ("Float", NAMES),
    "Process Group Ranks": ("[0, 1, ..., 7]", (*LISTS, "[0, ..., 99999999999]")),
    "Process Group Name": ("0", NAMES),
    "Seq": (1, NUMBERS),
}
_KERNEL_ARGS: dict[str, tuple[Any, Values]] = {
    "grid": ([4, 1, 1], LISTS),
    "block": ([128, 1, 1], LISTS),
    "registers per thread": (32, NUMBERS),
    "shared memory": (16, NUMBERS),
    "blocks per SM": (0.5, NUMBERS),
    "warps per SM": (2, NUMBERS),
    "est. achieved occupancy %": (50, NUMBERS),
    "stream": (7, NUMBERS),
    "context": (1, NUMBERS),
    "device": (0, (*NUMBERS, 1)),
    "queued": (0, NUMBERS),
    "priority": (0, NUMBERS),
    "Collective name": ("allreduce", NAMES),
    "Group size": (8, NUMBERS),
    "In msg nelems": (64, NUMBERS),
}
_COPY_ARGS: dict[str, tuple[Any, Values]] = {
    "bytes": (64, NUMBERS),
    "memory bandwidth (GB/s)": (1, NUMBERS),
    "device": (0, NUMBERS),
}
_PROPERTIES: dict[str, tuple[Any, Values]] = {
    "host_name": ("node", NAMES),
    "trace_id": ("id", NAMES),
    "baseTimeNanoseconds": (10**18, NUMBERS),
    "cuda_runtime_version": (12090, NUMBERS),
    "hip_driver_version": (60443483, NUMBERS),
    "with_flops": (1, NUMBERS),
    "record_shapes": (1, NUMBERS),
    "displayTimeUnit": ("ms", NAMES),
    "other": (4242, NUMBERS),
    "traceName": ("a.json", NAMES),
}
_PLACES = ("gridX", "blockX", "registersPerThread", "streamId", "deviceId")


class Hostile:
    """Draws a file: an ordinary one in which some values are odd."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.oddness = self.random.choice((0.02, 0.1, 0.3))

    def odd(self, ordinary: Any, others: Values) -> Any:
        """``ordinary``, or now and then something else."""
        return self.random.choice(others) if self.random.random() < self.oddness else ordinary

    def number(self, ordinary: Any) -> Any:
        return self.odd(ordinary, NUMBERS)

    def name(self, ordinary: str) -> Any:
        return self.odd(ordinary, NAMES)

    def args(self, table: dict[str, tuple[Any, Values]]) -> dict[str, Any]:
        return {key: self.odd(ordinary, others) for key, (ordinary, others) in table.items()}

    def kineto(self, path: Path) -> Path:
        events = Events({key: self.number(value) for key, value in V100.items()})
        for step in range(2):
            name = self.name(f"ProfilerStep#{step}")
            events.annotation(name, self.number(1_000 * step), self.number(999))
        for at in range(self.random.choice((3, 12, 40))):
            self.call(events, at)
        events.events += self.strangers()
        self.random.shuffle(events.events)
        for event in events.events:
            for key in ("name", "ts", "dur", "pid", "tid", "cat", "ph"):
                if self.random.random() < self.oddness / 4:
                    event[key] = self.random.choice(NAMES + NUMBERS)
        job = {"rank": self.number(0), "world_size": self.number(2), "backend": self.name("nccl")}
        head = {"schemaVersion": 1, "deviceProperties": events.devices, **self.args(_PROPERTIES)}
        head["distributedInfo"] = self.odd(job, LISTS)
        text = json.dumps(head | {"traceEvents": events.events})
        if self.random.random() < 0.2:
            text = text.replace("4242", "9" * self.random.choice((400, 5_000)))
        if self.random.random() < 0.2:
            text = text.replace(
                '"args":', '"args": {"correlation": 9, "correlation": 9}, "name": "x", "args":', 5
            )
        path.write_text(text)
        return path

    def call(self, events: Events, at: int) -> None:
        """An operator with its launch and its kernel, and now and then a copy, memory and a Python frame."""
        ts, length = self.number(50 * at), self.number(40)
        events.op(self.name(self.random.choice(_OPS)), ts, length, **self.args(_OP_ARGS))
        events.events[-1]["args"] |= {"Sequence number": self.number(at), "user": 4242}
        events.call(ts, self.number(5), self.number(at + 1), name=self.name("cudaLaunchKernel"))
        name = self.name(self.random.choice(("sgemm", "ncclDevKernel_AllReduce_Sum", "elementwise")))
        correlation = self.number(at + 1)
        events.kernel(name, self.number(50 * at + 9), self.number(30), correlation, **self.args(_KERNEL_ARGS))
        if at % 3 == 0:
            copied = {**self.args(_COPY_ARGS), "correlation": correlation}
            events.add("gpu_memcpy", self.name("Memcpy HtoD"), ts, length, pid=0, tid=7, args=copied)
            events.memory(50 * at, self.number(512), device_type=self.odd(1, (0, 1, 9)))
            events.events[-1]["args"] |= {"Total Allocated": self.number(512), "Addr": self.number(at)}
            python = {"Python id": self.number(at), "Python parent id": self.number(at - 1)}
            events.add("python_function", self.name("nn.Module: Linear_0"), ts, length, args=python)

    def strangers(self) -> list[dict[str, Any]]:
        """Events of other kinds: counters, flows, metadata, asynchronous ones."""
        flops = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
        counter = {str(self.name(flops)): self.number(5), "correlation": 3}
        sync = {"stream": self.number(7), "cuda_sync_kind": self.name("Event Sync"), "wait_on_stream": 7}
        values = {"row": 1, "name": self.number(2), "": 3}
        events: list[dict[str, Any]] = [
            {"ph": "X", "cat": "cuda_profiler_range", "name": "k", "dur": 5, "args": counter},
            {"ph": "C", "name": "GPU 0 memory", "args": values},
            {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": self.number(2**63 - 1)},
            {"ph": "f", "bp": "e", "cat": "ac2g", "name": "ac2g", "id": self.number(1)},
            {"ph": "M", "name": "process_name", "args": {"name": self.name("python")}},
            {"ph": "M", "name": "thread_sort_index", "args": {"sort_index": self.number(3)}},
            {"ph": "b", "cat": self.name("x"), "name": "y", "id": self.number(3)},
            {"ph": "i", "s": "g", "name": "mark", "args": {"a": self.odd(1, LISTS)}},
            {"ph": "X", "cat": "cuda_sync", "name": "sync", "dur": self.number(4), "args": sync},
            {"ph": "X", "cat": "gpu_user_annotation", "name": "r", "dur": 5, "args": {"stream": 7}},
        ]
        where = {"pid": self.number(7), "tid": self.number(7), "ts": self.number(60)}
        for event in events:
            event |= where | {"name": self.name(event["name"])}
        return events

    def cell(self, ordinary: Any) -> Any:
        """A value of a database: 64-bit numbers, text, blobs and nothing."""
        texts = tuple(name for name in NAMES if isinstance(name, str) and "\ud800" not in name)
        return self.odd(ordinary, CELLS + texts)

    def nsys(self, path: Path) -> Path:
        path.unlink(missing_ok=True)
        database = NsysDatabase(path)
        database.meta("EXPORT", EXPORT_SCHEMA_VERSION=str(self.cell("3.7.2")))
        for at in range(12):
            start, end = self.cell(10_000 * at), self.cell(10_000 * at + 900)
            place = {key: self.cell(value) for key, value in {"domainId": 0, "category": None}.items()}
            database.range(self.cell("aten::mm"), start, end, **place)
            names = {"nameId": self.cell(4), "returnValue": self.cell(0)}
            database.call(start, end, correlation=self.cell(at), **names)
            changed = {key: self.cell(5) for key in _PLACES} | {"demangledName": self.cell(1)}
            database.kernel(self.cell(10_000 * at + 99), end, correlation=self.cell(at), **changed)
        name = self.cell("void gemm(int)")
        database.connection.execute(
            "UPDATE StringIds SET value = ? WHERE id = 1", ["" if name is None else name]
        )
        return database.close()

    def nvprof(self, path: Path) -> Path:
        path.unlink(missing_ok=True)
        database = NvprofDatabase(path)
        for at in range(12):
            start, end = self.cell(10_000 * at), self.cell(10_000 * at + 900)
            database.range(self.cell("aten::mm"), start, end)
            database.call(start, end, correlation=self.cell(at), cbid=self.cell(211))
            changed = {key: self.cell(5) for key in _PLACES}
            begin, name = self.cell(10_000 * at + 99), self.cell("gemm")
            database.kernel(begin, end, name, correlation=self.cell(at), **changed)
        return database.close()


def write(seed: int, folder: Path) -> Path:
    """The hostile file of a number: of five three are of PyTorch, one of nsys and one of nvprof."""
    hostile = Hostile(seed)
    if seed % 5 == 3:
        return hostile.nsys(folder / f"hostile{seed}.sqlite")
    if seed % 5 == 4:
        return hostile.nvprof(folder / f"hostile{seed}.sql")
    return hostile.kineto(folder / f"hostile{seed}.json")


_NO_TRACE = ("read_records", "format_record", "annotation_breakdown", "parse", "read_for",
             "load_categories")  # fmt: skip


def questions() -> Iterator[tuple[str, Callable[[Any], object]]]:
    """Every public question about one trace."""
    from kernelscope import analysis, compat
    from kernelscope.analysis.ops.flame import METRICS, VIEWS

    for package in (analysis, compat.hta, compat.torch_profiler, compat.pyprof):
        for name in package.__all__:
            ask = getattr(package, name)
            if inspect.isfunction(ask) and name not in _NO_TRACE:
                yield f"{package.__name__}.{name}", partial(_ask, ask)
    for name, about in compat.nsys.REPORTS.items():
        report = f"{name}:name=gemm" if "name" in about.arguments else name
        yield f"nsys_report {report}", partial(_with, compat.nsys.nsys_report, report=report)
    for by in VIEWS:
        for metric in METRICS:
            yield f"folded_stacks {by} {metric}", partial(_with, analysis.folded_stacks, by=by, metric=metric)
    for by in ("kernel", "model", "module", "step", "phase", "input_dims", "device"):
        yield f"roofline {by}", partial(_with, analysis.roofline, by=by)
    for convention in ("torch", "tracelens", "pyprof"):
        yield f"costs {convention}", partial(_with, analysis.costs, convention=convention)
    for change in ("kernel:*", "op:*", "module:*", "launch", "sync", "fuse:*", "graph"):
        yield f"what_if {change}", partial(_with, analysis.what_if, changes={change: 0.5})
    yield "what_if gpu", partial(_with, analysis.what_if, changes={"gpu": "H200 SXM"})
    yield "critical_path_table", partial(_with, analysis.critical_path_table, by=("op", "python", "category"))
    yield "critical_path of ranks", lambda trace: analysis.critical_path([trace])
    yield "what_if of ranks", lambda trace: analysis.what_if([trace], {"rank:*": 0.5})
    yield "annotation_breakdown", partial(_with, compat.hta.annotation_breakdown, on_gpu=True)
    averages = compat.torch_profiler.key_averages
    yield "table", lambda trace: averages(trace, group_by_input_shape=True, group_by_stack_n=3).table()
    yield "the trace itself", lambda trace: (repr(trace), trace._repr_html_())


def _with(ask: Callable[..., object], trace: Any, **options: Any) -> object:
    return ask(trace, **options)


def _ask(ask: Callable[..., Any], trace: Any) -> object:
    parameters = list(inspect.signature(ask).parameters)
    more = {"after": [trace], "changes": [{}]}.get(parameters[1] if len(parameters) > 1 else "", [])
    answer = ask(trace, *more)
    return list(answer) if inspect.isgenerator(answer) else answer


def commands(path: Path, out: Path) -> Iterator[list[str]]:
    """Every command about one file, in every form."""
    trace = str(path)
    for form in ("text", "json"):
        yield ["analyze", trace, "--format", form]
    for form in ("csv", "parquet", "html"):
        yield ["analyze", trace, "--out", str(out / form), "--format", form]
    for form in ("text", "json", "csv"):
        yield ["roofline", trace, "--format", form]
    for form in ("parquet", "html"):
        yield ["roofline", trace, "--out", str(out / f"roofline.{form}"), "--format", form]
    for form in ("text", "json", "csv"):
        yield ["critical-path", trace, "--by", "op,bound_by", "--format", form]
        yield ["what-if", trace, "sync=0.5", "--format", form]
        yield ["sequences", trace, "--format", form]
    also = ("annotations", "launches", "memory", "gaps", "modules", "missing")
    yield ["analyze", trace, *(word for view in also for word in ("--also", view))]
    yield ["info", trace]
    yield ["info", trace, "--check", "--format", "json"]
    yield ["convert", trace, "--to", "parquet,arrow,perfetto,folded", "--out", str(out / "converted")]
    yield ["convert", trace, "--to", "perfetto", "--out", str(out / "converted.pftrace")]
    for form in ("text", "markdown", "json"):
        yield ["diff", trace, trace, "--format", form]
    yield ["batch", trace, "--out", str(out / "lake"), "--workers", "1", "--html", str(out / "lake.html")]
    yield ["prof", trace, "-c", "all", "--csv"]
    yield ["prof", trace, "-c", "all", "--format", "json"]
    yield ["prof", trace, "--compat"]
    yield ["parse", trace]
    yield ["stats", trace]
    for report in ("cuda_gpu_kern_sum", "nvtx_sum", "cuda_gpu_trace", "cuda_api_trace", "nvtx_pushpop_trace"):
        yield ["stats", trace, "-r", report, "--format", "csv"]
        yield ["stats", trace, "-r", report, "--format", "json"]


# What a terminal acts upon, but for what ends a line.
_ESCAPES = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


_FOLDED = re.compile(r".* -?\d+")


def _run(command: list[str]) -> tuple[int, str, str]:
    from kernelscope.cli import main

    output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(command)
    shown = (stream.buffer.getvalue().decode() for stream in (output, errors))
    return (code, *shown)


def faults(path: Path, *, only: str = "") -> Iterator[str]:
    """What is neither an answer nor an error with one sentence."""
    yield from _faults_of_questions(path, only)
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(path, Path(folder)):
            label = f"{' '.join(command[:1] + command[2:])}({path.name})"
            if only in label:
                yield from (f"{label}: {fault}" for fault in _faults_of_command(command))
    resident = _peak_bytes()
    if resident > MOST_BYTES:
        yield f"{path.name}: took {resident:,} bytes"


def _peak_bytes() -> int:
    """The most that this program had resident; ``ru_maxrss`` begins with what the starting process had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def _faults_of_questions(path: Path, only: str) -> Iterator[str]:
    import kernelscope as ks

    try:
        trace = ks.read(path)
    except ks.KernelscopeError:
        return
    for name, ask in questions():
        if only not in name:
            continue
        try:
            ask(trace)
        except ks.KernelscopeError:
            pass
        except BaseException:  # noqa: BLE001 - a panic of Polars is no Exception
            yield f"{name}({path.name}): {traceback.format_exc(limit=-4)}"


def _faults_of_command(command: list[str]) -> Iterator[str]:
    try:
        code, output, errors = _run(command)
    except BaseException:  # noqa: BLE001 - whatever it is, a user would see it
        yield traceback.format_exc(limit=-4)
        return
    if code and errors.count("\n") != 1 and command[0] not in ("batch", "info", "stats"):
        yield f"exit {code} and {errors!r}"
    escape = _ESCAPES.search(output + errors)
    if escape:
        yield f"printed {escape[0]!r}"
    written: list[str] = [output] if command[-1] == "json" and code == 0 and output else []
    out = Path(command[-1])
    if command[0] == "convert" and code == 0 and out.is_dir():
        written.append((out / "perfetto.json").read_text())
        for folded in (out / "folded").iterdir():
            if any(not _FOLDED.fullmatch(line) for line in folded.read_text().splitlines()):
                yield f"{folded.name} has a line that is no stack with a number"
    yield from (f"wrote no JSON: {error}" for error in map(_error_of_json, written) if error)


def _error_of_json(text: str) -> str:
    """What is wrong with a text that should be JSON, whose numbers may have any number of digits."""
    try:
        json.loads(text, parse_constant=_no_number, parse_int=len)
    except ValueError as error:
        return str(error)
    return ""


def _no_number(text: str) -> None:
    raise ValueError(text)


def main() -> int:
    """Draws the files of some numbers, and prints the faults that they find."""
    first, last, *what = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(int(first), int(last)):
            for fault in faults(write(seed, Path(folder)), only="".join(what)):
                found += 1
                sys.stdout.write(f"{fault}\n")
                sys.stdout.flush()
    return int(found > 0)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
