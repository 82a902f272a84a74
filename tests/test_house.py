"""The rules of the house that no linter checks."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kernelscope
from kernelscope import _traceparse, analysis
from rust_modules import circle, crate_imports

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
CRATE = ROOT / "crates/traceparse"


def _files(suffix: str) -> Iterator[Path]:
    for folder in ("crates", "python", "tests", "benches"):
        for path in (ROOT / folder).rglob(f"*{suffix}"):
            if "target" not in path.parts:
                yield path


def _toml(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())


def test_the_reader_knows_neither_python_nor_polars() -> None:
    manifest = _toml("crates/traceparse/Cargo.toml")
    assert set(manifest["dependencies"]).isdisjoint({"pyo3", "polars", "tracedemo", "traceparse-py"})


def test_the_passes_over_columns_know_neither_tables_nor_formats() -> None:
    manifest = _toml("crates/framekernels/Cargo.toml")
    assert set(manifest["dependencies"]).isdisjoint({"pyo3", "polars", "rusqlite", "traceparse"})


def _crate_imports(module: str) -> set[str]:
    """The top-level modules of the reader that the files of ``module`` name."""
    files = [*(CRATE / "src" / module).rglob("*.rs"), CRATE / f"src/{module}.rs"]
    text = "\n".join(path.read_text() for path in files if path.exists())
    return set(re.findall(r"\b(?:crate|traceparse)::(\w+)", text))


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [("schema", ("formats", "link", "read")), ("link", ("formats", "read")), ("formats", ("link", "read"))],
)
def test_arrows_between_modules_of_the_reader(module: str, forbidden: tuple[str, ...]) -> None:
    assert (CRATE / "src" / module).is_dir()
    assert _crate_imports(module).isdisjoint(forbidden)


def test_formats_never_import_one_another() -> None:
    folders = [path.parent.name for path in (CRATE / "src/formats").glob("*/mod.rs")]
    assert {"kineto", "nsys", "nvprof", "sqlite"} <= set(folders)
    for folder in folders:
        text = "\n".join(path.read_text() for path in (CRATE / "src/formats" / folder).rglob("*.rs"))
        assert set(re.findall(r"\bformats::(\w+)", text)) <= {
            folder,
            "foreign",
            "format",
            "interner",
            "sqlite",
        }


@pytest.mark.parametrize("crate", sorted(path.parent.name for path in (ROOT / "crates").glob("*/Cargo.toml")))
def test_no_modules_of_a_crate_import_one_another_in_a_circle(crate: str) -> None:
    imports = crate_imports(ROOT / "crates" / crate / "src")
    assert "lib.rs" in imports
    assert circle(imports) == []


@pytest.mark.parametrize(("suffix", "most"), [(".rs", 800), (".py", 800), (".js", 400)])
def test_files_are_short(suffix: str, most: int) -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in _files(suffix)}
    assert len(lengths) > 10
    assert {path: length for path, length in lengths.items() if length > most} == {}


@pytest.mark.slow
def test_functions_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in _files(".py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 70
    ]
    assert long == []


# Where text leaves the package, and what for: everything else goes through these.
_PRINTS = {
    "capture/__main__.py": "an error, made safe",
    "cli/batch.py": "lines that report.text.cluster made safe",
    "cli/batch_progress.py": "JSON in ASCII, and progress in place",
    "cli/console.py": "lines and messages, made safe",
    "report/text/cells.py": "tables of cells that are safe",
    "report/files.py": "texts of the writers",
    "report/text/summary.py": "tables of cells that are safe",
}


_PRINTING = re.compile(r"print|sys\.std(out|err)\.(buffer\.)?write(lines)?|to\.write|console\.print")


def _leaks(tree: ast.Module, place: str) -> Iterator[str]:
    """Calls by which text of a trace could reach a terminal, a spreadsheet or a page as it is."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        prints = re.fullmatch(
            r"print|sys\.std(out|err)\.(buffer\.)?write(lines)?|to\.write|console\.print", called
        )
        if prints and place not in _PRINTS:
            yield f"{place}:{node.lineno}: {called}"
        is_method = isinstance(node.func, ast.Attribute)
        if is_method and node.func.attr == "write_csv" and not called.startswith("for_csv("):
            yield f"{place}:{node.lineno}: {called}"
        if called in ("html.escape", "escape", "xml.sax.saxutils.escape") and place != "escaping.py":
            yield f"{place}:{node.lineno}: {called}"


@pytest.mark.slow
def test_text_leaves_the_package_made_safe() -> None:
    root = ROOT / "python/kernelscope"
    files = {str(path.relative_to(root)): path for path in root.rglob("*.py")}
    assert _PRINTS.keys() <= files.keys()
    assert [
        leak for place, path in files.items() for leak in _leaks(ast.parse(path.read_text()), place)
    ] == []


@pytest.mark.parametrize(
    "line", ["print(name)", "sys.stdout.write(name)", "frame.write_csv(path)", "html.escape(name)"]
)
def test_a_leak_is_found(line: str) -> None:
    assert list(_leaks(ast.parse(line), "report/text/trace.py"))


def test_files_are_named_after_what_they_do() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert [path for suffix in (".rs", ".py") for path in _files(suffix) if path.stem in vague] == []


@pytest.mark.slow
def test_public_functions_say_what_they_do() -> None:
    silent: list[str] = []
    for path in (ROOT / "python").rglob("*.py"):
        tree = ast.parse(path.read_text())
        nodes = [tree, *(n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)))]
        for node in nodes:
            name = getattr(node, "name", "the module")
            doc = ast.get_docstring(node)
            if not name.startswith("_") and not (
                doc and doc.splitlines()[0].rstrip().endswith((".", ":", "?"))
            ):
                silent.append(f"{path.relative_to(ROOT)}: {name}")
    assert silent == []


def test_locked_requirements_name_no_index() -> None:
    locks = list((ROOT / "requirements").glob("*.txt"))
    assert len(locks) >= 3
    for lock in locks:
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert "--index" not in text


def test_dependencies_are_those_that_are_locked() -> None:
    declared = _toml("pyproject.toml")["project"]["dependencies"]
    locked = [
        line for line in (ROOT / "requirements/run.in").read_text().splitlines() if not line.startswith("#")
    ]
    assert sorted(declared) == sorted(locked)


def test_versions_agree() -> None:
    version = _toml("Cargo.toml")["workspace"]["package"]["version"]
    assert kernelscope.__version__ == version
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_debug_build_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_traceparse, "is_debug_build", True)
    with pytest.warns(RuntimeWarning, match="without optimisation"):
        importlib.reload(kernelscope)


def test_release_build_does_not_warn() -> None:
    assert not _traceparse.is_debug_build, "tests run on a build that is optimised, as that of users is"


def test_every_public_name_exists() -> None:
    for name in kernelscope.__all__:
        assert getattr(kernelscope, name) is not None
    assert dir(kernelscope) == sorted(kernelscope.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        kernelscope.nonsense  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018


def test_no_question_is_hidden_by_a_package_of_its_name() -> None:
    for package in ("costs.table", "diff.tables"):
        importlib.import_module(f"kernelscope.analysis.{package}")
    for name in analysis.__all__:
        assert not isinstance(getattr(analysis, name), ModuleType), name


def test_reading_imports_no_cost_model() -> None:
    program = "import sys; from kernelscope.analysis import op_table; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "kernelscope.costs" not in done.stdout.split()
