"""The sentences that users read, by layer: the messages, the documentation and the public docstrings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kernelscope.schema import TABLES

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python/kernelscope"


class Text(NamedTuple):
    """A text and its location; inline code, placeholders and links are the word ``X``."""

    place: str
    words: str

    def sentences(self) -> Iterator[str]:
        """Splits the text at full stops, colons, semicolons and the items of a list."""
        for part in re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*[-*|] |\|", self.words):
            if part.strip():
                yield " ".join(part.split())


def messages() -> Iterator[Text]:
    """Yields texts of the command line, reports, page and viewer, diagnostics, and descriptions of tables."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from _strings(path)
    for path in sorted(PACKAGE.rglob("*.js")):
        yield from _quoted(path, _SCRIPT)
    for path in sorted(PACKAGE.rglob("*.html")):
        yield from _quoted(path, _MARKUP)
    for path in sorted((ROOT / "crates").glob("traceparse*/src/**/*.rs")):
        if "tests" not in path.parts and path.name != "tests.rs":
            yield from _quoted(path, _RUST)
    for table in TABLES.values():
        yield Text(f"table {table.name}", _plain(table.doc))
        yield from (
            Text(f"column {table.name}.{column.name}", _plain(column.doc)) for column in table.columns
        )


def documentation() -> Iterator[Text]:
    """Yields the pages of the documentation and the README, without code and generated tables."""
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))):
        text = re.sub(r"^```.*?^```|<!--.*?-->", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        for number, paragraph in enumerate(re.split(r"\n(?=\s*\n|\s*[-*|] |#)", text)):
            yield Text(f"{path.relative_to(ROOT)} paragraph {number}", _plain(paragraph))


def docstrings() -> Iterator[Text]:
    """Yields the docstrings of modules, classes and functions with public names."""
    for path in sorted(PACKAGE.rglob("*.py*")):
        if path.suffix in (".py", ".pyi"):
            for node in _docstrings(ast.parse(path.read_text()), public=True):
                for paragraph in str(node.value).split("\n\n"):
                    yield _text(path, node.lineno, paragraph)


# Literals of JavaScript and Rust. Comments and characters are matched first, to skip their quotes.
_SCRIPT = re.compile(r"//[^\n]*|/\*.*?\*/|\"((?:[^\"\\\n]|\\.)*)\"|`((?:[^`\\]|\\.)*)`", re.DOTALL)
_MARKUP = re.compile(r">([^<>{}]+)<|(?:title|aria-label|placeholder)=\"([^\"]*)\"")
_RUST = re.compile(
    r"//[^\n]*|#\[(?:[^\]\"]|\"[^\"]*\")*\]|\bb?r(#+)\".*?\"\1|\bb?r\"[^\"]*\"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\'\n])'"
    r"|\"((?:[^\"\\]|\\.)*)\"|^#\[cfg\(test\)\].*",
    re.DOTALL | re.MULTILINE,
)


def _strings(path: Path) -> Iterator[Text]:
    tree = ast.parse(path.read_text())
    hidden = {id(node) for node in _docstrings(tree)} | _without_words(tree)
    for node in ast.walk(tree):
        if id(node) not in hidden and (text := _literal(node)) and _is_prose(text):
            yield _text(path, getattr(node, "lineno", 0), text)


def _quoted(path: Path, literals: re.Pattern[str]) -> Iterator[Text]:
    source = path.read_text()
    if path.suffix == ".rs":
        source = source.split("#[cfg(test)]\nmod tests {")[0]
    for match in literals.finditer(source):
        text = re.sub(r"\\\n\s*", "", match[match.lastindex or 0] if match.lastindex else "")
        if _is_prose(text):
            yield _text(path, source.count("\n", 0, match.start()) + 1, text)


def _docstrings(tree: ast.AST, *, public: bool = False) -> Iterator[ast.Constant]:
    """Yields docstrings, and the strings that document attributes, outermost first."""
    body: list[ast.stmt] = getattr(tree, "body", [])
    for place, statement in enumerate(body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            documents = place == 0 or not isinstance(tree, ast.FunctionDef)
            if documents and isinstance(statement.value.value, str):
                yield statement.value
        elif isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            is_hidden = statement.name.startswith("_") or isinstance(tree, ast.FunctionDef)
            if not (public and is_hidden):
                yield from _docstrings(statement, public=public)
        elif isinstance(statement, (ast.If, ast.Try)) and not public:
            yield from _docstrings(statement, public=public)


def _without_words(tree: ast.AST) -> set[int]:
    """Returns the strings that are not sentences: parts of f-strings, and lists of names."""
    hidden: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            hidden |= {id(part) for part in ast.walk(node) if part is not node}
        elif isinstance(node, ast.Attribute) and node.attr == "split":
            hidden.add(id(node.value))
    return hidden


def _literal(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        return "".join(map(str, parts))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_prose(text: str) -> bool:
    """Returns whether a string has words in a row, and is neither SQL nor a list of names."""
    plain = re.sub(r"\$?\{[^{}]*\}", "X", text)
    words = re.findall(r"(?<![\w.:/<-])[A-Za-z][a-z]+(?![\w:/(=>-])", plain)
    is_list = len(words) > 20 and not re.search(r"\b(the|a|of|is|are|not)\b", plain)
    is_sql = re.match(r"\s*(select|with|create|insert|pragma)\b", text, re.IGNORECASE)
    return len(words) >= 3 and not is_list and not is_sql


def _text(path: Path, line: int, text: str) -> Text:
    return Text(f"{path.relative_to(ROOT)}:{line}", _plain(text))


def _plain(text: str) -> str:
    text = re.sub(r"``[^`]*``|`[^`]*`|\$?\{[^{}]*\}|:\w+:`[^`]*`|https?://\S+", "X", text)
    return re.sub(r"\]\([^)]*\)|<[^<>]*>", "", text)
