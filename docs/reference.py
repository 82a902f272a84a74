"""Generates the reference pages of the documentation site from the code; MkDocs calls it as a hook."""

import io
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from kernelscope import costs, schema
from kernelscope.analysis.advice import rank_rules
from kernelscope.analysis.advice.record import Rule
from kernelscope.analysis.advice.table import RULES
from kernelscope.cli.main import COMMANDS, main

ROOT = Path(__file__).resolve().parents[1]
ABOUT = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE")
"""Files of the repository that are pages of the site."""
MODULES = (
    "kernelscope",
    "kernelscope.analysis",
    "kernelscope.report",
    "kernelscope.batch",
    "kernelscope.capture",
    "kernelscope.costs",
    "kernelscope.hardware",
    "kernelscope.schema",
    "kernelscope.units",
    "kernelscope.errors",
    "kernelscope.compat.torch_profiler",
    "kernelscope.compat.hta",
    "kernelscope.compat.nsys",
    "kernelscope.compat.pyprof",
)
"""The modules with public names, in the order of the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the generated pages, and the files of the repository."""
    for name in ABOUT:
        text = (ROOT / name).read_text().replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Directs links out of the folder ``docs`` to the same files in the site."""
    is_nested = "/" in page.file.src_uri
    return markdown if is_nested else markdown.replace("](../", "](")


def generated_pages() -> dict[str, str]:
    """Returns the text of every generated page by its path."""
    pages = {
        "commands": _commands(),
        "tables": _tables(),
        "diagnostics": _diagnostics(),
        "rules": _rules(),
        "models": _models(),
        **{name.replace(".", "-"): _module(name) for name in MODULES},
    }
    return {f"reference/{name}.md": "\n".join(lines) + "\n" for name, lines in pages.items()}


class Roles(Extension):
    """Converts the roles and labels of docstrings into Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Changes the docstring of ``obj``."""
        if obj.docstring:
            text = re.sub(r":\w+:`~?([\w.]+)`", _link, obj.docstring.value)
            obj.docstring.value = re.sub(_LABEL, r"**\1:** ", text, flags=re.MULTILINE)


_LABEL = r"^(Columns|Units|Raises|Order|Source|Example): "


def _link(role: re.Match[str]) -> str:
    """Returns a link to a public object, and the name of any other as code."""
    module, _, name = role[1].rpartition(".")
    owners = [module] if module in MODULES else MODULES
    targets = [_identifier(owner, name) for owner in owners if name in _names(owner)]
    return f"[`{role[1]}`][{targets[0]}]" if targets else f"`{role[1]}`"


def _module(name: str) -> Iterator[str]:
    yield f"# `{name}`\n\n::: {name}"
    yield "    options: {members: false, show_root_heading: false, show_root_toc_entry: false}\n"
    for public in _names(name):
        yield f"::: {_identifier(name, public)}\n    options: {{heading: {public}, toc_label: {public}}}\n"


def _names(module: str) -> list[str]:
    """Returns the names of a module that users type, without those of modules."""
    values = vars(import_module(module))
    own = [name for name, value in values.items() if getattr(value, "__module__", None) == module]
    names = getattr(import_module(module), "__all__", own)
    return sorted(
        name
        for name in names
        if name[0] != "_" and not isinstance(getattr(import_module(module), name), ModuleType)
    )


def _identifier(module: str, name: str) -> str:
    """Returns the path of a public object; a submodule of the same name would hide the shorter one."""
    home = getattr(getattr(import_module(module), name), "__module__", "")
    return f"{home}.{name}" if home.endswith(f".{name}") else f"{module}.{name}"


def _commands() -> Iterator[str]:
    yield "# Command options\n\nThe output of `--help`. [Commands](../commands.md) has an overview."
    for command in ("", *COMMANDS):
        yield f"\n## kernelscope {command}\n\n```text\n{_help(command)}```"


def _help(command: str) -> str:
    os.environ["COLUMNS"] = "100"
    with redirect_stdout(io.StringIO()) as shown:
        main([*([command] if command else []), "--help"])
    return shown.getvalue()


def _tables() -> Iterator[str]:
    yield "# Tables\n\nThe tables of a trace, as frames of `trace.tables` and in `kernelscope sql`."
    for table in schema.TABLES.values():
        yield f"\n## {table.name}\n\n{table.doc}\n"
        yield from _rows(
            ("column", "type", "meaning"),
            ((f"`{c.name}`", f"`{c.dtype}`{' or null' * c.nullable}", c.doc) for c in table.columns),
        )


def _diagnostics() -> Iterator[str]:
    yield "# Diagnostics\n\nWhat `trace.diagnostics` and `kernelscope info` report about a file.\n"
    found = schema.DIAGNOSTICS.values()
    yield from _rows(("code", "severity", "meaning"), ((f"`{d.code}`", d.severity, d.message) for d in found))


def _rules() -> Iterator[str]:
    yield "# Rules of recommendations\n"
    yield "[Recommendations](../views.md#recommendations) describes how savings are computed.\n"
    rules = (*RULES, rank_rules.straggler, rank_rules.uneven_ranks)
    yield from _rows(
        ("id", "title", "description", "threshold"),
        ((f"`{r.find.__name__}`", r.title, r.find.__doc__ or "", _threshold(r)) for r in rules),
    )


def _threshold(rule: Rule) -> str:
    if rule.unit.startswith("share of "):
        return f"{100 * rule.threshold:g} % {rule.unit.removeprefix('share ')}"
    return f"{rule.threshold:g} {rule.unit}"


def _models() -> Iterator[str]:
    yield "# Operators with a cost model\n\n[Costs](../costs.md) describes how FLOPs and bytes are counted."
    families: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for operator, model in costs.models().items():
        families[model.family][model.name].append(f"`{operator}`")
    for family, models in sorted(families.items()):
        yield f"\n## {family}\n"
        yield from _rows(
            ("model", "operators"), ((f"`{name}`", ", ".join(of)) for name, of in models.items())
        )


def _rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in row)} |"
