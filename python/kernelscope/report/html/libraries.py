"""JavaScript libraries of the page, taken from installed packages without downloads.

Plotly draws the figures. DataTables shows the tables, as shipped in the package ``itables`` (1.5 MB, MIT, no
dependency): other packages with a table library are 20 times as large or unmaintained.
"""

import base64
import gzip
import re
from functools import cache
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path

from kernelscope.errors import InvalidArgumentError

_FILES = {
    "plotly": ("plotly", "package_data/plotly.min.js"),
    "datatables": ("itables", "html/dt_bundle.js"),
    "datatables-style": ("itables", "html/dt_bundle.css"),
}
_JSON = "orjson"
"""Serialises the data of the views, in a fifth of the time of the standard library."""
# The function that is all of Plotly, as its file begins and ends it.
_WRAPPER = re.compile(rb"(?<=: this, )\(\) => \{.*\}(?=\)\);\s*\Z)", re.DOTALL)
# A higher level takes longer for a page that is little smaller, the lowest makes it an eighth larger.
_LEVEL = 2


def check_libraries() -> None:
    """Checks that every library is installed.

    Raises: InvalidArgumentError: a package is not installed.
    """
    for package, path in _FILES.values():
        _file(package, path)
    if find_spec(_JSON) is None:
        raise _missing(_JSON)


def packed_libraries() -> dict[str, bytes]:
    """Returns each library by name, compressed and encoded.

    Raises: InvalidArgumentError: a package is not installed.
    """
    return {name: _packed(package, path) for name, (package, path) in _FILES.items()}


# Once for all pages that a program writes: it takes nearly as long as the views of a small trace.
@cache
def _packed(package: str, path: str) -> bytes:
    # Mapped: once megabytes have been freed, the C library keeps more of what the reader of a trace frees.
    with _file(package, path).open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as script:
        return pack(_bracketed(script))


def _bracketed(script: mmap) -> bytes:
    """``script`` with brackets around the function that is all of it, which change nothing in what it does.

    A browser parses a function in brackets beside the page; any other it only skims there, and parses it when
    it is called, while the page waits: for Plotly a sixth of the time until the page answers.
    """
    found = _WRAPPER.search(script)
    if found is None:
        return script[:]
    begin, end = found.span()
    with memoryview(script) as text, text[:begin] as head, text[begin:end] as wrapper, text[end:] as tail:
        return b"".join((head, b"(", wrapper, b")", tail))


def pack(content: bytes) -> bytes:
    """Returns ``content`` as text that any document can contain: gzip in base64."""
    return base64.b64encode(gzip.compress(content, _LEVEL, mtime=0))


def _file(package: str, path: str) -> Path:
    # The package itself is not imported: that would take longer than the report.
    spec = find_spec(package)
    for folder in spec.submodule_search_locations or () if spec else ():
        file = Path(folder, path)
        if file.is_file():
            return file
    raise _missing(package)


def _missing(package: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the page needs {package}, which is missing or too old: pip install 'kernelscope[page]'"
    )
