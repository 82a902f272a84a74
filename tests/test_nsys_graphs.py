"""Graphs in databases of nsys: node events tell which call made each node that was replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

import kernelscope as ks
from kernelscope.analysis import op_table
from nsys_database import Database, findings, global_tid

NODE_EVENTS = (
    "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, nameId INTEGER,"
    " graphNodeId INTEGER, originalGraphNodeId INTEGER"
)
CALLS = {
    10: "cudaStreamBeginCapture_v10000",
    11: "cudaStreamEndCapture_v10000",
    12: "cudaGraphLaunch_v10000",
    13: "Graph Node Creation",
    14: "cudaGraphAddKernelNode_v10000",
}
GRAPH, CLONE = 3 << 32, 7 << 32
OPERATORS = (
    "aten::mm, op_id = 1, sizes = [[8, 4], [4, 2]]",
    "aten::add, op_id = 2, sizes = [[8, 2], [8, 2]]",
)


class GraphDatabase(Database):
    """A database with columns and tables of graphs."""

    def __init__(self, path: Path, *, events: str = "CUDA_GRAPH_NODE_EVENTS") -> None:
        super().__init__(path, schema={events: NODE_EVENTS})
        self.events = events
        self.connection.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD graphNodeId INTEGER")
        self.connection.executemany("INSERT INTO StringIds VALUES (?, ?)", CALLS.items())

    def node(self, at: int, node: int, *, clone_of: int | None = None, pid: int = 7, tid: int = 7) -> int:
        return self.insert(
            self.events,
            start=at, end=at, eventClass=97, globalTid=global_tid(pid, tid), nameId=13,
            graphNodeId=node, originalGraphNodeId=clone_of,
        )  # fmt: skip

    def capture(self, *, pid: int = 7) -> None:
        """The operators of ``OPERATORS``, captured: a node each, in a range ``layer``."""
        self.call(100, 110, pid=pid, correlation=1, nameId=10)
        self.range("layer", 150, 550, pid=pid)
        for number, text in enumerate(OPERATORS):
            at = 200 + 100 * number
            self.range(text, at, at + 90, pid=pid)
            self.call(at + 10, at + 50, pid=pid, correlation=2 + number)
            self.node(at + 20, GRAPH + number, pid=pid, tid=pid)
        self.call(600, 610, pid=pid, correlation=9, nameId=11)

    def replay(self, start: int, nodes: list[int], *, correlation: int, pid: int = 7, **changes: Any) -> None:
        self.call(start, start + 10, pid=pid, correlation=correlation, nameId=12)
        for number, node in enumerate(nodes):
            at = start + 100 + 100 * number
            values = {"correlation": correlation, "graphNodeId": node, **changes}
            self.kernel(at, at + 50 + 10 * number, pid=pid, **values)


def said(trace: ks.Trace) -> list[tuple[Any, ...]]:
    """For each replayed kernel how it matched, its operator, its call and its range."""
    nodes, ops = trace.captured_nodes, trace.captured_ops
    work = trace.gpu_ops.sort("start_ns").select("match", "captured_node_row", "captured_op_row")
    work = work.join(
        nodes.select("launch_row", "range_row", captured_node_row="row"),
        on="captured_node_row", how="left", maintain_order="left",
    )  # fmt: skip
    work = work.join(
        ops.select(captured_op_row="row", op="name"), on="captured_op_row", how="left", maintain_order="left"
    )
    calls = trace.launches.select(launch_row="row", called="start_ns")
    work = work.join(calls, on="launch_row", how="left", maintain_order="left")
    ranges = trace.ranges.select(range_row="row", around="name")
    work = work.join(ranges, on="range_row", how="left", maintain_order="left")
    return work.select("match", "op", "called", "around").rows()


def test_nodes_are_found_through_their_clones(tmp_path: Path) -> None:
    database = GraphDatabase(tmp_path / "graph.sqlite")
    database.capture()
    for number in range(2):
        database.node(700, CLONE + number, clone_of=GRAPH + number)
        # The executable graph was updated: a clone of the clone.
        database.node(800, 2 * CLONE + number, clone_of=CLONE + number)
    # The order in time is not that of the capture, as on several streams.
    database.replay(10_000, [CLONE + 1, CLONE], correlation=20)
    database.replay(20_000, [2 * CLONE, 2 * CLONE + 1], correlation=21)
    trace = ks.read(database.close())
    mm, add = ("exact", "aten::mm", 210, "aten::mm"), ("exact", "aten::add", 310, "aten::add")
    assert said(trace) == [add, mm, mm, add]
    assert findings(trace)["replay_matched"][0] == 4
    assert trace.captured_graphs.select("nodes", "replayed", "start_ns").rows() == [(2, 4, 100)]
    assert trace.captured_nodes["kind"].to_list() == ["kernel", "kernel"]
    table = op_table(trace, by=("name", "input_dims")).filter(pl.col("device_self_ns") > 0)
    assert set(table.select("name", "device_self_ns").rows()) == {("aten::mm", 110), ("aten::add", 110)}


def test_a_range_is_known_where_no_operator_is(tmp_path: Path) -> None:
    database = GraphDatabase(tmp_path / "graph.sqlite")
    database.range("layer", 150, 550)
    # Built node by node, without a capture: the upper half of the id names the graph.
    for number in range(3):
        database.call(200 + 20 * number, 215 + 20 * number, correlation=2 + number, nameId=14)
        database.node(210 + 20 * number, GRAPH + number)
    database.node(210, CLONE, pid=8, tid=8)
    database.replay(10_000, [GRAPH, GRAPH + 1, CLONE], correlation=20)
    trace = ks.read(database.close())
    unknown = (None, None, None, None)
    assert said(trace) == [("exact", None, 200, "layer"), ("exact", None, 220, "layer"), unknown]
    counts = {code: found[0] for code, found in findings(trace).items() if code.startswith("replay")}
    assert counts == {"replay_matched": 2, "replay_unknown": 1}
    assert trace.captured_nodes["kind"].null_count() == 4
    assert trace.captured_graphs["nodes"].to_list() == [3, 1]


def test_ids_mean_nothing_in_other_processes_or_before_their_time(tmp_path: Path) -> None:
    database = GraphDatabase(tmp_path / "graph.sqlite")
    database.capture(pid=7)
    database.capture(pid=8)
    database.replay(10_000, [GRAPH, GRAPH + 1], correlation=20, pid=9)
    # A circle of clones, and a clone that is made after it was launched.
    database.node(700, 40, clone_of=41)
    database.node(700, 41, clone_of=40)
    database.replay(20_000, [40], correlation=21)
    database.node(40_000, CLONE, clone_of=GRAPH)
    database.replay(30_000, [CLONE], correlation=22)
    database.replay(50_000, [CLONE], correlation=23)
    trace = ks.read(database.close())
    found = trace.gpu_ops.sort("start_ns")["match"].to_list()
    assert found == [None, None, None, None, "exact"]


def test_earlier_versions_have_the_nodes_in_the_table_of_graphs(tmp_path: Path) -> None:
    database = GraphDatabase(tmp_path / "graph.sqlite", events="CUDA_GRAPH_EVENTS")
    database.capture()
    database.replay(10_000, [GRAPH, GRAPH + 1], correlation=20)
    trace = ks.read(database.close())
    assert trace.gpu_ops["match"].to_list() == ["exact", "exact"]
    some = ks.read(database.path, tables={"gpu_ops": ("match",), "launches": (), "captured_nodes": ()})
    assert some.gpu_ops["match"].to_list() == ["exact", "exact"]
    assert some.spans.is_empty()


def test_whole_graphs_say_which_option_would_tell(tmp_path: Path) -> None:
    schema = (
        "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, greenContextId INTEGER,"
        " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER"
    )
    database = Database(tmp_path / "whole.sqlite", schema={"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": schema})
    for number in range(3):
        database.insert(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            start=100 * number, end=100 * number + 50, deviceId=0, contextId=1, streamId=7,
            correlationId=number, globalPid=7 << 24, graphId=1, graphExecId=2,
        )  # fmt: skip
    trace = ks.read(database.close())
    assert findings(trace)["graph_without_nodes"][0] == 3
    message = trace.diagnostics.filter(pl.col("code") == "graph_without_nodes")["message"].item()
    assert "--cuda-graph-trace=node" in message
