"""Jobs that communicate on the host: the call of each collective, what ranks wait, and which one is late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from events import GRADIENT, Events
from kernelscope import analysis

RECORDED = Path(__file__).resolve().parents[1] / "recorded/gloo"
MS = 1_000_000
GROUPS = {"0": [0, 1], "1": [0, 1, 2, 3]}


class Host(Events):
    """Collects what a rank without a GPU records; ``groups`` are names and ranks of its process groups."""

    def __init__(self, rank: int = 0, groups: dict[str, list[int]] | None = None) -> None:
        super().__init__()
        self.rank = rank
        self.groups = {"0": [0, 1]} if groups is None else groups

    def hand_over(
        self, name: str, at: float, dims: list[Any] | None = None, *, tid: int = 7, **more: Any
    ) -> None:
        """A call such as ``c10d::allreduce_``."""
        recorded = {} if dims is None else {"Input_Dims": dims}
        self.op(f"c10d::{name}", at, more.pop("dur", 10), tid=tid, **recorded, **more)

    def gloo(self, kind: str, at: float, dur: float, dims: list[Any] | None = None, *, tid: int = 70) -> None:
        """What a thread of gloo, or the calling one, records of it."""
        recorded = {} if dims is None else {"Input Dims": dims, "Input type": ["float"] * len(dims)}
        args = {"External id": next(self.ids), **recorded}
        self.add("user_annotation", f"gloo:{kind}", at, dur, tid=tid, args=args)

    def step(self, number: int, at: float, dur: float) -> None:
        self.add("user_annotation", f"ProfilerStep#{number}", at, dur)

    def trace(self, folder: Path) -> ks.Trace:
        folder = folder / f"{self.rank}"
        folder.mkdir(exist_ok=True)
        configured = [
            {"pg_name": name, "backend_config": "cpu:gloo,cuda:nccl", "pg_size": len(ranks), "ranks": ranks}
            for name, ranks in self.groups.items()
        ]
        job = {"rank": self.rank, "world_size": 2, "pg_config": configured}
        return self.read(folder, distributedInfo=job)


def told(trace: ks.Trace, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of ``collectives``, in the order of time, with the name of the call in front."""
    ops = trace.ops.with_columns(pl.col("name").cast(pl.String))
    calls = ops.select(call_row="row", call="name")
    starts = ops.select("row", at="start_ns")
    found = trace.collectives.join(calls, on="call_row", how="left").join(starts, on="row").sort("at", "row")
    return found.select(pl.col("call").str.strip_prefix("c10d::"), *columns).rows()


def test_work_of_other_threads_has_the_call_that_gave_it_to_them(tmp_path: Path) -> None:
    host = Host()
    host.hand_over("allreduce_", 100, [[[4, 8]], []])
    host.hand_over("_allgather_base_", 120, [[60], [30], []])
    host.hand_over("allreduce_", 140, [[[3], [4]], []])
    host.hand_over("_reduce_scatter_base_", 160, [[5], [10], []])
    host.hand_over("barrier", 180)
    # Two threads take them, and one begins later than the next.
    host.gloo("all_gather", 150, 40, [[30]], tid=71)
    host.gloo("all_reduce", 155, 30, [[4, 8]])
    host.gloo("all_reduce", 190, 30, [[10]], tid=71)
    host.gloo("all_reduce", 200, 30, [[3], [4]])
    host.gloo("barrier", 240, 10)
    assert told(
        host.trace(tmp_path), "name", "in_elements", "out_elements", "group_size", "process_group"
    ) == [
        ("_allgather_base_", "gloo:all_gather", 30, 60, 2, "0"),
        ("allreduce_", "gloo:all_reduce", 32, None, 2, "0"),
        ("_reduce_scatter_base_", "gloo:all_reduce", 10, None, 2, "0"),
        ("allreduce_", "gloo:all_reduce", 7, None, 2, "0"),
        ("barrier", "gloo:barrier", None, None, 2, "0"),
    ]


def test_what_begins_in_a_call_is_of_that_call(tmp_path: Path) -> None:
    host = Host(rank=1, groups={"0": [4, 1, 7]})
    host.hand_over("send", 100, [[[6]], [], [], []], Concrete_Inputs=["", "", "2", "0"])
    host.gloo("send", 105, 50, [[6]], tid=7)
    host.hand_over("recv_", 110, [[[6]], [], [], []], Concrete_Inputs=["", "", "0", "0"])
    host.gloo("recv", 118, 80, [[6]], tid=7)
    host.hand_over("broadcast_", 200, [[[6]], [], [], []], Concrete_Inputs=["", "", "2", "0"])
    host.gloo("broadcast", 230, 80, [[6]])
    found = told(host.trace(tmp_path), "rank", "source_rank", "destination_rank", "root_rank")
    assert found == [("send", 1, 1, 7, None), ("recv_", 1, 4, 1, None), ("broadcast_", 1, None, None, 2)]


def test_work_without_a_call_has_none(tmp_path: Path) -> None:
    """Its call was before the recording, in another process, or of another kind."""
    host = Host()
    host.gloo("all_reduce", 50, 10, [[4]])
    host.hand_over("allreduce_", 100, [[[4]], []])
    host.hand_over("broadcast_", 100, [[[4]], []], tid=8)
    host.add("cpu_op", "c10d::all_reduce_", 10, 5, pid=8, args={"Input Dims": [[[4]], []]})
    host.gloo("reduce", 150, 10, [[4]])
    host.gloo("all_reduce", 160, 10, [[4]])
    # The user's own, without a call.
    host.gloo("all_gather", 170, 10, [[4]])
    calls = told(host.trace(tmp_path), "name")
    assert calls == [
        (None, "gloo:all_reduce"),
        (None, "gloo:reduce"),
        ("allreduce_", "gloo:all_reduce"),
        (None, "gloo:all_gather"),
    ]


def test_calls_and_work_that_were_not_recorded_do_not_move_the_others(tmp_path: Path) -> None:
    host = Host()
    for at in (100, 200, 300):
        host.hand_over("allreduce_", at, [[[4]], []])
    # The work of the first call is missing, and so is the call of what was given over before.
    host.gloo("all_reduce", 90, 30, [[4]])
    host.gloo("all_reduce", 210, 30, [[4]])
    host.gloo("all_reduce", 310, 30, [[4]])
    trace = host.trace(tmp_path)
    starts = trace.ops.select(call_row="row", called_ns="start_ns")
    found = trace.collectives.join(starts, on="call_row", how="left")["called_ns"].to_list()
    assert sorted(found, key=lambda at: at or 0) == [None, 200_000, 300_000]


def test_calls_for_which_a_device_communicates_hand_nothing_over(tmp_path: Path) -> None:
    host = Host()
    host.hand_over("allreduce_", 100, [[[4]], []])
    host.op("c10d::allreduce_", 200, 40, Input_Dims=[[[4]], []])
    host.op("record_param_comms", 210, 20)
    host.annotation("nccl:all_reduce", 212, 10)
    host.gloo("all_reduce", 250, 30, [[4]])
    trace = host.trace(tmp_path)
    (row,) = trace.collectives.filter(pl.col("name").cast(pl.String) == "gloo:all_reduce").to_dicts()
    assert trace.ops.filter(pl.col("row") == row["call_row"])["start_ns"].to_list() == [100_000]


@pytest.mark.parametrize(("name", "kind"), [("scatter_", "scatter"), ("reduce_scatter_", "all_reduce")])
def test_lists_of_lists_have_no_size(tmp_path: Path, name: str, kind: str) -> None:
    host = Host()
    host.hand_over(name, 100, [[[4]], [], []])
    host.gloo(kind, 150, 30, [[4], [4]])
    assert told(host.trace(tmp_path), "in_elements") == [(name, 8)]


def test_of_several_groups_the_size_tells_which_communicates(tmp_path: Path) -> None:
    host = Host(groups=GROUPS)
    host.hand_over("_allgather_base_", 100, [[40], [10], []])
    host.gloo("all_gather", 120, 10, [[10]], tid=70)
    host.hand_over("allreduce_", 140, [[[3]], []])
    host.gloo("all_reduce", 150, 10, [[3]], tid=70)
    host.hand_over("allreduce_", 160, [[[3]], []])
    host.gloo("all_reduce", 170, 10, [[3]], tid=71)
    trace = host.trace(tmp_path)
    # A thread works for one group; of the other's nothing is known.
    assert told(trace, "process_group", "group_size") == [
        ("_allgather_base_", "1", 4),
        ("allreduce_", "1", 4),
        ("allreduce_", None, None),
    ]
    calls = analysis.rank_calls(trace).sort("start_ns")
    assert calls["group"].to_list() == ["1 [0,1,2,3]", "1 [0,1,2,3]", "unknown (rank 0)"]


def test_calls_of_unknown_groups_are_not_matched(tmp_path: Path) -> None:
    traces: list[ks.Trace] = []
    for rank in (0, 1):
        host = Host(rank, groups={"0": [0, 1], "1": [0, 1]})
        host.step(1, 0, 1000)
        host.hand_over("allreduce_", 100, [[[3]], []])
        host.gloo("all_reduce", 150 + 200 * rank, 500 - 200 * rank, [[3]])
        traces.append(host.trace(tmp_path))
    assert analysis.collective_instances(traces)["ranks_seen"].to_list() == [1, 1]
    assert analysis.cluster_findings(traces).filter(finding="slow_link").is_empty()


def pair(folder: Path, **late: float) -> list[ks.Trace]:
    """Two ranks that compute, all-reduce on another thread while they compute, and wait for it.

    ``late`` is how much longer the second rank takes for a phase in every second step.
    """
    traces: list[ks.Trace] = []
    for rank in (0, 1):
        host = Host(rank)
        for step in range(4):
            begin = 10_000 * step
            lateness = {phase: us * (step % 2) for phase, us in late.items()}
            slowest = sum(lateness.values())
            own = {phase: us * rank for phase, us in lateness.items()}
            host.step(step, begin, 2_200 + slowest)
            at = begin + 100
            host.op("aten::linear", at, 300, Sequence_number=step)
            at += 300 + own.get("forward", 0)
            host.op("aten::mse_loss", at, 100, Sequence_number=100 + step)
            at += 100
            before = own.get("backward", 0)
            host.op("autograd::engine::evaluate_function: MseLossBackward0", at, 600 + before)
            host.op("aten::mm", at + 10, 100)
            at += before
            host.hand_over("allreduce_", at + 200, [[[64]], []])
            end = begin + 1_700 + slowest
            host.gloo("all_reduce", at + 250, end - at - 250, [[64]])
            host.op("aten::mm", at + 300, 200)
            host.add("user_annotation", "Optimizer.step#SGD.step", end, 300, args={})
        traces.append(host.trace(folder))
    return traces


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_the_late_rank_is_named_with_its_phase_and_how_late_it_is(tmp_path: Path, phase: str) -> None:
    traces = pair(tmp_path, **{phase: 3_000})
    late = analysis.stragglers(traces)
    assert late.select("step", "rank", "cause", "phase", "excess_ns").rows() == [
        (step, 1, "compute", phase, 3 * MS) for step in (1, 3)
    ]
    (row,) = analysis.cluster_findings(traces).to_dicts()
    assert (row["finding"], row["ranks"], row["phase"], row["value"]) == ("slow_rank", [1], phase, 3 * MS)
    assert row["message"].startswith("Rank 1 is late in 2 of 4 steps, by 3.000 ms on average: its host takes")


def test_two_ranks_that_are_alike_have_no_finding(tmp_path: Path) -> None:
    assert analysis.cluster_findings(pair(tmp_path)).is_empty()


def test_operators_hide_what_gloo_does_meanwhile(tmp_path: Path) -> None:
    """Of an operator of autograd what it calls computes, and no wait for a collective."""
    host = Host()
    host.hand_over("allreduce_", 100, [[[3]], []])
    host.gloo("all_reduce", 110, 100, [[3]])
    host.op(GRADIENT, 120, 80)
    host.op("aten::mm", 130, 20)
    host.op("_c10d_functional::wait_tensor", 160, 30)
    host.op("aten::mm", 200, 50, tid=8)
    (call,) = analysis.rank_calls(host.trace(tmp_path)).to_dicts()
    assert (call["dur_ns"], call["exposed_ns"]) == (100_000, 100_000 - 20_000 - 10_000)


def test_of_collectives_that_run_at_once_the_last_is_waited_for(tmp_path: Path) -> None:
    host = Host()
    for at, dur in ((100, 100), (120, 50), (150, 100)):
        host.hand_over("allreduce_", at - 10, [[[3]], []])
        host.gloo("all_reduce", at, dur, [[3]], tid=at)
    calls = analysis.rank_calls(host.trace(tmp_path)).sort("start_ns")
    assert calls["exposed_ns"].to_list() == [20_000, 30_000, 100_000]


def test_a_transfer_is_matched_by_its_direction(tmp_path: Path) -> None:
    """Each rank sends before it receives, which in order of time alone pairs what both send."""
    traces: list[ks.Trace] = []
    for rank in (0, 1):
        host = Host(rank)
        host.step(1, 0, 1000)
        for name, kind, at in (("send", "send", 100), ("recv_", "recv", 200)):
            start = at + 50 * rank
            host.hand_over(name, start, [[[6]], [], []], Concrete_Inputs=["", "", str(1 - rank), "0"])
            host.gloo(kind, start + 5, 300 - start, [[6]], tid=7)
        traces.append(host.trace(tmp_path))
    found = analysis.rank_calls(traces).group_by("instance").agg(pl.col("kind").sort(), pl.col("rank").sort())
    assert found.drop("instance").rows() == [(["recv", "send"], [0, 1])] * 2


def test_communication_by_group_and_phase(tmp_path: Path) -> None:
    by_phase = analysis.communication(pair(tmp_path), by=("group", "phase"))
    assert by_phase.select("group", "phase", "collectives", "calls").rows() == [("0 [0,1]", "backward", 4, 8)]


@pytest.mark.parametrize(
    ("kind", "phase"), [("ddp", "forward"), ("fsdp", "backward"), ("tp", "optimizer"), ("pp", "forward")]
)
def test_a_recorded_job(kind: str, phase: str) -> None:
    """Of PyTorch 2.15, two ranks; the second sleeps 200 ms in every second step (``tests/gloo_jobs.py``)."""
    traces = [ks.read(RECORDED / f"{kind}-rank{rank}.json.gz") for rank in (0, 1)]
    for trace in traces:
        assert trace.collectives["call_row"].null_count() == 0
        assert trace.collectives["process_group_ranks"].cast(pl.String).unique().to_list() == ["[0,1]"]
    instances = analysis.collective_instances(traces)
    assert instances.height * 2 == instances["ranks_seen"].sum()
    assert instances["agrees"].all() or kind == "pp"
    calls = sum(trace.collectives.height for trace in traces)
    assert analysis.communication(traces, by=("group", "phase"))["calls"].sum() == calls
    row = analysis.cluster_findings(traces).row(0, named=True)
    assert (row["ranks"], row["phase"]) == ([1], phase)
    assert row["value"] == pytest.approx(200 * MS, rel=0.1)
    assert row["message"].startswith("Rank 1 is late in 2 of 4 steps, by ")
