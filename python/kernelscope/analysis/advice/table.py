"""Runs all rules and collects their findings in one table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.advice import (
    attention_rules,
    compile_rules,
    copy_rules,
    kernel_rules,
    launching_rules,
    plugin_rules,
    program_rules,
    rank_rules,
    roofline_rules,
)
from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, Rule
from kernelscope.analysis.untimed import many_untimed
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_MODULES = (
    plugin_rules, rank_rules, launching_rules, copy_rules, kernel_rules, attention_rules, roofline_rules,
    compile_rules, program_rules,
)  # fmt: skip
_OF_PLUGIN = tuple(found for found in vars(plugin_rules).values() if isinstance(found, Rule))
_OF_RANKS = (rank_rules.straggler, rank_rules.uneven_ranks)
RULES = tuple(
    found
    for module in _MODULES
    for found in vars(module).values()
    if isinstance(found, Rule) and found not in _OF_RANKS
)
"""Every rule about one trace."""

_SEVERITIES = ("high", "medium", "low")
_HIGH, _MEDIUM, _LEAST = 0.2, 0.05, 0.005

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
    "same_cause_as": pl.String,
}


def recommendations(source: Trace | Sequence[Trace]) -> pl.DataFrame:
    """Recommendations for making a program faster, derived from its trace.

    ``source`` is a trace, or the traces of several ranks of a job. With several ranks, findings from
    comparing them are added to the findings of each rank. Only complete steps count. A rule gives no advice
    if its inputs are unknown, if it is for another GPU vendor, or if the cause costs less than 0.5 % of the
    step time. Rules about idle time and launches give none if more than 5 % of the events have no timestamp
    (see ``doubts``). Findings with one cause are merged into one row, except those of the TensorBoard
    plugin's rules.

    Columns: ``id`` (of the rule), ``severity`` (high, medium, low), ``title``, ``evidence`` and ``remedy``
        (sentences), ``value`` and the ``threshold`` that it exceeds, both in ``unit``; ``saving_ns``
        (reduction of the time of all steps without the cause, at most the wall time of the affected rows;
        null if unknown) and ``saving_share`` (relative to the time of all steps); ``rank``, ``device`` (null
        if none in particular); the rows of the trace behind the evidence: ``table``, ``rows`` (up to 100 of
        its ``row`` numbers, the largest first) and ``cited`` (their total number); and ``same_cause_as``
        (``id`` of the recommendation that this one is part of, or null).
    Units: ns; shares between 0 and 1. Savings of several rows overlap and cannot be added. Order: by
    severity, then by saving, largest first.
    Source: the rules from data_loading to memory_near_capacity come from the TensorBoard plugin.
    Example: ``recommendations(trace).filter(severity="high").select("title", "evidence", "remedy")``
    """
    if isinstance(source, Sequence):
        ranks = [Facts(trace) for trace in source]
        waits = rank_rules.waits(ranks)
        rows = [_row(one, facts.total_ns) for facts in ranks for one in _asked(facts, waits)]
        longest = max((one.total_ns for one in ranks), default=0)
        if len(source) > 1:
            compared = [_Found(rule, advice) for rule in _OF_RANKS for advice in rule.find(ranks)]
            rows += [_row(one, longest) for one in _merged(compared)]
        return _table(rows)
    return _of_trace(source)


@per_trace
def _of_trace(trace: Trace) -> pl.DataFrame:
    facts = Facts(trace)
    return _table([_row(one, facts.total_ns) for one in _asked(facts, {})])


class _Found(NamedTuple):
    rule: Rule
    advice: Advice
    same_cause_as: str | None = None

    @property
    def id(self) -> str:
        return self.rule.find.__name__


def _asked(facts: Facts, waits: Mapping[int | None, int]) -> Iterator[_Found]:
    """What the rules say about a trace whose rank waited for others as long as ``waits`` say, if they do."""
    rank = facts.trace.meta.rank
    lacks_times = many_untimed(facts.trace) is not None
    rules = [rule for rule in RULES if not (lacks_times and rule.needs_all_times)]
    found = [_Found(rule, replace(advice, rank=rank)) for rule in rules for advice in rule.find(facts)]
    if rank in waits:
        found = [
            one._replace(advice=rank_rules.without_waiting(one.id, one.advice, waits[rank])) for one in found
        ]
    found = [one for one in found if one.rule in _OF_PLUGIN or _matters(one.advice, facts.total_ns)]
    yield from _merged(found)


def _matters(advice: Advice, total_ns: int) -> bool:
    """Whether something could be won; nobody can say of what has no saving."""
    return advice.saving_ns is None or advice.saving_ns >= _LEAST * total_ns


def _merged(found: list[_Found]) -> list[_Found]:
    """Advice of one cause as one: the evidence of what says less stands in what says more.

    The plugin's rules keep their rows, which name the advice that they are part of.
    """
    kept: list[_Found] = []
    parts: dict[int, list[str]] = {}
    # What the plugin says is the most general, and comes last.
    for one in sorted(found, key=lambda one: one.rule in _OF_PLUGIN):
        whole = _whole(one, found)
        if whole is None:
            kept.append(one)
            continue
        parts.setdefault(id(whole.advice), []).append(one.advice.evidence)
        if one.rule in _OF_PLUGIN:
            own = replace(one.advice, remedy=whole.advice.remedy)
            kept.append(one._replace(advice=own, same_cause_as=whole.id))
    return [
        one._replace(
            advice=replace(one.advice, evidence=" ".join([one.advice.evidence, *parts[id(one.advice)]]))
        )
        if id(one.advice) in parts
        else one
        for one in kept
    ]


def _whole(part: _Found, found: list[_Found]) -> _Found | None:
    """The advice that says more about the cause of ``part``, on its GPU; None if there is none."""
    for cause in part.advice.cause:
        for one in found:
            if one.id == cause and all(map(_agree, _about(one), _about(part))):
                return _whole(one, found) or one
    return None


def _about(found: _Found) -> tuple[int | None, int | None]:
    return found.advice.rank, found.advice.device


def _agree(one: int | None, other: int | None) -> bool:
    """Whether two ranks or GPUs are the same, or one stands for all."""
    return one is None or other is None or one == other


def _row(found: _Found, total_ns: int) -> dict[str, object]:
    rule, advice = found.rule, found.advice
    share = advice.saving_ns / total_ns if advice.saving_ns is not None and total_ns > 0 else None
    row = {
        "id": found.id,
        "severity": advice.severity or _severity(share),
        "title": rule.title,
        "threshold": rule.threshold,
        "unit": rule.unit,
        "saving_share": share,
        "same_cause_as": found.same_cause_as,
        **advice.cites._asdict(),
    }
    return {name: row[name] if name in row else getattr(advice, name) for name in _SCHEMA}


def _severity(share: float | None) -> str:
    if share is None:
        return "low"
    return "high" if share >= _HIGH else "medium" if share >= _MEDIUM else "low"


def _table(rows: list[dict[str, object]]) -> pl.DataFrame:
    table = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    order = pl.col("severity").replace_strict({name: place for place, name in enumerate(_SEVERITIES)})
    return table.sort(order, -pl.col("saving_ns").fill_null(-1), maintain_order=True)
