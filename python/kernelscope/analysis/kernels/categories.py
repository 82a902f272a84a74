"""GPU time by category, from kernel names and the rules of ``kernel_categories.toml``."""

import json
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, cast

import polars as pl

from kernelscope.analysis.grouping import classes_of
from kernelscope.analysis.replays import with_replayed_ops
from kernelscope.errors import InvalidArgumentError
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# What decides stands in front: templates nest to ten thousand characters.
_LONGEST_NAME = 2_000
_MOST_RULES = 1_000
_COPIES = ("memcpy", "memset")
OTHER = "other"


class CategoryRule(NamedTuple):
    """A rule: a kernel whose name matches ``pattern`` belongs to ``category``.

    The first rule that matches decides.
    """

    category: str
    pattern: str


_chosen: list[tuple[CategoryRule, ...]] = []


def load_categories(path: str) -> int:
    """Replaces kernelscope's own rules with the rules of a file, and returns their number.

    A file is TOML, a list ``rule`` of tables with ``category`` and ``pattern``, or the JSON of vLLM's
    ``gputrc2graph``: objects of categories by pattern within one or more names of engines and models.
    Patterns are regular expressions without look-around, as supported by Polars.

    Raises: InvalidArgumentError: the file cannot be read, or has no such rules. The previous rules stay in
    effect.
    """
    rules = _read(path)
    _chosen[:] = [rules]
    return len(rules)


def category_rules() -> tuple[CategoryRule, ...]:
    """Returns the active rules in order: the rules of the file loaded last, otherwise kernelscope's own."""
    return _chosen[0] if _chosen else _shipped()


@cache
def _shipped() -> tuple[CategoryRule, ...]:
    text = (
        resources.files("kernelscope.analysis.kernels").joinpath("kernel_categories.toml").read_text("utf-8")
    )
    return tuple(CategoryRule(rule["category"], rule["pattern"]) for rule in tomllib.loads(text)["rule"])


def _read(path: str) -> tuple[CategoryRule, ...]:
    try:
        text = Path(path).read_text(encoding="utf-8")
        found = _of_json(json.loads(text)) if text.lstrip().startswith("{") else _of_toml(tomllib.loads(text))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path}: cannot be read as category rules: {error}", path=path) from error
    if not found or len(found) > _MOST_RULES:
        raise InvalidArgumentError(
            f"{path}: has {len(found)} category rules; a file has 1 to {_MOST_RULES}, each a table "
            "[[rule]] with category and pattern",
            path=path,
        )
    if refused := next(filter(None, map(_refusal, found)), None):
        raise InvalidArgumentError(f"{path}: {refused}", path=path)
    return tuple(found)


def _refusal(rule: CategoryRule) -> str | None:
    try:
        pl.select(pl.lit("").str.contains(rule.pattern))
    except pl.exceptions.PolarsError:
        return (
            f"{rule.pattern[:100]!r} is not a regular expression that Polars accepts (look-around is not "
            "supported)"
        )
    return None


def _of_toml(document: dict[str, Any]) -> list[CategoryRule]:
    rules: Any = document.get("rule")
    entries = cast("list[object]", rules) if isinstance(rules, list) else []
    tables = [cast("dict[str, object]", entry) for entry in entries if isinstance(entry, dict)]
    pairs = [(table.get("category"), table.get("pattern")) for table in tables]
    return [
        CategoryRule(category, pattern)
        for category, pattern in pairs
        if isinstance(category, str) and isinstance(pattern, str)
    ]


def _of_json(document: Any) -> list[CategoryRule]:
    """The rules of ``gputrc2graph``: ``{engine: {model: {pattern: category}}}``, in any depth, in order."""
    found: list[CategoryRule] = []
    waiting = [document]
    while waiting:
        inside = waiting.pop(0)
        members = cast("dict[str, Any]", inside) if isinstance(inside, dict) else {}
        for key, value in members.items():
            if isinstance(value, str):
                # Its last pattern, for what no other knows, is empty.
                found += [CategoryRule(value, key)] if key else []
            else:
                waiting.append(value)
    return found


@per_trace
def _work_categories(trace: Trace, rules: tuple[CategoryRule, ...]) -> pl.Series:
    """The category of each piece of GPU work; null for whole graphs, of which nothing inside is known."""
    classes = classes_of(trace.gpu_ops.select("kind", "name", "is_communication"))
    text = pl.col("name").cast(pl.String).str.slice(0, _LONGEST_NAME).fill_null("")
    category = pl.when(pl.col("kind").cast(pl.String).is_in(_COPIES)).then(pl.lit("copy"))
    category = category.when(pl.col("kind").cast(pl.String) == "graph").then(pl.lit(None, pl.String))
    category = category.when(pl.col("is_communication")).then(pl.lit("communication"))
    for rule in rules:
        category = category.when(text.str.contains(rule.pattern)).then(pl.lit(rule.category))
    return classes.spread(
        classes.keys.select(category.otherwise(pl.lit(OTHER)).alias("category")).to_series()
    )


def work_categories(trace: Trace) -> pl.Series:
    """Returns the category of each GPU operation according to the active rules; null for whole graphs."""
    return _work_categories(trace, category_rules())


def kernel_categories(trace: Trace) -> pl.DataFrame:
    """GPU time by category of kernel names, including operations without operators.

    The rules come from :func:`load_categories`, or kernelscope's own. Communication is identified by more
    than its name and is always `communication`.

    Columns: ``category`` (gemm, attention, moe, norm, activation, rope, quantisation, sampling, kv-cache,
        communication, copy, elementwise, reduction, optimizer, convolution, fft, embedding, softmax, pooling,
        indexing, other, or the categories of the file), ``calls``, ``kernels`` (distinct names),
        ``total_ns``, ``share`` (of all GPU operations) and ``linked_ns`` (of operations with a known
        operator). Whole graphs are left out.
    Units: ns; shares between 0 and 1. Concurrent operations are added, not merged. Order: longest first, then
    by category.
    Example: ``kernel_categories(trace).head(5)``
    """
    work = with_replayed_ops(trace).gpu_ops
    known = pl.coalesce("op_row", "range_row").is_not_null()
    rows = work.select(
        work_categories(trace).alias("category"),
        pl.col("name").to_physical(),
        pl.col("dur_ns").fill_null(0),
        linked_ns=pl.when(known).then("dur_ns").otherwise(0).fill_null(0),
    ).drop_nulls("category")
    total = int(rows["dur_ns"].sum())
    return (
        rows.group_by("category")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("name").n_unique().cast(pl.Int64).alias("kernels"),
            pl.col("dur_ns").sum().alias("total_ns"),
            pl.col("linked_ns").sum(),
        )
        .with_columns(share=pl.col("total_ns") / (total or None))
        .select("category", "calls", "kernels", "total_ns", "share", "linked_ns")
        .sort("total_ns", "category", descending=[True, False])
    )
