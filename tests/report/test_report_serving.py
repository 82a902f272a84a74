"""The view of serving: what steps of an engine add up to, in every form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import kernelscope as ks
from events import Events
from kernelscope.cli.main import main
from kernelscope.report.views import serving

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

# Microseconds: two decoding steps of 2 requests, one of 4, and a prompt of 30 tokens.
STEPS = (
    ("step[DECODE bs=2]", 100),
    ("step[DECODE bs=2]", 300),
    ("step[DECODE bs=4]", 400),
    ("step[EXTEND bs=1 toks=30]", 600),
)


def engine(path: Path, steps: tuple[tuple[str, int], ...] = STEPS) -> Path:
    events, at = Events(), 0
    for correlation, (name, dur) in enumerate(steps, start=1):
        events.annotation(name, at, dur)
        events.op("aten::mm", at + 1, 10)
        events.call(at + 2, 5, correlation)
        events.kernel("gemm", at + 20, 10, correlation)
        at += dur
    return events.write(path)


def test_the_frames(tmp_path: Path) -> None:
    """2 + 2 + 4 tokens in 800 us are 10,000 a second, and 30 in 600 us are 50,000."""
    path = engine(tmp_path / "trace.json")
    out = tmp_path / "answers.json"
    assert main(["analyze", str(path), "--format", "json", "--out", str(out)]) == 0
    answers = json.loads(out.read_text())
    told = [
        [row[column] for column in ("phase", "steps", "tokens_sum", "tokens_per_s")]
        for row in answers["serving"]
    ]
    assert told == [["decode", 3, 8, 10_000.0], ["prefill", 1, 30, 50_000.0]]
    curve = [
        [row[column] for column in ("phase", "requests", "tokens_per_s")]
        for row in answers["serving_by_batch"]
    ]
    assert curve == [["decode", 2, 10_000.0], ["decode", 4, 10_000.0], ["prefill", 1, 50_000.0]]


def test_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = engine(tmp_path / "trace.json")
    assert main(["analyze", str(path), "--top", "2"]) == 0
    text = capsys.readouterr().out
    assert "Serving\n" in text
    assert "decode 4" in text
    assert "The 2 smallest of 3 batch sizes and phases." in text


def test_steps_whose_tokens_nobody_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = engine(tmp_path / "trace.json", (("[Executor] _forward_step 1: 0 ctx reqs, 5 gen reqs", 100),))
    assert main(["analyze", str(path)]) == 0
    section = capsys.readouterr().out.split("Serving\n")[1].split("\n\n")[0]
    row = next(line.split() for line in section.splitlines() if line.startswith("decode"))
    # Steps and their times: the number of tokens is unknown.
    assert row[1] == "1"
    assert "100.0" in row
    assert "0" not in row


def test_other_traces_have_no_such_view(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = engine(tmp_path / "trace.json", (("ProfilerStep#1", 100),))
    assert main(["analyze", str(path)]) == 0
    assert "Serving" not in capsys.readouterr().out


def test_the_page_has_a_curve_over_several_sizes(tmp_path: Path) -> None:
    one = ks.read(engine(tmp_path / "one.json", STEPS[:2]))
    assert [part.kind for part in serving.page(one)] == ["table", "table"]
    several = ks.read(engine(tmp_path / "several.json"))
    assert [part.kind for part in serving.page(several)] == ["table", "figure", "table"]
    none = ks.read(engine(tmp_path / "none.json", (("ProfilerStep#1", 100),)))
    assert [part.kind for part in serving.page(none)] == ["note"]
