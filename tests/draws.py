"""How much the tests draw at random.

``make test`` draws a few cases, the same ones every time. ``make test-long`` (``pytest --long``) draws
thousands from a new seed, and prints the command that repeats them.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")
is_long = False
"""Whether many cases are drawn; set before the tests are collected."""
seed = 0
"""What random cases are drawn from."""


def count(few: int, many: int) -> int:
    """How many cases of a kind are drawn: few in ``make test``, many in ``make test-long``."""
    return many if is_long else few


def some(cases: Sequence[T], few: int) -> Sequence[T]:
    """The cases of a kind that are tried: few of them in ``make test``, all in ``make test-long``."""
    count = len(cases)
    return cases if is_long or few >= count else [cases[at * count // few] for at in range(few)]


def random(*names: object) -> Random:
    """Draws for what has these ``names``, the same for the same seed."""
    return Random(" ".join(map(str, (seed, *names))))
