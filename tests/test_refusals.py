"""Files of other tools: each is refused with a sentence that says what it is and what to do."""

from __future__ import annotations

import json
import pickle
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import kernelscope as ks
from kernelscope.errors import NotATraceError


def refusal(path: Path) -> str:
    with pytest.raises(NotATraceError) as found:
        ks.read(path)
    text = str(found.value)
    assert "\n" not in text
    return text


class Trap:
    """Fails the test when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return pytest.fail, ("a pickle was loaded",)


def packed(**values: object) -> bytes:
    return pickle.dumps({**values, "trap": Trap()}, protocol=2)


def plane(name: bytes, *, number: bytes = b"") -> bytes:
    """An XSpace with a plane, whose length needs two bytes."""
    body = number + b"\x12" + bytes([len(name)]) + name + b"\x1a" + b"\x00" * 200
    return b"\x0a" + bytes([0x80 | len(body) & 0x7F, len(body) >> 7]) + body


FILES = {
    "export.sqlite": (bytes(4096), "nsys export --type sqlite --force-overwrite true REPORT"),
    "a.ncu-rep": (b"NVR\x00\x10\x00\x00\x00", "Nsight Compute report"),
    "renamed": (b"NVR\x00\x10\x00\x00\x00", "Nsight Compute report"),
    "host.xplane.pb": (plane(b"/host:CPU", number=b"\x08\x02"), "XPlane protobuf"),
    "device.pb": (plane(b"/device:GPU:0"), "XPlane protobuf"),
    "task.pb": (plane(b"Task Environment"), "XPlane protobuf"),
    "trace.pftrace": (b"\x0a\xd3\x02\x08\x00\x12", "Perfetto protobuf"),
    "nccl_trace_rank_0": (packed(version="2.10", pg_config={}, entries=[]), "flight recorder"),
    "snapshot.pickle": (packed(segments=[], device_traces=[]), "memory snapshot"),
    "weights.pkl": (packed(weights=[1, 2]), "never loads"),
}


@pytest.mark.parametrize("name", FILES)
def test_binary_files(name: str, tmp_path: Path) -> None:
    content, message = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    assert message in refusal(path)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"rocprofiler-sdk-tool": [{"metadata": {}, "buffer_records": {}}]}, "JSON of rocprofv3"),
        (
            {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": [{"name": "x"}]},
            "flight recorder",
        ),
        ({"segments": [], "device_traces": [[]], "allocator_settings": {}}, "memory snapshot"),
    ],
)
def test_json_of_other_tools(document: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(document))
    assert message in refusal(path)


def test_json_of_the_profiler_plugin_of_nccl(tmp_path: Path) -> None:
    events = [
        {"name": name, "cat": category, "ph": phase, "id": 0, "pid": 1, "tid": 1, "ts": 10.5}
        for name, category in (("Group API", "GROUP_API"), ("AllReduce", "COLL"), ("SendWait", "NET"))
        for phase in "be"
    ]
    path = tmp_path / "plugin.json"
    # It ends every line with a comma, and writes no closing bracket when it is killed.
    path.write_text("[\n" + "".join(json.dumps(event) + ",\n" for event in events))
    assert "NCCL profiler plugin" in refusal(path)
    # One event of a host, and it is a trace.
    path.write_text(json.dumps([*events, {**events[0], "ph": "X", "cat": "cpu_op", "dur": 1}]))
    assert ks.read(path).ops.height == 1


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (("rocpd_info_node_0000a", "rocpd_kernel_dispatch_0000a", "rocpd_string_0000a"), "rocpd convert"),
        (("rocpd_api", "rocpd_op", "rocpd_string"), "RocmProfileData"),
        (("notes",), "not an nsys export"),
        ((), "without tables"),
    ],
)
def test_databases_of_other_tools(tables: tuple[str, ...], message: str, tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 1")
        for table in tables:
            connection.execute(f'CREATE TABLE "{table}" (id INTEGER)')
    connection.close()
    assert message in refusal(path)
