"""Collectives over ranks: which calls are one, what ranks wait, how fast they are, and whose clock is off."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from many_ranks import BASE_NS, Rank, training

import kernelscope as ks
from kernelscope import _traceparse, analysis
from kernelscope.analysis.ranks.cluster import cluster_of
from kernelscope.costs.communication import bus_factor
from kernelscope.errors import InvalidArgumentError

GROUP = "0 [0,1,2]"


def one_collective(
    folder: Path, starts: list[float], end: float, *, missing: tuple[int, ...] = (), **known: Any
) -> list[ks.Trace]:
    """A collective that ranks enter at ``starts`` and leave at ``end``."""
    jobs = [Rank(rank, len(starts)) for rank in range(len(starts))]
    for job, start in zip(jobs, starts, strict=True):
        job.kernel(start - 20, 15, launched=start - 30)
        job.collective(start, end - start, launched=start - 10, **known)
    return [job.read(folder) for job in jobs if job.rank not in missing]


def test_waiting_is_apart_from_transfer(tmp_path: Path) -> None:
    traces = one_collective(tmp_path, [100, 140, 190], 250, Seq=7)
    (row,) = analysis.collective_instances(traces).to_dicts()
    assert (row["kind"], row["group"], row["group_size"], row["sequence"]) == ("all_reduce", GROUP, 3, 7)
    assert (row["first_rank"], row["last_rank"], row["skew_ns"]) == (0, 2, 90_000)
    assert (row["transfer_ns"], row["wait_ns"], row["total_ns"]) == (60_000, 90_000 + 50_000, 320_000)
    assert (row["exposed_ns"], row["matched_by"], row["agrees"]) == (320_000, "sequence", True)
    calls = analysis.rank_calls(traces)
    assert calls["wait_ns"].to_list() == [90_000, 50_000, 0]


def test_late_ranks(tmp_path: Path) -> None:
    traces = one_collective(tmp_path, [100, 140, 190], 250)
    assert analysis.collective_stragglers(traces).rows() == [
        (2, 1, 1, 0, 140_000, 0),
        (0, 1, 0, 1, 0, 90_000),
        (1, 1, 0, 0, 0, 50_000),
    ]
    assert analysis.collective_stragglers(traces[:1]).is_empty()


@pytest.mark.parametrize(
    ("name", "sent", "received", "message", "factor"),
    [
        # The factors of nccl-tests: size over time, times what share of it each link carries.
        ("allreduce", 800, 800, 3200, 2 * 2 / 3),
        ("_allgather_base", 800, 2400, 9600, 2 / 3),
        ("ncclAllGather", 800, 2400, 9600, 2 / 3),
        ("_reduce_scatter_base", 2400, 800, 9600, 2 / 3),
        ("all_to_all", 900, 900, 3600, 2 / 3),
        ("all_to_allv", 900, 600, 3600, 2 / 3),
        ("broadcast", 800, 800, 3200, 1),
        ("reduce", 800, 800, 3200, 1),
        ("send", 800, 800, 3200, 1),
    ],
)
def test_bandwidth(tmp_path: Path, name: str, sent: int, received: int, message: int, factor: float) -> None:
    known = {"Collective_name": name, "In_msg_nelems": sent, "Out_msg_nelems": received}
    traces = one_collective(tmp_path, [100, 100, 110], 150, **known)
    (row,) = analysis.collective_instances(traces).to_dicts()
    assert row["message_bytes"] == message
    assert row["algorithm_bytes_per_s"] == pytest.approx(message / 40e-6)
    assert row["bus_bytes_per_s"] == pytest.approx(message / 40e-6 * factor)
    (total,) = analysis.communication(traces).to_dicts()
    assert total["bus_bytes_per_s"] == pytest.approx(row["bus_bytes_per_s"])
    assert total["total_ns"] == 50_000 + 50_000 + 40_000


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_bus_factors_are_what_links_carry(ranks: int) -> None:
    """nccl-tests derives them: S bytes over n ranks, each with one link of bandwidth B.

    A ring all-reduce sends 2 (n - 1) of n parts over each link, an all-gather or a reduce-scatter n - 1 of
    them, an all-to-all keeps one part; from one root everything crosses one link once.
    """
    part = 1 / ranks
    assert bus_factor("all_reduce", ranks) == pytest.approx(2 * (ranks - 1) * part)
    for kind in ("all_gather", "reduce_scatter", "all_to_all"):
        assert bus_factor(kind, ranks) == pytest.approx(1 - part)
    for kind in ("broadcast", "reduce", "send", "recv"):
        assert bus_factor(kind, ranks) == 1


def test_sizes_that_differ(tmp_path: Path) -> None:
    """In an all-to-all the rank that sends most decides; elsewhere the calls cannot be one collective."""
    for name, agrees in (("all_to_allv", True), ("allreduce", False)):
        jobs = [Rank(rank, 2) for rank in (0, 1)]
        for job, sent in zip(jobs, (100, 300), strict=True):
            job.collective(10, 20, launched=5, Collective_name=name, In_msg_nelems=sent)
        (row,) = analysis.collective_instances([job.read(tmp_path) for job in jobs]).to_dicts()
        assert (row["message_bytes"], row["agrees"]) == (1200, agrees)


def test_a_kernel_that_sends_and_receives_may_do_anything(tmp_path: Path) -> None:
    job = Rank(0, 2)
    job.kernel(10, 20, launched=5, name="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
    (row,) = analysis.collective_instances([job.read(tmp_path)]).to_dicts()
    assert (row["kind"], row["message_bytes"], row["bus_bytes_per_s"]) == ("send_recv", None, None)
    assert row["group"] is None


@pytest.mark.parametrize("elements", [-5, 2**62])
def test_sizes_that_cannot_be_are_not_known(tmp_path: Path, elements: int) -> None:
    traces = one_collective(tmp_path, [100, 110], 150, In_msg_nelems=elements)
    (row,) = analysis.communication(traces).to_dicts()
    assert (row["message_bytes"], row["bus_bytes_per_s"], row["collectives"]) == (None, None, 1)


def test_missing_ranks_are_not_waited_for(tmp_path: Path) -> None:
    traces = one_collective(tmp_path, [100, 140, 190], 250, missing=(2,))
    (row,) = analysis.collective_instances(traces).to_dicts()
    assert (row["ranks_seen"], row["group_size"], row["wait_ns"], row["skew_ns"]) == (2, 3, 40_000, 40_000)
    assert analysis.communication(traces)["incomplete"].to_list() == [1]


def test_a_rank_alone_says_nothing_of_waiting(tmp_path: Path) -> None:
    trace = one_collective(tmp_path, [100, 140, 190], 250)[0]
    (row,) = analysis.collective_instances(trace).to_dicts()
    assert (row["ranks_seen"], row["wait_ns"], row["skew_ns"], row["transfer_ns"]) == (1, None, None, 150_000)
    (total,) = analysis.communication(trace).to_dicts()
    assert (total["wait_ns"], total["skew_p50_ns"]) == (None, None)
    (clock,) = analysis.clock_offsets(trace).to_dicts()
    assert (clock["offset_ns"], clock["collectives"], clock["clock_group"]) == (None, 0, None)


def numbered(folder: Path, sequences: list[list[int | None]]) -> pl.DataFrame:
    """Ranks that call collectives one after the other; a null leaves the number out."""
    jobs = [Rank(rank, len(sequences)) for rank in range(len(sequences))]
    for job, numbers in zip(jobs, sequences, strict=True):
        for place, number in enumerate(numbers):
            job.collective(100 + 50 * place, 20, launched=50 + 50 * place, Seq=number)
    return analysis.collective_instances([job.read(folder) for job in jobs])


def test_sequence_numbers_match_what_order_would_not(tmp_path: Path) -> None:
    """The second rank's recording began one collective later."""
    instances = numbered(tmp_path, [[5, 6, 7], [6, 7, 8]])
    seen = sorted(instances.select("sequence", "ranks_seen", "matched_by").rows())
    assert seen == [(5, 1, "sequence"), (6, 2, "sequence"), (7, 2, "sequence"), (8, 1, "sequence")]


def test_order_matches_where_a_number_is_missing(tmp_path: Path) -> None:
    instances = numbered(tmp_path, [[5, 6], [5, None]])
    assert instances.select("ranks_seen", "matched_by").rows() == [(2, "order"), (2, "order")]


def test_kernels_of_one_number_are_told_apart(tmp_path: Path) -> None:
    """Coalesced calls share a sequence number."""
    instances = numbered(tmp_path, [[5, 5, 6], [5, 5, 6]])
    assert sorted(instances.select("sequence", "ranks_seen").rows()) == [(5, 2), (5, 2), (6, 2)]


def test_order_counts_inside_a_step(tmp_path: Path) -> None:
    """A collective that only one rank has before the first step shifts nothing."""
    jobs = [Rank(rank, 2) for rank in (0, 1)]
    jobs[0].collective(20, 5, launched=10)
    for job in jobs:
        job.step(3, 100, 100)
        job.collective(150, 20, launched=120)
    instances = analysis.collective_instances([job.read(tmp_path) for job in jobs])
    assert instances.select("step", "ranks_seen").rows() == [(None, 1), (3, 2)]


def test_transfers_are_matched_by_their_pair(tmp_path: Path) -> None:
    jobs = [Rank(rank, 3) for rank in range(3)]
    for rank, other, name in ((0, 1, "send"), (1, 0, "recv"), (1, 2, "send"), (2, 1, "recv")):
        source, destination = (rank, other) if name == "send" else (other, rank)
        at = 100 if 0 in (rank, other) else 200
        pair = {"Src_Rank": source, "Dst_Rank": destination}
        jobs[rank].collective(at, 30, launched=50, Collective_name=name, **pair)
    instances = analysis.collective_instances([job.read(tmp_path) for job in jobs])
    assert instances.select("peer", "ranks_seen").rows() == [("0-1", 2), ("1-2", 2)]


def test_groups_of_one_name_and_other_ranks_are_apart(tmp_path: Path) -> None:
    jobs = [Rank(rank, 4) for rank in range(4)]
    for job in jobs:
        first = job.rank // 2 * 2
        group = {"Process_Group_Name": "1", "Process_Group_Ranks": str([first, first + 1]), "Group_size": 2}
        job.collective(100 + first, 20, launched=50, Seq=1, **group)
    instances = analysis.collective_instances([job.read(tmp_path) for job in jobs])
    assert instances.select("group", "ranks_seen").rows() == [("1 [0,1]", 2), ("1 [2,3]", 2)]


def test_computing_hides_communication(tmp_path: Path) -> None:
    job = Rank(0, 2)
    job.collective(100, 100, launched=50)
    job.kernel(60, 70, launched=55)
    job.kernel(150, 20, launched=56)
    (row,) = analysis.rank_calls([job.read(tmp_path)]).to_dicts()
    assert (row["dur_ns"], row["exposed_ns"]) == (100_000, 100_000 - 30_000 - 20_000)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-5_000_000, 5_000_000), min_size=2, max_size=5), st.integers(0, 400))
def test_clocks_are_found(offsets: list[int], jitter: int) -> None:
    """Ranks leave a collective within ``jitter`` ns of each other."""
    with TemporaryDirectory() as folder:
        jobs = [Rank(rank, len(offsets), offset=offset / 1000) for rank, offset in enumerate(offsets)]
        for job in jobs:
            for place in range(6):
                late = (place * 7 + job.rank * 5) % 3 * jitter / 2000
                end = 10_000 + 1000 * place + late
                start = end - 100 - job.rank * 13
                job.collective(start, round(end - start, 3), launched=start - 50, Seq=place)
        found = analysis.clock_offsets([job.read(Path(folder)) for job in jobs])
    shift = found["offset_ns"][0] - offsets[0]
    for rank, offset in enumerate(offsets):
        # Of what the ends differ by, medians can lie anywhere; times and sums are rounded to nanoseconds.
        assert abs(found["offset_ns"][rank] - offset - shift) <= jitter + 3
        assert found["residual_max_ns"][rank] <= 2 * jitter + 3
    assert found["offset_ns"].median() == pytest.approx(0, abs=1)


def test_clocks_go_through_shared_ranks(tmp_path: Path) -> None:
    """Ranks 0 and 3 are in no group together; rank 4 shares none with anybody."""
    offsets = [0, 250, -4000, 90, 7]
    jobs = [Rank(rank, 5, offset=offset) for rank, offset in enumerate(offsets)]
    for number, members in enumerate([(0, 1), (1, 2), (2, 3), (4,)]):
        for rank in members:
            group = {"Process_Group_Name": str(number), "Process_Group_Ranks": str(list(members))}
            jobs[rank].collective(1000 + 100 * number, 50, launched=900, Seq=1, Group_size=2, **group)
    found = analysis.clock_offsets([job.read(tmp_path) for job in jobs])
    assert (found["offset_ns"] - found["offset_ns"][0]).to_list()[:4] == [0, 250_000, -4_000_000, 90_000]
    assert found["offset_ns"][4] is None
    assert found["clock_group"].n_unique() == 2


def test_base_times_are_part_of_the_clock(tmp_path: Path) -> None:
    """One recorder counts from an hour later than the other; one rank's trace counts from 1970."""
    jobs = [Rank(rank, 3) for rank in range(3)]
    for job, shift in zip(jobs, (0, 3_600_000_000, -BASE_NS // 1000), strict=True):
        job.base_ns = BASE_NS + shift * 1000 if shift > 0 else BASE_NS if shift == 0 else None
        job.offset = -shift
        for place in range(3):
            job.collective(500 + 100 * place + job.rank, 50 - job.rank, launched=400, Seq=place)
    traces = [job.read(tmp_path) for job in jobs]
    calls = analysis.rank_calls(traces)
    starts = calls.group_by("rank").agg(pl.col("start_ns").min()).sort("rank")["start_ns"].to_list()
    assert [start - starts[0] for start in starts] == [0, 1000, 2000]
    found = analysis.clock_offsets(traces[:2])
    assert found["offset_ns"].to_list() == [0, 0]


def test_two_traces_of_one_rank_are_refused(tmp_path: Path) -> None:
    traces = training(tmp_path, 2, steps=1)
    with pytest.raises(InvalidArgumentError, match=r"rank1\.json and .*rank1\.json are both of rank 1"):
        analysis.communication([*traces, traces[1]])
    with pytest.raises(InvalidArgumentError, match="no rank"):
        analysis.communication([])
    with pytest.raises(InvalidArgumentError, match="cannot group by"):
        analysis.communication(traces, by="colour")


class Scanned:
    """Tables of many ranks, as a lake has them."""

    def __init__(self, traces: list[ks.Trace], *, rank_from: str = "metadata") -> None:
        ranks = [place if t.meta.rank is None else t.meta.rank for place, t in enumerate(traces)]
        known = [
            {"rank": rank, "base_time_ns": t.meta.base_time_ns, "outcome": "done", "rank_from": rank_from}
            for rank, t in zip(ranks, traces, strict=True)
        ]
        failed = {"rank": 99, "base_time_ns": None, "outcome": "failed", "rank_from": None}
        self.manifest = pl.DataFrame([*known, failed])
        self.tables = {
            name: pl.concat(
                [
                    t.tables[name].with_columns(rank=pl.lit(r, pl.Int64))
                    for r, t in zip(ranks, traces, strict=True)
                ]
            ).lazy()
            for name in traces[0].tables
        }


def test_a_lake_answers_as_its_traces_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = training(tmp_path, 5, slower={3: 300}, offsets={1: 40})
    whole = cluster_of(traces)
    monkeypatch.setattr("kernelscope.analysis.ranks.cluster.RANKS_AT_ONCE", 2)
    lake: Any = Scanned(traces)
    parts = cluster_of(lake)
    assert parts.calls.equals(whole.calls)
    assert parts.steps.equals(whole.steps)
    assert analysis.communication(lake).equals(analysis.communication(whole))
    assert analysis.cluster_findings(lake).equals(analysis.cluster_findings(traces))
    # Large traces are read one by one, however few they are.
    lake.manifest = lake.manifest.with_columns(events=pl.Series([7_000_000] * lake.manifest.height))
    monkeypatch.setattr("kernelscope.analysis.ranks.cluster.RANKS_AT_ONCE", 64)
    with monkeypatch.context() as patch:
        seen: list[int] = []
        patch.setattr(
            "kernelscope.analysis.ranks.cluster.communication_calls",
            lambda tables, *, ranks: (
                seen.extend([ranks, tables["steps"].collect()["rank"].n_unique()]) or whole.calls.clear()
            ),
        )
        assert cluster_of(lake).calls.is_empty()
    assert seen == [1] * 10
    lake.manifest = pl.concat([lake.manifest, lake.manifest.head(1)])
    with pytest.raises(InvalidArgumentError, match="rank 0 is in the lake more than once"):
        analysis.communication(lake)


def test_a_database_of_a_machine_holds_several_ranks(tmp_path: Path) -> None:
    """What PyTorch's ranges say of a collective stands in for arguments, which nsys does not record."""
    path = tmp_path / "node.sqlite"
    _traceparse.write_demo_database(path, kind="nsys", size_bytes=1_000_000, ranks=2, seed=3)
    trace = ks.read(path)
    cluster = cluster_of(trace)
    assert cluster.ranks["rank"].to_list() == [0, 1]
    instances = analysis.collective_instances(cluster)
    assert instances["ranks_seen"].unique().to_list() == [2]
    assert instances["kind"].unique().to_list() == ["all_reduce"]
    sums = trace.ranges.filter(pl.col("name").cast(pl.String) == "record_param_comms")
    sizes = sums["sizes"].cast(pl.String).str.extract(r"(\d+)").cast(pl.Int64)
    assert sorted(set(instances["message_bytes"])) == sorted({2 * elements for elements in sizes})
    assert instances["wait_ns"].null_count() == 0
    # The size of the group is not recorded.
    assert instances["bus_bytes_per_s"].null_count() == instances.height
    assert cluster.steps.is_empty()
    both = cluster_of([trace, Rank(0, 8).read(tmp_path), Rank(2, 8).read(tmp_path)])
    expected = [(0, "metadata"), (1, "place"), (2, "metadata"), (3, "place")]
    assert both.ranks.select("rank", "rank_from").rows() == expected
    lake: Any = Scanned([trace, trace], rank_from="name")
    machines = cluster_of(lake)
    assert machines.ranks["rank"].to_list() == [0, 1, 2, 3]
    assert machines.calls.filter(rank=3)["start_ns"].equals(cluster.calls.filter(rank=1)["start_ns"])


def test_quantiles_over_the_rows_of_all_ranks(tmp_path: Path) -> None:
    traces = training(tmp_path, 4, steps=3, slower={1: 100, 2: 200})
    table = analysis.table_quantiles(traces, quantiles=(0.5, 0.9))
    gemm = table.filter(name="gemm").to_dicts()[0]
    durations = sorted([1000, 1100, 1200, 1000] * 3)
    assert (gemm["count"], gemm["sum"]) == (12, sum(durations) * 1000)
    assert (gemm["q50"], gemm["q90"]) == (1_050_000, 1_200_000)
    lake: Any = Scanned(traces)
    assert analysis.table_quantiles(lake, quantiles=(0.5, 0.9)).equals(table)
    by_rank = analysis.table_quantiles(traces, "launches", by=("rank",), quantiles=())
    assert by_rank.sort("rank")["count"].to_list() == [6] * 4
    for wrong in ({"table": "colours"}, {"by": "colour"}, {"column": "colour"}):
        with pytest.raises(InvalidArgumentError):
            analysis.table_quantiles(traces, **wrong)


def test_no_communication_is_an_empty_table(tmp_path: Path) -> None:
    job = Rank(0, 1)
    job.kernel(10, 5, launched=5)
    trace = job.read(tmp_path)
    assert analysis.communication(trace).is_empty()
    assert analysis.collective_instances(trace).is_empty()
    assert not math.isnan(analysis.clock_offsets(trace)["collectives"].sum())
