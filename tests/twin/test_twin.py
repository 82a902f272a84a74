"""Answers about one trace beside their slow twins: on recorded traces, on grown ones and on traces drawn."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given, seed, settings

import draws
import kernelscope as ks
from events import Events
from kernelscope.check import LAWS, Law
from oracles.traces import ORACLES, SHARED, TRACES, files, need
from twin import beside, drawn

DRAWN = draws.count(80, 4_000)
"""How many traces are drawn; in a long run each is asked about everything, which takes four times as long."""
_PARTS = 8
# Else each is asked about so many subjects and laws, chosen anew.
_SUBJECTS_OF_ONE, _LAWS_OF_ONE = 2, 2
_LARGE = 2_000
"""Events from which on each question is asked in one way only, and few subjects are asked about."""
_SUBJECTS_OF_LARGE = 2
T = TypeVar("T")

RECORDED = [
    *files(TRACES, "*.json.gz"),
    *files(TRACES / "graph-capture", "*.json.gz"),
    *files(ORACLES / "tb-plugin" / "unit", "*.trace.json"),
]


class One:
    """One of several ways of asking, chosen at random."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def __call__(self, options: Sequence[T]) -> Sequence[T]:
        return [self.random.choice(list(options))]


@pytest.mark.parametrize("path", RECORDED)
def test_recorded_traces(path: Path) -> None:
    trace, rows = beside.read_both(path)
    is_large = sum(map(len, rows.values())) > _LARGE
    random = draws.random(path.name)
    few = is_large and not draws.is_long
    for subject in random.sample(beside.SUBJECTS, _SUBJECTS_OF_LARGE) if few else beside.SUBJECTS:
        subject(trace, rows, One(random) if is_large else beside.every)


@pytest.mark.parametrize(("name", "megabytes"), [("sampled-rank0of128", 4), ("mi250-minitoy-rocm", 1)])
def test_grown_traces(name: str, megabytes: int, tmp_path: Path) -> None:
    tool, path = need(SHARED / "tools" / "scale_kineto.py"), tmp_path / "grown.json"
    source = need(TRACES / f"{name}.json.gz")
    subprocess.run([sys.executable, tool, source, path, f"{megabytes}"], check=True, capture_output=True)
    trace, rows = beside.read_both(path)
    for subject in beside.SUBJECTS:
        subject(trace, rows, One(Random(name)))
    assert not faults(trace)


def faults(trace: ks.Trace, laws: Sequence[Law] = LAWS) -> list[str]:
    """What is wrong with answers, and not with the file."""
    found = ((law.statement, list(law.find(trace))) for law in laws if not law.of_file)
    return [f"{statement} {broken}" for statement, broken in found if broken]


def of_drawn(events: Events) -> tuple[ks.Trace, beside.Rows]:
    with TemporaryDirectory() as folder:
        path = events.write(Path(folder, "trace.json"))
        return beside.read_both(path, threads=1)


# In parts, which several workers take; each draws traces of its own, and the same ones every time.
@pytest.mark.parametrize("part", range(_PARTS))
def test_drawn_traces(part: int) -> None:
    @seed(draws.seed + part)
    @settings(max_examples=DRAWN // _PARTS)
    @given(events=drawn.traces(), chosen=drawn.randoms())
    def holds(events: Events, chosen: Random) -> None:
        trace, rows = of_drawn(events)
        pick = beside.every if draws.is_long else One(chosen)
        for subject in beside.SUBJECTS if draws.is_long else chosen.sample(beside.SUBJECTS, _SUBJECTS_OF_ONE):
            subject(trace, rows, pick)
        assert not faults(trace, LAWS if draws.is_long else chosen.sample(LAWS, _LAWS_OF_ONE))

    holds()
