"""Views as short, static HTML for notebooks: no script, a few rows of each table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelscope.escaping import for_html
from kernelscope.report.names import short
from kernelscope.units import format_bytes, format_count, format_ns, format_percent

_MOST_ROWS = 10
_MOST_COLUMNS = 9
_WIDTH = 60
_UNKNOWN = "-"

_FORMATS: dict[str, Callable[[Any], str]] = {
    "ns": format_ns,
    "bytes": format_bytes,
    "count": format_count,
    "share": format_percent,
    "percent": lambda value: f"{value:.1f} %",
    "flag": lambda value: "yes" if value else "no",
    "text": lambda value: short(value, _WIDTH),
    "sentence": str,
}


def to_static(payload: Mapping[str, Any]) -> str:
    """Returns the payload of a view as HTML: its facts and notes, and the first rows of its tables."""
    parts = "".join(_part(part) for part in payload["parts"])
    return f"<h3>{for_html(payload['title'])}</h3><p>{for_html(payload['what'])}</p>{parts}"


def _part(part: Mapping[str, Any]) -> str:
    if part["kind"] == "group":
        return _part(part["choices"][0]["part"])
    if part["kind"] == "note":
        return f"<p>{for_html(part['text'])}</p>"
    if part["kind"] == "facts":
        rows = "".join(f"<tr>{_cell(name)}{_cell(value)}</tr>" for name, value, *_ in part["items"])
        return f"<table>{rows}</table>"
    return _table(part) if part["kind"] == "table" and not part["hidden"] else ""


def _table(part: Mapping[str, Any]) -> str:
    columns: Sequence[Mapping[str, str]] = part["columns"][:_MOST_COLUMNS]
    head = "".join(f'<th title="{for_html(c["what"])}">{for_html(c["title"])}</th>' for c in columns)
    shown = min(part["rows"], _MOST_ROWS)
    body = "".join(
        "<tr>" + "".join(_cell(_text(part, at, row)) for at in range(len(columns))) + "</tr>"
        for row in range(shown)
    )
    left = part["all"] - shown
    more = f"<p>and {left:,} more</p>" if left else ""
    return f"<h4>{for_html(part['title'])}</h4><table><tr>{head}</tr>{body}</table>{more}"


def _text(part: Mapping[str, Any], at: int, row: int) -> str:
    value = _value(part["data"][at], row)
    if value is None:
        return _UNKNOWN
    unit: str = part["columns"][at]["unit"]
    known = _FORMATS.get(unit)
    return known(value) if known else f"{value:,.4g} {'' if unit == 'number' else unit}".rstrip()


def _value(data: Sequence[Any] | Mapping[str, Sequence[Any]], row: int) -> Any:
    if not isinstance(data, Mapping):
        return data[row]
    place = data["of"][row]
    return None if place is None else data["texts"][place]


def _cell(text: str) -> str:
    return f"<td>{for_html(text)}</td>"
