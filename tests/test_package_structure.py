"""What holds for the modules of the package and for its public questions."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernelscope import analysis

ROOT = Path(__file__).resolve().parents[1] / "python"

RESULTS_OF_QUESTIONS = {"work", "records", "gpus", "calls", "table", "breakdown", "efficiency", "compat"}


def _modules() -> dict[str, Path]:
    paths = (ROOT / "kernelscope").rglob("*.py")
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under conditions too, but not those in functions."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.If, ast.Try)):
            yield from _statements([*statement.body, *statement.orelse])


def _imports(path: Path, modules: Mapping[str, Path]) -> set[str]:
    found: set[str] = set()
    for statement in _statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names = {f"{statement.module}.{alias.name}" for alias in statement.names}
            found |= (names & modules.keys()) or {str(statement.module)}
    return (found & modules.keys()) - {"kernelscope"}


def _in_circles(imports: Mapping[str, set[str]]) -> set[str]:
    """The modules that are left when those that nothing imports, or that import nothing, are taken away."""
    left = dict(imports)
    while True:
        imported = set[str]().union(*left.values())
        kept = {name: goals & left.keys() for name, goals in left.items() if goals & left.keys()}
        kept = {name: goals for name, goals in kept.items() if name in imported}
        if kept == left:
            return set(left)
        left = kept


def test_no_modules_of_the_package_import_one_another_in_a_circle() -> None:
    modules = _modules()
    imports = {name: _imports(path, modules) for name, path in modules.items()}
    assert len(imports) > 100
    assert _in_circles(imports) == set()


def test_circles_of_imports_are_found() -> None:
    assert _in_circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == {"b", "c"}


def test_no_question_takes_the_result_of_another() -> None:
    for name in analysis.__all__:
        question = getattr(analysis, name)
        if inspect.isfunction(question):
            first, *options = inspect.signature(question).parameters
            taken = RESULTS_OF_QUESTIONS.intersection(options)
            assert not taken or first != "trace", (name, taken)


def _texts(path: Path) -> set[str]:
    """The texts in the code of a module, docstrings aside."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
    }


def test_only_linking_decides_what_an_activity_is() -> None:
    words = ("ProfilerStep#", "DataLoader)", "DataPipe)", "Optimizer.", "user_annotation", "c10d")
    analyses = [*(ROOT / "kernelscope/analysis").rglob("*.py")]
    assert len(analyses) > 50
    found = {path.stem: text for path in analyses for text in _texts(path) if any(w in text for w in words)}
    # What torch shows in place of each step's name.
    assert found == {"host_events": "ProfilerStep#"}
