"""Runs all rules and collects their findings in one table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import polars as pl

from kernelscope.analysis.advice import (
    attention_rules,
    compile_rules,
    copy_rules,
    kernel_rules,
    launching_rules,
    parallel_rules,
    plugin_rules,
    program_rules,
    rank_rules,
    roofline_rules,
    sharding_rules,
    stalling_rules,
)
from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice, Rule
from kernelscope.analysis.advice.savings import Change, together
from kernelscope.analysis.advice.several_ranks import SeveralRanks
from kernelscope.analysis.untimed import many_untimed
from kernelscope.memo import per_trace
from kernelscope.trace import Trace

_MODULES = (
    plugin_rules, rank_rules, parallel_rules, sharding_rules, launching_rules, copy_rules, kernel_rules,
    attention_rules, roofline_rules, compile_rules, program_rules, stalling_rules,
)  # fmt: skip
_OF_PLUGIN = tuple(found for found in vars(plugin_rules).values() if isinstance(found, Rule))
RANK_RULES = (
    rank_rules.straggler, rank_rules.uneven_ranks, rank_rules.uneven_experts, parallel_rules.slow_stage,
    parallel_rules.uneven_lengths,
)  # fmt: skip
"""Rules that compare ranks."""

RULES = tuple(
    found
    for module in _MODULES
    for found in vars(module).values()
    if isinstance(found, Rule) and found not in RANK_RULES
)
"""Every rule about one trace."""

_SEVERITIES = ("high", "medium", "low")
_HIGH, _MEDIUM, _LEAST = 0.2, 0.05, 0.005
_BEST = 3

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
    "remaining_ns": pl.Int64,
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
    if its inputs are unknown, if it is for another GPU vendor, or if the cause takes less than 0.5 % of the
    step time. Rules about idle time and launches give none if more than 5 % of the events have no timestamp
    (see ``doubts``). Findings with one cause are merged into one row, except those of the TensorBoard
    plugin's rules.

    A saving is the difference to a replay without the cause, on all GPUs: see :func:`what_if`. A
    cause whose removal saves less than 0.5 % is off the critical path, and its evidence says so.

    Columns: ``id`` (of the rule), ``severity`` (high, medium, low), ``title``, ``evidence`` and ``remedy``
        (sentences), ``value`` and the ``threshold`` that it exceeds, both in ``unit``; ``saving_ns``
        (reduction of the time of all steps without the cause; null if unknown), ``saving_share`` (relative to
        the time of all steps) and ``remaining_ns`` (further reduction without the cause, once the causes of
        the rows above are gone; null if unknown or for a part of another row); ``rank``, ``device`` (null if
        none in particular); the rows of the trace behind the evidence: ``table``, ``rows`` (up to 100 of its
        ``row`` numbers, the largest first) and ``cited`` (their total number); and ``same_cause_as`` (``id``
        of the recommendation that this one is part of, or null).
    Units: ns; shares between 0 and 1. Savings of several rows overlap and cannot be added. Order: by
    severity, then by saving, largest first; a part of another row of the same severity comes after it.
    Source: the rules from data_loading to memory_near_capacity come from the TensorBoard plugin.
    Example: ``recommendations(trace).filter(severity="high").select("title", "evidence", "remedy")``
    """
    if isinstance(source, Sequence):
        ranks = SeveralRanks([Facts(trace) for trace in source])
        waits = ranks.waits()
        for facts in ranks.each:
            facts.waited_ns = waits.get(facts.trace.meta.rank, 0)
        rows = [row for facts in ranks.each for row in _rows(facts, list(_asked(facts)))]
        longest = max((one.total_ns for one in ranks.each), default=0)
        if len(source) > 1:
            compared = [_Found(rule, advice) for rule in RANK_RULES for advice in rule.find(ranks)]
            rows += [_row(one, longest) for one in _merged(compared)]
        return _table(rows)
    return _of_trace(source).table


def best_changes(trace: Trace) -> pl.DataFrame:
    """Returns the three changes that save most together, of those that recommendations ask for.

    Columns: ``id`` (of the recommendation), ``title``, ``saving_ns`` (see :func:`recommendations`),
        ``together_ns`` (saving of this change with those above it) and ``together_share`` (relative to the
        time of all complete steps).
    Units: ns; shares between 0 and 1.
    Order: as the recommendations.

    Example: ``best_changes(trace).select("title", "together_share")``
    """
    return _of_trace(trace).best


class _Answers(NamedTuple):
    """All recommendations, and the best changes."""

    table: pl.DataFrame
    best: pl.DataFrame


@per_trace
def _of_trace(trace: Trace) -> _Answers:
    facts = Facts(trace)
    found = list(_asked(facts))
    table = _table(_rows(facts, found))
    return _Answers(table, _best(facts, found, table))


class _Found(NamedTuple):
    rule: Rule
    advice: Advice
    same_cause_as: str | None = None

    @property
    def id(self) -> str:
        return self.rule.find.__name__


def _asked(facts: Facts) -> Iterator[_Found]:
    """What the rules say about a trace."""
    rank = facts.trace.meta.rank
    lacks_times = many_untimed(facts.trace) is not None
    rules = [rule for rule in RULES if not (lacks_times and rule.needs_all_times)]
    found = [_Found(rule, replace(advice, rank=rank)) for rule in rules for advice in _predicted(facts, rule)]
    waited = facts.waited_ns
    found = [one._replace(advice=rank_rules.without_waiting(one.id, one.advice, waited)) for one in found]
    yield from _merged(found)


def _predicted(facts: Facts, rule: Rule) -> Iterator[Advice]:
    """What a rule says, with the saving on all GPUs.

    Without causes that take too little time to matter, unless the rule is one of the plugin's.
    """
    found = list(rule.find(facts))
    least_ns = _LEAST * facts.total_ns
    changes = [advice.change for advice in found if advice.change is not None]
    if not changes:
        yield from found
        return
    change = together(changes)
    if change.cost_ns < least_ns and rule not in _OF_PLUGIN:
        return
    saving_ns = next((advice.saving_ns for advice in found if advice.saving_ns is not None), None)
    saving_ns = facts.savings.of(change) if saving_ns is None else saving_ns
    note = " This is off the critical path: steps would hardly be shorter without it."
    for advice in found:
        evidence = advice.evidence + (note if saving_ns < least_ns else "")
        yield replace(advice, evidence=evidence, change=change, saving_ns=saving_ns)


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
    """The advice that says more about the cause of ``part``, on its rank and GPU; None if there is none."""
    for cause in part.advice.cause:
        for one in found:
            if one.id == cause and _agree(one.advice, part.advice):
                return _whole(one, found) or one
    return None


def _agree(one: Advice, other: Advice) -> bool:
    """Whether two are about the same GPU and a common rank, or one stands for all."""
    own, others = _ranks(one), _ranks(other)
    return (one.device is None or other.device is None or one.device == other.device) and (
        not own or not others or not own.isdisjoint(others)
    )


def _ranks(advice: Advice) -> frozenset[int]:
    return advice.ranks if advice.rank is None else advice.ranks | {advice.rank}


def _rows(facts: Facts, found: list[_Found]) -> list[dict[str, object]]:
    """The rows about one trace, with what remains of each saving after those above it."""
    rows = [(_row(one, facts.total_ns), one) for one in found]
    above, saved_ns = Change(), 0
    remaining: dict[str, int] = {}
    for row, one in sorted(rows, key=lambda pair: _importance(pair[0])):
        if one.advice.change is None or one.same_cause_as is not None:
            continue
        if one.id not in remaining:
            above = together([above, one.advice.change])
            all_ns = facts.savings.of(above) if remaining else one.advice.saving_ns or 0
            all_ns = max(saved_ns, all_ns)
            remaining[one.id], saved_ns = all_ns - saved_ns, all_ns
        row["remaining_ns"] = remaining[one.id]
    return [row for row, _ in rows]


def _best(facts: Facts, found: list[_Found], table: pl.DataFrame) -> pl.DataFrame:
    changes = {one.id: one.advice.change for one in found if one.advice.change is not None}
    best = table.filter(pl.col("remaining_ns") >= _LEAST * facts.total_ns).unique("id", maintain_order=True)
    chosen = best.sort("remaining_ns", descending=True, maintain_order=True)["id"].head(_BEST)
    best = best.filter(pl.col("id").is_in(chosen.implode()))
    saved = best["saving_ns"].head(1).to_list()
    saved += [
        facts.savings.of(together([changes[name] for name in best["id"].head(count)]))
        for count in range(2, best.height + 1)
    ]
    together_ns = pl.Series("together_ns", saved, dtype=pl.Int64)
    return best.select("id", "title", "saving_ns", together_ns, together_share=together_ns / facts.total_ns)


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
        "remaining_ns": None,
        "same_cause_as": found.same_cause_as,
        **advice.cites._asdict(),
    }
    return {name: row[name] if name in row else getattr(advice, name) for name in _SCHEMA}


def _severity(share: float | None) -> str:
    if share is None:
        return "low"
    return "high" if share >= _HIGH else "medium" if share >= _MEDIUM else "low"


def _importance(row: Mapping[str, Any]) -> tuple[int, int]:
    saving_ns = row["saving_ns"]
    return _SEVERITIES.index(row["severity"]), 1 if saving_ns is None else -saving_ns


def _table(rows: list[dict[str, object]]) -> pl.DataFrame:
    """The rows by importance; a part comes after the row that it is part of, unless it is more severe."""
    least_first = sorted(rows, key=_importance, reverse=True)
    wholes = {(row["id"], row["rank"]): _importance(row) for row in least_first}

    def order(row: Mapping[str, Any]) -> tuple[tuple[int, int], bool]:
        own, whole = _importance(row), row["same_cause_as"]
        severity, saving = wholes.get((whole, row["rank"]), own)
        return own if severity != own[0] else (severity, max(saving, own[1])), whole is not None

    return pl.DataFrame(sorted(rows, key=order), schema=_SCHEMA, orient="row")
