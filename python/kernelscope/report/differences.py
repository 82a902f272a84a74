"""Renders the changes between two traces as text, Markdown and JSON."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from kernelscope.analysis.diff.bounds import Verdict
from kernelscope.analysis.diff.comparison import Comparison
from kernelscope.analysis.diff.tables import differences, kernel_differences, operator_differences
from kernelscope.analysis.diff.training import dimension_differences, phase_differences
from kernelscope.escaping import for_markdown
from kernelscope.report.json_document import describe, dump, listed
from kernelscope.report.names import safe, short
from kernelscope.units import format_count, format_ns

FORMATS = ("text", "markdown", "json")
"""Formats of a comparison."""

SCHEMA_VERSION = 1
_NAME_WIDTH = 56
_LEAST_NAME = 20
_GAP = 2

Row = dict[str, Any]
Cells = list[list[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """A table: its title, the titles of its columns, its rows, and a note.

    In a narrow text, the column ``name`` is cut, and the columns ``below`` are shown under it.
    """

    title: str
    columns: list[str]
    rows: Cells
    remark: str = ""
    name: int = 0
    below: tuple[int, ...] = ()


def render_differences(
    both: Comparison,
    verdicts: Sequence[Verdict],
    *,
    format: str,  # noqa: A002 - as --format
    top: int,
    width: int | None = None,
) -> str:
    """Returns the changes, the largest first, and the results of the bounds; ``top`` rows of each table.

    Lines of the text have up to ``width`` characters, or any number if null.
    """
    if format == "json":
        return _to_json(both, verdicts)
    sections = _sections(both, verdicts, top)
    head = _head(both)
    if format == "markdown":
        return _to_markdown(head, sections)
    return _to_text(head, sections, width)


def _head(both: Comparison) -> list[str]:
    steps = both.steps
    before, after, delta = (_mean(steps[c]) for c in ("before_ns", "after_ns", "delta_ns"))
    share = f" ({100 * delta / before:+.1f} %)" if before else ""
    count = f"{steps.height} steps" if steps.height > 1 else "1 step"
    return [
        f"before  {both.before.meta.path}",
        f"after   {both.after.meta.path}",
        f"step    {format_ns(before)} -> {format_ns(after)}, {_signed(delta)}{share}, mean of {count}",
    ]


def _sections(both: Comparison, verdicts: Sequence[Verdict], top: int) -> list[Section]:
    changes = differences(both)
    sections = [_bounds(verdicts)] if verdicts else []
    if changes.is_empty():
        return [*sections, Section("Nothing changed", [], [])]
    slower, faster = (changes.filter(sign * pl.col("delta_ns") > 0) for sign in (1, -1))
    sections += [
        _parts(both),
        _phases(both),
        _dimensions(both),
        _ranked("Slower: takes more of a step", slower, top),
        _ranked("Faster: takes less of a step", faster, top),
        _operators(both, top),
        _kernels(both, top),
    ]
    return [section for section in sections if section.rows]


def _bounds(verdicts: Sequence[Verdict]) -> Section:
    rows = [
        [
            "BROKEN" if verdict.is_broken else "kept",
            safe(verdict.bound.text),
            format_ns(verdict.before_ns),
            format_ns(verdict.after_ns),
            _signed(verdict.after_ns - verdict.before_ns),
            "" if verdict.share is None else f"{100 * verdict.share:+.1f} %",
            "noise" if verdict.is_noise else "",
        ]
        for verdict in verdicts
    ]
    return Section("Bounds", ["", "bound", "before", "after", "change", "share", ""], rows, name=1)


def _parts(both: Comparison) -> Section:
    rows = differences(both, by="category").to_dicts()
    cells = [[row["category"], *_figures(row)] for row in rows]
    return Section("Parts of a step", ["part", "before", "after", "change", "spread", ""], cells)


def _phases(both: Comparison) -> Section:
    columns = ["phase", "GPU before", "after", "change", "host before", "after", "change"]
    rows = phase_differences(both).to_dicts()
    cells = [[row["phase"] or "-", *_sides(row, "device"), *_sides(row, "host")] for row in rows]
    return Section("Phases of training", columns, cells)


def _dimensions(both: Comparison) -> Section:
    columns = ["dimension", "calls", "exposed before", "after", "change", "total change"]
    rows = dimension_differences(both).to_dicts()
    cells = [
        [row["dimension"] or "-", _calls(row), *_sides(row, "exposed"), _signed(row["total_delta_ns"])]
        for row in rows
    ]
    return Section("Communication by dimension", columns, cells)


def _sides(row: Row, figure: str) -> list[str]:
    before, after = row[f"{figure}_ns_before"], row[f"{figure}_ns_after"]
    return [format_ns(before), format_ns(after), _signed(row[f"{figure}_delta_ns"])]


def _ranked(title: str, changes: pl.DataFrame, top: int) -> Section:
    shown = changes.head(top).to_dicts()
    cells = [
        [_called(row, "name"), _called(row, "op"), _called(row, "module"), _calls(row), *_figures(row)]
        for row in shown
    ]
    rest = changes.height - len(shown)
    remark = "" if not rest else f"and {rest} more, {_signed(float(changes['delta_ns'].tail(rest).sum()))}"
    columns = ["name", "operator", "module", "calls", "before", "after", "change", "spread", ""]
    return Section(title, columns, cells, remark, below=(1, 2))


def _operators(both: Comparison, top: int) -> Section:
    table = operator_differences(both).head(top)
    columns = [
        "operator", "calls", "device change", "host change", "FLOPs change", "attained before", "after",
    ]  # fmt: skip
    cells = [
        [
            _called(row, "op"),
            _calls(row),
            _signed(row["device_delta_ns"]),
            _signed(row["host_delta_ns"]),
            "-" if row["flops_delta"] is None else f"{row['flops_delta']:+.3g}",
            _percent(row["attained_pct_before"]),
            _percent(row["attained_pct_after"]),
        ]
        for row in table.to_dicts()
    ]
    return Section("Operators by their own time, hidden or not", columns, cells)


def _kernels(both: Comparison, top: int) -> Section:
    table = kernel_differences(both).head(top)
    columns = [
        "kernel", "calls", "total before", "after", "change", "mean before", "after", "attained before",
        "after",
    ]  # fmt: skip
    cells = [
        [
            _called(row, "name"),
            _calls(row),
            format_ns(row["total_ns_before"]),
            format_ns(row["total_ns_after"]),
            _signed(row["total_delta_ns"]),
            format_ns(row["mean_ns_before"]),
            format_ns(row["mean_ns_after"]),
            _percent(row["attained_pct_before"]),
            _percent(row["attained_pct_after"]),
        ]
        for row in table.to_dicts()
    ]
    return Section("Kernels by their time, hidden or not", columns, cells)


def _figures(row: Row) -> list[str]:
    return [
        format_ns(row["before_ns"]),
        format_ns(row["after_ns"]),
        _signed(row["delta_ns"]),
        format_ns(row["spread_ns"]),
        "noise" if row["is_noise"] else "",
    ]


def _called(row: Row, column: str) -> str:
    """A name, with what it was called before if that differs."""
    if row[column] is None:
        return "-"
    before = row.get(f"{column}_before")
    return (
        short(row[column], _NAME_WIDTH)
        if before is None
        else f"{short(row[column], 40)} (was {short(before, 40)})"
    )


def _calls(row: Row) -> str:
    before, after = row["calls_before"], row["calls_after"]
    return _count(before) if before == after else f"{_count(before)} -> {_count(after)}"


def _count(value: float | None) -> str:
    if value is None or not float(value).is_integer():
        return "-" if value is None else f"{value:.1f}"
    return format_count(int(value))


def _signed(ns: float | None) -> str:
    return format_ns(ns) if ns is None or ns < 0 else f"+{format_ns(ns)}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def _mean(values: pl.Series) -> float:
    return sum(values) / len(values)


def _to_text(head: list[str], sections: list[Section], width: int | None) -> str:
    lines = [_ending(safe(line), width) for line in head]
    for section in sections:
        lines += ["", section.title]
        lines += _aligned(section, width) if section.rows else []
        lines += [section.remark] if section.remark else []
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _ending(line: str, width: int | None) -> str:
    """A line of the head; of a long path the end says most."""
    what, _, path = line.partition("  ")
    over = 0 if width is None else len(line) - width
    return line if over <= 0 else f"{what}  …{path.lstrip()[over + 1 :]}"


def _aligned(section: Section, width: int | None) -> list[str]:
    table = [section.columns, *section.rows]
    sizes = [max(map(len, column)) for column in zip(*table, strict=True)]
    if width is None or _length(sizes) <= width:
        return [_line(row, dict(enumerate(sizes))) for row in table]
    shown = {index: size for index, size in enumerate(sizes) if index not in section.below}
    natural = shown[section.name]
    shown[section.name] = min(natural, _LEAST_NAME)
    while _length(shown.values()) > width:
        # The last say least.
        shown.popitem()
    shown[section.name] = min(natural, shown[section.name] + width - _length(shown.values()))
    lines: list[str] = []
    for row in table:
        name = short(row[section.name], shown[section.name])
        lines.append(_line([*row[: section.name], name, *row[section.name + 1 :]], shown))
        below = [
            f"{section.columns[i]} {row[i]}" for i in section.below if row[i] not in ("-", row[section.name])
        ]
        if row is not section.columns and below:
            lines.append("    " + short(", ".join(below), width - 4))
    return lines


def _length(sizes: Collection[int]) -> int:
    return sum(sizes) + _GAP * (len(sizes) - 1)


def _line(row: Sequence[str], sizes: Mapping[int, int]) -> str:
    return (" " * _GAP).join(row[index].ljust(size) for index, size in sizes.items())


def _to_markdown(head: list[str], sections: list[Section]) -> str:
    lines = ["## Trace diff", "", *(f"- {for_markdown(line)}" for line in head)]
    for section in sections:
        lines += ["", f"### {section.title}", ""]
        if section.rows:
            lines.append(_row(section.columns, str))
            lines.append(_row(["---" for _ in section.columns], str))
            lines += [_row(row, for_markdown) for row in section.rows]
        lines += ["", for_markdown(section.remark)] if section.remark else []
    return "\n".join(lines) + "\n"


def _row(cells: list[str], written: Callable[[str], str]) -> str:
    return f"| {' | '.join(written(cell) or ' ' for cell in cells)} |"


def _to_json(both: Comparison, verdicts: Sequence[Verdict]) -> str:
    judged = [
        {
            **asdict(verdict.bound),
            "before_ns": verdict.before_ns,
            "after_ns": verdict.after_ns,
            "share": verdict.share,
            "is_broken": verdict.is_broken,
            "is_noise": verdict.is_noise,
        }
        for verdict in verdicts
    ]
    steps = both.steps
    return dump(
        {
            "schema_version": SCHEMA_VERSION,
            "before": describe(both.before),
            "after": describe(both.after),
            "step": {c: _mean(steps[c]) for c in ("before_ns", "after_ns", "delta_ns")}
            | {"steps": steps.height},
            "bounds": judged,
            **listed(
                {
                    "steps": steps,
                    "parts": differences(both, by="category"),
                    "phases": phase_differences(both),
                    "dimensions": dimension_differences(both),
                    "changes": differences(both),
                    "modules": differences(both, by="module"),
                    "operators": operator_differences(both),
                    "kernels": kernel_differences(both),
                }
            ),
        }
    )
