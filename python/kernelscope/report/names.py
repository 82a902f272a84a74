"""Makes names from a trace safe and short enough to show."""

import re
from functools import lru_cache

from kernelscope.escaping import for_terminal

_LONGEST = 4096
_SCOPE = r"(?:\b[A-Za-z_]\w*|\(anonymous namespace\)|<unnamed>)::"
# The first apart from the others: that a group begins to repeat takes time at every place of a name.
_NAMESPACE = re.compile(f"{_SCOPE}(?:{_SCOPE})*(?=[A-Za-z_])")
_ANGLE = re.compile("([<>])")
_UNNAMED = "(no name)"


def safe(text: str | None) -> str:
    """Returns a name in one line of printable characters. Very long names are cut at the end."""
    return _UNNAMED if text is None else for_terminal(text[:_LONGEST])


# A page and a report show the same few names in many tables.
@lru_cache(maxsize=4_096)
def short(name: str | None, width: int) -> str:
    """Returns a kernel or operator name in at most ``width`` characters.

    The least informative parts are removed first: the parameters of a C++ function, then namespaces, then the
    arguments of nested templates. If it is still too long, a list is cut at the end, and other names in the
    middle.
    """
    text = safe(name)
    if len(text) <= width:
        return text
    text = _without_parameters(text.removeprefix("void "))
    # An operator such as aten::mm keeps its namespace. A call stack has none, and to look for one takes long.
    if len(text) > width and "::" in text and ("<" in text or text.count("::") > 1):
        text = _NAMESPACE.sub("", text)
    if len(text) > width and text.count("<") > 1:
        text = _without_inner_arguments(text)
    if len(text) <= width:
        return text
    tail = 0 if ", " in text else max(0, (width - 1) // 3)
    return text[: width - 1 - tail] + "…" + (text[-tail:] if tail else "")


def _without_inner_arguments(text: str) -> str:
    """``text`` without what stands in angle brackets inside angle brackets."""
    kept: list[str] = []
    depth = 0
    for part in _ANGLE.split(text):
        depth += part == "<"
        if depth < 2:
            kept.append(part)
        depth -= part == ">" and depth > 0
    return "".join(kept)


def _without_parameters(text: str) -> str:
    """``text`` up to the parenthesis that matches the one at its end."""
    if not text.endswith(")"):
        return text
    depth, end = 0, len(text)
    while (start := text.rfind("(", 0, end)) >= 0:
        depth += text.count(")", start, end) - 1
        if depth == 0:
            return text[:start] or text
        end = start
    return text
