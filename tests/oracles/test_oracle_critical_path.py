"""Critical paths beside HolisticTraceAnalysis, and why they differ where they do.

It gives no weight to the time of a thread between outermost operators, nor to the time from the end of the
GPU's work to the return of the call that waits for it. The paths here fill their windows, so both are parts
of them.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from traces import ORACLES, TRACES, load_json, need, read

import kernelscope as ks
from kernelscope import analysis
from kernelscope.compat import hta
from kernelscope.errors import InvalidArgumentError

# Largest difference in the time that both count, as a share.
ALIKE = {
    "alexnet-critical-path": 0.001,
    "simple-add-critical-path": 0.001,
    "a100-pyper-rank0of16-2023": 0.02,
    "event-sync-multi-stream": 0.03,
    "a100-control-rank3of8-2022": 0.05,
}


def asked(name: str) -> tuple[ks.Trace, dict[str, Any], tuple[int, int]]:
    """A trace, the answer of HolisticTraceAnalysis, and the window that it is about."""
    answer = load_json(need(ORACLES / f"hta/{name}/critical_path.json"))
    trace = read(TRACES / f"{name}.json.gz")
    window = trace.extent()
    if answer["annotation"]:
        named = pl.col("name").cast(pl.String).str.contains(answer["annotation"], literal=True)
        row = (
            trace.ops.filter(named & pl.col("is_annotation"))
            .sort("start_ns")
            .row(answer["instance"], named=True)
        )
        window = row["start_ns"], row["start_ns"] + row["dur_ns"]
    assert window is not None
    return trace, answer, window


def counted_us(path: pl.DataFrame) -> float:
    """The part of a path that is no time of a thread between outermost operators."""
    between = pl.col("kind").is_null() | pl.col("kind").is_in(["annotation", "frame", "range"])
    return path.filter(~((pl.col("edge") == "host") & between))["dur_ns"].sum() / 1000


@pytest.mark.parametrize("name", ALIKE)
def test_paths_are_as_long_as_those_of_hta(name: str) -> None:
    trace, answer, window = asked(name)
    path = analysis.critical_path(trace, window_ns=window)
    assert path["dur_ns"].sum() == window[1] - window[0]
    assert counted_us(path) == pytest.approx(answer["total_us"], rel=ALIKE[name])


def test_alexnet_has_the_same_parts() -> None:
    """Most of it is the host, then kernels and the gaps between them."""
    trace, answer, window = asked("alexnet-critical-path")
    path = analysis.critical_path(trace, window_ns=window)
    parts = dict(path.group_by("bound_by").agg(pl.col("dur_ns").sum() / 1000).iter_rows())
    assert parts["compute"] == pytest.approx(answer["by_bound"]["gpu_compute_bound"], abs=2)
    assert parts["queue"] == answer["by_bound"]["gpu_kernel_kernel_overhead"]
    # All that is left of the difference are returns of calls that wait.
    assert counted_us(path) - answer["total_us"] == parts["synchronisation"]


@pytest.mark.parametrize("name", ALIKE)
def test_a_path_has_the_columns_of_hta(name: str) -> None:
    trace, answer, _ = asked(name)
    chosen = (answer["annotation"], answer["instance"])
    path = hta.critical_path(trace, *chosen)
    assert path.columns == [
        "event_idx", "duration", "type", "s_name", "cat", "pid", "tid", "stream", "index", "bound_by",
    ]  # fmt: skip
    assert path["duration"].sum() == pytest.approx(answer["total_us"], rel=ALIKE[name])
    assert set(path["bound_by"]) <= {*answer["by_bound"], "", "data_loading", "gpu_communication_bound"}
    assert path.select("s_name", "cat", "pid", "tid").null_count().row(0)[:2] == (0, 0)
    summary = hta.critical_path_summary(trace, *chosen)
    assert summary["percentage"].sum() == pytest.approx(100)
    shares = path.group_by("bound_by").agg(pl.col("duration").sum() / path["duration"].sum() * 100)
    assert dict(summary.iter_rows()) == pytest.approx(dict(shares.iter_rows()))


def test_alexnet_has_the_parts_of_hta() -> None:
    trace, answer, _ = asked("alexnet-critical-path")
    path = hta.critical_path(trace, answer["annotation"], answer["instance"])
    parts = dict(path.group_by("bound_by").agg(pl.col("duration").sum()).iter_rows())
    # What is left are returns of calls that wait, which have no weight there.
    del parts[""]
    assert parts == {part: us for part, us in answer["by_bound"].items() if us}


def parts_of(name: str) -> tuple[dict[str, float], dict[str, float]]:
    """The us of each part here and there, without returns of calls that wait."""
    trace, answer, _ = asked(name)
    path = hta.critical_path(trace, answer["annotation"], answer["instance"])
    sums = path.filter(pl.col("bound_by") != "").group_by("bound_by").agg(pl.col("duration").sum())
    return dict(sums.iter_rows()), {part: us for part, us in answer["by_bound"].items() if us}


def test_where_the_gpu_idles_beside_the_host_the_host_decides() -> None:
    """The path of simple-add leaves the host for 0.5 ms of kernels there, which end before the host waits."""
    for name, most_us in (("simple-add-critical-path", 534), ("event-sync-multi-stream", 31)):
        ours, theirs = parts_of(name)
        for part, us in theirs.items():
            assert ours.get(part, 0) == pytest.approx(us, abs=most_us), (name, part)


def test_a_gap_until_a_launch_is_no_overhead_of_the_stream() -> None:
    trace, answer, _ = asked("a100-control-rank3of8-2022")
    [gap_us] = [event["duration_us"] for event in answer["events"] if event["duration_us"] > 10_000]
    before = (pl.col("start_ns") + pl.col("dur_ns")).cum_max().shift(1).over("stream")
    works = trace.gpu_ops.sort("start_ns").with_columns(gap_us=(pl.col("start_ns") - before) / 1000)
    calls = trace.launches.select(launch_row="row", called_ns="start_ns")
    [(row, delay_us)] = (
        works.filter(gap_us=gap_us)
        .join(calls, on="launch_row")
        .select("row", (pl.col("start_ns") - pl.col("called_ns")) / 1000)
        .rows()
    )
    # Of the 41 ms that it counts as overhead of kernels, 37 ms had passed before the launch.
    assert delay_us < 0.1 * gap_us
    path = hta.critical_path(trace, answer["annotation"], answer["instance"])
    assert path.filter(event_idx=row, bound_by="gpu_kernel_kernel_overhead")["duration"].item() == delay_us
    ours, theirs = parts_of("a100-control-rank3of8-2022")
    moved = theirs["gpu_kernel_kernel_overhead"] - ours["gpu_kernel_kernel_overhead"]
    assert moved == pytest.approx(gap_us - delay_us, rel=0.01)


def test_collectives_are_no_gaps_of_other_streams() -> None:
    """What is on the GPU takes the same time, but for 28 ms of collectives that are in gaps there."""
    ours, theirs = parts_of("a100-pyper-rank0of16-2023")
    assert "gpu_communication_bound" not in theirs
    of_gpu = [sum(us for part, us in parts.items() if part != "cpu_bound") for parts in (ours, theirs)]
    assert of_gpu[0] == pytest.approx(of_gpu[1], rel=0.03)
    assert ours["gpu_communication_bound"] > 25_000


def test_an_annotation_that_is_not_there() -> None:
    trace, _, _ = asked("alexnet-critical-path")
    with pytest.raises(InvalidArgumentError, match="there is no annotation 'ProfilerStep' number 7"):
        hta.critical_path(trace, "ProfilerStep", 7)


@pytest.mark.parametrize(("name", "of_gpu"), [("a100-nccl-rank0of2-2024", False), ("v100-ns-2024", True)])
def test_hta_leaves_out_work_that_nothing_hides(name: str, *, of_gpu: bool) -> None:
    """The GPU, or the threads together, are busy for longer than the whole path of HolisticTraceAnalysis.

    It follows one thread, and leaves out the last step.
    """
    trace, answer, (start_ns, end_ns) = asked(name)
    works = trace.gpu_ops if of_gpu else trace.ops.filter(~pl.col("is_annotation"))
    inside = works.select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"))
    inside = inside.filter((pl.col("start_ns") >= start_ns) & (pl.col("end_ns") <= end_ns))
    # Each moment counts once: from the latest end so far.
    inside = inside.sort("start_ns").with_columns(
        before=pl.col("end_ns").cum_max().shift().fill_null(start_ns)
    )
    alone = pl.col("end_ns") - pl.max_horizontal("start_ns", "before")
    busy_us = inside.select(alone.clip(0).sum()).item() / 1000
    assert answer["total_us"] < 0.95 * busy_us
    path = analysis.critical_path(trace, window_ns=(start_ns, end_ns))
    assert path["dur_ns"].sum() == end_ns - start_ns
    assert counted_us(path) > 0.95 * busy_us


def test_there_is_an_answer_where_hta_fails() -> None:
    """It gives up on resnet50-v100-2021, whose steps load data for a third of their time."""
    trace = read(need(TRACES / "resnet50-v100-2021.json.gz"))
    assert not (ORACLES / "hta/resnet50-v100-2021").exists()
    steps = analysis.step_times(trace)
    bounds = analysis.step_bounds(trace)
    assert bounds["path_ns"].sum() == steps["total_ns"].sum()
    loading = bounds.filter(bound_by="data loading")["share"].item()
    waited = analysis.step_breakdown(trace)["dataloader_ns"].sum() / steps["total_ns"].sum()
    assert loading == pytest.approx(waited, abs=0.01)
