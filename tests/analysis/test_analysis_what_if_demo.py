"""Predictions against the generator: a job without a cause is the same job in all else."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from demo_jobs import read_job
from kernelscope import analysis

# What removes each cause, and how many ranks show it.
CHANGES = {
    "loader": (1, {"python:*sleep*": 0.0}),
    "synchronisation": (1, {"python:*check_finite*": 0.0}),
    "launch": (1, {"launch": 1 / 8}),
    "all-reduce": (2, {"wait:*AllReduce*": 0.0}),
}


@pytest.mark.parametrize(("size", "seed"), [(3_000_000, 0), (3_000_000, 1), (8_000_000, 2), (25_000_000, 3)])
@pytest.mark.parametrize("cause", CHANGES)
def test_a_prediction_without_the_cause_is_the_job_without_it(
    tmp_path: Path, cause: str, size: int, seed: int
) -> None:
    ranks, changes = CHANGES[cause]
    wrong, right = (
        read_job(tmp_path / name, cause=name, ranks=ranks, size_bytes=size, seed=seed)
        for name in (cause, "none")
    )
    # A rank alone does not know how long the others would make it wait: the last one decides.
    predicted = [analysis.what_if(trace, changes)["after_ns"] for trace in wrong]
    before = [trace.steps["total_ns"] for trace in wrong]
    after = [trace.steps["total_ns"] for trace in right]
    steps = min(len(predicted[0]), len(after[0]))
    assert steps >= 2
    found = pl.DataFrame(
        {
            name: pl.DataFrame(dict(zip("ab", of, strict=False))).head(steps).max_horizontal()
            for name, of in (("predicted", predicted), ("before", before), ("after", after))
        }
    )
    errors = found["predicted"] / found["after"] - 1
    assert errors.is_between(-0.02, 0.02).all(), errors
    total = found.sum().row(0, named=True)
    # What the prediction misses is little of what the cause costs.
    assert abs(total["predicted"] - total["after"]) < 0.2 * (total["before"] - total["after"])
