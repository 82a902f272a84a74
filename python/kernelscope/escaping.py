"""Makes text of a trace safe for its destination, with one function per destination.

Names, paths and arguments in a trace are untrusted. Terminals interpret escape sequences, spreadsheets
formulas, and Markdown and HTML markup. A test checks that nothing else in the package prints or escapes text.
"""

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

# Control and format characters, which move the cursor, turn the direction of what follows or hide it, and
# what separates lines: Unicode's Cc, Cf, Zl and Zp. For Python and Rust alike.
_INVISIBLE = (
    "\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f"
)
_UNSAFE = re.compile(f"[{_INVISIBLE}]+")
# With which a formula begins, also in full width. A single "-" stands for nothing, and "--" in front of a
# name for its depth, as nsys writes it: behind that only what calls a function or a program is a formula.
_FORMULA = r"^\s*(?:[=+@\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]|-[^-]|-+\s*[=+@]|--.*[(|!])"
_SPECIAL = str.maketrans({c: f"\\{c}" for c in "\\`*_[]|~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def for_terminal(text: str) -> str:
    """Returns ``text`` in one line, with blanks for characters that a terminal would interpret."""
    # Nearly every text is printable, which is known in a tenth of the time that looking for marks takes.
    if text.isprintable():
        return text
    # Half a surrogate pair, such as a byte of a path that is no UTF-8, cannot be written.
    return _UNSAFE.sub(" ", text.encode("utf-8", "replace").decode())


def for_csv(frame: "pl.DataFrame", columns: Sequence[str] | None = None) -> "pl.DataFrame":
    """Returns ``frame`` with texts that neither a spreadsheet nor a terminal interprets.

    A text that would be a formula is prefixed with an apostrophe. Numbers do not change. If
    ``columns`` are given, only those are escaped.
    """
    import polars as pl

    texts = frame if columns is None else frame.select(columns)
    return frame.with_columns(
        _for_csv(column) for column in texts.select(pl.col(pl.String, pl.Categorical, pl.Enum))
    )


def _for_csv(column: "pl.Series") -> "pl.Series":
    import polars as pl

    text = column.cast(pl.String)
    if column.dtype != pl.String:
        # A name repeats, and is looked at once.
        names = column.unique().cast(pl.String).drop_nulls()
        safe = _for_csv(names)
        return text if safe.equals(names) else text.replace(names, safe)
    # Looking is faster than replacing, and nearly no column has what is looked for.
    if text.str.contains(f"[{_INVISIBLE}]").any():
        text = text.str.replace_all(f"[{_INVISIBLE}]+", " ")
    is_formula = text.str.contains(_FORMULA).fill_null(value=False)
    return ("'" + text).zip_with(is_formula, text).alias(column.name) if is_formula.any() else text


def for_markdown(text: str) -> str:
    """Returns ``text`` in one line, escaped so that Markdown shows it unchanged."""
    return for_terminal(text).translate(_SPECIAL)


def for_html(text: str, *, quote: bool = True) -> str:
    """Returns ``text`` escaped so that HTML and SVG show it unchanged, also in attributes.

    Plotly's labels are HTML.

    Without ``quote``, quotation marks are kept, which have a meaning only in attributes.
    """
    return html.escape(for_terminal(text), quote=quote)
