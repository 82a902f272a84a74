"""Samples of GPU metrics joined to what ran: by hand, beside loops over SQL, and laws."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import analysis
from kernelscope.errors import InvalidArgumentError
from metrics_database import CLOCK, SHARE, MetricsDatabase
from twin import metrics as twin

SEEDS = range(25)
NAMES = {1: "void gemm<float>(int)", 2: "gemm"}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two steps of 900 ns, each with a kernel of 600 on a GPU of its own, and a sample every 100 ns."""
    database = MetricsDatabase(tmp_path / "steps.sqlite")
    for step in range(2):
        at = 1000 * step
        database.range("train_step", at, at + 900)
        database.range(f"aten::mm, op_id = {step}", at + 10, at + 50)
        database.call(at + 20, at + 40, correlation=step + 1)
        database.kernel(at + 100, at + 700, correlation=step + 1, deviceId=step)
    # Shorter than an interval, between two samples.
    database.kernel(1910, 1920, correlation=9, deviceId=1, demangledName=2)
    for gpu in range(2):
        for at in range(0, 2000, 100):
            database.sample(at, at // 10 % 100, gpu=gpu)
    return database.close()


def test_each_gpu_as_a_whole(recorded: Path) -> None:
    found = analysis.gpu_metrics(ks.read(recorded))
    assert found.rows() == [(gpu, SHARE, "%", 45.0, 0.0, 90.0, 20, 2000, 100, 0, 1900) for gpu in range(2)]


def test_kernels_operators_ranges_and_steps(recorded: Path) -> None:
    trace = ks.read(recorded)
    figures = ("name", "device", "mean_value", "peak_value", "samples", "covered_ns", "time_ns")
    kernels = analysis.gpu_metric_table(trace, "kernel").select(figures).rows()
    assert kernels == [
        (NAMES[1], 0, 35.0, 60.0, 6, 600, 600),
        (NAMES[1], 1, 35.0, 60.0, 6, 600, 600),
        (NAMES[2], 1, None, None, 0, 10, 10),
    ]
    operators = analysis.gpu_metric_table(trace, "op").select(figures).rows()
    assert operators == [("aten::mm", gpu, 35.0, 60.0, 6, 600, 600) for gpu in range(2)]
    ranges = analysis.gpu_metric_table(trace, "range").select("domain", *figures).rows()
    expected = [("aten::mm", gpu, 35.0, 60.0, 6, 600, 600) for gpu in range(2)]
    assert ranges == [(None, *row) for row in expected] + [(None, "train_step", *row[1:]) for row in expected]
    on_host = analysis.gpu_metric_table(trace, "host_range").select(figures).rows()
    assert on_host == [("train_step", gpu, 40.0, 80.0, 18, 1800, 1800) for gpu in range(2)] + [
        ("aten::mm", gpu, None, None, 0, 80, 80) for gpu in range(2)
    ]
    steps = analysis.gpu_metric_table(trace, "step").select("step", *figures).rows()
    assert steps == [
        (step, "train_step", gpu, 40.0, 80.0, 9, 900, 900) for step in range(2) for gpu in range(2)
    ]


def test_steps_and_ranges_of_a_trace_without_gpu_work(tmp_path: Path) -> None:
    """As of ``nsys profile --trace=nvtx``: what was sampled is all there is to say of the GPUs."""
    database = MetricsDatabase(tmp_path / "ranges.sqlite")
    for step in range(2):
        database.range(f"step {step}", 1000 * step, 1000 * step + 500)
    for gpu in range(2):
        for at in range(0, 2000, 100):
            database.sample(at, 10 * gpu + at // 1000, gpu=gpu)
    trace = ks.read(database.close())
    expected = [(f"step {step}", gpu, 10.0 * gpu + step, 5) for step in range(2) for gpu in range(2)]
    for by in ("step", "host_range"):
        found = analysis.gpu_metric_table(trace, by)
        assert found.select("name", "device", "mean_value", "samples").rows() == expected
    assert analysis.gpu_metric_table(trace, "range").is_empty()


def test_pauses_say_nothing(tmp_path: Path) -> None:
    database = MetricsDatabase(tmp_path / "pause.sqlite")
    for at in (0, 10, 20, 100, 110):
        database.sample(at, at // 10 * 10)
    # Of one sample no interval is known, and one without a value holds like others.
    database.sample(50, 1000, metric=4)
    database.sample(120, None)
    trace = ks.read(database.close())
    found = analysis.gpu_metrics(trace)
    assert found.select("metric", "mean_value", "samples", "covered_ns", "interval_ns").rows() == [
        (CLOCK, 1000.0, 1, 0, None),
        # 0 and 10 for 10 ns each, 20 for 20; 100 and (out of range) 110 for 10.
        (SHARE, (0 * 10 + 10 * 10 + 20 * 20 + 100 * 10) / 50, 4, 50, 10),
    ]
    close = analysis.gpu_metric_timeline(trace, parts=2, metrics=["SM"], window=(15, 35))
    assert close.select("start_ns", "dur_ns", "mean_value", "samples").rows() == [
        (15, 10, 15.0, 1), (25, 10, 20.0, 0)
    ]  # fmt: skip
    curve = analysis.gpu_metric_timeline(trace, parts=6, metrics=["SM"])
    assert curve.select("start_ns", "mean_value", "samples").rows() == [
        (0, 80 / 18, 2), (18, 340 / 18, 1), (36, 20.0, 0), (55, None, 0), (73, None, 0), (91, 100.0, 1)
    ]  # fmt: skip


def test_nothing_is_sampled(tmp_path: Path) -> None:
    database = MetricsDatabase(tmp_path / "none.sqlite")
    database.kernel(1, 2)
    trace = ks.read(database.close())
    assert analysis.gpu_metrics(trace).is_empty()
    assert analysis.gpu_metric_timeline(trace).is_empty()
    for by in ("kernel", "op", "range", "host_range", "step"):
        assert analysis.gpu_metric_table(trace, by).is_empty()
    with pytest.raises(InvalidArgumentError, match="by='stream' is not one of kernel, op"):
        analysis.gpu_metric_table(trace, "stream")
    with pytest.raises(InvalidArgumentError, match="end after it starts"):
        analysis.gpu_metric_timeline(trace, window=(5, 5))
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        analysis.gpu_metric_timeline(trace, parts=0)


def draw(path: Path, seed: int) -> Path:
    """GPUs that are sampled together or not at all, with gaps, repeats and values that none can have."""
    drawn = random.Random(seed)
    database = MetricsDatabase(path)
    for gpu in drawn.sample(range(3), drawn.randint(1, 3)):
        at = drawn.randint(-100, 100)
        for _ in range(drawn.choice([0, 1, 2, 60])):
            for metric in (3, 4):
                if drawn.random() < 0.95:
                    value = drawn.choice([None, -1, 101, *range(0, 101, 7)])
                    database.sample(at, value, gpu=gpu, metric=metric)
            at += drawn.choice([20, 20, 20, 21, 19, 0, 300])
    for number in range(40):
        start = drawn.randint(0, 1500)
        name = drawn.choice(["aten::mm", "aten::add", "forward"])
        text = f"{name}, op_id = {number}" if name != "forward" else name
        # Ranges of a thread lie within one another, or apart.
        database.range(text, 100 * number, 100 * number + 99)
        for call in range(drawn.randint(0, 3)):
            correlation = 10 * number + call + 1
            database.call(100 * number + 10 + call, 100 * number + 10 + call, correlation=correlation)
            begin = 100 * number + 20 + start
            places = {"deviceId": drawn.randint(0, 2), "demangledName": drawn.randint(1, 2)}
            places["streamId"] = correlation
            length = drawn.choice([0, 1, 15, 40, 500])
            database.kernel(begin, begin + length, correlation=correlation, **places)
    return database.close()


def is_same(one: float | None, other: float | None) -> bool:
    return one == other or (None not in (one, other) and one == pytest.approx(other))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_tables_beside_loops(tmp_path: Path, seed: int) -> None:
    path = draw(tmp_path / "drawn.sqlite", seed)
    trace, recording = ks.read(path), twin.Recording(path)
    times = {
        "kernel": recording.of_kernels(),
        "op": recording.of_operators(),
        "range": recording.of_ranges(),
        "host_range": recording.of_host_ranges(),
    }
    for by, own in times.items():
        expected = twin.table(recording, own)
        rows = analysis.gpu_metric_table(trace, by).iter_rows(named=True)
        found = {
            (row["name"], row["device"], row["metric"]): tuple(row[name] for name in twin.Figures._fields)
            for row in rows
        }
        assert found.keys() == expected.keys(), by
        for key, figures in expected.items():
            assert all(map(is_same, found[key], figures)), (by, key, found[key], figures)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_laws(tmp_path: Path, seed: int) -> None:
    trace = ks.read(draw(tmp_path / "drawn.sqlite", seed))
    whole = analysis.gpu_metrics(trace)
    assert whole.filter(
        ~pl.col("mean_value").is_between(pl.col("min_value") - 1e-9, pl.col("peak_value") + 1e-9)
    ).is_empty()
    keys = ["device", "metric", "unit"]
    weighted = (pl.col("mean_value") * pl.col("covered_ns")).sum().alias("weighted")
    sums = whole.group_by(keys).agg(
        weighted, pl.col("covered_ns", "samples").sum(), pl.col("peak_value").max()
    )
    # However often the time is cut, the parts add up to the whole.
    for parts in (1, 2, 7, 500):
        curve = analysis.gpu_metric_timeline(trace, parts=parts)
        found = curve.group_by(keys).agg(
            weighted, pl.col("covered_ns", "samples").sum(), pl.col("peak_value").max()
        )
        both = sums.join(found, on=keys, nulls_equal=True, suffix="_found")
        assert both.height == sums.height == found.height
        for row in both.iter_rows(named=True):
            for name in ("weighted", "covered_ns", "samples", "peak_value"):
                assert is_same(row[f"{name}_found"], row[name]), (parts, row)
        assert curve.filter((pl.col("covered_ns") == 0) & (pl.col("samples") == 0)).select(
            pl.col("mean_value", "peak_value").is_null().all()
        ).row(0) == (True, True)
    for by in ("kernel", "op", "range", "host_range", "step"):
        table = analysis.gpu_metric_table(trace, by)
        assert table.filter(pl.col("mean_value") > pl.col("peak_value") + 1e-9).is_empty()
        assert table.filter((pl.col("samples") == 0) != pl.col("mean_value").is_null()).is_empty()
        assert table.filter(pl.col("covered_ns") > pl.col("time_ns")).is_empty()


def test_metrics_that_are_not_sampled_together(tmp_path: Path) -> None:
    database = MetricsDatabase(tmp_path / "apart.sqlite")
    database.kernel(0, 100)
    for at in range(0, 100, 10):
        database.sample(at, 50)
    for at in range(0, 100, 50):
        database.sample(at, 2 * at, metric=4)
    found = analysis.gpu_metric_table(ks.read(database.close()))
    assert found.select("metric", "mean_value", "samples").rows() == [(CLOCK, 50.0, 2), (SHARE, 50.0, 10)]
    assert analysis.gpu_metric_table(ks.read(database.path), metrics=["SM"])["metric"].to_list() == [SHARE]
