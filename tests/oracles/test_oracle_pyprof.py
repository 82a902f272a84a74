"""PyProf's two programs against what PyProf itself writes, byte for byte."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from traces import ORACLES, SHARED, need

import kernelscope as ks
from kernelscope.cli import main
from kernelscope.compat import pyprof

if TYPE_CHECKING:
    from pathlib import Path

PYPROF = ORACLES / "pyprof"
H100 = SHARED / "traces" / "nsys" / "h100-2gpu-emit-nvtx-2026.2.sqlite"
GRAPHS = SHARED / "traces" / "nsys" / "cuda-graphs-2025.5.2.sqlite"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "golden"),
    [
        (["--csv", "-c", "all"], "golden.csv"),
        (["-w", "150"], "golden_w150.txt"),
        ([], "golden_space.txt"),
    ],
)
def test_the_report(capsys: pytest.CaptureFixture[str], options: list[str], golden: str) -> None:
    records = need(PYPROF / "golden.dict")
    assert printed(capsys, "prof", "--compat", *options, records) == (PYPROF / golden).read_text()


@pytest.mark.parametrize("name", ["e2e_nsys.sqlite", "e2e_nvprof.sql"])
def test_the_records_of_a_database(capsys: pytest.CaptureFixture[str], name: str) -> None:
    database = need(PYPROF / name)
    before = database.read_bytes()
    golden = (PYPROF / name).with_suffix(".dict").read_text()
    assert printed(capsys, "parse", "--compat", database) == golden
    assert database.read_bytes() == before


def test_the_database_itself_and_its_records_give_one_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    database = need(PYPROF / "e2e_nsys.sqlite")
    of_database = printed(capsys, "prof", "--compat", "--csv", "-c", "all", database)
    assert of_database == printed(capsys, "prof", "--compat", "--csv", "-c", "all", PYPROF / "e2e_nsys.dict")
    first = of_database.splitlines()[1]
    assert first.endswith('"M=32,N=8,K=64,fp16,","150","1","0","7","2,1,1","128,1,1","32768","3328"')


# FLOPs and bytes that PyProf's README shows; None where it shows 0 for a convolution it does not know.
README = [
    (51380224, 205520896),
    (1644167168, 51388416),
    (12845056, 51380224),
    (6576668672, 128483328),
    (411041792, 411041792),
    *[(0, 0)] * 5,
]


def test_the_rows_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(
        capsys, "prof", "--compat", "-c", "flops,bytes", "--csv", need(PYPROF / "readme_rows.dict")
    )
    rows = [(int(float(a)), int(float(b))) for a, b in list(csv.reader(io.StringIO(text)))[1:]]
    assert rows == README


def test_records_are_read_and_written_without_loss() -> None:
    for name in ("golden.dict", "e2e_nsys.dict", "readme_rows.dict"):
        lines = need(PYPROF / name).read_text().splitlines()
        assert [pyprof.format_record(record) for record in pyprof.read_records(lines)] == lines


def test_a_repaired_report_differs_where_pyprof_errs() -> None:
    """What is repaired, on its own records: every difference is one that the documentation names."""
    lines = need(PYPROF / "golden.dict").read_text().splitlines()
    records = list(pyprof.read_records(lines))
    ours = pyprof.pyprof_table(records).to_dicts()
    theirs = [row._asdict() for row in pyprof.rows(records, compat=True)]
    tags = (PYPROF / "golden.tags").read_text().splitlines()
    same = {"idx", "seq", "altseq", "tid", "layer", "trace", "dir", "sub", "mod", "op", "kernel", "sil"}
    for our, their in zip(ours, theirs, strict=True):
        assert {name: our[name] for name in same} == {name: their[name] for name in same}
    by_tag: dict[str, Any] = dict(zip(tags, ours, strict=True))
    # (8, 64) by (32, 64) with a bias: all three matrices and the bias count with 2 bytes an element.
    assert by_tag["linear fprop"]["bytes"] == 2 * (8 * 64 + 32 * 64 + 8 * 32 + 32)
    assert by_tag["linear fprop splitK"]["flops"] == 0
    assert by_tag["matmul batched"]["bytes"] == 2 * (3 * 8 * 64 + 64 * 32 + 3 * 8 * 32)
    assert by_tag["conv2d xmma sm80"]["flops"] == 2 * 32 * 54 * 54 * 128 * 64 * 9
    # A head of 2, 4 queries and keys of size 8: two products.
    assert by_tag["sdpa"]["flops"] == 2 * 2 * 2 * 4 * 4 * 8
    assert by_tag["no marker"]["flops"] is None
    # A product of ordinary multiply-adds, whatever else its name says.
    assert by_tag["linear ffma xmma"]["tc"] == 0


def test_todays_emit_nvtx_traces_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    """PyProf fails on the text after the sequence numbers, or drops half of the kernels."""
    trace = ks.read(need(H100))
    table = pyprof.pyprof_table(trace)
    kernels = trace.gpu_ops.filter(pl.col("kind") == "kernel")
    assert table.height == kernels.height == 3442
    named = table.filter(pl.col("op") != "")
    assert named.height == 1632
    assert set(named["op"].unique()) >= {"aten::linear", "aten::mul", "aten::reshape"}
    assert table["kernel"].str.len_chars().min() > 0
    assert printed(capsys, "parse", "--compat", H100).count("\n") == 1632


def test_a_database_without_ranges_is_read() -> None:
    table = pyprof.pyprof_table(ks.read(need(GRAPHS)))
    assert table.select("op", "params", "flops").unique().rows() == [("", "", None)]
