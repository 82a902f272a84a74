"""The critical path over several ranks: it fills the step, and leads to the rank at fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from demo_jobs import read_job
from kernelscope import analysis
from kernelscope.cli import main
from kernelscope.errors import InvalidArgumentError

RECORDED = Path(__file__).resolve().parents[1] / "recorded/gloo"


def job(folder: Path, cause: str | None, ranks: int, seed: int = 0) -> list[ks.Trace]:
    return read_job(folder, cause=cause, ranks=ranks, seed=seed, size_bytes=1_500_000)


def assert_fills(path: pl.DataFrame, start_ns: int, end_ns: int) -> None:
    ends = path["start_ns"] + path["dur_ns"]
    assert path["start_ns"].to_list() == [start_ns, *ends.head(-1)]
    assert ends.last() == end_ns
    assert (path["dur_ns"] > 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_a_path_fills_the_step_of_all_ranks(tmp_path: Path, seed: int) -> None:
    traces = job(tmp_path, None, 16, seed)
    shift = dict(analysis.clock_offsets(traces).select("rank", "offset_ns").iter_rows())
    bases = {trace.meta.rank or 0: trace.meta.base_time_ns or 0 for trace in traces}
    first = min(bases.values())
    for step in (10, 11, 12):
        starts, ends = [], []
        for trace in traces:
            row = trace.steps.filter(step=step).row(0, named=True)
            rank = trace.meta.rank or 0
            start = row["start_ns"] + bases[rank] - first - shift[rank]
            starts.append(start)
            ends.append(start + row["total_ns"])
        path = analysis.critical_path(traces, step)
        assert_fills(path, min(starts), max(ends))
        table = analysis.critical_path_table(traces, ("rank", "bound_by"), step)
        assert table["path_ns"].sum() == path["dur_ns"].sum()
        sums = path.group_by("rank", "bound_by").agg(pl.col("dur_ns").sum())
        assert dict(zip(sums.select("rank", "bound_by").rows(), sums["dur_ns"], strict=True)) == dict(
            zip(table.select("rank", "bound_by").rows(), table["path_ns"], strict=True)
        )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("cause", ["slow-rank", "loader"])
def test_a_path_leads_to_the_rank_at_fault(tmp_path: Path, cause: str, seed: int) -> None:
    traces = job(tmp_path, cause, 8, seed)
    truth: dict[str, Any] = json.loads((tmp_path / "cluster.truth.json").read_text())
    if cause == "slow-rank":
        table = analysis.critical_path_table(traces, ("rank", "bound_by"), 12)
        assert table.row(0)[:2] == (truth["slow_rank"]["rank"], "compute")
        assert table["share"][0] > 0.5
        return
    late = truth["late_data_loader"]
    step = late["steps"][0]
    table = analysis.critical_path_table(traces, ("rank", "name"), step["step"])
    assert table.row(0)[:2] == (late["rank"], "<built-in function sleep>")
    # The step starts when the GPU has ended the one before.
    assert step["late_ns"] >= table["path_ns"][0] > step["late_ns"] / 2


def test_a_lake_has_the_same_path(tmp_path: Path) -> None:
    traces = job(tmp_path / "traces", None, 8)
    ks.batch.run([str(tmp_path / "traces")], tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    assert analysis.critical_path(lake, 11).equals(analysis.critical_path(traces, 11))
    by = ("rank", "op", "module", "phase", "category", "python")
    expected = analysis.critical_path_table(traces, by)
    assert analysis.critical_path_table(lake, by).equals(expected)
    assert expected["share"].sum() == pytest.approx(1)


def test_the_commands_of_a_lake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = job(tmp_path / "traces", "loader", 2)
    ks.batch.run([str(tmp_path / "traces")], tmp_path / "lake")
    capsys.readouterr()
    lake = str(tmp_path / "lake")
    assert main(["critical-path", lake, "--step", "11"]) == 0
    text = capsys.readouterr().out
    assert f"{lake}: 2 ranks" in text
    assert "On the path, by rank\n" in text
    assert "sleep" in text
    assert main(["critical-path", lake, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lake"]["ranks"] == [0, 1]
    assert sum(row["dur_ns"] for row in found["critical_path"]) == sum(
        row["path_ns"] for row in found["critical_path_table"]
    )
    assert main(["what-if", lake, "python:*sleep*=0", "--format", "csv"]) == 0
    rows = pl.read_csv(capsys.readouterr().out.encode())
    assert rows.to_dicts() == analysis.what_if(traces, {"python:*sleep*": 0}).to_dicts()
    assert main(["what-if", lake, "rank:1=median"]) == 0
    assert "on the rank where it is longest" in capsys.readouterr().out
    assert main(["what-if", lake, "--strict", "launch=0"]) == 2
    assert "pass such options to kernelscope batch" in capsys.readouterr().err


def test_one_rank_alone_has_its_own_path(tmp_path: Path) -> None:
    (trace,) = job(tmp_path, "none", 1)
    of_one, of_list = (analysis.critical_path(source, 11) for source in (trace, [trace]))
    moved = of_list.with_columns(pl.col("start_ns") - of_list["start_ns"][0] + of_one["start_ns"][0])
    assert moved.drop("rank").equals(of_one)


def test_refused(tmp_path: Path) -> None:
    traces = job(tmp_path, "none", 2)
    with pytest.raises(InvalidArgumentError, match="there is no step 99: steps are 10 to"):
        analysis.critical_path(traces, 99)
    with pytest.raises(InvalidArgumentError, match="takes step= alone"):
        analysis.critical_path(traces, annotation="ProfilerStep#11")
    with pytest.raises(InvalidArgumentError, match="takes step= alone"):
        analysis.critical_path_table(traces, window_ns=(0, 1))


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "tp", "pp"])
def test_a_recorded_job_on_gloo(kind: str) -> None:
    """Rank 1 sleeps for 200 ms in every second step, which nothing records; the other one waits for it."""
    traces = [ks.read(path) for path in sorted(RECORDED.glob(f"{kind}-rank*.json.gz"))]
    recorded = analysis.what_if(traces, {})
    assert recorded["after_ns"].equals(recorded["before_ns"].rename("after_ns"))
    late = recorded.filter(pl.col("before_ns") > 190_000_000)
    assert late["rank"].n_unique() == 2
    for step in late.filter(rank=1)["step"]:
        table = analysis.critical_path_table(traces, ("rank", "bound_by"), step)
        assert table.row(0)[:2] == (1, "host")
        assert table["path_ns"][0] > 190_000_000
    if kind == "pp":
        # The stages run different programs.
        with pytest.raises(InvalidArgumentError, match="no other rank has the same collectives"):
            analysis.what_if(traces, {"rank:1": "median"})
        return
    # Like the other rank, which does not sleep. Its sleep in the optimizer delays that one step later.
    found = analysis.what_if(traces, {"rank:1": "median"}).join(late, on=["rank", "step"], how="semi")
    assert (found["before_ns"] - found["after_ns"] > 150_000_000).all()
