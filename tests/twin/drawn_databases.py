"""Databases of nsys drawn at random, and what SQL and loops say of their GPUs.

Several processes record into one database, each on GPUs of its own or on a GPU that others use, too, with
correlation ids that collide; ranges of steps, layers, data loading and PyTorch's operators nest on their
threads; launches lose their work, and works their launch.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from nsys_database import Database, global_pid, global_tid
from twin.figures import Figures

COPIES = {
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER,"
    " srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER,"
    " memKind INTEGER",
    "ENUM_CUDA_MEMCPY_OPER": "id INTEGER PRIMARY KEY, name TEXT, label TEXT",
}
OPERATORS = ("aten::mm", "aten::add_", "aten::copy_", "aten::sum", "autograd::engine::evaluate_function: M")
KERNELS = ("sgemm_128x64", "void elementwise<float>(int)", "ncclDevKernel_AllReduce_Sum_f32(int)")
DATA = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
LENGTH = 4_000
PARTS = ("kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_exec")
Spans = list[tuple[int, int]]


class _Drawn:
    """Draws what the processes of a database do."""

    def __init__(self, path: Path, random: Random) -> None:
        self.random = random
        self.database = Database(path, schema=COPIES)
        self.texts = {name: 100 + at for at, name in enumerate(KERNELS)}
        insert = self.database.insert
        for name, number in self.texts.items():
            insert("StringIds", id=number, value=name)
        for number, label in ((1, "Host-to-Device"), (2, "Device-to-Host"), (8, "Device-to-Device")):
            insert("ENUM_CUDA_MEMCPY_OPER", id=number, name=label, label=label)
        self.operator = self.correlation = 0

    def number(self, least: int, most: int) -> int:
        return self.random.randint(least, most)

    def happens(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def process(self, pid: int, devices: list[int], steps: int) -> None:
        """What a process does: some steps on one thread, work beside them on another."""
        self.correlation = self.number(1, 3)
        length = LENGTH // max(steps, 1)
        for step in range(steps):
            start = step * length + self.number(0, 40)
            self.database.range("train_step", start, start + length - 60, pid=pid)
            self.calls(pid, pid, devices, start + 5, start + length - 70, depth=3)
        if not steps or self.happens(2):
            self.calls(pid, pid + 1, devices, 0, LENGTH, depth=2)

    def calls(self, pid: int, tid: int, devices: list[int], start: int, stop: int, *, depth: int) -> None:
        """Fills a time of a thread with ranges and launches."""
        at = start
        for _ in range(self.number(1, 4)):
            begin = self.number(at, stop)
            end = self.number(begin, stop)
            at = end + 1
            if begin >= end or at >= stop:
                return
            if depth and not self.happens(3):
                self.database.range(self.text(), begin, end, pid=pid, globalTid=global_tid(pid, tid))
                self.calls(
                    pid, tid, devices, begin + 1, end - 1, depth=depth - 1
                ) if end - begin > 4 else None
            else:
                self.launch(pid, tid, devices, begin, min(end, begin + 40))

    def text(self) -> str:
        choice = self.number(0, 9)
        if choice == 0:
            return DATA
        if choice <= 2:
            return f"layer:{choice}"
        self.operator += 1
        name = self.random.choice(OPERATORS)
        sequence = f", seq = {self.operator}" if self.happens(2) else ""
        sizes = ", sizes = [[2, 3], [3, 4]]" if self.happens(3) else ""
        return f"{name}{sequence}, op_id = {self.operator}{sizes}" if self.happens(2) else f"{name}{sequence}"

    def launch(self, pid: int, tid: int, devices: list[int], begin: int, end: int) -> None:
        self.correlation += 1
        if not self.happens(9):
            self.database.call(begin, end, correlation=self.correlation, globalTid=global_tid(pid, tid))
        if self.happens(9):
            return
        start = begin + self.number(1, 200)
        place = {"deviceId": self.random.choice(devices), "streamId": self.correlation}
        stop = start + self.number(0, 300)
        if not self.happens(4):
            name = self.texts[self.random.choice(KERNELS)]
            names = {"demangledName": name, "shortName": name}
            self.database.kernel(start, stop, pid=pid, correlation=self.correlation, **names, **place)
            return
        values: dict[str, Any] = {**place, "contextId": 1, "globalPid": global_pid(pid), "bytes": 64}
        values |= {"start": start, "end": stop, "correlationId": self.correlation}
        if self.happens(3):
            self.database.insert("CUPTI_ACTIVITY_KIND_MEMSET", **values, value=0, memKind=2)
        else:
            kind = self.random.choice((1, 2, 8))
            self.database.insert("CUPTI_ACTIVITY_KIND_MEMCPY", **values, copyKind=kind, srcKind=1, dstKind=2)


def write(path: Path, seed: int) -> Path:
    """A database of one to three processes."""
    random = Random(seed)
    drawn = _Drawn(path, random)
    steps = random.choice((0, 2, 3))
    shared = random.randrange(5) == 0
    for at in range(random.randint(1, 3)):
        devices = [0] if shared else random.choice(([at], [2 * at, 2 * at + 1]))
        drawn.process(100 + 10 * at, devices, steps)
    return drawn.database.close()


_WORKS = """
    SELECT deviceId, (globalPid >> 24) & 0xffffff, start, end,
           CASE WHEN value LIKE 'nccl%' THEN 'communication' ELSE 'kernel' END
    FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName
    {copies}
"""
_COPY = """
    UNION ALL SELECT deviceId, (globalPid >> 24) & 0xffffff, start, end, '{kind}' FROM {table}
"""
_HOST = """
    SELECT (globalTid >> 24) & 0xffffff, start, end, 'runtime' FROM CUPTI_ACTIVITY_KIND_RUNTIME
    UNION ALL SELECT (globalTid >> 24) & 0xffffff, start, end,
        CASE WHEN text LIKE 'enumerate(DataLoader)%' THEN 'dataloader' ELSE 'cpu_exec' END
    FROM NVTX_EVENTS WHERE eventType IN (59, 60) AND end IS NOT NULL
        AND coalesce(text, '') <> 'train_step'
"""


class Gpus:
    """The work of each GPU of each process in a database, straight from SQL."""

    def __init__(self, path: Path) -> None:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        copies = {"CUPTI_ACTIVITY_KIND_MEMCPY": "memcpy", "CUPTI_ACTIVITY_KIND_MEMSET": "memset"}
        also = "".join(_COPY.format(kind=kind, table=name) for name, kind in copies.items() if name in tables)
        self.works: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
        for device, pid, *span in connection.execute(_WORKS.format(copies=also)):
            self.works[device, pid].append(tuple(span))
        self.host = list(connection.execute(_HOST))
        connection.close()

    def breakdown(self, steps: Iterable[tuple[int, int]]) -> Figures:
        """The parts of each step, by its start, the device and the process."""
        launching = {pid for _, pid in self.works}
        found: Figures = {}
        for start, total in steps:
            for device, own in self.works:
                host = [span for pid, *span in self.host if pid == own or pid not in launching]
                parts: dict[str, int] = dict.fromkeys((*PARTS, "other"), 0)
                for length, running in moments([*self.works[device, own], *host], start, start + total):
                    first = next((part for part in PARTS if part in running), "other")
                    parts[first] += length
                found[start, device, own] = {f"{name}_ns": ns for name, ns in parts.items()}
        return found

    def overlap(self) -> Figures:
        """By device: how long communication runs, and how long of that something computes."""
        found: Figures = {}
        for device in {device for device, _ in self.works}:
            works = [work for (of, _), works in self.works.items() if of == device for work in works]
            talk = [(length, running) for length, running in moments(works, -(2**62), 2**62)
                    if "communication" in running]  # fmt: skip
            if any(kind == "communication" for *_, kind in works):
                hidden = sum(length for length, running in talk if "kernel" in running)
                total = sum(length for length, _ in talk)
                found[device] = {"communication_ns": total, "exposed_ns": total - hidden}
        return found


def moments(spans: Iterable[Any], start: int, end: int) -> Iterator[tuple[int, set[str]]]:
    """The stretches between any two bounds, with what runs in each."""
    changes: defaultdict[int, Counter[str]] = defaultdict(Counter, {start: Counter(), end: Counter()})
    for a, b, kind in spans:
        if b > start and a < end:
            changes[max(a, start)][kind] += 1
            changes[min(b, end)][kind] -= 1
    running: Counter[str] = Counter()
    for low, high in pairwise(sorted(changes)):
        running.update(changes[low])
        yield high - low, {kind for kind, count in running.items() if count}
