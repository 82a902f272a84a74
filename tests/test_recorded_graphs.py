"""Replays of a real GPU against the same steps run eagerly, whose operators are the truth."""

from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.analysis import costs, op_table, what_if

RECORDED = Path(__file__).parent / "recorded/h200/graphs"


def replayed(name: str, captures: str) -> ks.Trace:
    return ks.read(RECORDED / f"{name}.json.gz", capture=RECORDED / captures)


def eager(name: str) -> ks.Trace:
    return ks.read(RECORDED / f"{name}.json.gz")


def kernels(trace: ks.Trace) -> pl.DataFrame:
    """What graphs replayed, or what operators launched, in the order of the GPU."""
    ops, row = (trace.captured_ops, "captured_op_row") if len(trace.captured_ops) else (trace.ops, "op_row")
    of_ops = ops.select(pl.col("row").alias(row), op="name", dims="input_dims", types="input_types")
    work = trace.gpu_ops.join(of_ops, on=row, how="left", maintain_order="left").sort("start_ns")
    return work.select(pl.col("name", "op", "dims", "types").cast(pl.String), "stream", "match", "launch_row")


def of_graphs(trace: ks.Trace) -> pl.DataFrame:
    launches = trace.launches.filter(pl.col("name") == "cudaGraphLaunch").select(launch_row="row")
    return kernels(trace).join(launches, on="launch_row", how="semi", maintain_order="left")


@pytest.mark.parametrize(
    ("name", "captures", "truth", "count"),
    [
        ("replay", "capture_traces", "eager", 288),
        # Nothing but grids tells the graph of four requests from that of two.
        ("replay_unmarked", "capture_traces", "eager", 288),
        ("train", "capture_train", "train_eager", 180),
    ],
)
def test_each_replayed_kernel_has_the_operator_that_launches_it_eagerly(
    name: str, captures: str, truth: str, count: int
) -> None:
    found, expected = of_graphs(replayed(name, captures)), kernels(eager(truth))
    assert found["match"].to_list() == ["inferred"] * count
    columns = ["name", "op", "dims", "types"]
    assert found.select(columns).rows() == expected.select(columns).rows()


def test_on_two_streams_each_kernel_has_its_operator() -> None:
    found, expected = of_graphs(replayed("streams", "capture_streams")), kernels(eager("streams_eager"))
    assert found["match"].to_list() == ["inferred"] * 48
    # CUDA lays nodes on streams of its own, so that only what ran is the same, not where.
    columns = ["name", "op", "dims", "types"]
    once = expected.head(len(expected) // 2).select(columns)
    assert sorted(found.select(columns).rows()) == sorted(once.rows() * 4)
    assert found.group_by("launch_row").agg(pl.col("stream").n_unique())["stream"].to_list() == [2] * 4


def test_a_size_that_was_not_captured_is_not_taken_for_another() -> None:
    """Batches of four and two launch kernels of the same names."""
    trace = ks.read(
        RECORDED / "replay_unmarked.json.gz",
        capture=[RECORDED / f"capture_traces/cycle{at}.json.gz" for at in (0, 2)],
    )
    sizes = dict(trace.captured_graphs.select("batch_size", "replayed").iter_rows())
    assert sizes == {8: 3 * 32, 2: 32}


def test_of_a_compiled_model_without_its_warm_up_nothing_is_guessed() -> None:
    trace = replayed("compiled", "capture_compiled")
    assert trace.gpu_ops["match"].null_count() == len(trace.gpu_ops)
    assert trace.captured_graphs["nodes"].to_list() == [4]


def test_costs_of_replays_are_those_of_eager_steps() -> None:
    def sums(trace: ks.Trace) -> list[tuple[object, ...]]:
        columns = ["name", "flops", "bytes_read", "bytes_written", "dtype", "kernels", "math"]
        return sorted(costs(trace).filter(pl.col("kernels") > 0).select(columns).rows(), key=repr)

    found = replayed("replay", "capture_traces")
    assert sums(found) == sums(eager("eager"))
    calls = op_table(found, by=("name", "input_dims")).filter(pl.col("device_self_ns") > 0)
    assert calls["device_self_ns"].sum() == found.gpu_ops["dur_ns"].sum()


@pytest.mark.parametrize(("name", "truth"), [("replay", "eager"), ("train", "train_eager")])
def test_predicted_graphs(name: str, truth: str) -> None:
    # The first step of both does what is done once.
    found = what_if(eager(truth), {"graph": 0})[1:]
    measured = replayed(name, "capture_traces" if name == "replay" else "capture_train").steps["total_ns"][1:]
    # Steps of 1.7 to 3.9 ms take 0.16 to 0.34 ms as graphs; the prediction has no time of the new launch.
    assert (found["after_ns"] < measured).all()
    assert ((measured - found["after_ns"]) < 0.1 * found["before_ns"]).all()
