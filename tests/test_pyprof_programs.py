"""PyProf's programs on small databases: passes, layers, sequence numbers, threads, and bad input."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import draws
import kernelscope as ks
from kernelscope import errors
from kernelscope.cli import main
from kernelscope.compat import pyprof
from kernelscope.compat.pyprof.kernels import kernels_of
from kernelscope.compat.pyprof.names import compat_short_name, short_name
from kernelscope.compat.pyprof.records import gathered, parse_record, record_lines
from kernelscope.compat.pyprof.rows import compat_parts
from nsys_database import Database
from oracles.traces import ORACLES

GOLDEN = ORACLES / "pyprof" / "golden.dict"
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


def compat_row(record: pyprof.KernelRecord) -> dict[str, Any]:
    (part,) = compat_parts(gathered([record]), list(pyprof.COLUMNS))
    return part.row(0, named=True)


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
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = end + 100, streamId = 8 WHERE correlationId = 2"
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
    assert compat_row(record)["params"] == "na=na,"


def test_text_that_cannot_be_written(capture: Capture) -> None:
    half = r"\ud800"
    capture.kernel(
        f"{{'traceMarker': ['/a.py:{half}']}}", f"{{'mod': '{half}', 'op': 'f{half}', 'args': []}}", "layer:a"
    )
    (row,) = capture.table()
    assert (row["trace"], row["mod"], row["op"]) == (["/a.py:?"], "?", "f?")


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
        ("nonsense", "line 2 is not a record of a kernel: it is not a literal"),
        ("[1]", "it is not a dictionary"),
        ("{'kShortName': 'k'}", "it has no 'kDuration'"),
        (RECORD.replace("'seqId': []", "'seqId': ['5']"), "'seqId' is ['5']"),
        (RECORD.replace("'kDuration': 5", "'kDuration': True"), "'kDuration' is True"),
        (RECORD.replace("'tid': 1", "'tid': 9223372036854775808"), "'tid' is 9223372036854775808"),
        (RECORD.replace("'op': []", r"'op': ['\ud800']"), r"'op' is ['\ud800']"),
        ("__import__('os').abort()", "it is not a literal"),
        ("(" * 5000, "it is not a literal"),
        ("{'a': " * 50_000, "it is not a literal"),
    ],
)
def test_lines_that_are_no_records(line: str, message: str) -> None:
    with pytest.raises(errors.TraceFormatError) as caught:
        list(pyprof.read_records([RECORD, line], name="net.dict"))
    assert str(caught.value).startswith("net.dict: line 2 is not a record")
    assert message in str(caught.value)


def test_a_bad_line_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.dict"
    path.write_text("nonsense\n" + RECORD + "\n[1]\n" + RECORD + "\n")
    monkeypatch.setenv("COLUMNS", "1000")
    assert run("prof", "-c", "idx,kernel", path) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["Idx Kernel", "1 k", "2 k"]
    assert "2 lines are skipped (not a valid kernel record); line 1: it is not a literal" in " ".join(
        err.split()
    )
    assert run("prof", "-c", "idx", "--allow-loss", path) == 0
    assert run("prof", "-c", "idx", "--strict", path) == 1
    assert "line 1 is not a record of a kernel" in " ".join(capsys.readouterr().err.split())


def test_another_file_is_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.md"
    path.write_text("# Notes\n\nNothing of PyProf.\n")
    assert run("prof", path) == 1
    message = " ".join(capsys.readouterr().err.split())
    assert "notes.md: is not a trace, and contains no kernel records" in message


def tensor(*shape: int, dtype: str = "float32") -> dict[str, object]:
    return {"name": "", "type": "tensor", "shape": shape, "dtype": dtype}


# Functions that only PyProf has a model for, and calls that kernelscope.capture writes with names.
COUNTED = {
    "cat": ({"mod": "torch", "op": "cat", "args": [tensor(8, 64), tensor(8, 64)]}, 0, 2 * 2 * 8 * 64 * 4),
    "half": ({"mod": "Tensor", "op": "half", "args": [tensor(8, 64)]}, 0, 8 * 64 * 6),
    "randperm": (
        {"mod": "torch", "op": "randperm", "args": [{"name": "", "type": "int", "value": 100}]}, 300, 800,
    ),
    "add_ with alpha": (
        {"mod": "Tensor", "op": "add_", "args": [
            tensor(8, 64), tensor(8, 64), {"name": "alpha", "type": "float", "value": -0.1},
        ]}, 8 * 64, 3 * 8 * 64 * 4,
    ),
    "addcmul_ with value": (
        {"mod": "Tensor", "op": "addcmul_", "args": [
            tensor(64), tensor(64), tensor(64), {"name": "value", "type": "float", "value": 0.1},
        ]}, 3 * 64, 4 * 64 * 4,
    ),
}  # fmt: skip


# PyProf's figures depend on the kernel, too: of cells on its place, of convolutions on its name.
CELL = [tensor(16, 128), tensor(16, 256)]
OF_KERNELS = {
    "zeros": ("torch", "zeros", [{"name": "", "type": "tuple", "value": (3, 4)}], "k", 0, 3 * 4 * 4),
    "adam": ("fused_adam_cuda", "adam", [tensor(64)] * 5, "k", 0, 7 * 64 * 4),
    "LSTMCell": ("LSTMCell", "forward", CELL, "volta_sgemm_128x64_nn", 2 * 1024 * 16 * 128, 598016),
    "GRUCell": ("GRUCell", "forward", CELL, "volta_sgemm_128x64_nn", 2 * 768 * 16 * 128, 450560),
    "masked_scatter_": (
        "Tensor", "masked_scatter_", [tensor(8, 64), tensor(8, 64, dtype="uint8"), tensor(8, 64)], "k",
        0, 8 * 64 * 9,
    ),
    "gradient of a bias": (
        "torch.nn.functional", "conv2d", [tensor(32, 64, 56, 56), tensor(128, 64, 3, 3)], "calc_bias_diff",
        32 * 128 * 54 * 54, 2 * 4 * 32 * 128 * 54 * 54,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_KERNELS)
def test_figures_that_pyprof_has_of_kernels(name: str) -> None:
    mod, op, args, kernel, flops, moved = OF_KERNELS[name]
    way = "bprop" if kernel == "calc_bias_diff" else "fprop"
    marker = repr({"mod": mod, "op": op, "args": args})
    record = replace(parse_record(RECORD), markers=[marker], ops=[op], short_name=kernel, direction=way)
    (row,) = pyprof.pyprof_table([record]).to_dicts()
    assert (row["flops"], row["bytes"]) == (flops, moved)


@pytest.mark.parametrize("name", COUNTED)
def test_figures_that_pyprof_has(name: str) -> None:
    marker, flops, moved = COUNTED[name]
    record = replace(parse_record(RECORD), markers=[repr(marker)], mods=["torch"], ops=[str(marker["op"])])
    (row,) = pyprof.pyprof_table([record]).to_dicts()
    assert (row["flops"], row["bytes"]) == (flops, moved)


def test_figures_of_a_convolution_that_only_pyprof_counts() -> None:
    """Its own model prints a fraction; an argument by a name without a place is none of kernelscope's."""
    args = [tensor(32, 64, 56, 56), tensor(128, 64, 3, 3), {"name": "x", "type": "int", "value": 1}]
    marker = repr({"mod": "torch.nn.functional", "op": "conv2d", "args": args})
    kernel = "volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f"
    record = replace(parse_record(RECORD), markers=[marker], ops=["conv2d"], short_name=kernel)
    (row,) = pyprof.pyprof_table([record]).to_dicts()
    assert row["flops"] == 2 * 32 * 54 * 54 * 128 * 64 * 9


def test_figures_beyond_any_gpu_are_not_known() -> None:
    marker = repr({"mod": "fused_adam_cuda", "op": "adam", "args": [tensor(1 << 62)] * 5})
    (row,) = pyprof.pyprof_table([replace(parse_record(RECORD), markers=[marker])]).to_dicts()
    assert row["bytes"] is None


@pytest.mark.skipif(not GOLDEN.is_file(), reason=f"{GOLDEN} is not there")
def test_no_figure_of_pyprof_is_missing() -> None:
    with GOLDEN.with_suffix(".csv").open() as file:
        theirs = list(csv.DictReader(file))
    ours = pyprof.pyprof_table(pyprof.read_records(GOLDEN.read_text().splitlines())).to_dicts()
    assert len(ours) == len(theirs) == 100
    for row, printed in zip(ours, theirs, strict=True):
        for column, header in (("flops", "FLOPs"), ("bytes", "Bytes")):
            assert row[column] is not None or float(printed[header]) == 0, (row["op"], column)


@given(st.text() | st.builds(lambda a, b: RECORD[:a] + RECORD[b:], st.integers(0, 400), st.integers(0, 400)))
def test_any_line_is_a_record_or_refused(line: str) -> None:
    try:
        record = parse_record(line)
    except ValueError:
        return
    assert pyprof.pyprof_table([record]).height == len([compat_row(record)]) == 1


def run(*arguments: str | Path) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "net.dict"
    path.write_text(RECORD + "\n\n" + RECORD + "\n")
    return path


TEXTS = [
    LINEAR, "layer:a", "layer:a, seq = 3", "{'traceMarker': ['/a.py:3']}", "relu", "aten::mm", "mm", "1mm",
    "ReluBackward0", "autograd::engine::evaluate_function: ReluBackward0", "100%d", "strRepr",
    "CheckpointFunctionBackward",
    LINEAR.replace("'args': [", "'args': [{'name': '', 'type': 'int', 'value': 3}, "),
]  # fmt: skip
STACKS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(TEXTS), st.none() | st.sampled_from([0, 1, 2, 12])), max_size=4),
        st.integers(1, 3),
        st.sampled_from([7, 8]),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.slow
@settings(max_examples=draws.count(60, 1_200))
@given(stacks=STACKS, compat=st.booleans())
def test_lines_table_and_records_agree(
    tmp_path_factory: pytest.TempPathFactory, stacks: list[Any], compat: bool
) -> None:
    """The three forms of an answer about ranges of every kind, with numbers that are equal or are not."""
    capture = Capture(tmp_path_factory.mktemp("drawn") / "t.sqlite")
    for texts, count, pid in stacks:
        named = [text if number is None else f"{text}, seq = {number}, op_id = 1" for text, number in texts]
        capture.kernel(*named, count=count, pid=pid)
    trace = ks.read(capture.database.close())
    found = list(pyprof.records(trace, compat=compat))
    lines = list(record_lines(kernels_of(trace, compat=compat)))
    inside = {"pid": None, "calls": (), "node": None}
    assert [replace(record, **inside) for record in found] == list(map(parse_record, lines))
    assert list(map(pyprof.format_record, found)) == lines
    if not compat:
        assert pyprof.pyprof_table(trace).equals(pyprof.pyprof_table(found))
    columns = [*pyprof.COLUMNS]
    ours, theirs = (
        pl.concat(compat_parts(kernels, columns))
        for kernels in (kernels_of(trace, compat=True), gathered(pyprof.records(trace, compat=True)))
    )
    assert ours.equals(theirs)


def test_a_column_may_be_asked_for_twice(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("prof", "-c", "idx,sil,idx", records) == 0
    assert capsys.readouterr().out.splitlines() == ["Idx Sil(ns) Idx", "1 5 1", "2 5 2"]
    assert run("prof", "-c", "idx,sil,idx", "--csv", records) == 0
    assert capsys.readouterr().out.splitlines()[0] == "Idx,Sil(ns)"


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
    assert line == "1 fprop 0 na - k - 5"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-c", "idx,nope"], "no column 'nope'; the columns are idx,seq"),
        (["-w", "20"], "at least 55 characters"),
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
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "kernelscope: found no kernels\n")


def test_where_pyprof_aborts_the_report_goes_on(capture: Capture, capsys: pytest.CaptureFixture[str]) -> None:
    capture.kernel(LINEAR.replace("float16", "bfloat16"))
    capture.kernel(LINEAR)
    path = capture.database.close()
    # PyProf takes the kernel of this database for one that multiplies, and knows no bfloat16.
    assert run("prof", "--compat", "-c", "idx,flops", path) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == ["Idx FLOPs", "1 -", "2 32768"]
    assert "PyProf aborts its report with an error at 1 of these kernels" in err
    assert run("prof", "-c", "idx,params,flops,bytes", path) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[-2:] == ["32768", "5632"]
