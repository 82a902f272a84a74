"""Meaning of the figures of reports: every title of the page's tables, and the shorter titles of the text."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from kernelscope.report.parts import Part
from kernelscope.report.parts.columns import COLUMNS

TEXT_TITLES = {
    "saves": "saving_ns",
    "alone": "saving_ns", "with those above": "together_share", "step then": "together_ns",
    "at most": "theoretical_occupancy_pct", "B/s": "bytes_per_s", "before": "op", "bound": "bound",
    "FLOP/B": "intensity", "FLOP/s": "flops_per_s", "known": "known_pct", "limited by": "limited_by",
    "in steps": "mean_value", "MFU": "mfu_pct", "HFU": "hfu_pct", "on the host": "host_total_ns",
    "over time": "busy_pct", "waits forward": "forward_wait_ns", "waits backward": "backward_wait_ns",
    "at the end": "reduce_wait_ns", "backward": "backward_device_ns", "peak": "limit_type",
    "reserved": "peak_reserved_bytes", "step p50": "step_p50_ns", "step p90": "step_p90_ns",
    "wall": "total_ns",
}  # fmt: skip
"""Short titles in the text's tables, with their columns."""


class Term(NamedTuple):
    """A figure: its name in frames and files, its title, its unit and its meaning."""

    key: str
    title: str
    unit: str
    what: str


def terms(word: str = "") -> list[Term]:
    """Returns the terms with ``word`` in name, title or meaning, exact matches first, then by title."""
    wanted = word.casefold()
    found = [Term(key, *column) for key, column in COLUMNS.items()]
    found = [
        term for term in found if wanted in " ".join(term).casefold() or TEXT_TITLES.get(word) == term.key
    ]
    called = {wanted, TEXT_TITLES.get(word, wanted)}
    return sorted(
        found, key=lambda t: (called.isdisjoint((t.key, t.title.casefold())), t.title.casefold(), t.key)
    )


@dataclass(frozen=True, slots=True)
class Glossary(Part):
    """All terms, each with its own address: ``#glossary/<key>``."""

    kind: ClassVar[str] = "glossary"

    def payload(self) -> dict[str, Any]:
        """Returns the part for the page's script."""
        return {"kind": self.kind, "terms": [[*term] for term in terms()]}
