"""PyProf's programs on small databases: passes, layers, sequence numbers, threads, and bad input."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelscope as ks
from kernelscope import errors
from kernelscope.cli import main
from kernelscope.compat import pyprof
from kernelscope.compat.pyprof.records import compat_short_name, parse_record, short_name
from nsys_database import Database

LINEAR = (
    "{'mod': 'torch.nn.functional', 'op': 'linear', 'args': ["
    "{'name': '', 'type': 'tensor', 'shape': (8, 64), 'dtype': 'float16'}, "
    "{'name': '', 'type': 'tensor', 'shape': (32, 64), 'dtype': 'float16'}]}"
)


class Capture:
    """A recording in the making: each launch takes 10 ns within the ranges that are named."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path)
        self.now = 1000
        self.correlation = 0

    def kernel(self, *texts: str, pid: int = 7, count: int = 1) -> None:
        """Ranges around so many launches, outermost first."""
        start = self.now
        self.now += len(texts)
        for _ in range(count):
            self.correlation += 1
            self.now += 20
            self.database.call(self.now, self.now + 10, pid=pid, correlation=self.correlation)
            self.database.kernel(self.now + 5, self.now + 50, pid=pid, correlation=self.correlation)
        self.now += 100
        for depth, text in enumerate(texts):
            self.database.range(text, start + depth, self.now - depth, pid=pid)
        self.now += 1

    def records(self, *, compat: bool = False) -> list[pyprof.KernelRecord]:
        return list(pyprof.records(ks.read(self.database.close()), compat=compat))

    def table(self) -> list[dict[str, Any]]:
        return pyprof.pyprof_table(ks.read(self.database.close())).to_dicts()


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return Capture(tmp_path / "t.sqlite")


def test_ranges_of_todays_pytorch(capture: Capture) -> None:
    capture.kernel(
        "layer:decoder",
        "aten::linear, seq = 3, op_id = 9",
        "aten::mm, seq = 4, op_id = 10, sizes = [[2, 3], [3, 4]]",
    )
    (record,) = capture.records()
    assert (record.layers, record.direction) == (["decoder"], "fprop")
    assert record.sequence_markers == ["aten::linear, seq = 3", "aten::mm, seq = 4"]
    # The innermost range makes the node of the backward pass.
    assert (record.sequence_ids, record.alternate_ids) == ([4], [3])
    assert (record.mods, record.ops, record.tid, record.pid) == (["aten"], ["mm"], 7, 7)


def test_sizes_of_pytorch_give_the_work(capture: Capture) -> None:
    capture.kernel("aten::mm, op_id = 1, sizes = [[2, 3], [3, 4]]")
    capture.kernel("aten::cat, op_id = 2, sizes = [[[2, 3], [2, 3]], []]")
    product, joined = capture.table()
    assert (product["mod"], product["op"], product["params"]) == ("aten", "mm", "[2,3];[3,4]")
    assert (product["flops"], product["bytes"]) == (2 * 2 * 3 * 4, None)
    assert (joined["op"], joined["params"], joined["flops"]) == ("cat", "[2,3];[2,3]", 0)


@pytest.mark.parametrize(
    "node", ["MmBackward0", "SumBackward1", "torch::autograd::AccumulateGrad", "aten::threshold_backward"]
)
def test_backward_nodes_of_any_number_are_backward(capture: Capture, node: str) -> None:
    capture.kernel(f"autograd::engine::evaluate_function: {node}", f"{node}, seq = 5, op_id = 3")
    (record,) = capture.records()
    assert record.direction == "bprop"


def test_pyprof_takes_some_of_them_for_forward(capture: Capture) -> None:
    for node in ("MmBackward0", "SumBackward1", "AccumulateGrad"):
        capture.kernel(f"{node}, seq = 5")
    assert [record.direction for record in capture.records(compat=True)] == ["bprop", "fprop", "fprop"]


def test_a_backward_kernel_is_explained_by_its_forward_one(capture: Capture) -> None:
    capture.kernel(
        "layer:fc", "{'traceMarker': ['/a.py:3', '/torch/_tensor.py:9']}", LINEAR, "linear, seq = 5"
    )
    capture.kernel("AddmmBackward0, seq = 5", count=2)
    forward, first, second = capture.table()
    assert forward["trace"] == first["trace"] == ["/a.py:3"]
    assert first["layer"] == second["layer"] == ["fc"]
    assert [row["op"] for row in (forward, first, second)] == ["linear"] * 3
    assert [row["sub"] for row in (forward, first, second)] == [0, 0, 1]
    assert [row["params"] for row in (first, second)] == ["M=64,N=8,K=32,fp16,", "M=64,N=32,K=8,fp16,"]
    assert [row["flops"] for row in (forward, first, second)] == [32768] * 3


def test_the_numbers_of_processes_are_kept_apart(capture: Capture) -> None:
    for pid in (7, 8):
        capture.kernel(f"layer:of {pid}", LINEAR, "linear, seq = 5", pid=pid)
    for pid in (7, 8):
        capture.kernel("AddmmBackward0, seq = 5", pid=pid)
    rows = capture.table()
    assert [row["layer"] for row in rows] == [["of 7"], ["of 8"], ["of 7"], ["of 8"]]
    assert [row["sub"] for row in rows] == [0, 0, 0, 0]


def test_the_work_of_a_call_is_counted_once(capture: Capture) -> None:
    start = capture.now
    capture.kernel(LINEAR, "linear, seq = 5", count=3)
    capture.kernel(LINEAR, "linear, seq = 6")
    capture.database.connection.execute(
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + 100 WHERE correlationId = 2"
    )
    rows = capture.table()
    assert start == 1000
    assert [row["sub"] for row in rows] == [0, 1, 2, 0]
    assert [row["flops"] for row in rows] == [0, 32768, 0, 32768]


def test_layers_with_colons_and_calls_without_arguments(capture: Capture) -> None:
    capture.kernel("layer:a:b", "my layer: c", "{'mod': 'torch', 'op': 'seed', 'args': []}")
    (record,) = capture.records()
    assert (record.layers, record.ops, record.mods) == (["a:b"], ["seed"], ["torch"])


def test_user_text_that_only_looks_like_a_marker(capture: Capture) -> None:
    text = "{'mod': __import__('os').system('false'), 'op': 'x', 'args': [], 'type': 0}"
    capture.kernel(text, "a model op with args and type")
    (record,) = capture.records()
    assert (record.markers, record.ops) == ([], [text])
    capture_again = pyprof.rows([record], compat=True)
    assert next(capture_again).params == "na=na,"


def test_kernels_without_a_launch_are_kept(capture: Capture) -> None:
    capture.database.kernel(10, 20, correlation=99)
    capture.kernel("a")
    orphan, other = capture.records()
    assert (orphan.tid, orphan.ops, other.tid) == (None, [], 7)
    assert parse_record(pyprof.format_record(orphan)).tid is None


def test_start_end_ranges_and_ranges_that_cross(capture: Capture) -> None:
    capture.database.range("epoch", 900, 1200, eventType=60)
    capture.database.range("layer:crossing", 999, 1040, domainId=3)
    capture.kernel("layer:in")
    (record,) = capture.records()
    assert (record.layers, record.ops) == (["crossing", "in"], ["epoch"])


@pytest.mark.parametrize(
    ("name", "short", "compat"),
    [
        ("void <unnamed>::softmax_warp_forward<float, 5>(float*)", "softmax_warp_forward", ""),
        ("void at::native::fill_kernel<128, 4, f<int>>(int, f)", "fill_kernel", "fill_kernel"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16>(P)", "cutlass_80_tensorop_s16816gemm_f16",
         "cutlass::Kernel2"),
        ("std::enable_if<true, void>::type foo<int>(int)", "foo", "std::enable_if"),
        ("nvjet_hsh_64x8_v_bz_TNT", "nvjet_hsh_64x8_v_bz_TNT", "nvjet_hsh_64x8_v_bz_TNT"),
        ("(anonymous namespace)::k(int)", "k", "k"),
    ],
)  # fmt: skip
def test_short_names(name: str, short: str, compat: str) -> None:
    assert (short_name(name), compat_short_name(name)) == (short, compat)


RECORD = (
    "{'kShortName': 'k', 'kDuration': 5, 'layer': [], 'trace': [], 'reprMarkers': [], 'marker': [], "
    "'seqMarker': [], 'seqId': [], 'subSeqId': 0, 'altSeqId': [], 'dir': 'fprop', 'mod': ['na'], 'op': [], "
    "'tid': 1, 'device': 0, 'stream': 7, 'grid': (1, 2, 3), 'block': (4, 5, 6), 'kLongName': 'k, \"a\"'}"
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 2 is no record of a kernel: it is no literal"),
        ("[1]", "it is no dictionary"),
        ("{'kShortName': 'k'}", "it has no 'kDuration'"),
        (RECORD.replace("'seqId': []", "'seqId': ['5']"), "'seqId' is ['5']"),
        (RECORD.replace("'kDuration': 5", "'kDuration': True"), "'kDuration' is True"),
        ("__import__('os').abort()", "it is no literal"),
        ("(" * 5000, "it is no literal"),
        ("{'a': " * 50_000, "it is no literal"),
    ],
)
def test_lines_that_are_no_records(line: str, message: str) -> None:
    with pytest.raises(errors.TraceFormatError) as caught:
        list(pyprof.read_records([RECORD, line], name="net.dict"))
    assert str(caught.value).startswith("net.dict: line 2 is no record")
    assert message in str(caught.value)


@given(st.text() | st.builds(lambda a, b: RECORD[:a] + RECORD[b:], st.integers(0, 400), st.integers(0, 400)))
def test_any_line_is_a_record_or_refused(line: str) -> None:
    try:
        record = parse_record(line)
    except ValueError:
        return
    assert len(list(pyprof.rows([record]))) == len(list(pyprof.rows([record], compat=True))) == 1


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "net.dict"
    path.write_text(RECORD + "\n\n" + RECORD + "\n")
    return path


def test_csv_is_quoted_where_it_must_be(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prof", "--csv", "-c", "idx,kernel,grid,flops,tc", records) == 0
    header, first, second = csv.reader(io.StringIO(capsys.readouterr().out))
    assert header == ["Idx", "Kernel", "Grid", "FLOPs", "TC"]
    assert (first, second[0]) == (["1", "k", "1,2,3", "", "0"], "2")


def test_json_and_parquet(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prof", "--format", "json", "-c", "idx,grid,sil", records) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == [{"idx": index, "grid": [1, 2, 3], "sil": 5} for index in (1, 2)]
    link, out = tmp_path / "link.parquet", tmp_path / "net.parquet"
    link.symlink_to(out)
    assert run("prof", "--format", "parquet", "-c", "all", "--out", link, records) == 0
    assert link.is_symlink()
    frame = pl.read_parquet(out)
    assert (frame.columns, frame.height) == (list(pyprof.COLUMNS), 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.parquet", "net.dict", "net.parquet"]


def test_standard_input(
    records: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(RECORD))
    assert run("prof") == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header == "Idx Direction Sub Module Op Kernel Params Sil(ns)"
    assert line == "1 fprop 0 na  k  5"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-c", "idx,nope"], "no column 'nope'; the columns are idx,seq"),
        (["-w", "20"], "at least 55 wide"),
        (["--format", "parquet"], "--out"),
        (["--compat", "--format", "json"], "--compat"),
        (["-w", "-1"], "at least 0"),
    ],
)
def test_usage(records: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert run("prof", *arguments, records) == 2
    assert message in capsys.readouterr().err


def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prof", tmp_path / "none") == 1
    assert "no such file" in capsys.readouterr().err
    assert run("prof", tmp_path) == 1
    assert run("parse", tmp_path / "none") == 1


def test_a_database_without_kernels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Database(tmp_path / "t.sqlite").close()
    assert run("parse", path) == 0
    assert capsys.readouterr().err == "kernelscope: found no kernels\n"
    assert run("prof", path) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_where_pyprof_aborts_the_report_goes_on(capture: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    capture.kernel(LINEAR.replace("float16", "bfloat16"))
    capture.kernel(LINEAR)
    path = capture.database.close()
    # PyProf takes the kernel of this database for one that multiplies, and knows no bfloat16.
    assert run("prof", "--compat", "-c", "idx,flops", path) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["Idx FLOPs", "1 -", "2 32768"]
    assert "at 1 of these kernels PyProf ends its report" in err
    assert run("prof", "-c", "idx,params,flops,bytes", path) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-2:] == ["32768", "5632"]
