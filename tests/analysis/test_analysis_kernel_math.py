"""The grammar of kernel names: every example, every shared trace, and names that fit nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

import polars as pl
import pytest

from kernelscope.analysis.kernels.kernel_math import kernel_math, rule_of, rules, with_kernel_math

EXAMPLES = [(rule, name, math) for rule in rules() for name, math in rule.examples]


@pytest.mark.parametrize(("rule", "name", "math"), EXAMPLES, ids=[name[:60] for _, name, _ in EXAMPLES])
def test_examples(rule: object, name: str, math: str) -> None:
    assert rule_of(name) is rule
    assert kernel_math(name).math == (math or None)


def test_every_rule_has_an_example_and_says_whose_names_it_knows() -> None:
    assert all(rule.examples and rule.about for rule in rules())


def test_a_name_that_fits_nothing_is_unknown() -> None:
    assert kernel_math("my_secret_kernel(float*)") == (None, None)
    assert kernel_math("") == (None, None)
    assert kernel_math("x" * 100_000) == (None, None)


def test_frames_keep_their_rows() -> None:
    names = [
        "volta_sgemm_128x64_nn",
        None,
        "nvjet_tst_144x128_64x6_2x1_v_bz_bias_TNN",
        "volta_sgemm_128x64_nn",
    ]
    frame = pl.DataFrame({"name": pl.Series(names, dtype=pl.Categorical), "n": [1, 2, 3, 4]})
    found = with_kernel_math(frame)
    assert found["tensor_cores"].to_list() == [False, None, True, False]
    assert found["math"].to_list() == [None, None, "bf16", None]
    assert found["n"].to_list() == [1, 2, 3, 4]


@pytest.mark.parametrize("change", [str.upper, str.title, str.swapcase, str.lower])
@pytest.mark.parametrize("end", ["", "\u212a"])
def test_capitals_do_not_matter_where_the_pattern_says_so(change: Callable[[str], str], end: str) -> None:
    for _, example, _ in EXAMPLES:
        name = change(example) + end
        assert rule_of(name) is next((rule for rule in rules() if re.search(rule.text, name)), None)
