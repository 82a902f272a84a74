"""All-gathers and reductions of FSDP: their units, when they are needed, and what waits for them."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from simulated_sharding import Sharded

import kernelscope as ks
from kernelscope import analysis

RECORDED = Path(__file__).resolve().parents[1] / "recorded/sharding"
BLOCK_BYTES, ROOT_BYTES = 66_304, 16_640
NAMES = {"fsdp2": ("(root)", "0", "1", "2"), "fsdp1": ("unit 0", "unit 1", "unit 2", "unit 3")}


def recorded(kind: str) -> ks.Trace:
    return ks.read(RECORDED / f"{kind}-rank0.json.gz")


@pytest.mark.parametrize("kind", ["fsdp2", "fsdp2-prefetch", "fsdp2-keep", "fsdp1", "fsdp1-prefetch"])
def test_units_of_torch(kind: str) -> None:
    root, *blocks = NAMES[kind[:5]]
    found = analysis.fsdp_collectives(recorded(kind))
    gathers, reduces = (
        found.filter((pl.col("kind") == "all_gather") == is_gather) for is_gather in (True, False)
    )
    early = kind.endswith("prefetch")
    forward = [(root, False), (blocks[0], False), *((block, early) for block in blocks[1:])]
    if kind == "fsdp1-prefetch":
        # The root prefetches, too.
        forward[1] = (blocks[0], True)
    backward = [] if kind.endswith("keep") else [(block, True) for block in reversed(blocks)]
    expected = [(*one, "forward") for one in forward] + [(*one, "backward") for one in backward]
    assert gathers.select("fsdp_unit", "is_prefetched", "direction").rows() == expected
    assert gathers["bytes"].to_list() == [
        ROOT_BYTES if unit == root else BLOCK_BYTES for unit, *_ in expected
    ]
    assert sorted(reduces["fsdp_unit"]) == sorted([root, *blocks])
    assert set(reduces["direction"]) == {"backward"}
    # The threads of gloo wait for each other.
    assert (found["issued_ns"] <= found["start_ns"]).all()
    assert (found["wait_ns"] <= found["dur_ns"]).all()
    assert found["wait_ns"].equals(found["exposed_ns"])


def test_units_are_gathered_in_each_backward_pass() -> None:
    found = analysis.fsdp_collectives(recorded("fsdp2-accumulate")).filter(kind="all_gather")
    once = [("(root)", "forward"), *((str(unit), "forward") for unit in range(3))]
    once += [(str(unit), "backward") for unit in (2, 1, 0)]
    assert found.select("fsdp_unit", "direction").rows() == 2 * once
    held = found.filter(fsdp_unit="1").select("issued_ns", "freed_ns").rows()
    assert all(freed < later for (_, freed), (later, _) in pairwise(held))


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        # The root is held throughout; another unit may be gathered before the last one is freed.
        ("fsdp2", ROOT_BYTES + 2 * BLOCK_BYTES),
        ("fsdp2-keep", ROOT_BYTES + 3 * BLOCK_BYTES),
        ("fsdp1", None),
    ],
)
def test_memory_of_gathered_parameters(kind: str, peak: int | None) -> None:
    trace = recorded(kind)
    steps, units = analysis.fsdp_steps(trace), analysis.fsdp_units(trace)
    assert steps["peak_bytes"].to_list() == [peak]
    assert steps["gathers"].to_list() == [units["gathers"].sum()]
    waits = ("forward_wait_ns", "backward_wait_ns", "reduce_wait_ns")
    assert steps.select(waits).row(0) == units.select(pl.col(waits).sum()).row(0)
    assert units["reduces"].to_list() == [1] * 4


def test_a_lake_gives_the_same_as_its_traces(tmp_path: Path) -> None:
    paths = [RECORDED.parent / f"gloo/fsdp-rank{rank}.json.gz" for rank in range(2)]
    ks.batch.run(paths, tmp_path / "lake")
    lake, traces = ks.scan(tmp_path / "lake"), [ks.read(path) for path in paths]
    for question in (analysis.fsdp_collectives, analysis.fsdp_units, analysis.fsdp_steps):
        assert question(lake).equals(question(traces))
        assert not question(lake).is_empty()


def test_other_jobs_have_no_units() -> None:
    for kind in ("ddp", "tp", "pp"):
        trace = ks.read(RECORDED.parent / f"gloo/{kind}-rank0.json.gz")
        assert analysis.fsdp_collectives(trace).is_empty()
        assert analysis.fsdp_units(trace).is_empty()
        assert analysis.fsdp_steps(trace).is_empty()


CASES = [(seed, prefetch) for seed in range(12) for prefetch in (False, True)]


def drawn(seed: int, *, names: str, prefetch: bool) -> Sharded:
    """Two steps of some units, each with its own times."""
    draw = random.Random(seed)
    job = Sharded(names=names, host=draw.choice([2, 8, 40]))
    for _ in range(2):
        job.begin()
        times = (draw.choice([5, 50, 200]) for _ in range(3))
        job.train(draw.randint(1, 5), *times, prefetch=prefetch)
        job.end()
    return job


@pytest.mark.parametrize(("seed", "prefetch"), CASES)
def test_waits_of_a_simulated_gpu(seed: int, prefetch: bool, tmp_path: Path) -> None:
    job = drawn(seed, names="fsdp2", prefetch=prefetch)
    found = analysis.fsdp_collectives(job.read(tmp_path))
    columns = ("fsdp_unit", "kind", "direction", "is_prefetched", "wait_ns")
    assert sorted(found.select(columns).rows(), key=str) == sorted(job.expected, key=str)
    waits = found.filter(pl.col("kind") == "all_gather", pl.col("wait_ns") > 0).sort("needed_ns")
    ends = waits["needed_ns"] + waits["wait_ns"]
    assert (ends.head(-1) <= waits["needed_ns"].tail(-1)).all()


@pytest.mark.parametrize(("seed", "prefetch"), CASES)
def test_waits_without_annotations(seed: int, prefetch: bool, tmp_path: Path) -> None:
    job = drawn(seed, names="none", prefetch=prefetch)
    found = analysis.fsdp_collectives(job.read(tmp_path))
    named = found.with_columns(pl.col("fsdp_unit").str.replace("unit ", "layers."))
    columns = ("fsdp_unit", "kind", "direction", "is_prefetched", "wait_ns")
    expected = [(*one[:3], None, one[4]) for one in job.expected]
    assert sorted(named.select(columns).rows(), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    ("host", "elements", "prefetch", "option"),
    [
        (2, 10**7, False, "reshard_after_forward=False"),
        (2, 100, False, "larger units"),
        (80, 10**7, False, "Gather the next unit early in the forward pass: set_modules_to_forward_prefetch"),
    ],
)
def test_the_option_that_brings_parameters_sooner(
    host: float, elements: int, prefetch: bool, option: str, tmp_path: Path
) -> None:
    job = Sharded(host=host, elements=elements)
    job.begin()
    job.train(4, 700, 150, 20, prefetch=prefetch)
    job.end()
    trace = job.read(tmp_path)
    found = analysis.recommendations(trace).filter(id="late_all_gathers").row(0, named=True)
    assert option in found["remedy"]
    assert found["saving_ns"] > 0
    # Less specific rules give the same advice.
    parts = analysis.recommendations(trace).filter(id="communication")
    assert parts["same_cause_as"].to_list() == ["late_all_gathers"]
    assert parts["remedy"].to_list() == [found["remedy"]]
