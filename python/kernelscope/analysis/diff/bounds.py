"""Bounds on changes between two traces, as text such as ``step>5%``."""

import fnmatch
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import polars as pl

from kernelscope.analysis.diff.comparison import Comparison
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.errors import InvalidArgumentError

_PARTS = tuple(name.removesuffix("_ns") for name in CATEGORIES)
_NAMED = {"op": "op", "module": "module", "kernel": "name", "name": "name"}
_UNITS = {"%": 0.01, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
# The name reaches to the last comparison: names of kernels have < and > in them.
_BOUND = re.compile(
    r"\s*(?P<what>\w+)(?::(?P<name>.+))?\s*(?P<sign>>=|<=|>|<)\s*(?P<number>[+-]?\d{1,15}(?:\.\d{1,15})?)\s*"
    r"(?P<unit>%|ns|us|ms|s)\s*",
    re.DOTALL,
)
_COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_LONGEST = 10_000


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on the change of a time, relative (``is_share``) or in ns."""

    text: str
    what: str
    name: str | None
    sign: str
    limit: float
    is_share: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a bound: mean times of a step in ns, and whether the change exceeds it.

    ``is_noise`` says whether the change is within the spread of single steps; null for a single step.
    """

    bound: Bound
    before_ns: float
    after_ns: float
    is_broken: bool
    is_noise: bool | None

    @property
    def share(self) -> float | None:
        """Relative change; null if the earlier value is 0."""
        return (self.after_ns - self.before_ns) / self.before_ns if self.before_ns else None


def parse_bound(text: str) -> Bound:
    """Parses a bound: the measured quantity, a comparison, and the allowed change of a mean step.

    The quantity is ``step``, a part of it (``kernel``, ``memcpy``, ``memset``, ``communication``,
    ``runtime``, ``dataloader``, ``cpu_exec``, ``other``), or ``op:NAME``, ``module:NAME``, ``kernel:NAME``,
    whose names may contain the wildcards ``*``, ``?`` and ``[...]``. The comparison is ``>``, ``>=``, ``<``
    or ``<=``, the amount a number with ``%``, ``ns``, ``us``, ``ms`` or ``s``.

    Raises: InvalidArgumentError: ``text`` is not a bound.
    Example: ``parse_bound("kernel:*gemm* > 200us")``
    """
    match = _BOUND.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidArgumentError(
            f"{text[:100]!r} is not a bound; write for example step>5% or op:aten::mm>200us"
        )
    what, name = match["what"], match["name"]
    if name is None and what not in ("step", *_PARTS):
        known = ", ".join(("step", *_PARTS, *(f"{kind}:NAME" for kind in _NAMED)))
        raise InvalidArgumentError(f"{text[:100]!r} bounds {what!r}; bounds exist for {known}")
    if name is not None and what not in _NAMED:
        raise InvalidArgumentError(f"{text[:100]!r}: only {', '.join(_NAMED)} take a name, not {what}")
    is_share = match["unit"] == "%"
    limit = float(match["number"]) * _UNITS[match["unit"]]
    return Bound(text.strip(), what, None if name is None else name.strip(), match["sign"], limit, is_share)


def judge(both: Comparison, bounds: Sequence[Bound]) -> list[Verdict]:
    """Determines whether the change from the earlier to the later trace exceeds each of ``bounds``.

    Raises: InvalidArgumentError: neither trace has anything with a given name.
    """
    return [_judge(both, bound) for bound in bounds]


def _judge(both: Comparison, bound: Bound) -> Verdict:
    steps = both.steps
    if bound.what == "step":
        before, after = steps["before_ns"], steps["after_ns"]
    else:
        times = _times(both, bound)
        paired = steps.select("pair").join(times, on="pair", how="left", maintain_order="left").fill_null(0)
        before, after = paired["before_ns"], paired["after_ns"]
    first, second = fmean(before), fmean(after)
    delta = second - first
    change = (
        delta
        if not bound.is_share
        else delta / first
        if first
        else math.copysign(math.inf, delta)
        if delta
        else 0.0
    )
    broken = _COMPARISONS[bound.sign](change, bound.limit)
    spread = None if steps.height < 2 else math.sqrt(variance(before) + variance(after))
    return Verdict(bound, first, second, broken, None if spread is None else abs(delta) <= spread)


def _times(both: Comparison, bound: Bound) -> pl.DataFrame:
    """The time of every step that belongs to what is bounded."""
    parts = both.parts
    if bound.name is None:
        found = parts.filter(pl.col("category") == bound.what)
    else:
        column = _NAMED[bound.what]
        if bound.what == "kernel":
            parts = parts.filter(pl.col("category").is_in(["kernel", "communication"]))
        known = parts[column].unique().drop_nulls()
        names = [name for name in known if name == bound.name or fnmatch.fnmatchcase(name, bound.name)]
        if not names:
            raise InvalidArgumentError(
                f"{bound.text[:100]!r}: neither trace has a {bound.what} of this name in its steps"
            )
        found = parts.filter(pl.col(column).is_in(names))
    return found.group_by("pair").agg(pl.col("before_ns", "after_ns").sum())
