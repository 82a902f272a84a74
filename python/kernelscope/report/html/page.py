"""Assembles the page: one document that contains its script, its style, its libraries and its data."""

import base64
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from kernelscope.escaping import for_html
from kernelscope.report import views
from kernelscope.report.files import write_bytes
from kernelscope.report.html.libraries import check_libraries, pack, packed_libraries
from kernelscope.report.parts import Page, View
from kernelscope.report.parts.glossary import Glossary
from kernelscope.trace import Trace

_SCRIPTS = (
    "format.js", "elements.js", "theme.js", "content.js", "tables.js", "figures.js", "timeline.js", "page.js",
)  # fmt: skip
_STYLES = ("theme.css", "style.css")
_GLOSSARY = View(
    "glossary",
    "Glossary",
    "Meaning and unit of each figure, and the whole that a share refers to.",
    [Glossary()],
)


def every_view(trace: Trace) -> list[View]:
    """Returns the views of the page in the order of its menu."""
    return [_view(view, trace) for view in views.on_page()]


def write_page(trace: Trace, out: Path) -> None:
    """Writes the page of ``trace``, replacing ``out`` when it is complete.

    Raises: InvalidArgumentError: a library of the page is not installed. OSError: it cannot be written.
    """
    check_libraries()
    # One after the other, each packed as soon as it is made: the frames of several views together would take
    # more memory than half of the trace.
    with ThreadPoolExecutor(1) as beside:
        libraries = beside.submit(packed_libraries)
        packed = [_packed(_view(view, trace)) for view in views.on_page()]
        write_bytes(out, *_document(packed, title=Path(trace.meta.path).name, libraries=libraries.result()))


def write_views(shown: list[View], out: Path, *, title: str) -> None:
    """Writes a page of ``shown``, replacing ``out`` when it is complete.

    Raises: InvalidArgumentError: a library of the page is not installed. OSError: it cannot be written.
    """
    write_bytes(out, *to_page(shown, title=title, libraries=packed_libraries()))


def to_page(shown: list[View], *, title: str, libraries: dict[str, bytes]) -> list[bytes]:
    """Returns the page of ``shown``, in pieces."""
    return _document([_packed(view) for view in shown], title=title, libraries=libraries)


def _view(view: Any, trace: Trace) -> View:
    page: Page = view.PAGE
    return View(page.id, page.title, page.what, view.page(trace))


class _Packed(NamedTuple):
    """A view as the page holds it."""

    menu: dict[str, object]
    block: list[bytes]


def _packed(view: View) -> _Packed:
    menu: dict[str, object] = {"id": view.id, "title": view.title, "empty": view.is_empty}
    return _Packed(menu, _block(f"view-{view.id}", pack(_json(view.payload()))))


def _document(shown: list[_Packed], *, title: str, libraries: dict[str, bytes]) -> list[bytes]:
    packed = [*shown, _packed(_GLOSSARY)]
    menu = [view.menu for view in packed]
    blocks = [_block(f"library-{name}", content) for name, content in libraries.items()]
    blocks += [view.block for view in packed]
    text, fixed = _frame()
    holes = {
        **fixed,
        "title": [_encoded(for_html(title))],
        "menu": [_json(menu).replace(b"<", b"\\u003c")],
        "blocks": [piece for block in blocks for piece in block],
    }
    # Split once: what is filled in may itself contain what looks like a hole.
    first, *rest = text.split("{{")
    filled = [_encoded(first)]
    for piece in rest:
        name, _, after = piece.partition("}}")
        filled += [*holes[name], _encoded(after)]
    return filled


# Once for all pages that a program writes.
@cache
def _frame() -> tuple[str, dict[str, list[bytes]]]:
    """The text around what a page shows, which has holes, and what fills those that no trace changes."""
    script = _assets(_SCRIPTS)
    fixed = {"policy": _policy(script), "style": _assets(_STYLES), "script": script}
    return _assets(("page.html",)), {name: [_encoded(text)] for name, text in fixed.items()}


def _block(name: str, content: bytes) -> list[bytes]:
    """Data that the browser keeps and does not run."""
    return [_encoded(f'<script type="application/gzip" id="{name}">'), content, b"</script>\n"]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _json(value: object) -> bytes:
    # Views show themselves in notebooks without it.
    import orjson

    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        # Half a surrogate pair, which a file's metadata may hold, has no bytes in UTF-8.
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def _assets(names: tuple[str, ...]) -> str:
    folder = resources.files("kernelscope.report.html").joinpath("assets")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def _policy(script: str) -> str:
    """A policy under which only the page's own script and the libraries that it unpacks run, offline."""
    digest = base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode()
    rules = {
        "default-src": "'none'",
        "script-src": f"'sha256-{digest}' blob:",
        # Plotly and DataTables style elements as they draw.
        "style-src": "'unsafe-inline'",
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())
