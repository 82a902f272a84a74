"""A recording of an H200 with sampled metrics: what is read of it beside loops over its rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import kernelscope as ks
from kernelscope import analysis
from kernelscope.compat.nsys import nsys_report
from metrics_database import unpack_recorded
from nsys_database import findings
from twin import metrics as twin

Cli = Callable[..., Any]
ACTIVE, CLOCK = "SM Active [Throughput %]", "GPC Clock Frequency [MHz]"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return unpack_recorded(tmp_path)


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def test_every_sample_is_read(recorded: Path) -> None:
    trace = ks.read(recorded)
    found = trace.counters.select("start_ns", "device", "counter", "value").rows()
    names = dict(query(recorded, "SELECT metricId, metricName FROM TARGET_INFO_GPU_METRICS"))
    samples = query(recorded, "SELECT timestamp, metricId, value FROM GPU_METRICS ORDER BY rowid")
    assert found == [
        (at, 0, names[metric], twin.known(names[metric], value)) for at, metric, value in samples
    ]
    assert len(found) == 10_274
    # A clock in MHz, as its name says: the GPU's highest is 1980.
    clocks = [value for _, _, name, value in found if name == CLOCK]
    assert 300 < min(clocks) < max(clocks) < 1981
    # The generic events repeat the samples.
    assert "unread_table" not in findings(trace)


def is_same(one: float | None, other: float | None) -> bool:
    return one == other or (None not in (one, other) and one == pytest.approx(other))


@pytest.mark.slow
def test_tables_beside_loops(recorded: Path) -> None:
    trace, recording = ks.read(recorded), twin.Recording(recorded)
    some = [ACTIVE, CLOCK, "Compute Warps in Flight [Avg]"]
    recording.samples = {key: rows for key, rows in recording.samples.items() if key[1] in some}
    times = {
        "kernel": recording.of_kernels(),
        "op": recording.of_operators(),
        "range": recording.of_ranges(),
        "host_range": recording.of_host_ranges(),
        "step": {
            key: times for key, times in recording.of_host_ranges().items() if key[0].startswith("step ")
        },
    }
    sizes = {}
    for by, own in times.items():
        expected = twin.table(recording, own)
        found = {
            (row["name"], row["device"], row["metric"]): tuple(row[name] for name in twin.Figures._fields)
            for row in analysis.gpu_metric_table(trace, by, metrics=some).iter_rows(named=True)
        }
        assert found.keys() == expected.keys(), by
        for key, figures in expected.items():
            assert all(map(is_same, found[key], figures)), (by, key, found[key], figures)
        sizes[by] = len(found)
    # No recorded work was launched in a range: the recorder did not know the calls of the driver.
    assert sizes == {"kernel": 6 * 3, "op": 0, "range": 0, "host_range": 45 * 3, "step": 3 * 3}


def test_what_the_gpu_did_in_each_part_of_a_step(recorded: Path) -> None:
    """Eager steps wait for the host; products and copies that run behind them keep the GPU busy."""
    table = analysis.gpu_metric_table(ks.read(recorded), "host_range", metrics=[ACTIVE])
    means = dict(table.select("name", "mean_value").rows())
    assert means["eager"] < 3
    assert means["products"] > 75
    assert means["copies"] > 95


def test_a_sample_is_of_the_time_behind_it(recorded: Path) -> None:
    """Samples taken before the host launched anything show what it launches before the next one."""
    samples = query(
        recorded, "SELECT timestamp, value FROM GPU_METRICS WHERE metricId = 3 ORDER BY timestamp"
    )
    starts = query(recorded, "SELECT start FROM NVTX_EVENTS WHERE text = 'products' ORDER BY start")
    before = []
    for (start,) in starts[1:]:
        (value,) = [value for (at, value), (after, _) in pairwise(samples) if at <= start < after]
        before.append(value)
    assert before == [75, 69]


def test_what_was_sampled_is_no_counter_of_a_kernel(recorded: Path) -> None:
    missing = set(analysis.missing_views(ks.read(recorded))["view"])
    assert "counters" in missing
    assert "gpu_metrics" not in missing


def test_steps_of_reports_as_nsys_prints_them(recorded: Path, cli: Cli) -> None:
    done = cli("stats", recorded, "-r", "nvtx_sum,nvtx_gpu_proj_trace,cuda_gpu_mem_time_sum")
    assert done.returncode == 0
    printed = done.stdout.splitlines()
    for line in (
        "22.9,23765309,1,23765309.0,23765309.0,23765309,23765309,0.0,PushPop,step 1",
        "7.4,7724368,3,2574789.3,2563161.0,2326000,2835207,254802.6,PushPop,eager",
        # Work outside all ranges has no children, rather than an unknown number.
        ",5300099498,143023727,,,,9527,9527,55,,0,,,",
    ):
        assert line in printed


def test_the_map_of_the_samples(recorded: Path) -> None:
    trace = ks.read(recorded)
    found = nsys_report(trace, "gpu_metric_util_map:bins=40")
    curve = analysis.gpu_metric_timeline(trace, parts=40, metrics=[ACTIVE])
    assert found["sm_active_pct"].to_list() == curve["mean_value"].to_list()
    samples = twin.Recording(recorded).samples[0, ACTIVE]
    for start, end, mean in found.select("start_ns", "end_ns", "sm_active_pct").iter_rows():
        parts = [
            (sample.value, part)
            for sample in samples
            if (part := min(end, sample.end) - max(start, sample.start)) > 0
        ]
        held = sum(part for _, part in parts)
        expected = sum(value * part for value, part in parts) / held if held else None
        assert is_same(mean, expected)


def test_generic_events_say_the_same(recorded: Path, tmp_path: Path, cli: Cli) -> None:
    """nsys wrote each moment as a row for each metric and as JSON: either alone gives the same answers."""
    both, old = ks.read(recorded), tmp_path / "old.sqlite"
    old.write_bytes(recorded.read_bytes())
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("DROP TABLE GPU_METRICS")
        connection.execute("DROP TABLE TARGET_INFO_GPU_METRICS")
        connection.commit()
    alone = ks.read(old)
    columns = ("start_ns", "counter", "device", "name", "value", "unit")
    assert sorted(alone.counters.select(columns).rows()) == sorted(both.counters.select(columns).rows())
    for by in ("kernel", "op", "range", "host_range", "step"):
        assert analysis.gpu_metric_table(alone, by).equals(analysis.gpu_metric_table(both, by))
    assert analysis.gpu_metrics(alone).equals(analysis.gpu_metrics(both))
    assert analysis.gpu_metric_timeline(alone).equals(analysis.gpu_metric_timeline(both))
    report = "gpu_metric_util_map"
    assert nsys_report(alone, report).equals(nsys_report(both, report))
    assert cli("stats", old, "-r", report).stdout == cli("stats", recorded, "-r", report).stdout
