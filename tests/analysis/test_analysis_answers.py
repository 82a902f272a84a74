"""The answers on traces small enough to work out by hand: overview, groups, order of rows."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from events import V100, Events
from kernelscope import analysis, compat
from kernelscope.analysis.grouping import describe_by_group, weighted_means
from kernelscope.compat.nsys import report as nsys_parts
from kernelscope.errors import InvalidArgumentError

TC = "volta_fp16_s884gemm"


@pytest.fixture
def training(tmp_path: Path) -> Any:
    """A step with nested operators, two kernels, a copy, and work of no operator.

    linear [10, 60) holds addmm [20, 50), which holds a launch [22, 27) that itself holds a driver
    call [23, 25), and another launch [30, 34). A copy is launched in the step but in no operator.
    """
    e = Events()
    e.annotation("ProfilerStep#4", 0, 200)
    e.op("aten::linear", 10, 50, Input_Dims=[[2, 3], [3, 4]])
    e.op("aten::addmm", 20, 30, Input_Dims=[[4], [2, 3], [3, 4]])
    e.call(22, 5, 1)
    e.add("cuda_driver", "cuLaunchKernel", 23, 2, args={"correlation": 99})
    e.call(30, 4, 2)
    e.call(100, 10, 3, name="cudaMemcpyAsync")
    shape = {"grid": [80, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}
    e.kernel(TC, 40, 30, 1, **shape)
    e.kernel("bias", 60, 20, 2, stream=8, **shape)
    e.copy(120, 10, 3)
    e.memory(5, 1000)
    e.memory(20, 64)
    e.memory(50, -16)
    e.memory(55, 512, device_type=1)
    return e.read(tmp_path)


def rows(frame: pl.DataFrame, key: str = "name") -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in frame.to_dicts()}


def test_step_breakdown(training: Any) -> None:
    row = analysis.step_breakdown(training).row(0, named=True)
    # Kernels run in [40, 80), the copy in [120, 130), calls outside of them in 5 + 4 + 10, operators in
    # [10, 60) less calls and kernels.
    parts = {"kernel": 40, "memcpy": 10, "runtime": 19, "cpu_exec": 21, "other": 110}
    assert (row["step"], row["name"], row["total_ns"]) == (4, "ProfilerStep#4", 200_000)
    assert {k: row[f"{k}_ns"] // 1000 for k in parts} == parts
    assert sum(row[c] for c in analysis.CATEGORIES) == row["total_ns"]


def test_step_without_its_gpu_work_is_left_out(tmp_path: Path) -> None:
    e = Events()
    for step in range(3):
        e.annotation(f"ProfilerStep#{step}", 100 * step, 100)
        e.call(100 * step + 10, 5, step + 1)
        if step < 2:
            e.kernel("k", 100 * step + 20, 10, step + 1)
    trace = e.read(tmp_path)
    assert analysis.step_breakdown(trace)["step"].to_list() == [0, 1]
    everything = analysis.step_breakdown(trace, include_partial=True)
    assert everything["is_partial"].to_list() == [False, False, True]


def test_op_table(training: Any) -> None:
    table = rows(analysis.op_table(training))
    assert list(table) == ["aten::addmm", "aten::linear"]
    linear, addmm = table["aten::linear"], table["aten::addmm"]
    assert (linear["host_total_ns"], linear["host_self_ns"]) == (50_000, 20_000)
    # The driver call lies inside a runtime call and is not taken off twice.
    assert (addmm["host_total_ns"], addmm["host_self_ns"]) == (30_000, 21_000)
    assert (linear["device_total_ns"], linear["device_self_ns"]) == (50_000, 0)
    assert (addmm["device_total_ns"], addmm["device_self_ns"]) == (50_000, 50_000)
    assert (addmm["tc_eligible"], linear["tc_eligible"]) == (True, True)
    assert (addmm["tc_self_pct"], addmm["tc_total_pct"], linear["tc_total_pct"]) == (60, 60, 60)
    # Nothing ran on the device in linear itself, so a share of that means nothing.
    assert linear["tc_self_pct"] is None
    memory = ("cpu_memory_bytes", "cpu_self_memory_bytes", "device_memory_bytes", "device_self_memory_bytes")
    assert [linear[c] for c in memory] == [48, 0, 512, 512]
    assert [addmm[c] for c in memory] == [48, 48, 0, 0]


def test_op_table_with_annotations_has_all_device_time_but_the_unlinked(training: Any) -> None:
    table = analysis.op_table(training, annotations=True)
    # The copy that no operator launched is the step's own, as the step is open meanwhile.
    alone = training.gpu_ops.filter(pl.col("op_row").is_null())
    assert alone["name"].cast(pl.String).to_list() == ["Memcpy HtoD"]
    assert rows(table)["ProfilerStep#4"]["device_self_ns"] == alone["dur_ns"].sum() > 0
    assert table["device_self_ns"].sum() == training.gpu_ops["dur_ns"].sum()


def test_annotations_have_what_is_launched_while_they_are_open(tmp_path: Path) -> None:
    events = Events()
    # In an operator; around one; overlapping another in part; of one name inside one another.
    events.op("c10d::all_reduce", 10, 40)
    events.annotation("nccl:all_reduce", 12, 30)
    events.annotation("twice", 60, 100)
    events.annotation("twice", 70, 80)
    events.op("aten::mm", 80, 20)
    events.annotation("early", 200, 50)
    events.annotation("late", 220, 60)
    for start, duration, correlation in (
        (20, 5, 1),
        (44, 2, 2),
        (85, 7, 3),
        (120, 11, 4),
        (225, 13, 5),
        (260, 17, 6),
    ):
        events.call(start, 1, correlation)
        events.kernel("kernel", 1000 * correlation, duration, correlation)
    trace = events.read(tmp_path)
    wanted = {
        "nccl:all_reduce": (5, 0), "c10d::all_reduce": (7, 7), "aten::mm": (7, 7), "early": (13, 0),
        "late": (30, 30), "twice": (18, 11),
    }  # fmt: skip
    table = rows(analysis.op_table(trace, annotations=True))
    assert {
        name: (row["device_total_ns"] / 1e3, row["device_self_ns"] / 1e3) for name, row in table.items()
    } == wanted
    assert (table["twice"]["calls"], sum(own for _, own in wanted.values())) == (1, 55)
    apart = rows(analysis.op_table(trace, annotations=True, collapse=False))["twice"]
    assert (apart["calls"], apart["device_total_ns"], apart["device_self_ns"]) == (2, 36_000, 11_000)
    found = rows(analysis.annotation_table(trace))
    assert {name: row["gpu_exclusive_ns"] / 1e3 for name, row in found.items()} == {
        "nccl:all_reduce": 5, "twice": 18, "early": 0, "late": 30,
    }  # fmt: skip
    assert found["early"]["gpu_span_ns"] == found["early"]["gpu_busy_ns"] == 13_000
    assert found["late"]["gpu_span_ns"] == 1_017_000
    assert (found["late"]["images"], found["late"]["image_ns"]) == (None, None)


def test_an_operator_that_an_id_names_stands_for_a_launch_elsewhere(tmp_path: Path) -> None:
    events = Events()
    events.annotation("step", 0, 100)
    events.op("aten::mm", 10, 20)
    # On another thread by its number, but of the operator by its id.
    events.add("cuda_runtime", "cudaLaunchKernel", 15, 1, tid=8, args={"External id": 2, "correlation": 9})
    events.kernel("kernel", 50, 5, 9)
    found = rows(analysis.annotation_table(events.read(tmp_path)))
    assert found["step"]["device_total_ns"] == 5_000


def test_op_table_by_shape_and_step(training: Any) -> None:
    table = analysis.op_table(training, by=("name", "input_dims", "step"))
    assert table.select("name", "step", "calls").rows() == [("aten::addmm", 4, 1), ("aten::linear", 4, 1)]
    assert "2" in table["input_dims"][0]


def test_repeated_names_collapse_unless_told_not_to(tmp_path: Path) -> None:
    e = Events()
    e.op("aten::to", 0, 100)
    e.op("aten::to", 10, 50)
    e.op("aten::copy_", 20, 30)
    e.call(25, 5, 1)
    e.kernel("copy", 60, 8, 1)
    trace = e.read(tmp_path)
    merged = rows(analysis.op_table(trace))["aten::to"]
    assert (merged["calls"], merged["host_total_ns"], merged["host_self_ns"]) == (1, 100_000, 70_000)
    apart = rows(analysis.op_table(trace, collapse=False))["aten::to"]
    assert (apart["calls"], apart["host_total_ns"], apart["host_self_ns"]) == (2, 150_000, 70_000)
    assert (merged["device_total_ns"], apart["device_total_ns"]) == (8_000, 16_000)


def test_without_gpu_or_memory_the_columns_are_null(tmp_path: Path) -> None:
    e = Events()
    e.op("aten::mm", 0, 10)
    trace = e.read(tmp_path)
    row = analysis.op_table(trace).row(0, named=True)
    nothing = [c for c in row if c.startswith(("device_", "cpu_", "tc_self", "tc_total"))]
    assert len(nothing) == 8
    assert all(row[c] is None for c in nothing)
    assert row["tc_eligible"]
    assert analysis.kernel_table(trace).is_empty()
    assert analysis.gpu_summary(trace).is_empty()


def test_kernel_table(training: Any) -> None:
    table = rows(analysis.kernel_table(training))
    assert list(table) == [TC, "bias"]
    row = table[TC]
    assert (row["calls"], row["total_ns"], row["min_ns"], row["max_ns"]) == (1, 30_000, 30_000, 30_000)
    assert (row["mean_ns"], row["median_ns"], row["std_ns"]) == (30_000, 30_000, None)
    assert (row["tensor_cores"], table["bias"]["tensor_cores"]) == (True, False)
    # One block of 256 threads on each of 80 SMs that hold 2048.
    assert (row["blocks_per_sm"], row["occupancy_pct"]) == (1.0, 12.5)


def test_kernel_table_by_operator_and_stream(training: Any) -> None:
    table = analysis.kernel_table(training, by=("op", "stream"))
    found = table.select("op", "stream", "total_ns").rows()
    assert found == [("aten::addmm", 7, 30_000), ("aten::addmm", 8, 20_000)]
    by_shape = analysis.kernel_table(training, by=("input_dims",))
    assert by_shape["calls"].to_list() == [2]


def test_kernel_table_by_what_it_gives_means_of(training: Any) -> None:
    table = analysis.kernel_table(training, by=("blocks_per_sm", "occupancy_pct"))
    assert table.columns[:3] == ["blocks_per_sm", "occupancy_pct", "calls"]
    assert table[:, :3].rows() == [(1.0, 12.5, 2)]
    assert len(set(table.columns)) == table.width


def test_statistics_of_kernels(tmp_path: Path) -> None:
    e = Events()
    for index, duration in enumerate((1, 2, 6)):
        e.kernel("k", 10 * index, duration, index, **{"est. achieved occupancy %": 10 * duration})
    row = analysis.kernel_table(e.read(tmp_path)).row(0, named=True)
    assert (row["mean_ns"], row["median_ns"]) == (3000, 2000)
    assert row["std_ns"] == pytest.approx(2645.7513)
    # Weighted by time: (10 * 1 + 20 * 2 + 60 * 6) / 9.
    assert row["occupancy_pct"] == pytest.approx(410 / 9)
    assert row["blocks_per_sm"] is None


def test_gpu_summary(training: Any) -> None:
    row = analysis.gpu_summary(training).row(0, named=True)
    assert (row["device"], row["name"], row["compute_capability"]) == (0, "Tesla V100", "7.0")
    assert (row["window_ns"], row["busy_ns"]) == (200_000, 40_000)
    assert row["utilisation"] == 0.2
    # One block per SM from one kernel or from two at once: the SMs are all in use.
    assert row["sm_efficiency"] == pytest.approx(0.2)
    assert row["occupancy_pct"] == pytest.approx(12.5)
    assert row["tensor_core_share"] == pytest.approx(0.6)
    assert (row["kernels"], row["gpu_kernel_ns"], row["launch_metrics"]) == (2, 50_000, "derived")


@pytest.mark.parametrize(
    ("name", "device", "answer"),
    [
        ("volta_s884gemm", {}, True),
        ("volta_sgemm_64x64_nt", {}, False),
        ("vectorized_elementwise_kernel", {}, False),
        # Names of recent kernels do not say which instructions they use.
        ("bmm_MxE4m3_sm100f", {"computeMajor": 10}, None),
        ("cutlass_80_simt_sgemm", {"computeMajor": 10}, False),
        ("nvjet_tst_64x64", {"computeMajor": 10}, True),
        ("vectorized_elementwise_kernel", {"computeMajor": 10}, False),
        ("Cijk_Alik_Bljk", {"warpSize": 64}, None),
        ("Cijk_Alik_Bljk", {"warpSize": 64, "id": 3}, None),
        ("any", {"name": "AMD Radeon"}, None),
    ],
)
def test_tensor_cores(tmp_path: Path, name: str, device: dict[str, Any], answer: bool | None) -> None:
    e = Events(V100 | device)
    e.op("aten::mm", 0, 10)
    e.call(5, 1, 1)
    e.kernel(name, 20, 5, 1)
    trace = e.read(tmp_path)
    assert analysis.kernel_table(trace)["tensor_cores"].to_list() == [answer]
    share = None if answer is None else float(answer)
    assert analysis.gpu_summary(trace)["tensor_core_share"].to_list() == [share]


@pytest.mark.parametrize("by", [(), ("nonsense",), ("name", "name")])
def test_bad_grouping_is_refused(training: Any, by: tuple[str, ...]) -> None:
    for table in (analysis.op_table, analysis.kernel_table):
        with pytest.raises(InvalidArgumentError):
            table(training, by=by)


def test_one_column_may_stand_alone(training: Any) -> None:
    assert analysis.op_table(training, by="name").equals(analysis.op_table(training))


def test_key_averages(training: Any) -> None:
    table = rows(compat.torch_profiler.key_averages(training))
    assert table["ProfilerStep*"]["is_annotation"]
    # Runtime calls are children here, the driver call of the runtime call that holds it.
    assert table["aten::addmm"]["cpu_self_ns"] == 21_000
    assert table["cudaLaunchKernel"]["count"] == 2
    assert table["cudaLaunchKernel"]["cpu_self_ns"] == 7_000
    assert (table[TC]["device"], table[TC]["device_self_ns"]) == ("gpu", 30_000)
    assert table["aten::linear"]["device_total_ns"] == 50_000


def test_an_empty_trace_has_empty_answers(tmp_path: Path) -> None:
    trace = Events().read(tmp_path)
    for question in (
        analysis.step_breakdown,
        analysis.op_table,
        analysis.kernel_table,
        analysis.gpu_summary,
        compat.torch_profiler.key_averages,
    ):
        assert question(trace).is_empty()


def linear(events: Events) -> Events:
    """An operator with another inside, each with a kernel of its own."""
    events.op("aten::linear", 10, 40)
    events.op("aten::mm", 15, 20)
    events.call(16, 2, 1)
    events.call(40, 2, 2)
    events.kernel("volta_sgemm", 60, 30, 1)
    events.kernel("add", 95, 10, 2)
    return events


def test_work_counts_for_every_operator_around_its_launch(tmp_path: Path) -> None:
    table = analysis.op_kernels(linear(Events()).read(tmp_path))
    assert table.select("op", "name", "calls", "total_ns", "self_ns", "share").rows() == [
        ("aten::linear", "volta_sgemm", 1, 30_000, 0, 0.75),
        ("aten::linear", "add", 1, 10_000, 10_000, 0.25),
        ("aten::mm", "volta_sgemm", 1, 30_000, 30_000, 1.0),
    ]


def test_shares_keep_the_sum_when_only_the_largest_are_named(tmp_path: Path) -> None:
    events = Events()
    for index in range(5):
        events.op(f"aten::op{index}", 100 * index, 10 + index)
    trace = events.read(tmp_path)
    top = analysis.op_shares(trace, top=2).filter(measure="host_self_ns")
    assert top.select("name", "value_ns", "is_rest").rows() == [
        ("aten::op4", 14_000, False),
        ("aten::op3", 13_000, False),
        (None, 33_000, True),
    ]
    assert top["share"].sum() == pytest.approx(1)
    assert analysis.op_shares(trace, top=2).filter(measure="device_self_ns").is_empty()
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        analysis.op_shares(trace, top=0)


def test_the_overview_is_one_row_whatever_the_trace_holds(tmp_path: Path) -> None:
    events = linear(Events())
    events.annotation("ProfilerStep#1", 0, 100)
    trace = events.read(tmp_path)
    row = analysis.overview(trace, costs=True).row(0, named=True)
    assert (row["steps"], row["gpus"], row["kernels"], row["gpu_kernel_ns"]) == (1, 1, 2, 40_000)
    assert row["step_ns"] == 105_000
    assert row["step_ns"] == sum(row[column] for column in analysis.CATEGORIES)
    assert row["utilisation"] == pytest.approx(40 / 105)
    assert row["tc_eligible_share"] == pytest.approx(0.75)
    assert (row["gpu_name"], row["mfu_pct"]) == ("Tesla V100", None)
    (tmp_path / "bare").mkdir()
    bare = Events(V100)
    bare.events.append({"ph": "i", "name": "start", "ts": 1, "pid": 1, "tid": 1, "s": "t"})
    empty = analysis.overview(bare.read(tmp_path / "bare"))
    assert empty.height == 1
    assert empty.schema == analysis.overview(trace).schema
    shown = empty.row(0, named=True)
    assert (shown["gpus"], shown["utilisation"], shown["step_ns"]) == (0, None, None)


def test_flops_of_all_steps_over_their_time(tmp_path: Path) -> None:
    events = Events(V100 | {"name": "Tesla V100-SXM2-32GB"})
    for step, size in ((1, 64), (2, 128)):
        start = 1000 * step
        events.annotation(f"ProfilerStep#{step}", start, 500)
        events.op("aten::mm", start + 1, 50, Input_Dims=[[size, size]] * 2, Input_type=["float", "float"])
        events.call(start + 2, 2, step)
        events.kernel("volta_sgemm", start + 60, 100, step)
    trace = events.read(tmp_path)
    row = analysis.overview(trace, costs=True).row(0, named=True)
    flops = 2 * 64**3 + 2 * 128**3
    assert row["flops_per_step"] == flops / 2
    assert row["mfu_pct"] == pytest.approx(100 * flops / (1e-3 * row["peak_flops_per_s"]))
    assert row["known_pct"] == pytest.approx(100)


QUESTIONS = (
    "annotation_table", "gpu_timeline", "kernels_by_launch", "memory_allocations", "memory_peak",
    "memory_summary", "memory_table", "memory_timeline", "missing_views", "module_table", "op_kernels",
    "op_shares", "overview", "recommendations",
)  # fmt: skip


def only_host(events: Events) -> None:
    events.op("aten::mm", 10, 40)


def only_gpu(events: Events) -> None:
    events.kernel("volta_sgemm", 60, 30, 1)


def one_event(events: Events) -> None:
    events.events.append({"ph": "i", "name": "start", "ts": 1, "pid": 1, "tid": 1, "s": "t"})


def only_memory(events: Events) -> None:
    events.memory(5, 64)
    events.memory(5, -64, device_type=1)


def times_that_make_no_sense(events: Events) -> None:
    linear(events)
    for number, event in enumerate(events.events):
        event["ts"], event["dur"] = (-(2**40), 2**41) if number % 2 else (2**52, 0)


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("fill", [only_host, only_gpu, one_event, only_memory, times_that_make_no_sense])
def test_every_answer_has_its_columns_whatever_the_trace_lacks(
    tmp_path: Path, question: str, fill: Callable[[Events], None]
) -> None:
    whole = linear(Events())
    whole.annotation("ProfilerStep#1", 0, 100)
    whole.memory(12, 64)
    ask = getattr(analysis, question)
    expected = ask(whole.read(tmp_path)).schema
    events = Events(V100 | {"name": None})
    fill(events)
    assert ask(events.read(tmp_path)).schema == expected


ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 2)),
        st.one_of(st.none(), st.integers(0, 40)),
        st.one_of(st.none(), st.floats(0, 100)),
    ),
    max_size=20,
)
SCHEMA = {"group": pl.UInt32, "number": pl.Int64, "value": pl.Float64}
NUMBER, VALUE = pl.col("number"), pl.col("value")


def by_group(frame: pl.DataFrame, *figures: pl.Expr) -> pl.DataFrame:
    groups = pl.DataFrame({"group": pl.Series([0, 1, 2], dtype=pl.UInt32)})
    found = frame.group_by("group").agg(figures)
    return groups.join(found, on="group", how="left", maintain_order="left").drop("group")


@given(ROWS)
def test_numbers_of_each_group_are_described(rows: list[tuple[int | None, int | None, float | None]]) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    found = describe_by_group(frame["group"], frame["number"], 3)
    for group, row in enumerate(found.iter_rows(named=True)):
        own = [number for of, number, _ in rows if of == group]
        known = [number for number in own if number is not None]
        assert (row["rows"], row["sum"]) == (len(own), sum(known))
        assert (row["min"], row["max"]) == ((min(known), max(known)) if known else (None, None))
        assert row["mean"] == (pytest.approx(statistics.fmean(known)) if known else None)
        assert row["median"] == (statistics.median(known) if known else None)
        assert row["std"] == (pytest.approx(statistics.stdev(known)) if len(known) > 1 else None)


@given(ROWS)
def test_means_are_weighted_as_polars_does(rows: list[tuple[int | None, int | None, float | None]]) -> None:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    found = weighted_means(frame["group"], frame["number"], frame["value"], 3).to_frame("mean")
    weight = NUMBER.filter(VALUE.is_not_null()).sum()
    mean = pl.when(weight > 0).then((VALUE * NUMBER).sum() / weight).otherwise(VALUE.mean())
    assert_frame_equal(found, by_group(frame, mean.alias("mean")), abs_tol=1e-9)


@pytest.fixture(params=[1, 3, 64])
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsys_parts, "PART_ROWS", request.param * 64)
    monkeypatch.setattr(nsys_parts, "_BUCKET_ROWS", 50)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("span", [1, 40, 10**9])
@pytest.mark.parametrize("count", [0, 1, 700])
def test_parts_together_are_the_order(count: int, span: int, *, descending: bool) -> None:
    random.seed(count + span)
    column = pl.Series("x", [random.randrange(span) for _ in range(count)], dtype=pl.Int64)
    found = pl.concat(list(nsys_parts.ordered_parts(column, descending=descending)))
    frame = pl.DataFrame({"x": column, "at": pl.int_range(count, eager=True, dtype=pl.UInt32)})
    expected = frame.sort("x", "at", descending=[descending, False])["at"]
    assert found.to_list() == expected.to_list()


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("distinct", [1, 60, 10**6])
def test_sums_by_text_equal_a_group_by(distinct: int) -> None:
    random.seed(distinct)
    rows = pl.DataFrame(
        {
            "name": pl.Series([random.choice("abc") for _ in range(800)], dtype=pl.Categorical),
            "op_id": [random.choice([None, random.randrange(distinct)]) for _ in range(800)],
            "dur_ns": [random.randrange(30) for _ in range(800)],
        }
    )
    keys = ["name", "op_id"]

    def finish(part: pl.DataFrame) -> pl.DataFrame:
        return part.with_columns(text=pl.concat_str("name", pl.col("op_id"), ignore_nulls=True))

    found = nsys_parts.sums_by_text(
        rows, keys, "dur_ns", finish, ascending=["text"], sums={"twice": "dur_ns"}, means={"middle": "dur_ns"}
    )
    found = pl.concat(list(found))
    duration = pl.col("dur_ns")
    expected = nsys_parts.spread(rows, keys, "dur_ns", "ns", twice=duration.sum(), middle=duration.mean())
    expected = nsys_parts.in_order(finish(expected), "total_ns", ascending=["text"])
    assert found.select(expected.columns).equals(expected)
    assert found["time_pct"].sum() == pytest.approx(100)
