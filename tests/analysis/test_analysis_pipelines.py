"""Slots, schedules and bubbles of pipelines."""

from __future__ import annotations

import gzip
import json
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from many_ranks import Rank

import kernelscope as ks
from events import GRADIENT
from kernelscope import analysis
from kernelscope.analysis.ranks.cluster import cluster_of
from kernelscope.analysis.training import pipelines
from kernelscope.report.html import cluster_pipeline
from kernelscope.report.parts import Figure

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
PASSES = ("forward", "backward")


def recorded(kind: str) -> list[ks.Trace]:
    return [ks.read(RECORDED / f"pipelines/{kind}-rank{rank}.json.gz") for rank in range(2)]


@pytest.mark.parametrize(
    ("kind", "schedule", "stages", "ideal"),
    [
        ("gpipe", "gpipe", [[0], [1]], 1 / 5),
        ("1f1b", "1f1b", [[0], [1]], 1 / 5),
        ("interleaved", "interleaved", [[0, 2], [1, 3]], 1 / 9),
        ("zero-bubble", "zero_bubble", [[0, 2], [1, 3]], 1 / 25),
        ("dualpipe", "dualpipe", [[0, 3], [1, 2]], None),
    ],
)
def test_schedules_of_torch(kind: str, schedule: str, stages: list[list[int]], ideal: float | None) -> None:
    traces = recorded(kind)
    count = 8 if kind == "dualpipe" else 4
    slots = analysis.pipeline_slots(traces)
    done = slots.select("rank", "stage", "micro_batch", is_forward=pl.col("direction") == "forward").unique()
    # The first stage has no input to differentiate: it computes its gradients together, as those of weights.
    assert sorted(done.rows()) == sorted(
        (rank, stage, batch, is_forward)
        for rank, own in enumerate(stages)
        for stage, batch, is_forward in product(own, range(count), (True, False))
    )
    assert ("weight" in slots["direction"]) == (kind in ("zero-bubble", "dualpipe"))
    found = analysis.pipeline_stages(traces)
    assert found.select("rank", "pipeline", "stage", "schedule", "micro_batches", "chunks").rows() == [
        (rank, 0, rank, schedule, count, len(own)) for rank, own in enumerate(stages)
    ]
    assert found["ideal_share"].to_list() == [None if ideal is None else pytest.approx(ideal)] * 2
    for row in found.to_dicts():
        assert row["slots_ns"] + row["bubble_ns"] == row["pipeline_ns"]
        assert 0 <= row["bubble_transfer_ns"] <= row["bubble_ns"]
        # Each stage sleeps 4 ms forward and 8 ms backward.
        assert row["slots_ns"] >= count * row["chunks"] * 12_000_000
        assert row["ideal_share"] is None or row["bubble_share"] > row["ideal_share"]


def test_a_pass_ends_before_the_next_stage_begins_it() -> None:
    for kind in ("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"):
        slots = analysis.pipeline_slots(recorded(kind)).filter(direction="forward")
        ends = {
            (stage, batch): start + dur
            for stage, batch, start, dur in slots.select(
                "stage", "micro_batch", "start_ns", "dur_ns"
            ).iter_rows()
        }
        for stage, batch, start in slots.select("stage", "micro_batch", "start_ns").iter_rows():
            assert stage == 0 or ends[stage - 1, batch] <= start, (kind, stage, batch)


def test_chunks_are_found_without_names(tmp_path: Path) -> None:
    """A schedule that names nothing, as Megatron's does: modules tell chunks apart."""
    named, unnamed = [], []
    for rank in range(2):
        path = RECORDED / f"pipelines/interleaved-modules-rank{rank}.json.gz"
        document = json.loads(gzip.decompress(path.read_bytes()))
        kept = [e for e in document["traceEvents"] if not str(e.get("name", "")).startswith("PP:")]
        assert len(kept) < len(document["traceEvents"])
        (tmp_path / f"{rank}.json").write_text(json.dumps({**document, "traceEvents": kept}))
        named.append(ks.read(path))
        unnamed.append(ks.read(tmp_path / f"{rank}.json"))
    expected = analysis.pipeline_slots(named)
    assert {(0, 0), (0, 2), (1, 1), (1, 3)} == set(expected.select("rank", "stage").iter_rows())
    assert analysis.pipeline_slots(unnamed).equals(expected)
    assert analysis.pipeline_stages(unnamed).equals(analysis.pipeline_stages(named))
    # Passes through the same modules are of one chunk, whatever each begins with.
    ops = pl.DataFrame({"micro_batch": [0, 0, 1, 1], "module": ["image", "text", "sound", "text"]})
    ops = ops.cast({"micro_batch": pl.Int32}).with_columns(
        part=0, step=1, stage=pl.lit(None, pl.Int32), direction=pl.lit("forward"), start_ns=pl.int_range(4)
    )
    assert pipelines._in_chunks(ops)["chunk"].to_list() == [0] * 4
    apart = ops.with_columns(module=pl.Series(["image", "text", "sound", "loss"]))
    found = pipelines._in_chunks(apart)
    assert found.select("chunk", "micro_batch").rows() == [(0, 0), (0, 0), (1, 0), (1, 0)]


def one_f_one_b(place: int, ranks: int, count: int) -> list[tuple[str, int]]:
    """The order of the passes of a rank."""
    warm = min(ranks - place - 1, count)
    order = [("forward", batch) for batch in range(warm)]
    for batch in range(count - warm):
        order += [("forward", warm + batch), ("backward", batch)]
    return order + [("backward", batch) for batch in range(count - warm, count)]


def times(ranks: int, count: int, lengths: dict[str, list[float]]) -> dict[tuple[int, str, int], float]:
    """When each pass of each rank begins, if transfers take no time."""
    left = {place: one_f_one_b(place, ranks, count) for place in range(ranks)}
    free, ends = dict.fromkeys(range(ranks), 0.0), {}
    begins: dict[tuple[int, str, int], float] = {}
    while any(left.values()):
        for place, order in left.items():
            while order:
                direction, batch = order[0]
                if direction == "forward":
                    needed = [(place - 1, direction, batch)] if place else []
                else:
                    needed = [(place + 1, direction, batch)] if place < ranks - 1 else []
                    needed.append((place, "forward", batch))
                if any(one not in ends for one in needed):
                    break
                order.pop(0)
                begins[place, direction, batch] = start = max([free[place], *(ends[one] for one in needed)])
                ends[place, direction, batch] = free[place] = start + lengths[direction][place]
    return begins


def simulated(
    folder: Path, count: int, lengths: dict[str, list[float]], *, has_step: bool = True
) -> list[ks.Trace]:
    """Ranks with GPUs, on clocks that differ, in a pipeline of 1F1B."""
    folder.mkdir(exist_ok=True)
    ranks = len(lengths["forward"])
    begins = times(ranks, count, lengths)
    traces = []
    for place in range(ranks):
        one = Rank(place, ranks)
        if has_step:
            one.step(1, 0, 5000)
        order = one_f_one_b(place, ranks, count)
        for at, (direction, batch) in enumerate(order):
            ts = 10 + 10 * at
            if direction == "forward":
                one.add("cpu_op", "aten::mm", ts, 6, **{"Sequence number": batch + 1})
            else:
                one.add("cpu_op", GRADIENT, ts, 6, **{"Sequence number": batch + 1, "Fwd thread id": 1})
                one.add("cpu_op", "aten::mm", ts + 1, 4)
            start = 1000 + begins[place, direction, batch]
            one.kernel(start, lengths[direction][place], launched=ts + 2)
            one.add("cpu_op", "c10d::send", ts + 7, 2)
        # One exchange at the end has the group.
        one.collective(
            4000, 10, launched=3000, Collective_name="send", Process_Group_Description="mesh_pp"
        )  # fmt: skip
        traces.append(one.read(folder))
    return traces


@pytest.mark.parametrize(("ranks", "count"), [(2, 4), (4, 8), (4, 2)])
def test_an_even_pipeline_has_the_ideal_bubble(ranks: int, count: int, tmp_path: Path) -> None:
    lengths = {"forward": [10.0] * ranks, "backward": [20.0] * ranks}
    found = analysis.pipeline_stages(simulated(tmp_path, count, lengths))
    share = (ranks - 1) / (count + ranks - 1)
    assert found["stage"].to_list() == list(range(ranks))
    assert found["bubble_share"].to_list() == [pytest.approx(share)] * ranks
    assert found["ideal_share"].to_list() == [pytest.approx(share)] * ranks
    assert found["over_mean_share"].to_list() == [pytest.approx(0)] * ranks
    assert found["slots_ns"].to_list() == [30_000 * count] * ranks


@pytest.mark.parametrize(
    ("has_step", "says"), [(True, "Step 1, the longest, takes"), (False, "The longest step takes")]
)
def test_pages_draw_the_longest_step(has_step: bool, says: str, tmp_path: Path) -> None:
    lengths = {"forward": [10.0] * 2, "backward": [20.0] * 2}
    traces = simulated(tmp_path, 4, lengths, has_step=has_step)
    view = cluster_pipeline.pipeline(traces, cluster_of(traces))
    [picture] = [part for part in view.parts if isinstance(part, Figure)]
    assert picture.what.startswith(f"{says} 150.0 us.")
    assert [(bars["name"], bars["y"].count("rank 0")) for bars in picture.traces] == [
        ("forward", 4),
        ("backward", 4),
    ]


def test_a_slow_stage_has_the_smallest_bubble(tmp_path: Path) -> None:
    lengths = {"forward": [10.0, 10.0, 15.0, 10.0], "backward": [20.0, 20.0, 30.0, 20.0]}
    found = analysis.pipeline_stages(simulated(tmp_path, 8, lengths))
    slow = found.sort("bubble_share").row(0, named=True)
    assert (slow["stage"], slow["slots_ns"]) == (2, 45_000 * 8)
    assert slow["over_mean_share"] == pytest.approx((45 - 33.75) * 8 * 1000 / slow["pipeline_ns"])
    assert (found["bubble_share"] > found["ideal_share"]).sum() == 3


def test_a_lake_gives_the_same_as_its_traces(tmp_path: Path) -> None:
    traces = recorded("interleaved")
    ks.batch.run([Path(trace.meta.path) for trace in traces], tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    assert analysis.pipeline_slots(lake).equals(analysis.pipeline_slots(traces))
    assert analysis.pipeline_stages(lake).equals(analysis.pipeline_stages(traces))


def test_other_jobs_have_no_pipeline() -> None:
    traces = [ks.read(RECORDED / f"gloo/ddp-rank{rank}.json.gz") for rank in range(2)]
    slots, stages = analysis.pipeline_slots(traces), analysis.pipeline_stages(traces)
    assert slots.is_empty()
    assert stages.is_empty()
    some = recorded("gpipe")
    assert slots.schema == analysis.pipeline_slots(some).schema
    assert stages.schema == analysis.pipeline_stages(some).schema
