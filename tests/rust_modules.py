"""The modules of a crate and which import which, from the paths in their sources."""

import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

Module = tuple[str, ...]

_NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|r#"(?:.|\n)*?"#|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', re.DOTALL)
_REEXPORT = re.compile(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);")
_USE = re.compile(r"\buse\s+([^;]+);")
_PATH = re.compile(r"\$?\b(?:crate|super|self)(?:::\w+)+")
_INLINE = re.compile(r"\bmod\s+\w+\s*\{")


def crate_imports(source: Path) -> dict[str, set[str]]:
    """The files that each file under ``source``, a folder with a ``lib.rs``, imports."""
    crate = _Crate(source)
    names = {module: str(path.relative_to(source)) for module, path in crate.files.items()}
    return {names[module]: {names[other] for other in crate.imports(module)} for module in names}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """The modules of a circle of imports, if there is one."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1]
    return []


class _Crate:
    def __init__(self, source: Path) -> None:
        self.files: dict[Module, Path] = {}
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if "tests" not in parts:
                self.files[() if parts == ("lib",) else parts[:-1] if parts[-1] == "mod" else parts] = path
        self._texts = {module: _code(path.read_text()) for module, path in self.files.items()}
        self._aliases = {module: self._reexports(module) for module in self.files}

    def _reexports(self, module: Module) -> dict[str, list[str]]:
        trees = _REEXPORT.findall(self._texts[module])
        paths = [path for tree in trees for path in _expand(tree)]
        return {alias: path for path, alias in paths}

    def imports(self, module: Module) -> set[Module]:
        """The modules whose items a module names; what it only re-exports is not among them."""
        text = _REEXPORT.sub(" ", self._texts[module])
        paths = [path for tree in _USE.findall(text) for path, _ in _expand(tree)]
        paths += [match.group().lstrip("$").split("::") for match in _PATH.finditer(_USE.sub(" ", text))]
        for child in {m[-1] for m in self.files if m and m[:-1] == module}:
            names = re.findall(rf"(?<![\w:]){child}((?:::\w+)+)", text)
            paths += [["self", child, *name.split("::")[1:]] for name in names]
        found = (self._resolved(module, path) for path in paths)
        return {target for target in found if target is not None and target != module}

    def _resolved(self, module: Module, path: list[str], depth: int = 0) -> Module | None:
        at, rest = module, list(path)
        if rest[0] == "crate":
            at, rest = (), rest[1:]
        elif rest[0] not in {"self", "super"} and (*module, rest[0]) not in self.files:
            return None
        while rest:
            name = rest.pop(0)
            if name == "self":
                continue
            if name == "super":
                at = at[:-1]
            elif (*at, name) in self.files:
                at = (*at, name)
            elif name in self._aliases[at] and depth < 9:
                return self._resolved(at, [*self._aliases[at][name], *rest], depth + 1)
            else:
                break
        return at


def _expand(tree: str) -> Iterator[tuple[list[str], str]]:
    """Every path of a ``use`` tree, and the name that it goes by."""
    tree = " ".join(tree.split())
    if "{" not in tree:
        path, _, alias = tree.partition(" as ")
        parts = path.strip().split("::")
        yield parts, alias or parts[-1]
        return
    head, _, rest = tree.partition("{")
    depth, piece = 0, ""
    for letter in rest[: rest.rindex("}")] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if piece.strip():
                yield from _expand(head.strip() + piece.strip())
            piece = ""
        else:
            piece += letter


def _code(text: str) -> str:
    """A source without comments, texts and tests; a module inside it counts as its file."""
    text = _NOISE.sub(" ", text)
    text = text.split("#[cfg(test)]")[0]
    while found := _INLINE.search(text):
        end = _closing(text, found.end())
        inner = re.sub(r"\bsuper::", "self::", text[found.end() : end])
        text = text[: found.start()] + inner.replace("self::super::", "super::") + text[end + 1 :]
    return text


def _closing(text: str, at: int) -> int:
    depth = 1
    while depth and at < len(text):
        depth += (text[at] == "{") - (text[at] == "}")
        at += 1
    return at - 1
