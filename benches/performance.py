"""Writes figures into docs/performance.md."""

from collections.abc import Mapping

from inputs import ROOT

PERFORMANCE = ROOT / "docs" / "performance.md"


def record(section: str, target: str, text: str) -> None:
    """Puts ``text`` between the two marks of a section, which ``make TARGET`` writes.

    Raises: ValueError: the file has no such marks.
    """
    begin = f"<!-- {section}: begin; written by make {target}, not by hand -->"
    end = f"<!-- {section}: end -->"
    before, has_begin, rest = PERFORMANCE.read_text().partition(begin)
    _, has_end, after = rest.partition(end)
    if not has_begin or not has_end:
        raise ValueError(f"{PERFORMANCE} has no marks for {section}")
    PERFORMANCE.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def taken_on(machine: Mapping[str, str]) -> str:
    """What ``machine.describe`` found, as a sentence."""
    told = (
        value if key in ("processor", "memory", "system") else f"{key} {value}"
        for key, value in machine.items()
    )
    return f"Taken on: {', '.join(told)}."
