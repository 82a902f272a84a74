"""Begins and ends every benchmark, and draws from the recorded figures what docs/performance.md shows.

``python benches/performance.py`` draws anew without measuring.
"""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from html import escape
from typing import Any

import machine
from inputs import ROOT
from tables import Table

PERFORMANCE = ROOT / "docs" / "performance.md"
CHART = ROOT / "docs" / "images" / "performance.svg"
RESULTS = ROOT / "benches" / "results.json"
MARKS = {
    name: (f"<!-- {name}: begin; written by benches/performance.py, not by hand -->", f"<!-- {name}: end -->")
    for name in ("figures", "many ranks")
}
"""Between which lines of the document figures stand."""
READERS = {"kernelscope.read": "#2563eb", "orjson.loads": "#d97706", "json.load": "#9ca3af"}

Speeds = list[tuple[str, dict[str, dict[str, str]]]]
"""The readers' rows for each plain input of 1 GB, with its name."""


def parser(description: str | None, *, repeats: int, **defaults: str) -> argparse.ArgumentParser:
    """The options of every benchmark, and those with a default in ``defaults``."""
    made = argparse.ArgumentParser(description=description)
    for name, default in defaults.items():
        made.add_argument(f"--{name}", default=default, help=f"of the inputs (default: {default})")
    made.add_argument(
        "--repeats", type=int, default=repeats, help=f"of each measurement at most (default: {repeats})"
    )
    made.add_argument("--record", action="store_true", help="renew the figures in benches/results.json")
    return made


def parse(options: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line, and the machine before anything is measured."""
    parsed = options.parse_args()
    parsed.machine = machine.describe()
    machine.warn_if_busy()
    return parsed


def record(options: argparse.Namespace, section: str, target: str, tables: Iterable[Table]) -> None:
    """Keeps the tables that ``make TARGET`` measured, if that is wanted, and draws the document anew."""
    if options.record:
        results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        results[section] = {
            "command": f"make {target}",
            "date": datetime.now(timezone.utc).date().isoformat(),
            "machine": options.machine,
            "tables": [table.to_json() for table in tables],
        }
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        draw(results)


def draw(results: Mapping[str, Any]) -> None:
    """Writes the chart, and what stands between the marks of docs/performance.md.

    Raises: ValueError: the document has no such marks.
    """
    speeds = list(_speeds(results["figures"]["tables"]))
    CHART.write_text(_chart(speeds))
    parts = {
        "figures": [*_speed_lines(speeds), *_promise_lines(results)],
        "many ranks": [*_table_lines(results["cluster"])],
    }
    text = PERFORMANCE.read_text()
    for name, lines in parts.items():
        begin, end = MARKS[name]
        before, has_begin, rest = text.partition(begin)
        _, has_end, after = rest.partition(end)
        if not has_begin or not has_end:
            raise ValueError(f"{PERFORMANCE} has no marks for the {name}")
        text = "\n".join([f"{before}{begin}", *lines, f"{end}{after}"])
    PERFORMANCE.write_text(text)


def _table_lines(section: Mapping[str, Any]) -> Iterator[str]:
    """All tables of a section."""
    for table in section["tables"]:
        if table["title"]:
            yield f"\n{table['title']}:"
        columns = [column or " " for column in table["columns"]]
        yield f"\n| {' | '.join(columns)} |"
        yield "|---" * len(columns) + "|"
        yield from (f"| {' | '.join(row)} |" for row in table["rows"])
    yield f"\n`{section['command']}`, recorded {section['date'] or 'earlier'}, on {section['machine']}"


def _rows(table: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    return (dict(zip(table["columns"], row, strict=True)) for row in table["rows"])


def _speeds(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    for table in found:
        name, colon, _ = table["title"].partition(":")
        if colon and name.endswith(" 1GB"):
            yield name, {row["Reader"]: row for row in _rows(table) if row["Reader"] in READERS}


def _speed_lines(speeds: Speeds) -> Iterator[str]:
    yield "![MB of JSON read in a second, by reader](images/performance.svg)\n"
    yield "| input | reader | s | MB/s | peak, of the JSON |"
    yield "|---|---|---|---|---|"
    for name, readers in speeds:
        for reader, row in readers.items():
            yield f"| {name} | {reader} | {row['s']} | {row['MB/s']} | {row['of the JSON']} |"


def _promise_lines(results: Mapping[str, Any]) -> Iterator[str]:
    for section in results.values():
        yield f"\n`{section['command']}`, recorded {section['date'] or 'earlier'}, on {section['machine']}\n"
        yield from _database_lines(section["tables"])
        promises = [row for table in section["tables"] if "Kept" in table["columns"] for row in _rows(table)]
        if promises:
            yield f"- {sum(row['Kept'] == 'yes' for row in promises)} of {len(promises)} promises are kept."
        for row in promises:
            if row["Kept"] != "yes":
                what = [value for key, value in row.items() if key not in ("Measured", "Promised", "Kept")]
                yield f"- Not kept: {', '.join(what)}: {row['Measured']}, promised {row['Promised']}."


def _database_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    """The figures of the largest database, if some were taken of databases."""
    tables = [table for table in found if "task or report" in table["columns"]]
    if tables:
        columns = ("task or report", "s", "CPU s", "x sqlite3", "peak, MB", "of the file")
        yield f"| {tables[-1]['title']}: {' | '.join(columns)} |"
        yield f"|{'---|' * len(columns)}"
        yield from (f"| {' | '.join(row[column] for column in columns)} |" for row in _rows(tables[-1]))
        yield ""


def _chart(speeds: Speeds) -> str:
    """Bars of MB a second, as SVG."""
    bars = [
        (
            f"{name}, {reader}" if reader == "kernelscope.read" else reader,
            READERS[reader],
            float(row["MB/s"].replace(",", "")),
        )
        for name, readers in speeds
        for reader, row in readers.items()
    ]
    most = max((speed for _, _, speed in bars), default=1)
    size = f'width="800" height="{22 * len(bars) + 10}" font-family="sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>'
    ]
    for place, (label, color, speed) in enumerate(bars):
        y, width = 22 * place + 5, 400 * speed / most
        parts.append(
            f'<text x="310" y="{y + 14}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="318" y="{y + 2}" width="{width:.1f}" height="16" fill="{color}"/>'
            f'<text x="{322 + width:.1f}" y="{y + 14}">{speed:,.0f} MB/s</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    draw(json.loads(RESULTS.read_text()))
