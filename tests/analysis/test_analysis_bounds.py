"""Bounds on what may become slower."""

from pathlib import Path
from typing import Any

import pytest

from events import Events
from kernelscope.analysis.diff.bounds import judge, parse_bound
from kernelscope.analysis.diff.comparison import Comparison, compare
from kernelscope.errors import InvalidArgumentError

GEMM = "void gemm<float, 1>(int) [clone .a]"


@pytest.fixture
def both(tmp_path: Path) -> Comparison:
    """A kernel of 40 us becomes one of 50 us, in two steps each; copies are new."""

    def steps(kernel: float, copies: bool) -> Any:
        e = Events()
        for step in (0, 1):
            at = 1000 * step
            e.annotation(f"ProfilerStep#{step}", at, 100)
            e.op("aten::mm", at, 20)
            e.call(at + 5, 5, step + 1)
            e.kernel(GEMM, at + 20, kernel, step + 1)
            if copies:
                e.copy(at + 90, 5, step + 10)
        return e.read(tmp_path / str(kernel))

    return compare(steps(40, copies=False), steps(50, copies=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        ("step>5%", False),
        ("step >= 0%", True),
        ("step<1us", True),
        ("kernel>9us", True),
        ("kernel>10us", False),
        ("kernel>=10us", True),
        ("kernel > 24.9 %", True),
        ("kernel>25%", False),
        ("memcpy>1000%", True),
        ("memcpy>5us", False),
        ("memcpy>4999ns", True),
        ("memset>0%", False),
        ("other<-1ms", False),
        (f"kernel:{GEMM}>5%", True),
        ("kernel:*gemm<*>* >0.01ms", False),
        ("op:aten::*>9us", True),
        ("name:Memcpy*>1us", True),
    ],
)
def test_bounds(both: Comparison, text: str, is_broken: bool) -> None:
    verdict = judge(both, [parse_bound(text)])[0]
    assert verdict.is_broken is is_broken, verdict


def test_figures_of_a_verdict(both: Comparison) -> None:
    kernel, copies = judge(both, [parse_bound("kernel>1%"), parse_bound("memcpy>1%")])
    assert (kernel.before_ns, kernel.after_ns, kernel.share, kernel.is_noise) == (40_000, 50_000, 0.25, False)
    assert (copies.before_ns, copies.after_ns, copies.share) == (0, 5_000, None)
    assert judge(both, [parse_bound("step>1%")])[0].is_noise


@pytest.mark.parametrize(
    "text",
    ["", "step", "step>", "step>5", "step>five%", "steps>5%", "op>5%", "step:3>5%", "step>5%; import os",
     "__import__('os')>5%", "step>1e9%", "step>nan%", "op:>5%", "step>>5%", "step=5%", "x" * 100_000 + ">5%"],
)  # fmt: skip
def test_what_is_no_bound_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"bound|take a name"):
        parse_bound(text)


def test_a_name_that_is_nowhere_is_an_error(both: Comparison) -> None:
    with pytest.raises(InvalidArgumentError, match="neither trace has a op of this name"):
        judge(both, [parse_bound("op:aten::conv*>5%")])
