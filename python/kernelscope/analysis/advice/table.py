"""Asks all rules, and puts what they say into one table."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from kernelscope.analysis.advice import kernel_rules, launching_rules, plugin_rules, program_rules, rank_rules
from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, Rule
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_MODULES = (plugin_rules, rank_rules, launching_rules, kernel_rules, program_rules)
_OF_RANKS = (rank_rules.straggler, rank_rules.uneven_ranks)
RULES = tuple(
    found
    for module in _MODULES
    for found in vars(module).values()
    if isinstance(found, Rule) and found not in _OF_RANKS
)
"""Every rule about one trace."""

_SEVERITIES = ("high", "medium", "low")
_HIGH, _MEDIUM = 0.2, 0.05

_SCHEMA = {
    "id": pl.String,
    "severity": pl.String,
    "title": pl.String,
    "evidence": pl.String,
    "remedy": pl.String,
    "value": pl.Float64,
    "threshold": pl.Float64,
    "unit": pl.String,
    "saving_ns": pl.Int64,
    "saving_share": pl.Float64,
    "rank": pl.Int64,
    "device": pl.Int64,
    "table": pl.String,
    "rows": pl.List(pl.UInt32),
    "cited": pl.Int64,
}


def recommendations(source: Trace | Sequence[Trace]) -> pl.DataFrame:
    """What could make a program faster, as far as its trace shows.

    ``source`` is a trace, or the traces of several ranks of a job: then each rank's advice stands beside
    what only shows when ranks are compared. Only whole steps count. A rule that needs what is not known, or
    that is for another make of GPU, gives no advice.

    Columns: ``id`` (of the rule), ``severity`` (high, medium, low), ``title``, ``evidence`` and ``remedy``
        (sentences), ``value`` and ``threshold`` that it passed, both in ``unit``; ``saving_ns`` (time of all
        steps that would be gone if the cause were gone altogether: no more than that can be won; null where
        nobody can say) and ``saving_share`` (of the time of all steps); ``rank``, ``device`` (null for no one
        in particular), and the rows of the trace that the evidence speaks of: ``table``, ``rows`` (up to 100
        of its ``row`` numbers, the weightiest first) and ``cited`` (how many there are).
    Units: ns; shares between 0 and 1. Savings of several rows overlap and cannot be added.
    Order: by severity, then by saving, largest first.
    Source: rules data_loading to memory_near_capacity are those of the TensorBoard plugin.
    Example: ``recommendations(trace).filter(severity="high").select("title", "evidence", "remedy")``
    """
    if isinstance(source, Sequence):
        ranks = [Facts(trace) for trace in source]
        rows = [row for one in ranks for row in _asked(one)]
        longest = max((one.total_ns for one in ranks), default=0)
        if len(source) > 1:
            rows += [_row(rule, advice, longest) for rule in _OF_RANKS for advice in rule.find(ranks)]
        return _table(rows)
    return _of_trace(source)


@per_trace
def _of_trace(trace: Trace) -> pl.DataFrame:
    return _table(list(_asked(Facts(trace))))


def _asked(facts: Facts) -> Iterator[dict[str, object]]:
    for rule in RULES:
        for advice in rule.find(facts):
            yield _row(rule, replace(advice, rank=facts.trace.meta.rank), facts.total_ns)


def _row(rule: Rule, advice: Advice, total_ns: int) -> dict[str, object]:
    share = advice.saving_ns / total_ns if advice.saving_ns is not None and total_ns > 0 else None
    found = {
        "id": rule.find.__name__,
        "severity": advice.severity or _severity(share),
        "title": rule.title,
        "threshold": rule.threshold,
        "unit": rule.unit,
        "saving_share": share,
        **advice.cites._asdict(),
    }
    return {name: found[name] if name in found else getattr(advice, name) for name in _SCHEMA}


def _severity(share: float | None) -> str:
    if share is None:
        return "low"
    return "high" if share >= _HIGH else "medium" if share >= _MEDIUM else "low"


def _table(rows: list[dict[str, object]]) -> pl.DataFrame:
    table = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    order = pl.col("severity").replace_strict({name: place for place, name in enumerate(_SEVERITIES)})
    return table.sort(order, -pl.col("saving_ns").fill_null(-1), maintain_order=True)
