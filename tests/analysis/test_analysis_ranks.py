"""Collectives over ranks: matching, waits, bandwidth, clocks, and who holds the others up."""

import math
import statistics
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from many_ranks import BASE_NS, Rank, training

import draws
import kernelscope as ks
from events import GRADIENT, Events
from kernelscope import _traceparse, analysis
from kernelscope.analysis.ranks.cluster import Cluster, cluster_of
from kernelscope.analysis.ranks.collective_calls import CALL_SCHEMA
from kernelscope.analysis.ranks.collectives import calls_of
from kernelscope.analysis.ranks.parts import LEAST_MEMORY
from kernelscope.analysis.ranks.rank_tables import trace_tables
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


def instances_of(folder: Path, *jobs: Rank) -> pl.DataFrame:
    return analysis.collective_instances([job.read(folder) for job in jobs])


@pytest.mark.parametrize("name", ["gloo:all_reduce", "mpi:all_reduce", "nccl:all_reduce"])
def test_what_the_host_communicates_itself_is_a_collective(name: str, tmp_path: Path) -> None:
    events = Events()
    events.op(name, 10, 30)
    events.op("aten::mm", 50, 10)
    calls = analysis.rank_calls(events.read(tmp_path))
    runs_itself = name.startswith(tuple(_traceparse.host_collectives()))
    assert calls.select("kind", "dur_ns").rows() == ([("all_reduce", 30_000)] if runs_itself else [])
    assert runs_itself == (not name.startswith("nccl:"))


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


@pytest.mark.slow
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
        (row,) = instances_of(tmp_path, *jobs).to_dicts()
        assert (row["message_bytes"], row["agrees"]) == (1200, agrees)


def test_a_kernel_that_sends_and_receives_may_do_anything(tmp_path: Path) -> None:
    job = Rank(0, 2)
    job.kernel(10, 20, launched=5, name="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
    (row,) = instances_of(tmp_path, job).to_dicts()
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
    return instances_of(folder, *jobs)


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


@pytest.mark.parametrize("sequences", [[[None] * 3, [None] * 3], [[5, 6, 7], [6, 7, 8]]])
def test_ids_match_where_no_number_is_recorded(tmp_path: Path, sequences: list[list[int | None]]) -> None:
    """The second rank's recording began one collective later; ids are hashes of up to 64 bits."""
    ids = {5: 2**64 - 1, 6: 2**63 + 12, 7: 77, 8: 2**63 + 10}
    jobs = [Rank(rank, 2) for rank in (0, 1)]
    for job, numbers, begins in zip(jobs, sequences, (5, 6), strict=True):
        for place, number in enumerate(numbers):
            known = {"Seq": number, "Comms_Id": ids[begins + place]}
            job.collective(100 + 50 * place, 20, launched=50 + 50 * place, **known)
    instances = instances_of(tmp_path, *jobs)
    by = "comms_id" if sequences[0][0] is None else "sequence"
    assert sorted(instances.select("ranks_seen", "matched_by").rows()) == [(1, by), (1, by), (2, by), (2, by)]


def test_order_matches_where_an_id_is_missing(tmp_path: Path) -> None:
    jobs = [Rank(rank, 2) for rank in (0, 1)]
    for job in jobs:
        job.collective(100, 20, launched=50, Comms_Id=9 if job.rank else None)
    assert instances_of(tmp_path, *jobs).select("ranks_seen", "matched_by").rows() == [(2, "order")]


def grouped_job() -> Rank:
    """One all-reduce of the forward pass and two of the backward pass, in two process groups."""
    job = Rank(0, 4)
    pair = {"Process_Group_Name": "1", "Process_Group_Ranks": "[0, 1]", "Group_size": 2}
    job.add("cpu_op", "aten::linear", 10, 10, **{"Sequence number": 1})
    job.collective(100, 40, launched=12, **pair)
    job.add("cpu_op", GRADIENT, 30, 20)
    job.collective(200, 50, launched=32)
    job.collective(300, 60, launched=34, **pair)
    job.kernel(90, 20, launched=60)
    job.kernel(310, 100, launched=62)
    return job


def test_overlap_by_group_and_phase(tmp_path: Path) -> None:
    trace = grouped_job().read(tmp_path)
    of_groups = analysis.comm_comp_overlap(trace, by=("group",)).sort("group")
    assert of_groups.select("group", "calls", "communication_ns", "exposed_ns").rows() == [
        ("0 [0,1,2,3]", 1, 50_000, 50_000),
        ("1 [0,1]", 2, 100_000, 40_000),
    ]
    both = analysis.comm_comp_overlap(trace, by=("group", "phase")).sort("group", "phase")
    assert both.select("group", "phase", "overlap_ns").rows() == [
        ("0 [0,1,2,3]", "backward", 0),
        ("1 [0,1]", "backward", 50_000),
        ("1 [0,1]", "forward", 10_000),
    ]
    found = analysis.communication([trace], by=("group", "phase")).sort("group", "phase")
    assert found.select("phase", "collectives", "total_ns", "exposed_ns").rows() == [
        ("backward", 1, 50_000, 50_000),
        ("backward", 1, 60_000, 10_000),
        ("forward", 1, 40_000, 30_000),
    ]


def test_nothing_overlaps_without_communication(tmp_path: Path) -> None:
    job = Rank(0, 1)
    job.kernel(90, 20, launched=60)
    assert analysis.comm_comp_overlap(job.read(tmp_path), by=("group", "phase")).is_empty()


def test_order_counts_inside_a_step(tmp_path: Path) -> None:
    """A collective that only one rank has before the first step shifts nothing."""
    jobs = [Rank(rank, 2) for rank in (0, 1)]
    jobs[0].collective(20, 5, launched=10)
    for job in jobs:
        job.step(3, 100, 100)
        job.collective(150, 20, launched=120)
    instances = instances_of(tmp_path, *jobs)
    assert instances.select("step", "ranks_seen").rows() == [(None, 1), (3, 2)]


def test_transfers_are_matched_by_their_pair(tmp_path: Path) -> None:
    jobs = [Rank(rank, 3) for rank in range(3)]
    for rank, other, name in ((0, 1, "send"), (1, 0, "recv"), (1, 2, "send"), (2, 1, "recv")):
        source, destination = (rank, other) if name == "send" else (other, rank)
        at = 100 if 0 in (rank, other) else 200
        pair = {"Src_Rank": source, "Dst_Rank": destination}
        jobs[rank].collective(at, 30, launched=50, Collective_name=name, **pair)
    instances = instances_of(tmp_path, *jobs)
    assert instances.select("peer", "ranks_seen").rows() == [("0-1", 2), ("1-2", 2)]


@pytest.mark.parametrize("both", [False, True])
def test_transfers_are_matched_although_ranks_number_them_differently(both: bool, tmp_path: Path) -> None:
    """The middle of three ranks counts the transfers of both sides; torch names the other end alone."""
    jobs = [Rank(rank, 3) for rank in range(3)]
    numbers = [0] * 3
    for turn in range(2):
        for first in (0, 1):
            for rank, name in ((first, "send"), (first + 1, "recv")):
                ends = {"Src_Rank": first, "Dst_Rank": first + 1}
                own = "Src_Rank" if name == "send" else "Dst_Rank"
                known = ends if both else {key: value for key, value in ends.items() if key != own}
                numbers[rank] += 1
                at = 100 + 200 * turn + 100 * first
                jobs[rank].collective(
                    at, 30, launched=at - 50, Collective_name=name, Seq=numbers[rank], **known
                )
    instances = instances_of(tmp_path, *jobs)
    assert instances.select("peer", "ranks_seen").rows() == [("0-1", 2), ("1-2", 2)] * 2
    assert (instances["skew_ns"] == 0).all()


def test_groups_of_one_name_and_other_ranks_are_apart(tmp_path: Path) -> None:
    jobs = [Rank(rank, 4) for rank in range(4)]
    for job in jobs:
        first = job.rank // 2 * 2
        group = {"Process_Group_Name": "1", "Process_Group_Ranks": str([first, first + 1]), "Group_size": 2}
        job.collective(100 + first, 20, launched=50, Seq=1, **group)
    instances = instances_of(tmp_path, *jobs)
    assert instances.select("group", "ranks_seen").rows() == [("1 [0,1]", 2), ("1 [2,3]", 2)]


def test_computing_hides_communication(tmp_path: Path) -> None:
    job = Rank(0, 2)
    job.collective(100, 100, launched=50)
    job.kernel(60, 70, launched=55)
    job.kernel(150, 20, launched=56)
    (row,) = analysis.rank_calls([job.read(tmp_path)]).to_dicts()
    assert (row["dur_ns"], row["exposed_ns"]) == (100_000, 100_000 - 30_000 - 20_000)


@pytest.mark.slow
@settings(max_examples=draws.count(25, 500))
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
            {
                "rank": rank,
                "window": 0,
                "base_time_ns": t.meta.base_time_ns,
                "outcome": "done",
                "rank_from": rank_from,
            }
            for rank, t in zip(ranks, traces, strict=True)
        ]
        failed = {"rank": 99, "window": 0, "base_time_ns": None, "outcome": "failed", "rank_from": None}
        self.manifest = pl.DataFrame([*known, failed])
        numbered = [trace_tables(t, rank) for t, rank in zip(traces, ranks, strict=True)]
        self.tables = {name: pl.concat([one[name] for one in numbered]) for name in traces[0].tables}

    def part(self, window: int, ranks: list[int]) -> "Scanned":
        assert window == 0
        some = copy(self)
        some.tables = {name: t.filter(pl.col("rank").is_in(ranks)) for name, t in self.tables.items()}
        return some


def test_a_lake_answers_as_its_traces_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = training(tmp_path, 5, slower={3: 300}, offsets={1: 40})
    whole = cluster_of(traces)
    monkeypatch.setattr("kernelscope.analysis.ranks.cluster.RANKS_AT_ONCE", {"events": 2})
    lake: Any = Scanned(traces)
    parts = cluster_of(lake)
    assert analysis.rank_calls(parts).equals(analysis.rank_calls(whole))
    assert parts.steps.equals(whole.steps)
    assert analysis.communication(lake).equals(analysis.communication(whole))
    assert analysis.cluster_findings(lake).equals(analysis.cluster_findings(traces))
    # Large traces are read one by one, however few they are.
    lake.manifest = lake.manifest.with_columns(events=pl.Series([7_000_000] * lake.manifest.height))
    monkeypatch.setattr("kernelscope.analysis.ranks.cluster.RANKS_AT_ONCE", {"events": 64})
    with monkeypatch.context() as patch:
        seen: list[int] = []

        def calls(tables: Any, *, ranks: int) -> pl.DataFrame:
            seen.extend([ranks, tables["steps"].collect()["rank"].n_unique()])
            return pl.DataFrame(schema=CALL_SCHEMA)

        patch.setattr("kernelscope.analysis.ranks.cluster.communication_calls", calls)
        assert analysis.rank_calls(lake).is_empty()
    assert seen == [1] * 10
    lake.manifest = pl.concat([lake.manifest, lake.manifest.head(1)])
    with pytest.raises(InvalidArgumentError, match="rank 0 is in the lake more than once"):
        analysis.communication(lake)


def starts_of(cluster: Cluster, rank: int) -> pl.Series:
    """When the calls of a rank began, after its first."""
    starts = analysis.rank_calls(cluster).filter(rank=rank)["start_ns"]
    return starts - starts.min()


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
    assert starts_of(machines, 3).equals(starts_of(cluster, 1))


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


US = 1000


def test_the_slow_rank_waits_for_nobody(tmp_path: Path) -> None:
    steps = analysis.rank_steps(training(tmp_path, 4, slower={2: 300}))
    assert steps["total_ns"].unique().to_list() == [1560 * US]
    own = dict(steps.filter(step=1).select("rank", "own_ns").rows())
    assert own == {0: 1260 * US, 1: 1260 * US, 2: 1560 * US, 3: 1260 * US}
    parts = ["compute_ns", "launch_ns", "data_ns", "network_ns", "wait_ns"]
    assert (steps.select(parts).sum_horizontal() == steps["total_ns"]).all()
    assert (steps["own_ns"] + steps["wait_ns"] == steps["total_ns"]).all()


FAULTS = [
    ("slower", "compute", "slow_rank"),
    ("loading", "data", "late_data_loader"),
    ("launching", "launch", "slow_launch"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "cause", "finding"), FAULTS)
def test_causes(tmp_path: Path, fault: str, cause: str, finding: str) -> None:
    faults: dict[str, Any] = {fault: {3: 240}}
    traces = training(tmp_path, 6, steps=5, **faults)
    late = analysis.stragglers(traces)
    assert late.select("step", "rank", "cause", "excess_ns", "ranks").rows() == [
        (step, 3, cause, 240 * US, 6) for step in range(5)
    ]
    assert late[f"{cause}_excess_ns"].to_list() == [240 * US] * 5
    ranks = analysis.straggler_ranks(traces)
    assert ranks.rows() == [(3, cause, None, 5, 5, 5 * 240 * US)]
    (row,) = analysis.cluster_findings(traces).to_dicts()
    assert (row["finding"], row["ranks"]) == (finding, [3])
    assert (row["lost_ns"], row["value"]) == (5 * 240 * US, 240 * US)
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
    # What the link explains is not repeated for each of its ranks.
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


@pytest.mark.parametrize("memory", [None, LEAST_MEMORY])
def test_calls_of_one_collective_are_those_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int | None
) -> None:
    if memory:
        # What is communicated lies in files.
        monkeypatch.setattr("kernelscope.analysis.ranks.parts.ROW_BYTES", memory // 3)
    cluster = cluster_of(training(tmp_path, 3, steps=4, slower={1: 300}, offsets={2: 70.0}), memory=memory)
    every = analysis.rank_calls(cluster)
    instances = analysis.collective_instances(cluster)
    assert instances.height == 4
    for instance in instances["instance"]:
        calls = calls_of(cluster, instance)
        assert calls.equals(every.filter(instance=instance).sort("rank", "start_ns", "row"))
        (known,) = instances.filter(instance=instance).to_dicts()
        assert calls["wait_ns"].sum() == known["wait_ns"]
        assert calls["start_ns"].min() == known["start_ns"]
    for instance in (-1, 4, 2**40):
        with pytest.raises(InvalidArgumentError, match="4 collectives"):
            calls_of(cluster, instance)


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
    before = training(tmp_path / "a", 3)
    after = training(tmp_path / "b", 4, slower={1: 252})
    table = analysis.run_difference(before, after)
    compute = {row["rank"]: row for row in table.filter(part="compute_ns").to_dicts()}
    assert compute[1]["change_ns"] == 252 * US
    assert compute[1]["change"] == pytest.approx(252 / 1260)
    assert (compute[0]["change_ns"], compute[3]["before_ns"], compute[3]["change_ns"]) == (0, None, None)
    assert table["change_ns"].drop_nulls().abs().is_sorted(descending=True)
