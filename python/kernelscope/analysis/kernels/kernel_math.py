"""Use of tensor cores and multiplication types of kernels, according to ``kernel_math.toml``."""

import re
import sys
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

import polars as pl

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Names are longer only where templates nest, to ten thousand characters; what decides stands in front.
_LONGEST = 4_000
_ANY_CASE = "(?i)"
_CORES = {"yes": True, "no": False, "unknown": None}


class Rule(NamedTuple):
    """A rule of the grammar: the names that it matches, and the properties that it assigns.

    ``pattern`` matches like ``text``, but for lowercase names if the case does not matter: a case-insensitive
    search takes several times as long.
    """

    text: str
    pattern: re.Pattern[str]
    ignores_case: bool
    tensor_cores: bool | None
    types: tuple[tuple[str, str], ...]
    about: str
    examples: tuple[tuple[str, str], ...]


class KernelMath(NamedTuple):
    """Arithmetic units of a kernel.

    ``tensor_cores`` is None if unknown. ``math`` is the type if the name contains it.
    """

    tensor_cores: bool | None
    math: str | None


@cache
def rules() -> tuple[Rule, ...]:
    """Returns the rules in order."""
    text = (
        resources.files("kernelscope.analysis.kernels")
        .joinpath("kernel_math.toml")
        .read_text(encoding="utf-8")
    )
    return tuple(
        Rule(
            rule["pattern"],
            re.compile(_in_small_letters(rule["pattern"])),
            rule["pattern"].startswith(_ANY_CASE),
            _CORES[rule["cores"]],
            tuple((pattern, name) for pattern, name in rule.get("types", ())),
            rule["about"],
            tuple((name, math) for name, math in rule["examples"]),
        )
        for rule in tomllib.loads(text)["rule"]
    )


def _in_small_letters(pattern: str) -> str:
    """A pattern that finds in small letters what this one, if it looks past capitals, finds in any."""
    if not pattern.startswith(_ANY_CASE):
        return pattern
    return re.sub(r"\\.|[A-Z]", lambda part: part[0] if len(part[0]) > 1 else part[0].lower(), pattern[4:])


def rule_of(name: str) -> Rule | None:
    """Returns the rule that decides about a kernel of this name, or None."""
    found = _found(name[:_LONGEST])
    return found[0] if found else None


def _found(text: str) -> tuple[Rule, str] | None:
    """The rule that decides, and the part of the text that it knows."""
    # Beyond ASCII there are letters that have no small form of their own, but count as one.
    small = text.lower() if text.isascii() else None
    for rule in rules():
        if not rule.ignores_case:
            match = rule.pattern.search(text)
        else:
            match = re.search(rule.text, text) if small is None else rule.pattern.search(small)
        if match:
            return rule, text[match.start() : match.end()]
    return None


# Several answers about one trace ask for the same names.
@lru_cache(maxsize=4_096)
def kernel_math(name: str) -> KernelMath:
    """Returns the arithmetic units of a kernel with this name.

    Example: ``kernel_math("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_nn")`` is ``(True, "bf16")``.
    """
    found = _found(name[:_LONGEST])
    if found is None:
        return KernelMath(None, None)
    rule, text = found
    return KernelMath(rule.tensor_cores, next((m for p, m in rule.types if re.search(p, text)), None))


def with_kernel_math(kernels: pl.DataFrame) -> pl.DataFrame:
    """Adds ``tensor_cores`` and ``math`` to kernels, evaluated once per distinct name.

    Columns: ``kernels`` needs ``name``; adds ``tensor_cores`` (null if unknown) and ``math`` (null if not in
        the name), both null without a name.
    """
    names = kernels["name"].unique()
    found = [kernel_math(text or "") for text in names]
    schema = {"tensor_cores": pl.Boolean, "math": pl.String}
    described = names.to_frame().hstack(pl.DataFrame(found, schema=schema, orient="row"))
    return kernels.join(described, on="name", how="left", nulls_equal=True, maintain_order="left")
