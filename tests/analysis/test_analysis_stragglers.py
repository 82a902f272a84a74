"""Who holds the others up, and by what; views over ranks and steps."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from many_ranks import Rank, training

import kernelscope as ks
from kernelscope import analysis
from kernelscope.errors import InvalidArgumentError

US = 1000


def test_the_slow_rank_waits_for_nobody(tmp_path: Path) -> None:
    steps = analysis.rank_steps(training(tmp_path, 4, slower={2: 300}))
    assert steps["total_ns"].unique().to_list() == [1560 * US]
    own = dict(steps.filter(step=1).select("rank", "own_ns").rows())
    assert own == {0: 1260 * US, 1: 1260 * US, 2: 1560 * US, 3: 1260 * US}
    parts = ["compute_ns", "launch_ns", "data_ns", "network_ns", "wait_ns"]
    assert (steps.select(parts).sum_horizontal() == steps["total_ns"]).all()
    assert (steps["own_ns"] + steps["wait_ns"] == steps["total_ns"]).all()


@pytest.mark.parametrize(
    ("fault", "cause", "finding"),
    [
        ("slower", "compute", "slow_rank"),
        ("loading", "data", "late_data_loader"),
        ("launching", "launch", "slow_launch"),
    ],
)
def test_causes(tmp_path: Path, fault: str, cause: str, finding: str) -> None:
    faults: dict[str, Any] = {fault: {3: 240}}
    traces = training(tmp_path, 6, steps=5, **faults)
    late = analysis.stragglers(traces)
    assert late.select("step", "rank", "cause", "excess_ns", "ranks").rows() == [
        (step, 3, cause, 240 * US, 6) for step in range(5)
    ]
    assert late[f"{cause}_excess_ns"].to_list() == [240 * US] * 5
    ranks = analysis.straggler_ranks(traces)
    assert ranks.rows() == [(3, cause, 5, 5, 5 * 240 * US)]
    (row,) = analysis.cluster_findings(traces).to_dicts()
    assert (row["finding"], row["ranks"], row["lost_ns"], row["value"]) == (
        finding,
        [3],
        5 * 240 * US,
        240 * US,
    )
    assert row["message"].startswith("Rank 3 is late in 5 of 5 steps, by 240.0 us on average: its ")


def test_ranks_that_are_alike_do_not_straggle(tmp_path: Path) -> None:
    traces = training(tmp_path, 4)
    assert analysis.stragglers(traces).is_empty()
    assert analysis.straggler_ranks(traces).is_empty()
    assert analysis.cluster_findings(traces).is_empty()


def test_less_than_the_threshold_is_no_straggling(tmp_path: Path) -> None:
    traces = training(tmp_path, 4, slower={1: 60})
    # 60 us of a step of 1320 us.
    assert analysis.stragglers(traces, threshold=0.046).is_empty()
    assert analysis.stragglers(traces, threshold=0.045)["rank"].to_list() == [1] * 4


@pytest.mark.parametrize(("ranks", "slow"), [(2, [1]), (4, [0, 3]), (5, [1, 2])])
def test_up_to_half_of_the_ranks_may_be_slow(tmp_path: Path, ranks: int, slow: list[int]) -> None:
    traces = training(tmp_path, ranks, steps=2, slower=dict.fromkeys(slow, 300.0))
    late = analysis.stragglers(traces)
    assert late.select("step", "rank").rows() == [(step, rank) for step in (0, 1) for rank in slow]
    assert late["excess_ns"].unique().to_list() == [300 * US]


def test_a_part_stands_out_where_other_ranks_are_late_by_another(tmp_path: Path) -> None:
    """Most ranks are late by their host, so that only its computing tells the slow GPU from them."""
    launching = dict.fromkeys(range(3, 6), 250.0)
    traces = training(tmp_path, 6, steps=2, slower={0: 240}, launching=launching)
    late = analysis.stragglers(traces).filter(step=1)
    assert dict(late.select("rank", "cause").rows()) == {0: "compute", 3: "launch", 4: "launch", 5: "launch"}


def test_one_rank_has_nobody_to_be_late_for(tmp_path: Path) -> None:
    traces = training(tmp_path, 1)
    assert analysis.stragglers(traces).is_empty()
    assert analysis.rank_groups(traces)["ranks"].to_list() == [[0]]


def hosts(folder: Path, *, slow: int | None, jitter: float = 0.0) -> list[ks.Trace]:
    """Four hosts of two ranks, each of which sums on its own; one's links take three times as long."""
    traces: list[ks.Trace] = []
    for rank in range(8):
        host = rank // 2
        job = Rank(rank, 8, host=f"node{host}", offset=[0, 11, -700, 3][host])
        group = {"Process_Group_Name": "1", "Process_Group_Ranks": str([2 * host, 2 * host + 1])}
        for step in range(3):
            start = 1000.0 + 3000 * step
            took = 300 if host == slow else 100
            job.step(step, start, 500)
            job.kernel(start + 10, 1000, launched=start + 5)
            job.collective(start + 1010, took + jitter, launched=start + 6, Group_size=2, Seq=step, **group)
            total = start + 1500
            job.collective(start + 1010 + took, total - start - 1010 - took, launched=start + 7, Seq=step)
        traces.append(job.read(folder))
    return traces


def test_a_slow_link_and_clocks_of_hosts(tmp_path: Path) -> None:
    found = {row["finding"]: row for row in analysis.cluster_findings(hosts(tmp_path, slow=2)).to_dicts()}
    link = found["slow_link"]
    assert (link["ranks"], link["group"]) == ([4, 5], "1 [4,5]")
    assert link["value"] == pytest.approx(1 / 3)
    assert link["lost_ns"] == 3 * 200 * US
    clocks = analysis.cluster_findings(hosts(tmp_path, slow=2)).filter(finding="clock_offset")
    middle = statistics.median([0, 0, 11, 11, -700, -700, 3, 3])
    assert clocks.select("group", "ranks", "value").rows() == [("node2", [4, 5], (-700 - middle) * US)]
    # What the link explains is not told again of each of its ranks.
    assert "slow_network" not in found


def test_no_link_is_slow(tmp_path: Path) -> None:
    found = analysis.cluster_findings(hosts(tmp_path, slow=None))
    assert "slow_link" not in found["finding"].to_list()


def test_heat_map(tmp_path: Path) -> None:
    traces = training(tmp_path, 3, steps=2, slower={1: 300})
    own = analysis.rank_heatmap(traces)
    assert own.columns == ["rank", "0", "1"]
    assert own.rows() == [(0, 1260 * US, 1260 * US), (1, 1560 * US, 1560 * US), (2, 1260 * US, 1260 * US)]
    waits = analysis.rank_heatmap(traces, value="wait_ns")
    assert waits["0"].to_list() == [300 * US, 0, 300 * US]
    with pytest.raises(InvalidArgumentError):
        analysis.rank_heatmap(traces, value="colour")


def test_quantiles_are_over_all_ranks(tmp_path: Path) -> None:
    slower = {rank: 10.0 * rank for rank in range(7)}
    table = analysis.rank_quantiles(training(tmp_path, 7, steps=2, slower=slower), quantiles=(0.0, 0.25, 0.9))
    row = table.filter(step=1, part="own_ns").to_dicts()[0]
    values = [(1260 + 10 * rank) * US for rank in range(7)]
    assert (row["count"], row["mean_ns"], row["q0"]) == (7, statistics.mean(values), values[0])
    # Between neighbours in proportion: 6 gaps, of which a quarter and nine tenths are 1.5 and 5.4.
    assert (row["q25"], row["q90"]) == pytest.approx((1275 * US, 1314 * US))
    by_rank = analysis.rank_quantiles(training(tmp_path, 3), by="rank")
    assert by_rank.filter(part="total_ns")["q50"].to_list() == [1260 * US] * 3


def test_pace(tmp_path: Path) -> None:
    pace = analysis.step_pace(training(tmp_path, 3, steps=3, slower={0: 200}, offsets={2: 1000}))
    assert pace.filter(rank=2)["period_ns"].to_list() == [1460 * US, 1460 * US, None]
    # The clock that is ahead is set right, so that nobody is behind.
    assert pace["behind_ns"].to_list() == [0.0] * 9


def test_groups_that_behave_alike(tmp_path: Path) -> None:
    groups = analysis.rank_groups(training(tmp_path, 6, slower={1: 300, 4: 305}, loading={5: 500}))
    assert groups["ranks"].to_list() == [[0, 2, 3], [1, 4], [5]]
    assert groups["rank_group"].to_list() == [0, 1, 2]
    assert groups["compute_ns"].to_list() == [1000 * US, 1302.5 * US, 1000 * US]


def test_two_runs(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = training(tmp_path / "a", 3)
    after = training(tmp_path / "b", 4, slower={1: 252})
    table = analysis.run_difference(before, after)
    compute = {row["rank"]: row for row in table.filter(part="compute_ns").to_dicts()}
    assert compute[1]["change_ns"] == 252 * US
    assert compute[1]["change"] == pytest.approx(252 / 1260)
    assert (compute[0]["change_ns"], compute[3]["before_ns"], compute[3]["change_ns"]) == (0, None, None)
    assert table["change_ns"].drop_nulls().abs().is_sorted(descending=True)
