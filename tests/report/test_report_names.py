"""Names from a trace become safe and short."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelscope.report.names import safe, short

ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::AddFunctor<float>, at::detail::Array<char*, 3>)"
)


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("aten::mm", 40, "aten::mm"),
        (ELEMENTWISE, 300, ELEMENTWISE),
        (
            ELEMENTWISE,
            110,
            ELEMENTWISE.removeprefix("void ").partition("(")[0],
        ),
        (ELEMENTWISE, 75, "vectorized_elementwise_kernel<4, AddFunctor<float>, Array<char*, 3> >"),
        (ELEMENTWISE, 60, "vectorized_elementwise_kernel<4, AddFunctor, Array >"),
        (ELEMENTWISE, 40, "vectorized_elementwise_kernel<4, AddFun…"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", 30, "ampere_bf16_s16816ge…s_64x4_tn"),
        ("ncclKernel_AllReduce_RING_LL(ncclDevComm*)", 40, "ncclKernel_AllReduce_RING_LL"),
        ("void (anonymous namespace)::softmax<float>(float*)", 24, "softmax<float>"),
        (None, 20, "(no name)"),
        ("(((((((((((((((", 8, "(((((…(("),
        (")" * 20, 8, ")))))…))"),
    ],
)  # fmt: skip
def test_short(name: str | None, width: int, shown: str) -> None:
    assert short(name, width) == shown


@given(st.text(), st.integers(1, 60))
def test_short_fits_and_is_safe(name: str, width: int) -> None:
    shown = short(name, width)
    assert len(shown) <= width
    assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in shown)


@given(st.text(alphabet="<>(),: ab:{}#~", max_size=60), st.integers(4, 40))
def test_short_survives_any_brackets(name: str, width: int) -> None:
    assert len(short(name, width)) <= width


def test_safe_drops_what_a_terminal_acts_upon() -> None:
    assert safe("a\x1b[31mred\x07\u202eback\r\nb\x9b2J") == "a [31mred back b 2J"
    assert len(safe("x" * 10**7)) < 10**4
