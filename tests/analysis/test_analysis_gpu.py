"""Utilisation, occupancy, counters and the timeline of GPUs, against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import draws
import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.analysis.gpu.timeline import sm_segments
from kernelscope.analysis.kernels.occupancy import launch_limits, launch_metrics
from kernelscope.analysis.timeline import TimelineView
from kernelscope.errors import InvalidArgumentError

KERNELS = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 60), st.sampled_from([0.25, 0.5, 2.0])),
    min_size=1,
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=draws.count(60, 1_200))
@given(KERNELS, st.integers(1, 40))
def test_stretches_add_up_to_what_ran(
    tmp_path_factory: pytest.TempPathFactory, kernels: list[tuple[int, int, float]], parts: int
) -> None:
    events = Events()
    for number, (start, dur, blocks) in enumerate(kernels):
        events.kernel("k", start, dur, number + 1, stream=number, **{"blocks per SM": blocks})
    trace = events.read(tmp_path_factory.mktemp("load"))
    table = analysis.gpu_timeline(trace, parts=parts)
    busy, full = {}, {}
    for start, dur, blocks in kernels:
        for moment in range(start, start + dur):
            busy[moment] = 1
            full[moment] = full.get(moment, 0) + blocks
    assert table.height <= parts or not busy
    assert (table["utilisation"] * table["dur_ns"]).sum() / 1000 == pytest.approx(len(busy))
    blocks = sum(min(1, value) for value in full.values())
    assert (table["sm_efficiency"] * table["dur_ns"]).sum() / 1000 == pytest.approx(blocks)
    if table.height:
        assert table["utilisation"].max() <= 1 + 1e-9
        ends = (table["start_ns"] + table["dur_ns"]).to_list()
        assert ends[:-1] == table["start_ns"].to_list()[1:]


def test_without_launch_sizes_only_utilisation_is_known(tmp_path: Path) -> None:
    events = Events({"id": 0})
    events.kernel("k", 10, 50, 1)
    events.kernel("k", 110, 50, 2)
    trace = events.read(tmp_path)
    table = analysis.gpu_timeline(trace)
    assert (table.height, table["sm_efficiency"].null_count()) == (15, 15)
    assert sm_segments(trace).is_empty()


def test_a_trace_without_kernels_has_no_stretches(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 10)
    trace = events.read(tmp_path)
    assert analysis.gpu_timeline(trace).is_empty()
    with pytest.raises(InvalidArgumentError, match="at least 1"):
        analysis.gpu_timeline(trace, parts=0)


SCHEMA = {
    "device": pl.Int64,
    "grid": pl.Array(pl.Int32, 3),
    "block": pl.Array(pl.Int32, 3),
    "registers": pl.Int64,
    "shared_memory_bytes": pl.Int64,
    "blocks_per_sm": pl.Float64,
    "warps_per_sm": pl.Float64,
    "occupancy_pct": pl.Float64,
}
LIMITS = {
    "device": 0,
    "name": "NVIDIA",
    "compute_major": 7,
    "compute_minor": 0,
    "sm_count": 80,
    "warp_size": 32,
    "max_threads_per_sm": 2048,
    "registers_per_sm": 65536,
    "shared_memory_per_sm_bytes": 98304,
}


def metrics(limits: dict[str, Any] | None = None, **launch: Any) -> dict[str, Any]:
    row = {"device": 0, "grid": [800, 1, 1], "block": [256, 1, 1], "registers": 32, "shared_memory_bytes": 0}
    kernels = pl.DataFrame([row | launch], schema=SCHEMA)
    devices = pl.DataFrame(
        [LIMITS | (limits or {})], schema={c: pl.String if c == "name" else pl.Int64 for c in LIMITS}
    )
    return launch_metrics(kernels, devices).row(0, named=True)


@pytest.mark.parametrize(
    ("launch", "blocks", "occupancy"),
    [
        # 10 blocks of 8 warps per SM, of which 64 / 8 = 8 fit: full.
        ({}, 10.0, 100.0),
        # 2 blocks of 256 threads on each SM: 512 of 2048.
        ({"grid": [160, 1, 1]}, 2.0, 25.0),
        # 128 registers: 128 * 32 = 4096 a warp; 16384 / 4096 = 4 warps in each quarter, 16 in all, 2 blocks.
        ({"registers": 128}, 10.0, 25.0),
        # 33 registers round up to 1280 a warp: 12 in each quarter, 48 in all, 6 blocks.
        ({"registers": 33}, 10.0, 75.0),
        # 40 KiB a block: 2 of 96 KiB.
        ({"shared_memory_bytes": 40960}, 10.0, 25.0),
        # 32 blocks of one warp are the most that an SM of this capability holds.
        ({"grid": [8000, 1, 1], "block": [32, 1, 1]}, 100.0, 50.0),
        # 33 threads take two warps, but only threads count as occupied.
        ({"block": [33, 1, 1]}, 10.0, 100 * 10 * 33 / 2048),
        ({"grid": [20, 20, 2], "block": [16, 4, 4]}, 10.0, 100.0),
    ],
)
def test_derived(launch: dict[str, Any], blocks: float, occupancy: float) -> None:
    row = metrics(**launch)
    assert row["blocks_per_sm"] == pytest.approx(blocks)
    assert row["occupancy_pct"] == pytest.approx(occupancy)
    assert row["launch_metrics"] == "derived"


def test_from_capability_8_on_a_block_loses_a_kibibyte() -> None:
    # 32 KiB + 1 KiB: 4 of 164 KiB, 4 * 256 of 2048 threads.
    limits = {"compute_major": 8, "sm_count": 108, "shared_memory_per_sm_bytes": 167936}
    assert metrics(limits, grid=[1080, 1, 1], shared_memory_bytes=32768)["occupancy_pct"] == 50.0


def test_recorded_values_stay() -> None:
    row = metrics(blocks_per_sm=1.5, warps_per_sm=12.0, occupancy_pct=17.0)
    assert (row["blocks_per_sm"], row["warps_per_sm"], row["occupancy_pct"]) == (1.5, 12.0, 17.0)
    assert row["launch_metrics"] == "recorded"


def test_a_recorded_zero_for_much_shared_memory_is_replaced() -> None:
    row = metrics(blocks_per_sm=10.0, warps_per_sm=80.0, occupancy_pct=0.0, shared_memory_bytes=65536)
    # One block of 64 KiB fits into 96 KiB.
    assert row["occupancy_pct"] == pytest.approx(12.5)
    assert row["launch_metrics"] == "derived"
    small = metrics(blocks_per_sm=0.001, warps_per_sm=0.001, occupancy_pct=0.0)
    assert (small["occupancy_pct"], small["launch_metrics"]) == (0.0, "recorded")


@pytest.mark.parametrize(
    ("limits", "launch"),
    [
        ({"warp_size": 64}, {}),
        ({"name": "AMD Radeon PRO W7900"}, {}),
        ({"sm_count": None}, {}),
        ({"sm_count": 0}, {}),
        ({}, {"device": 3}),
        ({}, {"grid": None}),
    ],
)
def test_unknown_is_null(limits: dict[str, Any], launch: dict[str, Any]) -> None:
    row = metrics(limits, **launch)
    assert row["occupancy_pct"] is row["blocks_per_sm"] is row["launch_metrics"] is None


def test_absurd_launch_sizes_break_nothing() -> None:
    absurd = [2**31 - 1] * 3
    assert metrics(grid=absurd)["blocks_per_sm"] == pytest.approx((2**31 - 1) ** 3 / 80)
    assert metrics(block=absurd)["occupancy_pct"] is None
    assert metrics(block=[0, 1, 1])["occupancy_pct"] == 0.0


@pytest.mark.parametrize("limits", [{"compute_major": 99}, {"registers_per_sm": None}])
def test_an_unknown_limit_leaves_only_the_occupancy_unknown(limits: dict[str, Any]) -> None:
    row = metrics(limits)
    assert row["blocks_per_sm"] == 10.0
    assert row["occupancy_pct"] is None


def test_an_infinite_number_of_blocks_is_not_recorded() -> None:
    assert metrics(blocks_per_sm=float("inf"))["blocks_per_sm"] == 10.0


def test_equals_what_kineto_recorded_on_real_gpus(shared: Path) -> None:
    compared = 0
    for path in sorted((shared / "traces" / "kineto").glob("*.json.gz")):
        trace = ks.read(path)
        recorded = trace.gpu_ops.filter((pl.col("kind") == "kernel") & pl.col("occupancy_pct").is_not_null())
        bare = recorded.with_columns(
            pl.lit(None, pl.Float64).alias(c) for c in ("blocks_per_sm", "warps_per_sm", "occupancy_pct")
        )
        derived = launch_metrics(bare, trace.devices)["occupancy_pct"]
        # Kineto rounds to whole percent in float32, and records 0 beyond 48 KiB of shared memory.
        known = (recorded["shared_memory_bytes"] <= 48 * 1024) & derived.is_not_null()
        off = (derived - recorded["occupancy_pct"]).filter(known).abs()
        assert (off <= 0.500001).all(), path.name
        compared += off.len()
    assert compared > 20_000


def limits(**launch: Any) -> dict[str, Any]:
    row = {"device": 0, "grid": [8000, 1, 1], "block": [256, 1, 1], "registers": 32, "shared_memory_bytes": 0}
    kernels = pl.DataFrame([row | launch], schema={c: SCHEMA[c] for c in row})
    devices = pl.DataFrame([LIMITS], schema={c: pl.String if c == "name" else pl.Int64 for c in LIMITS})
    return launch_limits(kernels, devices).row(0, named=True)


@pytest.mark.parametrize(
    ("launch", "resident", "occupancy", "limited_by"),
    [
        # 65536 / (32 * 32) = 64 warps, 8 blocks of 8: all that an SM holds.
        ({}, 8, 100.0, "nothing"),
        ({"grid": [639, 1, 1]}, 8, 100.0, "grid"),
        ({"registers": 128}, 2, 25.0, "registers"),
        ({"shared_memory_bytes": 40960}, 2, 25.0, "shared memory"),
        ({"block": [32, 1, 1]}, 32, 50.0, "blocks"),
        # Two blocks of 768 threads leave 512 over.
        ({"block": [768, 1, 1]}, 2, 75.0, "threads"),
        # Registers and shared memory end at the same block: the first that is named.
        ({"registers": 128, "shared_memory_bytes": 40960}, 2, 25.0, "registers"),
    ],
)
def test_what_limits_a_launch(
    launch: dict[str, Any], resident: int, occupancy: float, limited_by: str
) -> None:
    row = limits(**launch)
    assert (row["resident_blocks"], row["limited_by"]) == (resident, limited_by)
    assert row["theoretical_occupancy_pct"] == pytest.approx(occupancy)


def test_waves_and_their_tail() -> None:
    # 8 blocks on each of 80 SMs make a wave of 640.
    row = limits(grid=[1600, 1, 1])
    assert row["waves"] == pytest.approx(2.5)
    assert row["tail_pct"] == pytest.approx(100 * 0.5 / 3)


def test_what_limits_an_unknown_launch_is_unknown() -> None:
    for launch in ({"grid": None}, {"registers": None}, {"device": 3}, {"block": [0, 1, 1]}):
        row = limits(**launch)
        found = [row[c] for c in ("resident_blocks", "theoretical_occupancy_pct", "waves", "limited_by")]
        assert found == [None] * 4


@pytest.fixture
def trace(tmp_path: Path) -> Any:
    """A step of 100 us with nested operators, three short kernels and a long one."""
    e = Events()
    e.annotation("ProfilerStep#1", 0, 100)
    e.op("aten::linear", 10, 50)
    e.op("aten::addmm", 20, 30)
    e.call(22, 5, 1)
    e.op("aten::relu", 5, 90, tid=8)
    for start in (40, 41.5, 42.5):
        e.kernel("short", start, 1, 1)
    e.kernel("other", 43.5, 0.4, 1)
    e.kernel("long", 50, 30, 1)
    e.kernel("late", 60, 5, 1, stream=9)
    return e.read(tmp_path)


def shown(frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return frame.select(columns).rows()


def test_wide_events_stand_alone_and_narrow_ones_are_summed_up(trace: Any) -> None:
    # A pixel is 10 us wide.
    stream = analysis.timeline(trace, pixels=10).filter(label="GPU 0 stream 7")
    assert shown(stream, "start_ns", "end_ns", "busy_ns", "events", "name", "name_ns") == [
        (40_000, 43_900, 3_400, 4, "short", 3_000),
        (50_000, 80_000, 30_000, 1, "long", 30_000),
    ]
    assert stream["busy_share"].to_list() == [3_400 / 3_900, 1.0]
    assert shown(stream, "longest_name", "longest_ns") == [("short", 1_000), ("long", 30_000)]
    by_row = dict(trace.gpu_ops.select("row", pl.col("name").cast(pl.String)).rows())
    assert [by_row[row] for row in stream["row"]] == stream["name"].to_list()


def test_tracks_and_lanes(trace: Any) -> None:
    frame = analysis.timeline(trace, pixels=1000)
    tracks = frame.unique("track", keep="first", maintain_order=True)
    assert shown(tracks, "track", "track_kind", "label", "device", "stream", "tid") == [
        (0, "stream", "GPU 0 stream 7", 0, 7, None),
        (1, "stream", "GPU 0 stream 9", 0, 9, None),
        (2, "thread", "thread 7", None, None, 7),
        (3, "thread", "thread 8", None, None, 8),
    ]
    main = frame.filter(tid=7)
    assert shown(main, "lane", "name", "category") == [
        (0, "ProfilerStep#1", "annotation"),
        (1, "aten::linear", "operator"),
        (2, "aten::addmm", "operator"),
        (3, "cudaLaunchKernel", "launch"),
    ]


def test_zoom_keeps_lanes_and_the_true_extent_of_wide_events(trace: Any) -> None:
    view = TimelineView(trace)
    zoomed = view.show(start_ns=41_000, end_ns=45_000, pixels=4)
    assert shown(zoomed.filter(track_kind="thread"), "lane", "name", "start_ns", "end_ns") == [
        (0, "ProfilerStep#1", 0, 100_000),
        (1, "aten::linear", 10_000, 60_000),
        (2, "aten::addmm", 20_000, 50_000),
        (0, "aten::relu", 5_000, 95_000),
    ]
    stream = zoomed.filter(track_kind="stream")
    assert shown(stream, "name", "start_ns", "end_ns") == [
        ("short", 41_500, 42_500),
        ("short", 42_500, 43_500),
        ("other", 43_500, 43_900),
    ]
    assert view.show(start_ns=500_000, end_ns=600_000).is_empty()
    assert view.show(pixels=10).equals(analysis.timeline(trace, pixels=10))


def test_traces_with_one_event_or_none(tmp_path: Path) -> None:
    nothing = analysis.timeline(Events().read(tmp_path))
    assert nothing.is_empty()
    e = Events()
    e.op("<script>\n\u202e", 5, 0)
    frame = analysis.timeline(e.read(tmp_path))
    assert shown(frame, "name", "events", "busy_ns", "busy_share") == [("<script>\n\u202e", 1, 0, None)]
    assert frame.schema == nothing.schema


def test_python_frames_are_tracks_of_their_own(tmp_path: Path) -> None:
    e = Events()
    e.op("aten::mm", 10, 5)
    e.add("python_function", "train.py(3): step", 0, 50, args={"Python id": 1})
    trace = e.read(tmp_path)
    frame = analysis.timeline(trace, kinds=("thread", "python"))
    assert shown(frame, "track_kind", "lane", "name") == [
        ("thread", 0, "aten::mm"),
        ("python", 0, "train.py(3): step"),
    ]
    assert analysis.timeline(trace)["track_kind"].to_list() == ["thread"]


@pytest.mark.parametrize(
    "wrong",
    [{"pixels": 0}, {"pixels": 1 << 21}, {"start_ns": 5, "end_ns": 5}, {"kinds": ("cpu",)}, {"kinds": ()}],
    ids=str,
)
def test_nonsense_is_refused(trace: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        analysis.timeline(trace, **wrong)


FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
FADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"


def counted(e: Events, name: str, ts: float, **counters: float) -> None:
    e.add("cuda_profiler_range", name, ts, 5, args=counters, pid=0, tid=0)


def two_kernels() -> Events:
    e = Events()
    e.op("aten::linear", 0, 50, Input_Dims=[[8, 64], [32, 64], []], Input_type=["float", "float", ""])
    e.op("aten::mm", 10, 30, Input_Dims=[[8, 64], [64, 32]], Input_type=["float", "float"])
    e.call(12, 1, 1)
    e.call(14, 1, 2, name="cudaLaunchKernelExC")
    e.add("cuda_driver", "cuLaunchKernel", 14.2, 0.5, args={"correlation": 3})
    counted(e, "gemm", 1000, **{FFMA: 16000, FADD: 100, READ: 4000, WRITTEN: 1000})
    counted(e, "reduce", 1010, **{FFMA: 384, FADD: 0, READ: 0, WRITTEN: 0})
    return e


def test_counters_of_an_operators_kernels(tmp_path: Path) -> None:
    first, second = analysis.counters_with_operators(two_kernels().read(tmp_path)).to_dicts()
    assert (first["name"], first["correlation"], second["correlation"]) == ("gemm", 1, 2)
    assert first["op_stack"] == ["aten::linear", "aten::mm"]
    assert (first["top_level_op"], first["bottom_level_op"]) == ("aten::linear", "aten::mm")
    assert (first["measured_flops"], first["measured_bytes"]) == (32100.0, 5000.0)
    assert first["intensity"] == 32100 / 5000
    assert second["intensity"] is None
    modelled = 2 * 8 * 64 * 32
    assert {row["modelled_flops"] for row in (first, second)} == {modelled}
    assert {row["operator_flops"] for row in (first, second)} == {32100.0 + 768.0}
    assert first["ratio"] == 32868 / modelled
    assert (first[FFMA], first[FADD]) == (16000.0, 100.0)


def test_ranges_that_are_not_as_many_as_launches_belong_to_none(tmp_path: Path) -> None:
    e = two_kernels()
    counted(e, "surplus", 1020, **{FFMA: 1})
    counted(e, "surplus", 1030, **{FFMA: 1})
    found = analysis.counters_with_operators(e.read(tmp_path))
    assert found.height == 4
    unknown: list[Any] = [
        "launch_row", "correlation", "op_row", "op_stack", "top_level_op", "model_row", "ratio",
    ]  # fmt: skip
    assert all(found[column].null_count() == 4 for column in unknown)
    assert found["measured_flops"].null_count() == 0


def test_counters_that_say_nothing_of_flops(tmp_path: Path) -> None:
    e = Events()
    e.call(12, 1, 1)
    counted(e, "gemm", 1000, sm__cycles_active=5.0)
    row = analysis.counters_with_operators(e.read(tmp_path)).row(0, named=True)
    assert (row["measured_flops"], row["measured_bytes"], row["op_stack"]) == (None, None, None)
    assert row["sm__cycles_active"] == 5.0


def test_a_trace_without_counters(tmp_path: Path) -> None:
    e = Events()
    e.op("aten::mm", 0, 10)
    assert analysis.counters_with_operators(e.read(tmp_path)).is_empty()


TENSOR = "sm__inst_executed_pipe_tensor.sum"


def tensor_kernel(tmp_path: Path, **counters: float) -> dict[str, Any]:
    e = Events()
    e.op("aten::mm", 10, 30, Input_Dims=[[8, 64], [64, 32]], Input_type=["float", "float"])
    e.call(12, 1, 1)
    counted(e, "gemm", 1000, **counters)
    return analysis.counters_with_operators(e.read(tmp_path)).row(0, named=True)


def test_tensor_instructions_are_counted_and_their_flops_are_not_known(tmp_path: Path) -> None:
    row = tensor_kernel(tmp_path, **{FFMA: 100, TENSOR: 8, READ: 50})
    assert (row["measured_flops"], row["tensor_instructions"], row["tensor_flops"]) == (200, 8, None)
    assert (row["operator_flops"], row["ratio"], row["intensity"]) == (None, None, None)
    assert row["modelled_flops"] == 2 * 8 * 64 * 32


def test_no_tensor_instruction_is_no_tensor_flop(tmp_path: Path) -> None:
    row = tensor_kernel(tmp_path, **{FFMA: 100, TENSOR: 0, READ: 50})
    assert (row["tensor_flops"], row["operator_flops"], row["intensity"]) == (0, 200, 4)


def test_operations_of_tensor_cores_are_flops(tmp_path: Path) -> None:
    operations = {
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": 30_000,
        "sm__ops_path_tensor_src_tf32_dst_fp32.sum": 2_000,
        "sm__ops_path_tensor_src_fp64.sum": 700,
        # A part of the first, several types at once, and whole numbers.
        "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum": 30_000,
        "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32.sum": 5,
        "sm__ops_path_tensor_src_int8.sum": 9,
    }
    row = tensor_kernel(tmp_path, **{FFMA: 100, TENSOR: 8, **operations})
    assert (row["tensor_flops"], row["measured_flops"], row["operator_flops"]) == (32_700, 200, 32_900)
    assert row["ratio"] == 32_900 / (2 * 8 * 64 * 32)


def test_flops_that_nothing_counted_are_unknown(tmp_path: Path) -> None:
    row = tensor_kernel(tmp_path, **{READ: 50})
    assert (row["measured_flops"], row["operator_flops"], row["ratio"]) == (None, None, None)
