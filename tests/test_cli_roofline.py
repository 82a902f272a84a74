"""``kernelscope roofline``: its forms, its options, and how it fails."""

import csv
import io
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """A product and an operator of one's own, each with a kernel, on a GPU of the table."""
    host: dict[str, Any] = {"ph": "X", "pid": 7, "tid": 7}
    device = {"id": 0, "name": "Tesla V100-SXM2-32GB", "totalGlobalMem": 32 * 2**30, "warpSize": 32}
    types = {"Input type": ["c10::Half", "c10::Half"]}
    events: list[dict[str, Any]] = []
    for number, (name, dims) in enumerate(
        [("aten::mm", [[1024, 1024], [1024, 1024]]), ("mylib::twice", [[4096], [1]])], start=1
    ):
        start = 100 * number
        ids = {"External id": number, "correlation": number}
        op = {"External id": number, "Input Dims": dims, **types}
        events += [
            {**host, "cat": "cpu_op", "name": name, "ts": start, "dur": 50, "args": op},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 5, "dur": 5,
             "args": ids},
            {"ph": "X", "cat": "kernel", "name": "<script>alert('kernel')</script>", "pid": 0, "tid": 7,
             "ts": start + 20, "dur": 40, "args": {**ids, "device": 0, "stream": 7}},
        ]  # fmt: skip
    path = tmp_path / "traced.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [device], "traceEvents": events}))
    return path


def test_text(cli: Run, traced: Path) -> None:
    done = cli("roofline", traced)
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("v100-sxm2", "known for 50.00 %", "aten::mm", "compute", "42.9", "mylib::twice", "no model"):
        assert part in done.stdout
    assert "\x1b" not in done.stdout


def test_json(cli: Run, traced: Path) -> None:
    document = json.loads(cli("roofline", traced, "--format", "json").stdout)
    assert document["gpus"][0]["gpu"] == "v100-sxm2"
    assert document["roofline"][0]["flops"] == 2 * 1024**3
    assert document["coverage"][0]["status"] == "exact"
    assert document["findings"][0]["code"] == "cost_unknown_op"
    assert document["efficiency"][0]["peak_flops_per_s"] == 125e12


def test_tables(cli: Run, traced: Path, tmp_path: Path) -> None:
    done = cli("roofline", traced, "--format", "csv", "--by", "kernel,name")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["name"] for row in rows] == ["aten::mm", "mylib::twice"]
    assert rows[1]["flops"] == ""
    assert cli("roofline", traced, "--format", "parquet", "--out", "table.parquet").returncode == 0
    assert pl.read_parquet(tmp_path / "table.parquet")["name"].to_list() == ["aten::mm", "mylib::twice"]


def test_the_page_needs_nothing_from_outside(cli: Run, traced: Path, tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="Plotly, which draws the page, is not installed")
    done = cli("roofline", traced, "--format", "html", "--by", "kernel,name", "--out", "page.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    page = (tmp_path / "page.html").read_text()
    own = page[page.rindex("</script>\n</head>") :]
    # The library's own text stands apart; what is written around it names no place to load from.
    assert not re.search(r"https?:|//cdn|src=|<link", page[: page.index("<script>")] + own)
    assert page.count("</script>") == 2
    assert "alert('kernel')</script>" not in own
    figure = json.loads(own[own.index("const figure = ") + 15 : own.index(";\nPlotly.newPlot")])
    markers = [trace for trace in figure["data"] if trace["mode"] == "markers"]
    assert [len(trace["x"]) for trace in markers] == [1]
    assert "&lt;script&gt;" in markers[0]["text"][0]
    roofs = [text for trace in figure["data"] if trace["mode"] != "markers" for text in trace["text"] if text]
    assert roofs == ["v100-sxm2: memory, 900 GB/s", "v100-sxm2: fp16, 125 TFLOP/s"]


def test_measured_peaks_and_another_gpu(cli: Run, traced: Path) -> None:
    arguments = (
        "--format",
        "json",
        "--gpu",
        "h100-sxm5",
        "--peak",
        "fp16=700T",
        "--peak",
        "bandwidth=2.5e12",
    )
    document = json.loads(cli("roofline", traced, *arguments).stdout)
    assert document["gpus"][0]["gpu"] == "h100-sxm5"
    assert document["gpus"][0]["measured"] == {"fp16": 700e12, "bandwidth": 2.5e12}
    assert document["roofline"][0]["attainable_ns"] == round(2 * 1024**3 / 700e12 * 1e9)


def test_other_conventions(cli: Run, traced: Path) -> None:
    document = json.loads(cli("roofline", traced, "--format", "json", "--convention", "torch").stdout)
    assert document["convention"] == "torch"
    assert {row["name"]: row["bytes_read"] for row in document["roofline"]}["aten::mm"] is None


MODELS = """
from kernelscope.costs import Call, Cost, operator

@operator("mylib::twice")
def twice(call: Call) -> Cost:
    x = call.tensor(0)
    return Cost(x.numel, x.read, x.nbytes, x.dtype)
"""


def test_models_of_ones_own(cli: Run, traced: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODELS)
    document = json.loads(cli("roofline", traced, "--format", "json", "--costs", "mine.py").stdout)
    assert {row["name"]: row["flops"] for row in document["roofline"]}["mylib::twice"] == 4096
    assert document["findings"] == []


def test_a_file_of_models_that_fails_costs_only_its_models(cli: Run, traced: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no such thing')")
    done = cli("roofline", traced, "--format", "json", "--costs", "broken.py")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert "no such thing" in done.stderr
    finding = document["findings"][0]
    assert (finding["code"], finding["severity"], finding["count"]) == ("cost_file_failed", "lost", 1)
    assert document["roofline"][0]["flops"] == 2 * 1024**3


@pytest.mark.parametrize(
    "failure", ["raise KeyError('x')", "raise RuntimeError('x')", "return 7", "1 / 0", "call.nothing()"]
)
def test_a_model_that_fails_costs_only_its_row(cli: Run, traced: Path, tmp_path: Path, failure: str) -> None:
    text = MODELS.replace("x = call.tensor(0)", failure)
    (tmp_path / "broken.py").write_text(text)
    done = cli("roofline", traced, "--format", "json", "--costs", "broken.py")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    finding = document["findings"][0]
    assert (finding["name"], finding["count"]) == ("mylib::twice", 1)
    assert finding["code"] in ("cost_model_failed", "cost_missing_shape")
    assert {row["name"]: row["flops"] for row in document["roofline"]} == {
        "aten::mm": 2 * 1024**3,
        "mylib::twice": None,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "html"],
        ["--format", "parquet"],
        ["--gpu", "Mystery 9000"],
        ["--peak", "bf16"],
        ["--peak", "bf16=fast"],
        ["--peak", "bf16=-3"],
        ["--by", "nonsense"],
        ["--by", ""],
        ["--costs", "missing.py"],
        ["--convention", "mine"],
        ["--top", "0"],
    ],
)
def test_usage(cli: Run, traced: Path, arguments: list[str]) -> None:
    done = cli("roofline", traced, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_a_trace_without_gpu_work(cli: Run, tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    op["args"] = {"Input Dims": [[8, 64], [64, 32]], "Input type": ["float", "float"]}
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [op]}))
    done = cli("roofline", path)
    assert done.returncode == 0
    assert "no GPU work" in done.stdout
