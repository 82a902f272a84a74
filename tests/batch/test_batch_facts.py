"""What is wrong with a demo job on purpose is found by name, in the lake that a batch makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jobs import batch, write_job

import kernelscope as ks
from kernelscope.report import cluster_text

Job = tuple[ks.batch.Lake, Mapping[str, Any]]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """64 ranks with four faults, and the truth about them."""
    folder = tmp_path_factory.mktemp("faulty")
    write_job(folder / "traces", ranks=64, size_bytes=1_600_000)
    batch(folder / "traces", folder / "lake")
    truth = json.loads((folder / "traces/cluster.truth.json").read_text())
    return ks.scan(folder / "lake"), truth


@pytest.fixture(scope="module")
def findings(faulty: Job) -> dict[str, pl.DataFrame]:
    found = ks.analysis.cluster_findings(faulty[0])
    return {name: found.filter(finding=name) for name in found["finding"].unique()}


def test_nothing_else_is_found(findings: dict[str, pl.DataFrame]) -> None:
    assert set(findings) == {"slow_rank", "slow_link", "late_data_loader", "clock_offset"}


def test_slow_rank(faulty: Job, findings: dict[str, pl.DataFrame]) -> None:
    assert findings["slow_rank"]["ranks"].to_list() == [[faulty[1]["slow_rank"]["rank"]]]


def test_slow_link(faulty: Job, findings: dict[str, pl.DataFrame]) -> None:
    link = faulty[1]["slow_link"]
    (row,) = findings["slow_link"].to_dicts()
    assert row["ranks"] == link["ranks"]
    assert row["group"].startswith(link["process_group"])
    assert row["value"] == pytest.approx(1 / link["factor"], rel=0.02)


def test_late_data_loader(faulty: Job, findings: dict[str, pl.DataFrame]) -> None:
    late = faulty[1]["late_data_loader"]
    (row,) = findings["late_data_loader"].to_dicts()
    assert row["ranks"] == [late["rank"]]
    true_ns = sum(step["late_ns"] for step in late["steps"])
    assert row["lost_ns"] == pytest.approx(true_ns, rel=0.05)
    stragglers = ks.analysis.stragglers(faulty[0])
    of_rank = stragglers.filter((pl.col("rank") == late["rank"]) & (pl.col("cause") == "data"))
    assert of_rank["step"].to_list() == [step["step"] for step in late["steps"]]


def test_clock_offsets(faulty: Job) -> None:
    truth = pl.Series(faulty[1]["clock_offsets_ns"])
    offsets = ks.analysis.clock_offsets(faulty[0]).sort("rank")
    # What is known is how far clocks are from each other; the answer counts from the median.
    error = offsets["offset_ns"] - offsets["offset_ns"][0] - (truth - truth[0])
    assert error.abs().max() < 1_000
    assert offsets["residual_ns"].max() < 1_000


def test_summary_names_them(faulty: Job) -> None:
    lake, truth = faulty
    text = cluster_text.to_text(lake)
    assert text.startswith("64 ranks on 8 hosts")
    first = text.split("\n2. ")[0]
    assert f"Rank {truth['slow_rank']['rank']} is late" in first
    assert f"Rank {truth['late_data_loader']['rank']} is late" in first
    ranks = truth["slow_link"]["ranks"]
    assert f"[{','.join(map(str, ranks))}]" in first
    assert "all_reduce" in text.split("\n2. ")[1]
    assert "loads data" in text.split("\n3. ")[1]


def test_the_same_from_traces_in_memory(faulty: Job) -> None:
    lake, truth = faulty
    some = sorted({*truth["slow_link"]["ranks"], truth["slow_rank"]["rank"], 0})
    paths = {row["rank"]: row["source"] for row in lake.ranks.collect().iter_rows(named=True)}
    traces = [ks.read(Path(paths[rank])) for rank in some]
    part = ks.scan(lake.path, ranks=some)
    columns = ["kind", "group", "collectives", "total_ns", "wait_ns", "exposed_ns"]
    by = ("kind", "group")
    ours = ks.analysis.communication(part, by=by).select(columns)
    assert ours.equals(ks.analysis.communication(traces, by=by).select(columns))
