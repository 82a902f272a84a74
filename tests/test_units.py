"""Numbers as text for people, and sizes as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelscope import units
from kernelscope.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.000 us"),
        (12_345, "12.35 us"),
        (999_949, "999.9 us"),
        (999_999, "1.000 ms"),
        (1_234_567, "1.235 ms"),
        (61_000_000_000, "61.00 s"),
        (7_200_000_000_000, "7,200 s"),
        (-1_500, "-1.500 us"),
        (1.5, "1.500 ns"),
    ],
)
def test_format_ns(ns: float | None, text: str) -> None:
    assert units.format_ns(ns) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (2**20 - 1, "1.000 MiB"),
        (1536, "1.500 KiB"),
        (80 * 2**30, "80.00 GiB"),
    ],
)
def test_format_bytes(size: int | None, text: str) -> None:
    assert units.format_bytes(size) == text


def test_format_count_and_percent() -> None:
    assert units.format_count(1_234_567) == "1,234,567"
    assert units.format_percent(0.1234) == "12.3 %"
    assert units.format_count(None) == units.format_percent(None) == "-"


@pytest.mark.parametrize(
    ("text", "size"),
    [("100MB", 10**8), ("100mb", 10**8), ("1.5 GB", 15 * 10**8), ("64MiB", 2**26), ("2K", 2000), ("7", 7)],
)
def test_parse_bytes(text: str, size: int) -> None:
    assert units.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1iB", "1PB", "1e6", "10 00"])
def test_parse_bytes_rejects(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="100MB"):
        units.parse_bytes(text)


@given(st.integers(min_value=0, max_value=10**18))
def test_formatted_time_is_near(ns: int) -> None:
    number, unit = units.format_ns(ns).split()
    factor = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[unit]
    assert float(number.replace(",", "")) * factor == pytest.approx(ns, rel=6e-4)
