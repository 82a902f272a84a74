"""Shows results: as lines for a terminal, and as the tables in benches/results.json."""

from collections.abc import Iterator
from typing import Any

import floors
from contestants import CONTESTANTS, PROGRAMS
from performance import taken_on

Row = tuple[str, ...]


def reading_lines(entry: dict[str, Any]) -> Iterator[str]:
    """One line per contestant on an input."""
    head = ("", "seconds", "MB/s", "events/s", "peak MB", "above imports", "per byte", "x kernelscope")
    yield from _aligned([head, *_reading_rows(entry)])


def program_lines(results: dict[str, Any]) -> Iterator[str]:
    """One line per whole process."""
    yield from _aligned([("", "seconds", "peak MiB"), *_program_rows(results)])


def markdown(results: dict[str, Any]) -> str:
    """The tables of benches/results.json, in Markdown."""
    promises = [floor.cells() for floor in floors.judge(results)]
    parts = [taken_on(results["machine"]), "### Promises"]
    parts.append(_table(("Promise", "Input", "Measured", "Promised", "Kept"), promises))
    for entry in results["inputs"]:
        title = f"### {entry['name']}: {entry['content_bytes'] / 1e6:,.0f} MB of JSON"
        if entry["gzip"]:
            title += f" in {entry['file_bytes'] / 1e6:,.0f} MB"
        head = (
            "Reader",
            "s",
            "MB/s",
            "events/s",
            "peak, MB",
            "above imports, MB",
            "of the JSON",
            "x kernelscope",
        )
        parts += [title, _table(head, list(_reading_rows(entry)))]
    if results["programs"]:
        parts.append(f"### Whole processes, on {results['programs_trace']}")
        parts.append(_table(("Process", "s", "peak, MiB"), list(_program_rows(results))))
    if results["missing"]:
        left_out = [f"- {entry['input']}: {entry['reason']}" for entry in results["missing"]]
        parts += ["### Left out", "\n".join(left_out)]
    return "\n\n".join(parts)


def _reading_rows(entry: dict[str, Any]) -> Iterator[Row]:
    readings = entry["readings"]
    own = floors.seconds(entry, "kernelscope")
    events = next((r["events"] for r in readings.values() if r.get("events") is not None), None)
    for contestant in CONTESTANTS:
        reading = readings.get(contestant.task)
        if reading is None:
            continue
        if "seconds" not in reading:
            yield (contestant.title, _why_not(reading))
            continue
        seconds, content = reading["seconds"], entry["content_bytes"]
        above = reading["peak_above_imports_bytes"]
        yield (
            contestant.title,
            f"{seconds:.3f}",
            f"{content / seconds / 1e6:,.0f}",
            "-" if events is None else f"{events / seconds:,.0f}",
            _megabytes(reading["peak_bytes"]),
            _megabytes(above),
            "-" if above is None else f"{above / content:.2f}",
            "-" if own is None else f"{seconds / own:.2f}",
        )


def _program_rows(results: dict[str, Any]) -> Iterator[Row]:
    for wanted in PROGRAMS:
        reading = results["programs"].get(wanted.name)
        if reading is None:
            continue
        if "seconds" not in reading:
            yield (wanted.title, _why_not(reading))
            continue
        yield (wanted.title, f"{reading['seconds']:.3f}", f"{reading['peak_bytes'] / 2**20:,.0f}")


def _megabytes(size: float | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.0f}"


def _why_not(reading: dict[str, Any]) -> str:
    if "skipped" in reading:
        return f"left out: {reading['skipped']}"
    return f"failed: {reading['failed']}"


def _aligned(rows: list[Row]) -> Iterator[str]:
    full = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[column]) for row in full) for column in range(len(rows[0]))]
    first = max(len(row[0]) for row in rows)
    for row in rows:
        if len(row) < len(widths):
            yield f"  {row[0].ljust(first)}  {row[1]}"
        else:
            cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
            yield f"  {row[0].ljust(first)}  {'  '.join(cells)}"


def _table(head: Row, rows: list[Row]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    for row in rows:
        cells = [*row, *([""] * (len(head) - len(row)))]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
