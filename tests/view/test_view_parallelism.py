"""The parallelism of a lake's ranks in the viewer: the place of each rank, and the schedule of pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from test_view_folder_cluster import choice_of, refused
from viewing import Served, asked, served, wait_until_read

import kernelscope as ks
from kernelscope import _traceparse, analysis
from kernelscope.analysis.ranks.cluster import cluster_of
from kernelscope.errors import NotRecordedError
from kernelscope.report.html import cluster_pipeline
from kernelscope.report.parts import Note
from kernelscope.view import parallelism
from kernelscope.view.choice import Choice
from kernelscope.view.lake_ranks import LakeRanks

RANKS, MICRO_BATCHES, STEPS = 8, 6, 2


def training_lake(folder: Path, *, cause: str | None = None) -> Path:
    """A job of two tensor, pipeline and data parallel ranks each."""
    written, _ = _traceparse.write_demo_training(
        folder / "traces", parallel="tp=2,pp=2,dp=2", recompute="none", seed=0, steps=STEPS, layers=2,
        micro_batches=MICRO_BATCHES, cause=cause,
    )  # fmt: skip
    ks.batch.run([path for path, _ in written], folder / "lake")
    return folder / "lake"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return training_lake(tmp_path_factory.mktemp("job"), cause="slow-stage")


@pytest.fixture(scope="module")
def viewer(lake: Path) -> Iterator[Served]:
    with served(lake, Choice(LakeRanks(ks.scan(lake)))) as found:
        wait_until_read(found)
        yield found


def test_the_schedule_of_each_pipeline(viewer: Served, lake: Path) -> None:
    slots, stages = analysis.pipeline_slots(ks.scan(lake)), analysis.pipeline_stages(ks.scan(lake))
    found = viewer.ask("pipeline")
    # The pipeline with the slowest rank is shown first.
    own = analysis.rank_steps(ks.scan(lake)).group_by("rank").agg(pl.col("own_ns").median())
    slowest = own.sort("own_ns")["rank"][-1]
    assert found["pipeline"] == found["pipelines"][0][0]
    assert slowest in found["pipelines"][0][1]
    assert sorted(rank for _, ranks in found["pipelines"] for rank in ranks) == list(range(RANKS))
    assert len(found["steps"]) == STEPS
    assert (found["schedule"], found["micro_batches"], found["chunks"]) == ("1f1b", MICRO_BATCHES, 1)
    for first, ranks in found["pipelines"]:
        for step, _ in found["steps"]:
            one = viewer.ask("pipeline", pipeline=first, step=step)
            expected = stages.filter(pipeline=first, step=step)
            assert (one["pipeline"], one["step"], one["length"]) == (first, step, expected["pipeline_ns"][0])
            assert [stage["rank"] for stage in one["stages"]] == ranks
            assert [stage["bubble_ns"] for stage in one["stages"]] == expected["bubble_ns"].to_list()
            of_step = slots.filter(pl.col("rank").is_in(ranks), step=step)
            bars, begin = one["slots"], of_step["start_ns"].min()
            drawn = {
                (rank, batch, direction, start + begin, length)
                for rank, batch, direction, start, length in zip(
                    *(bars[name] for name in ("rank", "micro_batch", "direction", "start", "length")),
                    strict=True,
                )
            }
            names = ("rank", "micro_batch", "direction", "start_ns", "dur_ns")
            assert drawn == set(of_step.select(names).iter_rows())
            assert (min(bars["start"]), one["left"]) == (0, 0)
            ends = (start + length for start, length in zip(bars["start"], bars["length"], strict=True))
            assert max(ends) == one["length"]
    longest = max(found["steps"], key=lambda step: step[1])
    assert (found["step"], found["length"]) == tuple(longest)


def test_stages_lead_to_their_ranks(viewer: Served, lake: Path) -> None:
    numbers = LakeRanks(ks.scan(lake)).of_steps("default")
    first, ranks = viewer.ask("pipeline")["pipelines"][1]
    one = viewer.ask("pipeline", pipeline=first)
    assert [stage["open"] for stage in one["stages"]] == [numbers[rank, one["step"]] for rank in ranks]
    rows = viewer.ask("table", view="pipeline", table="stages", pipeline=first)
    assert rows["all"] == len(ranks) * STEPS
    steps = [step for step, _ in one["steps"] for _ in ranks]
    assert [lead["step"] for lead in rows["leads"]] == steps
    places = zip(ranks * STEPS, steps, strict=True)
    assert [lead["open"] for lead in rows["leads"]] == [numbers[place] for place in places]


def test_places_of_all_ranks(viewer: Served, lake: Path) -> None:
    found = viewer.ask("layout")
    layout = analysis.rank_layout(ks.scan(lake))
    assert found["ranks"] == layout["rank"].to_list() == list(range(RANKS))
    assert set(found["places"]) == {"tp", "pp", "dp"}
    for name, places in found["places"].items():
        assert places == layout[name].to_list()
    assert found["left"] == 0
    rows = {head["id"]: head["all"] for head in found["tables"]}
    for name, count in rows.items():
        assert viewer.ask("table", view="layout", table=name)["all"] == count
    assert (rows["dimensions"], rows["layout"]) == (3, RANKS)
    rows = viewer.ask("table", view="layout", table="layout")
    assert [lead["open"] for lead in rows["leads"]] == found["open"]
    assert viewer.ask("table", view="layout", table="dimensions")["leads"] == [None] * 3
    for number, rank in zip(found["open"], found["ranks"], strict=True):
        assert viewer.session.catalogue.opening(number).name.startswith(f"rank {rank} of ")


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("pipeline", {"pipeline": 99}, "no pipeline begins with rank 99"),
        ("pipeline", {"step": 99}, "no step 99"),
        ("pipeline", {"step": "x"}, "whole number"),
        ("table", {"view": "pipeline", "table": "stages", "pipeline": -1}, "no pipeline begins"),
    ],
)
def test_what_is_not_there_is_refused(
    viewer: Served, name: str, parameters: dict[str, object], says: str
) -> None:
    assert says in refused(viewer, name, **parameters).error


def test_jobs_without_dimensions_say_so(tmp_path: Path) -> None:
    written, _ = _traceparse.write_demo_training(
        tmp_path / "traces", parallel="tp=1", recompute="none", seed=0, steps=1, layers=1
    )
    ks.batch.run([path for path, _ in written], tmp_path / "lake")
    choice = choice_of(ks.scan(tmp_path / "lake"))
    with pytest.raises(NotRecordedError, match="No process group is for a pipeline"):
        parallelism.pipeline(choice, asked())
    with pytest.raises(NotRecordedError, match="Neither descriptions nor traffic"):
        parallelism.layout(choice, asked())


def test_only_the_ranks_of_the_pipeline_are_read(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    windows = ks.batch.Lake.windows

    def counted(self: ks.batch.Lake, places: list[tuple[int, int]], *tables: object) -> list[ks.Trace]:
        read.extend(rank for rank, _ in places)
        return windows(self, places, *tables)

    monkeypatch.setattr(ks.batch.Lake, "windows", counted)
    found = parallelism.pipeline(choice_of(ks.scan(lake)), asked())
    assert sorted(read) == sorted(found["pipelines"][0][1])
    # The page of a larger job has the same pipeline.
    read.clear()
    monkeypatch.setattr(cluster_pipeline, "MOST_RANKS", RANKS - 1)
    view = cluster_pipeline.pipeline(ks.scan(lake), cluster_of(ks.scan(lake)))
    assert sorted(read) == sorted(found["pipelines"][0][1])
    [note] = [part for part in view.parts if isinstance(part, Note)]
    assert "only the pipeline with the slowest of 8 ranks" in note.payload()["text"]
