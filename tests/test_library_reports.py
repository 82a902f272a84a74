"""Reports about libraries beside CUDA, on databases whose answers stand beside them.

Tables and columns: NVIDIA's reference of the SQLite export; what a report counts: its guide to analysis
after the collection.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks
from kernelscope.check import check
from kernelscope.compat.nsys import REPORTS, nsys_report, parse, read_for
from nsys_database import Database, findings, global_tid

Cli = Callable[..., subprocess.CompletedProcess[str]]

_EVENT = "start INTEGER, end INTEGER, globalTid INTEGER"
_NAMED = f"{_EVENT}, eventClass INTEGER, correlationId INTEGER, nameId INTEGER"
_VULKAN = f"{_NAMED}, contextId INTEGER, textId INTEGER"
_METRIC = (
    "start INTEGER, end INTEGER, globalId INTEGER, portId INTEGER, metricsListId INTEGER,"
    " metricsIdx INTEGER, value INTEGER"
)
SCHEMA = {
    "MPI_RANKS": "globalTid INTEGER, rank INTEGER",
    "MPI_P2P_EVENTS": f"{_EVENT}, textId INTEGER, tag INTEGER, remoteRank INTEGER, size INTEGER",
    "MPI_COLLECTIVES_EVENTS": f"{_EVENT}, textId INTEGER, rootRank INTEGER, size INTEGER, recvSize INTEGER",
    "MPI_START_WAIT_EVENTS": f"{_EVENT}, textId INTEGER, requestHandle INTEGER",
    "MPI_OTHER_EVENTS": f"{_EVENT}, textId INTEGER",
    "OPENMP_EVENT_KIND_PARALLEL": _NAMED,
    "OPENMP_EVENT_KIND_TASK": _NAMED,
    "CUPTI_ACTIVITY_KIND_OPENACC_DATA": f"{_NAMED}, eventKind INTEGER, lineNo INTEGER, srcFile INTEGER",
    "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH": f"{_NAMED}, eventKind INTEGER, lineNo INTEGER, srcFile INTEGER",
    "SYSCALL": _NAMED,
    "NVVIDEO_ENCODER_API": _NAMED,
    "NVVIDEO_DECODER_API": _NAMED,
    "VULKAN_API": f"id INTEGER PRIMARY KEY, {_NAMED}, contextId INTEGER",
    "VULKAN_WORKLOAD": f"{_VULKAN}, gpu INTEGER",
    "VULKAN_DEBUG_API": _VULKAN,
    "KHR_DEBUG_EVENTS": f"eventClass INTEGER, {_EVENT}, textId INTEGER, id INTEGER",
    "ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER",
    "TARGET_INFO_NIC_INFO": "GUID INTEGER, nicId INTEGER, name TEXT",
    "NIC_ID_MAP": "nicId INTEGER, globalId INTEGER",
    "TARGET_INFO_NETWORK_METRICS": "metricsListId INTEGER, metricsIdx INTEGER, name TEXT, unit TEXT",
    "NET_NIC_METRIC": _METRIC,
    "NET_IB_SWITCH_METRIC": _METRIC,
}


class Recording:
    """A database of events ``(name, start, end)``, by the table that they are in."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, schema=SCHEMA)
        self._texts: dict[str, int] = {}

    def text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = 100 + len(self._texts)
            self.database.insert("StringIds", id=self._texts[text], value=text)
        return self._texts[text]

    def add(self, table: str, name: str | None, start: int, end: int | None, **values: Any) -> None:
        column = "textId" if " textId " in SCHEMA[table] + " " else "nameId"
        values = {"globalTid": global_tid(7, 7), column: name and self.text(name), **values}
        self.database.insert(table, start=start, end=end, **values)


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "libraries.sqlite")


def table(path: Path, report: str) -> list[tuple[Any, ...]]:
    """The rows of a report: of the trace, and, the same, of what the report reads of the file."""
    trace = ks.read(path)
    check(trace)
    rows = nsys_report(trace, report).rows()
    assert nsys_report(read_for(path, *parse(report)), report).rows() == rows
    return rows


def summed(path: Path, report: str) -> list[tuple[Any, ...]]:
    """Total, count, mean, median, least, greatest and what follows the deviation."""
    return [(*row[1:7], *row[8:]) for row in table(path, report)]


def add_mpi(recording: Recording) -> Path:
    other = global_tid(8, 9)
    recording.add("MPI_P2P_EVENTS", "MPI_Send", 10, 30, tag=5, remoteRank=1, size=4096)
    recording.add("MPI_P2P_EVENTS", "MPI_Send", 40, 50, tag=6, remoteRank=1, size=8)
    recording.add("MPI_P2P_EVENTS", "MPI_Recv", 12, 42, globalTid=other, tag=5, remoteRank=0, size=4096)
    recording.add("MPI_COLLECTIVES_EVENTS", "MPI_Bcast", 60, 70, rootRank=0, size=100, recvSize=0)
    recording.add("MPI_START_WAIT_EVENTS", "MPI_Wait", 80, 81)
    recording.add("MPI_OTHER_EVENTS", "MPI_Init", 0, 5)
    recording.database.insert("MPI_RANKS", globalTid=global_tid(7, 7), rank=0)
    recording.database.insert("MPI_RANKS", globalTid=other, rank=1)
    return recording.database.close()


def test_mpi(recording: Recording, cli: Cli) -> None:
    path = add_mpi(recording)
    assert summed(path, "mpi_event_sum") == [
        (30, 1, 30.0, 30.0, 30, 30, "p2p", "MPI_Recv"),
        (30, 2, 15.0, 15.0, 10, 20, "p2p", "MPI_Send"),
        (10, 1, 10.0, 10.0, 10, 10, "collectives", "MPI_Bcast"),
        (5, 1, 5.0, 5.0, 5, 5, "other", "MPI_Init"),
        (1, 1, 1.0, 1.0, 1, 1, "start-wait", "MPI_Wait"),
    ]
    assert cli("stats", path, "-r", "mpi_event_trace").stdout.splitlines() == [
        ",".join(field.heading for field in REPORTS["mpi_event_trace"].fields),
        "0,5,5,MPI_Init,7,7,,0,,,,,",
        "10,30,20,MPI_Send,7,7,5,0,1,,0.004,,",
        "12,42,30,MPI_Recv,8,9,5,1,0,,0.004,,",
        "40,50,10,MPI_Send,7,7,6,0,1,,0.000,,",
        "60,70,10,MPI_Bcast,7,7,,0,,0,,0.000,0.000",
        "80,81,1,MPI_Wait,7,7,,0,,,,,",
    ]
    done = cli("stats", path, "-r", "mpi_event_sum", "--process", "8", "--by", "process")
    assert done.stdout.splitlines() == [
        "PID,Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Source,Name",
        "8,100.0,30,1,30.0,30.0,30,30,0.0,p2p,MPI_Recv",
    ]
    assert table(path, "mpi_event_trace") == nsys_report(ks.read(path), "mpi_event_trace").rows()


def test_an_mpi_event_without_an_end_has_no_duration(recording: Recording) -> None:
    recording.add("MPI_OTHER_EVENTS", "MPI_Finalize", 5, None)
    path = recording.database.close()
    assert table(path, "mpi_event_sum") == []
    assert table(path, "mpi_event_trace") == [
        (5, None, None, "MPI_Finalize", 7, 7, None, None, None, None, None, None, None)
    ]
    assert findings(ks.read(path))["missing_duration"][0] == 1


def test_headings() -> None:
    headings = {name: ",".join(field.heading for field in REPORTS[name].fields) for name in REPORTS}
    times = "Time (%),Total Time (ns),{},Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),"
    assert headings["mpi_event_sum"] == times.format("Instances") + "Source,Name"
    assert headings["mpi_event_trace"] == (
        "Start (ns),End (ns),Duration (ns),Event,Pid,Tid,Tag,Rank,PeerRank,RootRank,"
        "Size (MB),CollSendSize (MB),CollRecvSize (MB)"
    )
    assert headings["openmp_sum"] == times.format("Count") + "Name"
    for name in ("openacc_sum", "syscall_sum", "vulkan_api_sum"):
        assert headings[name] == times.format("Num Calls") + "Name"
    assert headings["nvvideo_api_sum"] == times.format("Num Calls") + "Event Type,Name"
    assert headings["vulkan_gpu_marker_sum"] == times.format("Instances") + "Range"
    assert headings["network_congestion"] == ("Start (ns),End (ns),Duration (ns),Send wait rate,GUID,Name")


# Each report with events ``(table, name, start, end, further columns)`` and the rows that follow from them.
Events = Sequence[tuple[str, str | None, int, int | None, dict[str, Any]]]
SUMMARIES: list[tuple[str, Events, list[tuple[Any, ...]]]] = [
    (
        "openmp_sum",
        [
            ("OPENMP_EVENT_KIND_PARALLEL", "Parallel", 0, 100, {}),
            ("OPENMP_EVENT_KIND_PARALLEL", "Parallel", 200, 250, {}),
            ("OPENMP_EVENT_KIND_TASK", "Task", 10, 20, {}),
        ],
        [(150, 2, 75.0, 75.0, 50, 100, "Parallel"), (10, 1, 10.0, 10.0, 10, 10, "Task")],
    ),
    (
        "openacc_sum",
        [
            ("CUPTI_ACTIVITY_KIND_OPENACC_DATA", "Enqueue Upload", 0, 8, {"lineNo": 3, "srcFile": 2}),
            ("CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH", "Enqueue Launch", 10, 14, {"lineNo": 5, "srcFile": 2}),
            ("CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH", "Enqueue Launch", 20, 28, {"lineNo": 5, "srcFile": 2}),
            ("CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH", "Wait", 30, 31, {}),
        ],
        [
            (12, 2, 6.0, 6.0, 4, 8, "Enqueue Launch@gemm:5"),
            (8, 1, 8.0, 8.0, 8, 8, "Enqueue Upload@gemm:3"),
            (1, 1, 1.0, 1.0, 1, 1, "Wait"),
        ],
    ),
    (
        "syscall_sum",
        [("SYSCALL", "read", 0, 3, {}), ("SYSCALL", "read", 5, 6, {}), ("SYSCALL", "write", 7, 8, {})],
        [(4, 2, 2.0, 2.0, 1, 3, "read"), (1, 1, 1.0, 1.0, 1, 1, "write")],
    ),
    (
        "nvvideo_api_sum",
        [
            ("NVVIDEO_ENCODER_API", "NvEncEncodePicture", 0, 10, {}),
            ("NVVIDEO_DECODER_API", "cuvidDecodePicture_v2010", 0, 4, {}),
            ("NVVIDEO_DECODER_API", "cuvidDecodePicture_v2010", 6, 8, {}),
        ],
        [
            (10, 1, 10.0, 10.0, 10, 10, "Encoder", "NvEncEncodePicture"),
            (6, 2, 3.0, 3.0, 2, 4, "Decoder", "cuvidDecodePicture"),
        ],
    ),
    (
        "vulkan_api_sum",
        [
            ("VULKAN_API", "vkQueueSubmit", 0, 10, {}),
            ("VULKAN_API", "vkQueueSubmit", 20, 40, {}),
            ("VULKAN_API", "vkCreateFence", 50, 51, {}),
        ],
        [(30, 2, 15.0, 15.0, 10, 20, "vkQueueSubmit"), (1, 1, 1.0, 1.0, 1, 1, "vkCreateFence")],
    ),
    (
        # What took no time is no row, and work outside of labels is none, either.
        "vulkan_gpu_marker_sum",
        [
            ("VULKAN_WORKLOAD", "shadows", 0, 10, {}),
            ("VULKAN_WORKLOAD", "shadows", 20, 24, {}),
            ("VULKAN_WORKLOAD", "mark", 30, 30, {}),
            ("VULKAN_WORKLOAD", None, 40, 90, {}),
        ],
        [(14, 2, 7.0, 7.0, 4, 10, "shadows")],
    ),
    (
        # From the end of the call that opens a label to the start of the one that closes it.
        "vulkan_marker_sum",
        [
            ("VULKAN_DEBUG_API", "frame", 0, 2, {"correlationId": 1}),
            ("VULKAN_DEBUG_API", None, 12, 14, {"correlationId": 1}),
            ("VULKAN_DEBUG_API", "frame", 20, 21, {"correlationId": 2}),
            ("VULKAN_DEBUG_API", None, 27, 29, {"correlationId": 2}),
            ("VULKAN_DEBUG_API", "never closed", 30, 31, {"correlationId": 3}),
        ],
        [(16, 2, 8.0, 8.0, 6, 10, "frame")],
    ),
    (
        # A group that was not popped lasts to the last moment of all; one without a text has its number.
        "opengl_khr_range_sum",
        [
            ("KHR_DEBUG_EVENTS", "scene", 0, None, {"eventClass": 62}),
            ("KHR_DEBUG_EVENTS", "scene", 10, 20, {"eventClass": 62}),
            ("KHR_DEBUG_EVENTS", None, 30, 35, {"eventClass": 62, "id": 44}),
            ("KHR_DEBUG_EVENTS", "message", 100, 100, {"eventClass": 61}),
        ],
        [(110, 2, 55.0, 55.0, 10, 100, "scene"), (5, 1, 5.0, 5.0, 5, 5, "44")],
    ),
    (
        "opengl_khr_gpu_range_sum",
        [
            ("KHR_DEBUG_EVENTS", "scene", 0, 8, {"eventClass": 62}),
            ("KHR_DEBUG_EVENTS", "scene", 10, None, {"eventClass": 63}),
            ("KHR_DEBUG_EVENTS", "message", 30, 40, {"eventClass": 61}),
        ],
        [(30, 1, 30.0, 30.0, 30, 30, "scene")],
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("report", "events", "rows"), SUMMARIES, ids=[case[0] for case in SUMMARIES])
def test_summaries(recording: Recording, report: str, events: Events, rows: list[tuple[Any, ...]]) -> None:
    for source, name, start, end, values in events:
        recording.add(source, name, start, end, **values)
    path = recording.database.close()
    assert summed(path, report) == rows
    shares = [row[0] for row in table(path, report)]
    assert sum(shares) == pytest.approx(100.0)


@pytest.mark.parametrize(
    "report", [*(case[0] for case in SUMMARIES), "mpi_event_sum", "mpi_event_trace", "vulkan_api_trace",
    "network_congestion"],
)  # fmt: skip
def test_what_was_not_recorded_is_said(tmp_path: Path, cli: Cli, report: str) -> None:
    database = Database(tmp_path / "none.sqlite")
    database.kernel(0, 10)
    done = cli("stats", database.close(), "-r", report)
    assert (done.returncode, done.stdout) == (1, "")
    assert "The table is missing or empty." in done.stderr


def test_vulkan_calls(recording: Recording) -> None:
    recording.add("VULKAN_API", "vkQueueSubmit", 20, 40, eventClass=53, contextId=3, correlationId=1 << 40)
    recording.add("VULKAN_API", "vkCreateFence", 0, 5, globalTid=global_tid(7, 8), eventClass=53)
    recording.database.insert(
        "ThreadNames", nameId=recording.text("render"), priority=20, globalTid=global_tid(7, 7)
    )
    assert table(recording.database.close(), "vulkan_api_trace") == [
        (0, 5, "vkCreateFence", 53, None, None, 7, 8, None, None),
        (20, 20, "vkQueueSubmit", 53, 3, 1 << 40, 7, 7, 20, "render"),
    ]


def test_congestion(recording: Recording) -> None:
    database = recording.database
    guid = -0x1F628F0003009C3E
    database.insert("TARGET_INFO_NIC_INFO", GUID=guid, nicId=1, name="mlx5_0")
    database.insert("NIC_ID_MAP", nicId=1, globalId=900)
    for index, name in enumerate(("IB: Bytes sent", "IB: Send waits")):
        database.insert("TARGET_INFO_NETWORK_METRICS", metricsListId=0, metricsIdx=index, name=name)
    metric = {"portId": 1, "metricsListId": 0, "metricsIdx": 1}
    for start, value in ((0, 10_000), (1_000, 10_001), (2_000, 99_999)):
        database.insert("NET_NIC_METRIC", start=start, end=start + 500, globalId=900, value=value, **metric)
    database.insert(
        "NET_NIC_METRIC", start=0, end=9, globalId=900, value=10**9, **{**metric, "metricsIdx": 0}
    )
    database.insert("NET_IB_SWITCH_METRIC", start=1_500, end=1_600, globalId=0xABC, value=20_000, **metric)
    path = database.close()
    rows = [
        (1_000, 1_500, 500, 10_001.0, "0xe09d70fffcff63c2", "mlx5_0"),
        (1_500, 1_600, 100, 20_000.0, "0x0000000000000abc", None),
        (2_000, 2_500, 500, 99_999.0, "0xe09d70fffcff63c2", "mlx5_0"),
    ]
    assert table(path, "network_congestion") == rows
    assert table(path, "network_congestion:ticks_threshold=50000") == rows[2:]
    with pytest.raises(ks.errors.InvalidArgumentError, match="ticks_threshold=x is not a whole number"):
        nsys_report(ks.read(path), "network_congestion:ticks_threshold=x")


@pytest.mark.slow
def test_older_exports_lack_columns(tmp_path: Path) -> None:
    """What a table does not have is not known, and costs no row."""
    schema = {"MPI_P2P_EVENTS": f"{_EVENT}, textId INTEGER", "VULKAN_API": _EVENT}
    database = Database(tmp_path / "old.sqlite", schema=schema)
    database.insert("MPI_P2P_EVENTS", start=0, end=5, globalTid=global_tid(7, 7), textId=2)
    database.insert("VULKAN_API", start=0, end=5, globalTid=global_tid(7, 7))
    path = database.close()
    none = (None,) * 7
    assert table(path, "mpi_event_trace") == [(0, 5, 5, "gemm", 7, 7, *none)]
    assert table(path, "vulkan_api_trace") == [(0, 5, None, None, None, None, 7, 7, None, None)]
    assert summed(path, "vulkan_api_sum") == [(5, 1, 5.0, 5.0, 5, 5, None)]
