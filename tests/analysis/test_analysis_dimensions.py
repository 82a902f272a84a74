"""Dimensions of parallelism of process groups, by description and by traffic."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from many_ranks import Rank

import kernelscope as ks
from kernelscope import analysis
from kernelscope.analysis.training.dimensions import DIMENSIONS, named_dimension

RECORDED = Path(__file__).resolve().parents[1] / "recorded/gloo"


@pytest.mark.parametrize(
    ("description", "dimension"),
    [
        ("mesh_tp", "tp"),
        ("mesh_dp", "dp"),
        ("mesh_dp_shard", "fsdp"),
        ("mesh_dp_replicate", "dp"),
        ("mesh_dp_shard_cp", "fsdp"),
        ("mesh_dp_cp", "dp"),
        ("mesh_cp", "cp"),
        ("mesh_pp", "pp"),
        ("mesh_ep", "ep"),
        ("mesh_etp", "tp"),
        ("mesh_efsdp", "fsdp"),
        ("mesh_dim_0", None),
        ("mesh_loss", None),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("EMBEDDING_GROUP", "pp"),
        ("POSITION_EMBEDDING_GROUP", "pp"),
        ("MODEL_PARALLEL_GROUP", None),
        ("DATA_PARALLEL_GROUP", "dp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", None),
        ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", None),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tp"),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", "ep"),
        ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", None),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("default_pg", None),
        ("undefined", None),
        ("", None),
        (None, None),
    ],
)
def test_descriptions(description: str | None, dimension: str | None) -> None:
    assert named_dimension(description) == dimension


@pytest.mark.parametrize(("kind", "dimension"), [("ddp", "dp"), ("fsdp", "fsdp"), ("tp", "tp"), ("pp", "pp")])
def test_traffic_of_recorded_jobs(kind: str, dimension: str) -> None:
    """Their only group is that of all ranks, which nothing describes."""
    traces = [ks.read(RECORDED / f"{kind}-rank{rank}.json.gz") for rank in range(2)]
    for source in (traces, traces[:1]):
        [group] = analysis.parallel_dimensions(source).to_dicts()
        assert (group["dimension"], group["ranks"], group["description"]) == (dimension, [0, 1], "default_pg")
        assert 0.5 < group["confidence"] < 1
    places = analysis.rank_layout(traces)
    assert places[dimension].to_list() == [0, 1]
    assert all(places[other].null_count() == 2 for other in DIMENSIONS if other != dimension)
    found = analysis.communication(traces, by=("dimension", "phase"))
    whole = analysis.communication(traces, by=("kind",))
    assert found["dimension"].unique().to_list() == [dimension]
    for column in ("calls", "total_ns", "wait_ns", "exposed_ns", "bytes"):
        assert found[column].sum() == whole[column].sum()


def job(folder: Path) -> list[ks.Trace]:
    """Eight ranks: two stages of two sharded copies of two tensor-parallel ranks, with what each does."""
    ranks = [Rank(rank, 8) for rank in range(8)]
    for one in ranks:
        pp, dp, tp = one.rank // 4, one.rank // 2 % 2, one.rank % 2
        groups = {
            "mesh_tp": [one.rank - tp, one.rank - tp + 1],
            "mesh_dp_shard": [4 * pp + tp, 4 * pp + 2 + tp],
            "mesh_pp": [2 * dp + tp, 4 + 2 * dp + tp],
        }
        one.step(1, 0, 1000)
        for place, (description, members) in enumerate(groups.items()):
            one.collective(
                100 * place + 50, 20, launched=100 * place + 10, Group_size=2,
                Process_Group_Name=f"{members[0]}{place}", Process_Group_Ranks=str(members),
                Process_Group_Description=description,
            )  # fmt: skip
        # A loss over all ranks, and a group without a description that only broadcasts.
        one.collective(400, 5, launched=390, In_msg_nelems=1, Out_msg_nelems=1)
        one.collective(500, 5, launched=490, Collective_name="broadcast", Process_Group_Name="9")
    return [one.read(folder) for one in ranks]


def test_layout_of_a_job_with_three_dimensions(tmp_path: Path) -> None:
    traces = job(tmp_path)
    layout = analysis.rank_layout(traces)
    assert layout.select("rank", "tp", "fsdp", "pp").rows() == [
        (rank, rank % 2, rank // 2 % 2, rank // 4) for rank in range(8)
    ]
    assert layout.select("cp", "ep", "dp").null_count().row(0) == (8, 8, 8)
    groups = analysis.parallel_dimensions(traces)
    assert groups.group_by("dimension").len().sort("dimension", nulls_last=True).rows() == [
        ("fsdp", 4), ("pp", 4), ("tp", 4), (None, 1),
    ]  # fmt: skip
    assert groups.drop_nulls("dimension")["confidence"].unique().to_list() == [1.0]
    found = analysis.communication(traces, by=("dimension",))
    assert dict(found.select("dimension", "calls").iter_rows()) == {"tp": 8, "fsdp": 8, "pp": 8, None: 16}


def test_a_lake_gives_the_same_as_its_traces(tmp_path: Path) -> None:
    traces = job(tmp_path / "traces")
    ks.batch.run([Path(trace.meta.path) for trace in traces], tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    assert analysis.parallel_dimensions(lake).equals(analysis.parallel_dimensions(traces))
    assert analysis.rank_layout(lake).equals(analysis.rank_layout(traces))


def test_nothing_is_said_of_what_only_infers(tmp_path: Path) -> None:
    """Without a backward pass, a reduction may be for tensors or for experts."""
    one = Rank(0, 2)
    one.step(1, 0, 1000)
    for place in range(4):
        one.collective(100 * place + 50, 20, launched=100 * place + 10)
    [group] = analysis.parallel_dimensions([one.read(tmp_path)]).to_dicts()
    assert (group["dimension"], group["confidence"], group["evidence"]) == (None, None, None)


def test_no_communication_has_no_groups(tmp_path: Path) -> None:
    one = Rank(0, 1)
    one.step(1, 0, 1000)
    one.kernel(50, 20, launched=10)
    trace = one.read(tmp_path)
    assert analysis.parallel_dimensions(trace).is_empty()
    assert analysis.rank_layout(trace).select(pl.col(DIMENSIONS).null_count()).row(0) == (1,) * 6
    assert analysis.communication([trace], by=("dimension",)).is_empty()
