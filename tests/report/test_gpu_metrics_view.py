"""Samples of GPU metrics in text, JSON and on the page."""

from __future__ import annotations

import json
from pathlib import Path

import kernelscope as ks
from kernelscope.report import render
from kernelscope.report.views import gpu_metrics
from metrics_database import MetricsDatabase, unpack_recorded
from twin import metrics as twin

HOSTILE = "SMs Active <img src=x onerror=alert(1)> [Throughput %]"


def recorded(folder: Path, *, is_sampled: bool = True) -> ks.Trace:
    database = MetricsDatabase(folder / "report.sqlite", names={3: HOSTILE, 4: "Clock [MHz]", 5: "Idle [%]"})
    database.range("train_step", 0, 1000)
    database.call(10, 20)
    database.kernel(100, 900)
    for at in range(0, 1000, 100) if is_sampled else ():
        database.sample(at, at // 10)
        database.sample(at, 1500, metric=4)
        database.sample(at, 0, metric=5)
    return ks.read(database.close())


def test_text(tmp_path: Path) -> None:
    out = tmp_path / "report.txt"
    render(recorded(tmp_path), format="text", out=out, width=120)
    lines = out.read_text().split("\nGPU metrics\n")[1].splitlines()
    assert lines[2].endswith("45.0           90.0       10")
    assert lines[3].split() == "Clock [MHz] 0 1,500.0 1,500.0 10".split()
    assert "0 more, and 1 that are always 0." in lines


def test_text_of_a_recording(tmp_path: Path) -> None:
    """How busy the multiprocessors are comes first, also in the steps; and how busy GPUs are when."""
    out = tmp_path / "report.txt"
    path = unpack_recorded(tmp_path)
    render(ks.read(path), format="text", out=out, width=120)
    text = out.read_text()
    lines = [line.split() for line in text.split("\nGPU metrics\n")[1].splitlines()]
    assert lines[0] == "metric GPU mean value in steps highest value samples".split()
    samples = twin.Recording(path).samples[0, "SM Active [Throughput %]"]
    mean = sum(s.value * (s.end - s.start) for s in samples) / sum(s.end - s.start for s in samples)
    # The steps have 85.119 for 22,996,868 ns, 82.974 for 23,765,309 and 84.281 for 23,496,446.
    assert lines[2] == f"SM Active [Throughput %] 0 {mean:.1f} 84.1 100.0 467".split()
    assert lines[4][:3] == "Tensor Active [Throughput".split()
    use = text.split("\nUse of each GPU over time\n")[1].splitlines()
    assert use[2].split() == "GPU 0 of 9527 4.7 % 434....111.................1.1".split()
    assert use[3].startswith("Each character is 4.767 ms")
    assert "NCCL on the host" not in text


def test_json(tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    render(recorded(tmp_path), format="json", out=out)
    document = json.loads(out.read_text())
    assert [row["mean_value"] for row in document["gpu_metrics"]] == [1500.0, 0.0, 45.0]
    (kernel,) = document["gpu_metrics_by_kernel"]
    assert (kernel["mean_value"], kernel["peak_value"], kernel["samples"]) == (45.0, 80.0, 8)
    # One range is no series of steps: the trace is taken as one.
    (step,) = document["gpu_metrics_by_step"]
    assert (step["step"], step["samples"]) == (None, 10)


def test_page(tmp_path: Path) -> None:
    curve, *tables = gpu_metrics.page(recorded(tmp_path))
    lines = curve.payload()["traces"]
    assert [len(line["x"]) for line in lines] == [300]
    assert "<img" not in json.dumps(lines)
    assert lines[0]["y"][0] == 0
    assert lines[0]["y"][-1] == 90
    assert [table.payload()["all"] for table in tables] == [3, 1, 1, 1, 1]


def test_page_of_a_recording(tmp_path: Path) -> None:
    """Steps that are a small part of the time have a curve of their own."""
    whole, steps, _, *tables = gpu_metrics.page(ks.read(unpack_recorded(tmp_path)))
    assert [part.payload()["title"] for part in (whole, steps)] == ["GPU 0 over time", "GPU 0 in the steps"]
    (active,) = [line for line in steps.payload()["traces"] if line["name"].startswith("SM Active")]
    assert len(active["x"]) == 300
    # The three steps have 70 ms of 84 % between them, with their starts and ends low.
    known = [value for value in active["y"] if value is not None]
    assert 80 < sum(known) / len(known) < 88
    assert min(known) <= 4
    assert [table.payload()["id"] for table in tables][-1] == "gpu-metrics-host-range"


def test_nothing_is_sampled(tmp_path: Path) -> None:
    trace = recorded(tmp_path, is_sampled=False)
    (note,) = gpu_metrics.page(trace)
    assert "--gpu-metrics-devices=all" in json.dumps(note.payload())
    out = tmp_path / "report.txt"
    render(trace, format="text", out=out)
    assert "GPU metrics" not in out.read_text()
