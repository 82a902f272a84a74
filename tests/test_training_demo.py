"""Training jobs on several ranks whose truth is known: every answer, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import _traceparse, analysis
from kernelscope.analysis.ranks.cluster import cluster_of
from kernelscope.check import check
from kernelscope.cli.main import main
from kernelscope.errors import InvalidArgumentError
from kernelscope.report.html import cluster_dimensions
from kernelscope.report.html.cluster_dimensions import dimensions
from kernelscope.report.parts.tables import Table

SEEDS = range(20)
CAUSES = {
    "slow-stage": {"parallel": "pp=2"},
    "late-all-gather": {"parallel": "fsdp=4"},
    "hot-expert": {"parallel": "dp=2,ep=2"},
    "exposed-tp": {"parallel": "tp=2"},
    "needless-recompute": {"parallel": "tp=1", "recompute": "full"},
}
"""A job that each cause shows in."""


class Job(NamedTuple):
    traces: list[ks.Trace]
    truths: list[dict[str, Any]]
    truth: dict[str, Any]


def written(folder: Path, parallel: str, **options: Any) -> Job:
    defaults: dict[str, Any] = {"recompute": "none", "seed": 0, "steps": 2, "layers": 2}
    ranks, truth = _traceparse.write_demo_training(folder, parallel=parallel, **defaults | options)
    truths = [json.loads(truth) for _, truth in ranks]
    return Job([ks.read(path) for path, _ in ranks], truths, json.loads(truth))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Two ranks of each dimension, of which experts share the ones of the data."""
    return written(
        tmp_path_factory.mktemp("job"), "tp=2,pp=2,dp=2,ep=2", recompute="selective", micro_batches=6
    )


def test_groups_have_their_dimensions(job: Job) -> None:
    found = analysis.parallel_dimensions(job.traces)
    assert (found["confidence"] == 1).all()
    groups = {name: sorted(part["ranks"].to_list()) for (name,), part in found.group_by("dimension")}
    assert groups == job.truth["groups"]
    layout = analysis.rank_layout(job.traces)
    for truth, row in zip(job.truths, layout.iter_rows(named=True), strict=True):
        place = truth["place"]
        assert [row[name] for name in ("tp", "pp", "dp")] == [place[name] for name in ("tp", "pp", "dp")]


def test_communication_of_each_dimension_is_exact(job: Job) -> None:
    calls = analysis.rank_calls(job.traces)
    groups = analysis.parallel_dimensions(job.traces).select("group", "dimension")
    sums = calls.join(groups, on="group").group_by("rank", "step", "dimension")
    sums = sums.agg(pl.len(), pl.col("dur_ns").sum(), pl.col("exposed_ns").sum())
    found = {row[:3]: row[3:] for row in sums.iter_rows()}
    expected = {
        (rank, step["step"], name): (true["calls"], true["total_ns"], true["exposed_ns"])
        for rank, truth in enumerate(job.truths)
        for step in truth["steps"]
        for name, true in step["dimensions"].items()
    }
    assert found == expected
    assert {name for _, _, name in found} == {"tp", "pp", "dp", "ep"}


def test_bubbles_are_exact(job: Job) -> None:
    found = analysis.pipeline_stages(job.traces)
    assert found.select("schedule", "micro_batches", "chunks").unique().rows() == [("1f1b", 6, 1)]
    bubbles = {row[:2]: row[2:] for row in found.select("rank", "step", "pipeline_ns", "bubble_ns").rows()}
    assert bubbles == {
        (rank, step["step"]): (step["pipeline_ns"], step["bubble_ns"])
        for rank, truth in enumerate(job.truths)
        for step in truth["steps"]
    }
    # Waits for transfers, and stages that are not quite even.
    assert (found["bubble_share"] - found["ideal_share"]).is_between(0, 0.03).all()


def test_recomputation_is_counted(job: Job) -> None:
    for trace, truth in zip(job.traces, job.truths, strict=True):
        calls = trace.ops.filter(pl.col("name") == "aten::_scaled_dot_product_flash_attention")
        counts = dict(calls.group_by(pl.col("phase").cast(pl.String)).len().iter_rows())
        steps = len(truth["steps"])
        assert counts == {
            "forward": steps * truth["attention_forward"],
            "recompute": steps * truth["attention_recompute"],
        }
        assert truth["attention_forward"] == truth["attention_recompute"] > 0


def test_micro_batches_are_numbered(job: Job) -> None:
    passes = analysis.training_phases(job.traces[0], by=("step", "phase", "micro_batch"))
    for _, of_pass in passes.filter(pl.col("phase").is_in(["forward", "backward"])).group_by("step", "phase"):
        assert of_pass["micro_batch"].drop_nulls().sort().to_list() == list(range(6))


def test_all_of_the_kernel_time_has_a_known_cost(job: Job) -> None:
    assert (analysis.efficiency(job.traces[0])["known_pct"] == 100).all()


def test_tokens_of_experts_are_balanced(job: Job) -> None:
    layers = analysis.expert_layers(job.traces)
    # Two halves of each of two layers.
    assert layers["layer"].unique().sort().to_list()[:4] == [0, 1, 2, 3]
    assert layers["imbalance"].is_between(0, 0.02).all()
    assert (layers["routed_tokens"] % (2 * 4096 * 2) == 0).all()


def test_the_path_over_all_ranks_fills_a_step(job: Job) -> None:
    """Thousands of collectives run beside computation that goes on without them."""
    path = analysis.critical_path(job.traces, step=10)
    ends = path["start_ns"] + path["dur_ns"]
    assert path["start_ns"][1:].equals(ends[:-1])
    last = max(trace.steps["start_ns"][0] + trace.steps["total_ns"][0] for trace in job.traces)
    assert ends[-1] == last
    assert set(path["rank"]) > {0, 1}


def test_the_path_is_on_the_slow_stage(tmp_path: Path) -> None:
    found = written(tmp_path, "pp=2", cause="slow-stage", steps=1)
    path = analysis.critical_path(found.traces)
    parts = path.group_by("rank", "bound_by").agg(pl.col("dur_ns").sum()).sort("dur_ns")
    rank, reason, length = parts.row(-1)
    assert (rank, reason) == (found.truth["slow_ranks"][0], "compute")
    assert length > 0.8 * path["dur_ns"].sum()


def test_the_answers_are_consistent(job: Job) -> None:
    assert not [verdict for trace in job.traces for verdict in check(trace) if verdict.faults]
    assert all(trace.diagnostics.is_empty() for trace in job.traces)


@pytest.mark.parametrize("parallel", ["pp=2,dp=2,ep=2", "fsdp=2"])
def test_a_lake_gives_the_same_as_its_traces(parallel: str, tmp_path: Path) -> None:
    traces = written(tmp_path / "traces", parallel, micro_batches=2, steps=1).traces
    ks.batch.run([Path(trace.meta.path) for trace in traces], tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    answers = [
        analysis.pipeline_slots, analysis.pipeline_stages, analysis.expert_exchanges, analysis.expert_layers,
        analysis.expert_products, analysis.fsdp_collectives, analysis.fsdp_units, analysis.fsdp_steps,
        analysis.training_phases,
    ]  # fmt: skip
    filled = 0
    for answer in answers:
        expected = answer(traces)
        assert answer(lake).equals(expected)
        filled += not expected.is_empty()
    assert filled == {"fsdp=2": 4}.get(parallel, 6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cause", CAUSES)
def test_what_is_wrong_is_named_first(cause: str, seed: int, tmp_path: Path) -> None:
    found = written(tmp_path / "faulty", cause=cause, seed=seed, **CAUSES[cause])
    table = analysis.recommendations(found.traces)
    assert table["id"][0] == found.truth["recommendation"]
    if found.truth["slow_ranks"] is not None:
        assert table["rank"][0] in found.truth["slow_ranks"]
    sound = written(tmp_path / "sound", seed=seed, **CAUSES[cause])
    assert analysis.recommendations(sound.traces)["id"].to_list() == []


@pytest.mark.parametrize(
    ("cause", "parallel"),
    [
        ("slow-stage", "tp=2,pp=2,dp=2,ep=2"),
        ("hot-expert", "tp=2,pp=2,dp=2,ep=2"),
        ("needless-recompute", "tp=2,pp=2,dp=2,ep=2"),
        ("late-all-gather", "tp=2,fsdp=4"),
        ("exposed-tp", "tp=2,pp=2,dp=2,ep=2"),
    ],
)
def test_a_cause_is_named_in_a_job_of_several_dimensions(cause: str, parallel: str, tmp_path: Path) -> None:
    options = {"recompute": "full"} if cause == "needless-recompute" else {}
    found = written(tmp_path, parallel, cause=cause, steps=1, **options)
    assert analysis.recommendations(found.traces)["id"][0] == found.truth["recommendation"]


@pytest.mark.parametrize("parallel", ["pp=4", "pp=2", "tp=2,pp=2,dp=2"])
def test_a_slow_stage_is_a_finding_about_the_job(parallel: str, tmp_path: Path) -> None:
    found = written(tmp_path / "faulty", parallel, cause="slow-stage")
    [row] = analysis.cluster_findings(found.traces).to_dicts()
    assert (row["finding"], row["ranks"]) == ("slow_stage", found.truth["slow_ranks"])
    stages = analysis.pipeline_stages(found.traces)
    place = stages.filter(pl.col("rank").is_in(row["ranks"]))["stage"].unique().item()
    assert row["message"].startswith(
        f"Stage {place} of the pipeline ({'4 ranks' if 'tp' in parallel else 'rank'}"
    )
    assert row["lost_ns"] == row["value"] * 2
    # Slots are longer by the same, up to what other kernels hide of it.
    over = stages.filter(stage=place).select(pl.col("over_mean_share") * pl.col("pipeline_ns")).to_series()
    assert row["value"] == pytest.approx(over.mean(), rel=0.1)
    assert analysis.cluster_findings(written(tmp_path / "sound", parallel).traces).is_empty()


def test_the_page_of_a_job_has_units_and_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces = written(tmp_path, "fsdp=2,ep=2", steps=1).traces
    cluster = cluster_of(traces)
    tables = {part.id: part.frame for part in dimensions(traces, cluster).parts if isinstance(part, Table)}
    assert tables["fsdp-units"].equals(analysis.fsdp_units(traces))
    assert tables["experts"].equals(analysis.expert_layers(traces))
    assert tables["fsdp-units"].height
    assert tables["experts"].height
    monkeypatch.setattr(cluster_dimensions, "MOST_RANKS", 1)
    last = dimensions(traces, cluster).parts[-1]
    assert "with an executor" in last.payload()["text"]


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    def content(folder: str, seed: int) -> list[bytes]:
        traces = written(tmp_path / folder, "tp=2,fsdp=2", seed=seed).traces
        return [Path(trace.meta.path).read_bytes() for trace in traces]

    assert content("a", 1) == content("b", 1) != content("c", 2)


def test_the_command_writes_a_trace_of_each_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "job"
    command = ["demo", "--kind", "training", "--truth", "--out", str(folder)]
    main([*command, "--parallel", "pp=2", "--recompute", "full", "--cause", "slow-stage"])
    assert {path.name for path in folder.iterdir()} == {
        "cluster.truth.json", *(f"rank{n}.pt.trace.json" for n in range(2)),
        *(f"rank{n}.truth.json" for n in range(2)),
    }  # fmt: skip
    assert json.loads((folder / "cluster.truth.json").read_text())["cause"] == "slow-stage"
    assert "rank1.pt.trace.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parallel", "options", "message"),
    [
        ("tp=2,xp=2", {}, "xp=2.* is no dimension"),
        ("tp=0", {}, "tp=0.* is no dimension"),
        ("tp=3", {}, "must divide the 16 attention heads"),
        ("dp=3,ep=2", {}, "must divide the 3 ranks"),
        ("dp=5000", {}, "at most 4096 ranks"),
        ("dp=4000000,fsdp=4000000", {}, "at most 4096 ranks"),
        ("tp=2", {"cause": "slow-stage"}, "needs pp of at least 2"),
        ("tp=2", {"cause": "needless-recompute", "recompute": "selective"}, "needs full recomputation"),
        ("tp=2", {"cause": "loader"}, "there is no cause"),
        ("tp=2", {"recompute": "some"}, "there is no recomputation"),
        ("tp=2", {"steps": 0}, "steps is 0"),
    ],
)
def test_jobs_that_cannot_be_are_refused(
    parallel: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        written(tmp_path, parallel, **options)


def test_options_of_other_kinds_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--parallel", "tp=2", "--out", str(tmp_path)]) != 0
    assert "apply only to --kind training" in capsys.readouterr().err
    assert main(["demo", "--kind", "training", "--ranks", "2", "--out", str(tmp_path)]) != 0
    assert "pass the ranks with --parallel" in capsys.readouterr().err
