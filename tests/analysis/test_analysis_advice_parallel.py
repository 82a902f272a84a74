"""Advice about several ranks of a training job: slow stages, and uneven numbers of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from advice_programs import spoke
from many_ranks import Rank
from test_analysis_pipelines import simulated

import kernelscope as ks
from kernelscope import analysis


def test_a_slow_stage_is_named(tmp_path: Path) -> None:
    lengths = {"forward": [10.0, 10.0, 15.0, 10.0], "backward": [20.0, 20.0, 30.0, 20.0]}
    traces = simulated(tmp_path / "slow", 8, lengths)
    row = spoke(analysis.recommendations(traces), "slow_stage")
    assert row["rank"] == 2
    assert row["evidence"].startswith("Stage 2 (rank 2) computes for 360.0 us")
    stages = analysis.pipeline_stages(traces)
    assert row["value"] == pytest.approx(stages["over_mean_share"].max())
    even = {"forward": [10.0] * 4, "backward": [20.0] * 4}
    assert "slow_stage" not in analysis.recommendations(simulated(tmp_path / "even", 8, even))["id"]


def looked_up(folder: Path, lengths: tuple[int, ...], times: tuple[float, ...]) -> list[ks.Trace]:
    """Ranks that compute for as long as their sequences need, then sum gradients."""
    traces = []
    for rank, (length, time) in enumerate(zip(lengths, times, strict=True)):
        one = Rank(rank, len(lengths))
        one.step(0, 0, max(times) + 300)
        dims = {"Input Dims": [[1000, 64], [4, length]], "Input type": ["float", "long int"]}
        one.add("cpu_op", "aten::embedding", 10, 5, **{"Sequence number": 3, **dims})
        one.kernel(100, time, launched=12)
        node = {"Sequence number": 3, "Fwd thread id": 1}
        one.add("cpu_op", "autograd::engine::evaluate_function: EmbeddingBackward0", 30, 5, **node)
        one.collective(100 + time, max(times) - time + 50, launched=40)
        traces.append(one.read(folder))
    return traces


def test_uneven_lengths_are_found(tmp_path: Path) -> None:
    table = analysis.recommendations(looked_up(tmp_path / "uneven", (512, 256), (1000, 500)))
    row = spoke(table, "uneven_lengths")
    assert "In step 0 one rank has 2,048, the mean is 1,536." in row["evidence"]
    assert row["saving_ns"] == 250_000
    for number, (lengths, times) in enumerate((((512, 512), (1000, 500)), ((512, 256), (1000, 1000)))):
        quiet = analysis.recommendations(looked_up(tmp_path / str(number), lengths, times))
        assert "uneven_lengths" not in quiet["id"]
