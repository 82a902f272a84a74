"""What holds for the modules of the package and for its public questions."""

import ast
import inspect
import re
from collections.abc import Mapping
from pathlib import Path

from kernelscope import analysis
from rust_modules import circle

ROOT = Path(__file__).resolve().parents[1] / "python"

RESULTS_OF_QUESTIONS = {"work", "records", "gpus", "calls", "table", "breakdown", "efficiency", "compat"}
ANSWERS = re.compile("DataFrame|Series|GpuWork|AllocatorRecords|Classes|Eligibility")


def _modules() -> dict[str, Path]:
    paths = (ROOT / "kernelscope").rglob("*.py")
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def _imports(path: Path, modules: Mapping[str, Path]) -> set[str]:
    """The modules that a file imports, also where a function does so when it is called."""
    found: set[str] = set()
    for statement in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names = {f"{statement.module}.{alias.name}" for alias in statement.names}
            found |= (names & modules.keys()) or {str(statement.module)}
    return (found & modules.keys()) - {"kernelscope"}


def test_no_modules_of_the_package_import_one_another_in_a_circle() -> None:
    modules = _modules()
    imports = {name: _imports(path, modules) for name, path in modules.items()}
    assert len(imports) > 100
    assert circle(imports) == []


def test_circles_of_imports_are_found() -> None:
    assert {*circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()})} == {"b", "c"}
    assert circle({"a": {"b"}, "b": {"c"}}) == []


def test_no_question_takes_the_answer_of_another() -> None:
    """Options are the user's own: names, numbers and flags, and never a frame."""
    for name in analysis.__all__:
        question = getattr(analysis, name)
        if inspect.isfunction(question):
            first, *options = inspect.signature(question).parameters.values()
            assert not any(ANSWERS.search(str(each.annotation)) for each in (first, *options)), name
            taken = RESULTS_OF_QUESTIONS.intersection(each.name for each in options)
            assert not taken or first.name != "trace", (name, taken)


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
