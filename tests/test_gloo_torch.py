"""Jobs on gloo, trained here: the finding names the rank that sleeps, in which phase, and for how long."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import draws
import kernelscope as ks
from kernelscope import analysis

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import gloo_jobs

DELAY_S = 0.5


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", sorted(gloo_jobs.LATE_PHASES))
def test_the_rank_that_sleeps_is_named(kind: str, ranks: int, tmp_path: Path) -> None:
    if not draws.is_long:
        pytest.skip("jobs are trained by make test-long; test_analysis_gloo.py reads recorded ones")
    paths = gloo_jobs.run(kind, ranks, tmp_path, delay_s=DELAY_S)
    traces = [ks.read(path, strict=True) for path in paths]
    for trace in traces:
        assert trace.collectives["call_row"].null_count() == 0
        assert trace.collectives["process_group"].null_count() == 0
    instances = analysis.collective_instances(traces)
    assert instances["matched_by"].unique().to_list() == ["order"]
    transfers = instances["kind"].is_in(["send", "recv"])
    assert instances.filter(transfers)["ranks_seen"].eq(2).all()
    assert instances.filter(~transfers)["ranks_seen"].eq(ranks).all()
    first = analysis.cluster_findings(traces).filter(finding="slow_rank").row(0, named=True)
    assert (first["ranks"], first["phase"]) == ([gloo_jobs.LATE_RANK], gloo_jobs.LATE_PHASES[kind])
    # A machine with fewer cores than ranks adds to what each step takes; half of the steps do not sleep.
    late = analysis.stragglers(traces).filter(rank=gloo_jobs.LATE_RANK)
    by_step = dict(late.select("step", "excess_ns").iter_rows())
    sleeping = [by_step.get(step, 0.0) for step in range(1, 9, 2)]
    assert sum(sleeping) / len(sleeping) == pytest.approx(DELAY_S * 1e9, rel=0.1)
