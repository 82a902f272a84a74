"""What NCCL tells in the payloads of NVTX ranges, as nsys exports them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.analysis import communication
from nsys_database import SCHEMA, Database, findings

COMMUNICATOR = 0xFEDC_BA98_7654_3210
SCHEMAS = {
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId INTEGER, schemaId INTEGER, idx INTEGER, flags INTEGER,"
    " type INTEGER, name TEXT, description TEXT, arrayOrUnionDetail INTEGER, offset INTEGER",
    "NVTX_PAYLOAD_ENUM_ENTRIES": "domainId INTEGER, schemaId INTEGER, idx INTEGER, name TEXT, value INTEGER,"
    " isFlag INTEGER",
    "NVTX_EVENTS": f"{SCHEMA['NVTX_EVENTS']}, jsonText TEXT, binaryData TEXT",
}
# Entries of each schema: type, name and offset, as NCCL registers them; 18 is a uint64, 5 an int, 22 a size.
OPERATION = 16_777_232
INIT, REDUCTION, PLAIN, PEER = 16_777_218, 16_777_219, 16_777_220, 16_777_226
ID, SIZE = (18, "NCCL communicator ID", None), (22, "Message size [bytes]", 8)
ENTRIES = {
    INIT: [ID, (5, "No. of ranks", 8), (5, "Rank", 12), (5, "CUDA device", 16)],
    REDUCTION: [ID, SIZE, (OPERATION, "Reduction operation", 16)],
    PLAIN: [ID, SIZE],
    PEER: [ID, SIZE, (5, "Peer rank", 16)],
}
FORMATS = {INIT: "<Qiiixxxx", REDUCTION: "<QQixxxx", PLAIN: "<QQ", PEER: "<QQixxxx"}
KERNELS = {
    20: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)",
    21: "ncclDevKernel_SendRecv",
    22: "ncclDevKernel_AllGather_RING_LL",
}


def blob(schema: int, *values: int, domain: int = 1) -> bytes:
    payload = struct.pack(FORMATS[schema], *values)
    return struct.pack("<QQQQ", domain, schema, len(payload), 32 + len(payload)) + payload


class NcclDatabase(Database):
    """A database in which NCCL described its calls."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, schema=SCHEMAS)
        self.connection.executemany("INSERT INTO StringIds VALUES (?, ?)", KERNELS.items())
        # Every process registers the same schemas.
        for _ in range(2):
            for schema, entries in ENTRIES.items():
                for number, (kind, name, offset) in enumerate(entries):
                    self.insert(
                        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                        domainId=1, schemaId=schema, idx=number, type=kind, name=name, offset=offset,
                    )  # fmt: skip
            for value, name in enumerate(("Sum", "Product", "Max")):
                self.insert(
                    "NVTX_PAYLOAD_ENUM_ENTRIES",
                    domainId=1,
                    schemaId=OPERATION,
                    idx=value,
                    name=name,
                    value=value,
                )

    def init(self, *, rank: int = 1, pid: int = 7) -> None:
        values = {"domainId": 1, "binaryData": blob(INIT, COMMUNICATOR, 2, rank, 0)}
        self.range("ncclCommInitRankConfig", 1, 9, pid=pid, **values)

    def nccl(self, name: str, start: int, end: int, payload: bytes | None = None, **changes: Any) -> int:
        return self.range(name, start, end, domainId=1, binaryData=payload, **changes)

    def launch(self, start: int, kernel: int, *, correlation: int) -> None:
        self.call(start, start + 5, correlation=correlation)
        self.kernel(start + 100, start + 1100, correlation=correlation, demangledName=kernel)


def test_a_kernel_has_what_its_call_told(tmp_path: Path) -> None:
    database = NcclDatabase(tmp_path / "nccl.sqlite")
    database.init()
    database.nccl("ncclAllReduce", 100, 200, blob(REDUCTION, COMMUNICATOR, 4096, 2))
    database.launch(150, 20, correlation=1)
    database.nccl("ncclAllGather", 2100, 2200, blob(PLAIN, COMMUNICATOR, 1024))
    database.launch(2150, 22, correlation=2)
    trace = ks.read(database.close())
    told = trace.collectives.filter(pl.col("source") == "gpu_op")
    columns = ("name", "bytes", "group_size", "rank", "process_group", "reduction")
    group = "0xfedcba9876543210"
    assert told.select(columns).rows() == [
        ("ncclAllReduce", 4096, 2, 1, group, "Max"),
        ("ncclAllGather", 1024, 2, 1, group, None),
    ]
    ranges = trace.collectives.filter(pl.col("source") == "range")
    assert ranges["group_size"].to_list() == [2, 2, 2]
    found = communication([trace]).sort("kind").select("kind", "group_size", "message_bytes")
    assert found.rows() == [("all_gather", 2, 2048), ("all_reduce", 2, 4096)]
    assert "payloads_left_out" not in findings(trace)


def test_kernels_of_groups_have_what_their_calls_told(tmp_path: Path) -> None:
    database = NcclDatabase(tmp_path / "groups.sqlite")
    database.init(rank=0)
    # Both directions of one exchange are one kernel.
    database.nccl("ncclGroupStart", 10, 11)
    database.nccl("ncclSend", 12, 13, blob(PEER, COMMUNICATOR, 500, 1))
    database.nccl("ncclRecv", 14, 15, blob(PEER, COMMUNICATOR, 700, 1))
    database.nccl("ncclGroupEnd", 20, 100)
    database.launch(50, 21, correlation=1)
    # A group in a group, and two kernels for three calls: nobody knows which has how much.
    database.nccl("ncclGroupStart", 2000, 2001)
    database.nccl("ncclGroupStart", 2002, 2003)
    for number in range(3):
        at = 2010 + 10 * number
        database.nccl("ncclAllReduce", at, at + 5, blob(REDUCTION, COMMUNICATOR, 64, 0))
    database.nccl("ncclGroupEnd", 2050, 2055)
    database.nccl("ncclGroupEnd", 2060, 2200)
    database.launch(2100, 20, correlation=2)
    database.launch(2150, 20, correlation=3)
    trace = ks.read(database.close())
    told = trace.collectives.filter(pl.col("source") == "gpu_op")
    columns = ("name", "bytes", "source_rank", "destination_rank")
    assert told.select(columns).rows() == [
        (None, 500, 0, 1),
        ("ncclAllReduce", None, None, None),
        ("ncclAllReduce", None, None, None),
    ]
    found = communication([trace]).select("kind", "message_bytes")
    assert set(found.rows()) == {("send_recv", 500), ("all_reduce", None)}


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (blob(PLAIN, COMMUNICATOR, 64)[:-1], "bad_payload"),
        (b"", "bad_payload"),
        (struct.pack("<QQQQ", 1, PLAIN, 2**63, 2**64 - 1) + bytes(16), "bad_payload"),
        (blob(PLAIN, COMMUNICATOR, 64, domain=2), "unknown_payload"),
    ],
    ids=["cut off", "empty", "size beyond its end", "domain without schemas"],
)
def test_payloads_that_no_schema_fits_are_counted(tmp_path: Path, payload: bytes, code: str) -> None:
    database = NcclDatabase(tmp_path / "bad.sqlite")
    rowid = database.nccl("ncclAllGather", 100, 200, payload)
    database.launch(150, 22, correlation=1)
    trace = ks.read(database.close())
    assert findings(trace)[code] == (1, "NVTX_EVENTS", rowid)
    assert trace.collectives.is_empty()
    assert communication([trace])["message_bytes"].to_list() == [None]


def test_an_export_without_blobs_names_the_option_once(tmp_path: Path) -> None:
    database = NcclDatabase(tmp_path / "without.sqlite")
    for number in range(3):
        database.nccl("ncclAllReduce", 100 * number, 100 * number + 50)
    trace = ks.read(database.close())
    assert findings(trace)["payloads_left_out"][0] == 1
    message = trace.diagnostics.filter(pl.col("code") == "payloads_left_out")["message"].item()
    assert "--include-blobs=true" in message


def test_the_same_values_may_stand_in_json(tmp_path: Path) -> None:
    database = NcclDatabase(tmp_path / "json.sqlite")
    text = '{"NCCL communicator ID": 7, "Message size [bytes]": 64}'
    database.range("ncclAllReduce", 100, 200, domainId=1, jsonText=text)
    database.launch(150, 20, correlation=1)
    trace = ks.read(database.close())
    assert trace.collectives.select("bytes", "process_group").rows() == [(64, "0x0000000000000007")] * 2


def test_ranks_in_files_of_their_own_are_matched_by_communicator(tmp_path: Path) -> None:
    traces = []
    for rank, start in enumerate((100, 400)):
        database = NcclDatabase(tmp_path / f"rank{rank}.sqlite")
        database.init(rank=rank)
        database.nccl("ncclAllReduce", start, start + 100, blob(REDUCTION, COMMUNICATOR, 4096, 0))
        database.launch(start + 50, 20, correlation=1)
        traces.append(ks.read(database.close()))
    (row,) = communication(traces, by=("kind", "group", "message_bytes")).to_dicts()
    assert (row["group"], row["message_bytes"], row["collectives"]) == ("0xfedcba9876543210", 4096, 1)
    assert (row["calls"], row["incomplete"]) == (2, 0)
