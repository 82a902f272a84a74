"""What stalls training: the evidence of its rules, and the lines of the program in it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from advice_programs import silent, spoke
from simulated import Simulated

from events import V100
from kernelscope import analysis
from kernelscope.analysis.advice.source_lines import called_from

CLIPPING = "torch/nn/utils/clip_grad.py(184): clip_grad_norm_"


def steps(program: Simulated, *lengths: float) -> Simulated:
    for length in lengths:
        program.begin()
        program.run("k", length)
        program.end()
    return program


def test_evidence_names_the_line_of_the_program(tmp_path: Path) -> None:
    program = Simulated(V100)

    def collect() -> None:
        program.now += 700

    def step() -> None:
        program.frame("torch/utils/data.py(9): next", lambda: program.frame("Python GC", collect))

    program.begin()
    program.run("k", 50)
    program.frame("train.py(40): main", lambda: program.frame("/home/me/train.py(12): step", step))
    program.run("k", 50)
    program.end()
    row = spoke(analysis.recommendations(program.read(tmp_path)), "garbage_collection")
    assert "1 collection of garbage delayed the steps by" in row["evidence"]
    assert "Called from /home/me/train.py(12): step." in row["evidence"]
    assert row["table"] == "python"


def test_a_hidden_collection_is_no_finding(tmp_path: Path) -> None:
    program = Simulated(V100)

    def collect() -> None:
        program.now += 700

    program.begin()
    for _ in range(10):
        program.run("k", 400)
    program.frame("Python GC", collect)
    program.run("k", 400)
    program.end()
    silent(analysis.recommendations(program.read(tmp_path)), "garbage_collection")


def test_waits_for_norms_are_the_cause_of_what_is_more_general(tmp_path: Path) -> None:
    program = Simulated(V100)
    program.begin()
    for _ in range(4):
        program.run("k", 100)

        def clip() -> None:
            program.run("norm", 20)
            program.wait()
            program.work("aten::item", 60)

        program.frame("train.py(30): step", lambda clip=clip: program.frame(CLIPPING, clip))
        program.run("adam", 50)
    program.end()
    table = analysis.recommendations(program.read(tmp_path))
    row = spoke(table, "gradient_norm_waits")
    assert "Called from train.py(30): step." in row["evidence"]
    silent(table, "synchronising_calls")


@pytest.mark.parametrize(
    ("lengths", "speaks"),
    [((900, 400, 410, 390), True), ((450, 400, 410, 390), False), ((900, 400, 950, 390), False)],
)
def test_a_slow_first_step(lengths: tuple[float, ...], speaks: bool, tmp_path: Path) -> None:
    table = analysis.recommendations(steps(Simulated(V100), *lengths).read(tmp_path))
    assert ("slow_first_step" in table["id"]) == speaks
    assert (table.filter(id="slow_first_step")["cited"] > 0).all()


def test_without_frames_no_line_is_named(tmp_path: Path) -> None:
    trace = steps(Simulated(V100), 100).read(tmp_path)
    points = trace.launches.select("track", "start_ns")
    assert points.height > 0
    assert called_from(trace, points) == ""
    assert called_from(trace, points.filter(pl.lit(value=False))) == ""
