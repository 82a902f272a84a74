"""Keeps the figures in benches/results.json and draws from them what docs/performance.md shows.

``python benches/performance.py`` draws anew without measuring.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from html import escape
from typing import Any

from inputs import ROOT

PERFORMANCE = ROOT / "docs" / "performance.md"
CHART = ROOT / "docs" / "images" / "performance.svg"
RESULTS = ROOT / "benches" / "results.json"
BEGIN, END = (
    "<!-- figures: begin; written by benches/performance.py, not by hand -->",
    "<!-- figures: end -->",
)
READERS = {"kernelscope.read": "#2563eb", "orjson.loads": "#d97706", "json.load": "#9ca3af"}

Table = dict[str, Any]


def record(section: str, target: str, text: str) -> None:
    """Keeps the tables of ``text``, which ``make TARGET`` measured, and draws the document anew."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    machine = re.search(r"^Taken on: (.*)\.$", text, re.MULTILINE)
    results[section] = {
        "command": f"make {target}",
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": machine.group(1) if machine else None,
        "tables": list(tables(text)),
    }
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    draw(results)


def tables(text: str) -> Iterator[Table]:
    """The Markdown tables of ``text``, each under the heading that it follows."""
    title = ""
    table: Table | None = None
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            title = line.lstrip("# ")
        if not line.startswith("|"):
            if table is not None:
                yield table
            table = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if table is None:
            table = {"title": title, "columns": cells, "rows": []}
        elif set("".join(cells)) - set("-: "):
            table["rows"].append(cells)


def draw(results: Mapping[str, Any]) -> None:
    """Writes the chart, and the summary between the marks of docs/performance.md.

    Raises: ValueError: the document has no such marks.
    """
    before, has_begin, rest = PERFORMANCE.read_text().partition(BEGIN)
    _, has_end, after = rest.partition(END)
    if not has_begin or not has_end:
        raise ValueError(f"{PERFORMANCE} has no marks for the figures")
    CHART.write_text(_chart(list(_speeds(results["figures"]["tables"]))))
    summary = "\n".join(_summary(results))
    PERFORMANCE.write_text(f"{before}{BEGIN}\n{summary}\n{END}{after}")


def taken_on(machine: Mapping[str, str]) -> str:
    """What ``machine.describe`` found, as a sentence."""
    parts = (
        value if key in ("processor", "memory", "system") else f"{key} {value}"
        for key, value in machine.items()
    )
    return f"Taken on: {', '.join(parts)}."


def _rows(table: Table) -> Iterator[dict[str, str]]:
    return (dict(zip(table["columns"], row, strict=True)) for row in table["rows"])


def _speeds(found: list[Table]) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    """The readers' rows for each plain input of 1 GB, by its name."""
    for table in found:
        name, colon, _ = table["title"].partition(":")
        if colon and name.endswith(" 1GB"):
            yield name, {row["Reader"]: row for row in _rows(table) if row["Reader"] in READERS}


def _summary(results: Mapping[str, Any]) -> Iterator[str]:
    yield "![MB of JSON read in a second, by reader](images/performance.svg)\n"
    yield "| input | reader | s | MB/s | peak, of the JSON |"
    yield "|---|---|---|---|---|"
    for name, readers in _speeds(results["figures"]["tables"]):
        for reader, row in readers.items():
            yield f"| {name} | {reader} | {row['s']} | {row['MB/s']} | {row['of the JSON']} |"
    for section in results.values():
        yield ""
        yield f"`{section['command']}`, recorded {section['date'] or 'earlier'}, on {section['machine']}\n"
        promises = [
            row
            for table in section["tables"]
            for row in ({key.lower(): value for key, value in row.items()} for row in _rows(table))
            if "kept" in row
        ]
        if promises:
            yield f"- {sum(row['kept'] == 'yes' for row in promises)} of {len(promises)} promises are kept."
        for row in promises:
            if row["kept"] != "yes":
                what = [value for key, value in row.items() if key not in ("measured", "promised", "kept")]
                yield f"- Not kept: {', '.join(what)}: {row['measured']}, promised {row['promised']}."


def _chart(speeds: list[tuple[str, dict[str, dict[str, str]]]]) -> str:
    """Bars of MB a second, as SVG."""
    bars = [
        (
            f"{name}, {reader}" if reader == "kernelscope.read" else reader,
            READERS[reader],
            _number(row["MB/s"]),
        )
        for name, readers in speeds
        for reader, row in readers.items()
    ]
    most = max((speed for _, _, speed in bars), default=1)
    size = f'width="800" height="{22 * len(bars) + 10}" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>',
    ]
    for place, (label, color, speed) in enumerate(bars):
        y, width = 22 * place + 5, 400 * speed / most
        parts.append(
            f'<text x="310" y="{y + 14}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="318" y="{y + 2}" width="{width:.1f}" height="16" fill="{color}"/>'
            f'<text x="{322 + width:.1f}" y="{y + 14}">{speed:,.0f} MB/s</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


def _number(text: str) -> float:
    return float(text.replace(",", ""))


if __name__ == "__main__":
    draw(json.loads(RESULTS.read_text()))
