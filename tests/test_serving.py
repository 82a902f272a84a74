"""Replayed graphs and steps of serving, in traces made event by event in CUDA's style."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

import kernelscope as ks
from events import Events
from kernelscope.analysis import costs, folded_stacks, module_table, op_kernels, op_table
from kernelscope.check import check
from kernelscope.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

HALF = ["c10::Half", "c10::Half"]
MM = {"Input_Dims": [[8, 64], [64, 32]], "Input_type": HALF}
ADD = {"Input_Dims": [[8, 32], [8, 32]], "Input_type": HALF}


class Server(Events):
    """An engine: steps that run eagerly, are captured, and are replayed."""

    at = 0.0

    def step(self, *kernels: str, captured: bool) -> None:
        """A product and then sums, each with its kernel; in a capture launches have neither name nor work."""
        for number, kernel in enumerate(kernels):
            name, inputs = ("aten::mm", MM) if number == 0 else ("aten::add", ADD)
            self.add(
                "python_function",
                f"nn.Module: Layer_{number}",
                self.at,
                9,
                args={"Python id": next(self.ids)},
            )
            self.op(name, self.at + 1, 7, **inputs)
            correlation = next(self.ids)
            self.call(self.at + 2, 3, correlation)
            if not captured:
                self.kernel(kernel, self.at + 4, 4, correlation)
            self.at += 10

    def capture(self, *kernels: str) -> None:
        self.call(self.at, 1, next(self.ids), name="cudaStreamBeginCapture")
        self.at += 2
        self.step(*kernels, captured=True)
        self.call(self.at, 1, next(self.ids), name="cudaStreamEndCapture")
        self.at += 2

    def replay(self, *kernels: str, streams: tuple[int, ...] = (7,), ids: bool = False) -> None:
        """Launches a graph; with ``ids`` the recorder tells nodes, and streams run in any order."""
        correlation = next(self.ids)
        self.call(self.at, 5, correlation, name="cudaGraphLaunch")
        starts = range(len(kernels)) if not ids else reversed(range(len(kernels)))
        for number, (kernel, start) in enumerate(zip(kernels, starts, strict=True)):
            node = {"graph id": 3, "graph node id": 12884901888 + number} if ids else {}
            stream = streams[number % len(streams)]
            self.kernel(kernel, self.at + 6 + 2 * start, 2, correlation, stream=stream, **node)
        self.at += 6 + 2 * len(kernels) + 10


KERNELS = ("sgemm", "add_a", "add_a")


def matches(trace: ks.Trace) -> list[str | None]:
    graphs = trace.launches.filter(pl.col("name").cast(pl.String) == "cudaGraphLaunch")["row"]
    work = trace.gpu_ops.filter(pl.col("launch_row").is_in(graphs.implode()))
    return work["match"].cast(pl.String).to_list()


def test_cuda_captures_are_known_by_their_warm_up(tmp_path: Path) -> None:
    server = Server()
    server.step(*KERNELS, captured=False)
    server.capture(*KERNELS)
    for _ in range(3):
        server.replay(*KERNELS)
    trace = server.read(tmp_path)
    assert matches(trace) == ["inferred"] * 9
    assert [verdict for verdict in check(trace) if verdict.faults] == []
    table = op_table(trace)
    # Once eagerly, once in the capture, which did no work, and in three replays.
    assert table.select("name", "calls", "device_total_ns").sort("name").rows() == [
        ("aten::add", 10, (2 * 4 + 6 * 2) * 1000),
        ("aten::mm", 5, (4 + 3 * 2) * 1000),
    ]
    # Replays take no time of the host.
    assert table["host_total_ns"].sum() == 6 * 7000
    known = costs(trace).group_by("name").agg(pl.col("flops").sum()).sort("name")
    assert known.rows() == [("aten::add", 8 * 256), ("aten::mm", 4 * 2 * 8 * 32 * 64)]
    kernels = op_kernels(trace).select("op", "name", "calls").rows()
    assert ("aten::add", "add_a", 8) in kernels
    modules = module_table(trace, costs=True).filter(pl.col("device_self_ns") > 0)
    assert modules.select("path", "device_self_ns").rows() == [(f"Layer_{at}", 10000) for at in range(3)]
    by_module = folded_stacks(trace, by="module", metric="self_cuda")
    assert by_module["value_ns"].sum() == 30000
    assert ("Layer_0;aten::mm;sgemm", 10000) in by_module.select("stack", "value_ns").rows()


@pytest.mark.parametrize("warm", [True, False])
def test_ids_of_nodes_give_the_order_on_several_streams(warm: bool, tmp_path: Path) -> None:
    server = Server()
    names = tuple(f"kernel_{number}" for number in range(40))
    if warm:
        server.step(*names, captured=False)
    server.capture(*names)
    server.replay(*names, streams=(7, 13), ids=True)
    trace = server.read(tmp_path)
    # Without names, forty nodes of one kind and one order are the graph.
    assert matches(trace) == ["inferred"] * 40
    work = trace.gpu_ops.drop_nulls("captured_op_row").sort("graph_node_id")
    assert work["captured_op_row"].is_sorted()


def test_what_contradicts_the_warm_up_is_another_graph(tmp_path: Path) -> None:
    server = Server()
    server.step(*KERNELS, captured=False)
    server.capture(*KERNELS)
    server.replay("sgemm", "add_b", "add_a")
    server.replay("sgemm", "add_a")
    trace = server.read(tmp_path)
    assert matches(trace) == [None] * 5
    codes = dict(trace.diagnostics.select(pl.col("code").cast(pl.String), "count").iter_rows())
    assert codes["replay_unknown"] == 5


def test_the_warm_up_gives_names_on_several_streams(tmp_path: Path) -> None:
    server = Server()
    server.step(*KERNELS, captured=False)
    server.capture(*KERNELS)
    server.replay(*KERNELS, streams=(7, 13))
    trace = server.read(tmp_path)
    # Either stream may have run either of the two that are called the same.
    assert matches(trace) == ["inferred", None, None]
    assert trace.captured_graphs["replayed"].to_list() == [1]


def test_a_graph_without_its_capture_is_as_before(tmp_path: Path) -> None:
    server = Server()
    server.replay(*KERNELS)
    trace = server.read(tmp_path)
    assert trace.captured_graphs.is_empty()
    assert op_table(trace).is_empty()


def test_steps_of_serving(tmp_path: Path) -> None:
    names = (
        "execute_48_context_1(sq32sk32sqsq1024sqsk1024)_generation_16(sq16sk900sqsq16sqsk900)",
        "step[DECODE bs=16]",
    )
    events = Events()
    for at, name in enumerate(names):
        events.annotation(name, 100 * at, 90)
        # The same step by another annotation inside.
        events.annotation("step[DECODE bs=16]" if at else "step[MIXED bs=17 toks=48]", 100 * at + 1, 80)
        events.op("aten::mm", 100 * at + 5, 20)
    events.annotation("forward_3", 5, 10)
    steps = events.read(tmp_path).steps
    told = steps.select("step", pl.col("phase").cast(pl.String), "requests", "tokens", "key_tokens").rows()
    assert told[0] == (0, "mixed", 17, 48, 932)
    # Without speculation a request decodes one token in a step.
    assert told[1][1:] == ("decode", 16, 16, None)
    path = events.write(tmp_path / "trace.json")
    by_pattern = ks.read(path, step_range="execute_*")
    assert by_pattern.steps["step"].to_list() == [0]
    assert ks.read(path, step_range="forward_?").steps["name"].to_list() == ["forward_3"]
    with pytest.raises(ks.errors.InvalidArgumentError, match="has the name"):
        ks.read(path, step_range="nothing_*")
    # The profiler's own steps come first.
    events.annotation("ProfilerStep#7", 0, 190)
    assert events.read(tmp_path).steps["step"].to_list() == [7]


def test_each_trace_of_a_comparison_has_its_capture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = {}
    for side, size in (("before", 8), ("after", 16)):
        server = Server()
        product = {"Input_Dims": [[size, 64], [64, 32]], "Input_type": HALF}
        server.call(0, 1, 1, name="hipStreamBeginCapture")
        server.op("aten::mm", 2, 8, **product)
        launch = {"correlation": 2, "kernel": "gemm", "grid": [1, 1, 1], "block": [64, 1, 1]}
        server.add("cuda_runtime", "hipModuleLaunchKernel", 3, 3, args=launch)
        server.call(11, 1, 3, name="hipStreamEndCapture")
        paths[f"--capture-{side}"] = server.write(tmp_path / side / "capture.json")
        replay = Events()
        replay.call(0, 5, 1, name="hipGraphLaunch")
        replay.kernel("gemm", 10, size, 1)
        paths[side] = replay.write(tmp_path / side / "trace.json")
    traces = [str(paths["before"]), str(paths["after"])]
    captures = [
        str(part) for option in ("--capture-before", "--capture-after") for part in (option, paths[option])
    ]
    assert main(["diff", *traces, *captures, "--format", "json"]) == 0
    told = capsys.readouterr().out
    assert "aten::mm" in told
    assert main(["diff", *traces, "--format", "json"]) == 0
    assert "aten::mm" not in capsys.readouterr().out
