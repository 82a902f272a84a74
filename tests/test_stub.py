"""The stub of the extension module says what the module has."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import kernelscope
from kernelscope import _traceparse

STUB = ast.parse((Path(kernelscope.__file__).parent / "_traceparse.pyi").read_text())


def _declared(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


CLASSES = {
    node.name: _declared(node.body)
    for node in STUB.body
    if isinstance(node, ast.ClassDef) and node.name != "Frame"
}


def _parameters(function: ast.FunctionDef) -> list[tuple[str, Any, Any]]:
    """Name and kind of each parameter but ``self``, and whether it has a default."""
    signature = inspect.signature(eval(f"lambda {ast.unparse(_bare(function.args))}: None"))  # noqa: S307
    return _of_signature(signature)


def _bare(arguments: ast.arguments) -> ast.arguments:
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    return arguments


def _of_signature(signature: inspect.Signature) -> list[tuple[str, Any, Any]]:
    return [
        (each.name, each.kind, each.default is not inspect.Parameter.empty)
        for each in signature.parameters.values()
        if each.name != "self"
    ]


def test_the_stub_names_what_the_module_has() -> None:
    made = {name for name, value in vars(_traceparse).items() if callable(value)}
    assert made - {"__loader__"} == {*_declared(STUB.body), *CLASSES}


@pytest.mark.parametrize("name", _declared(STUB.body))
def test_functions_have_the_parameters_of_the_stub(name: str) -> None:
    made = inspect.signature(getattr(_traceparse, name))
    assert _of_signature(made) == _parameters(_declared(STUB.body)[name])


@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_methods_of_the_stub(name: str) -> None:
    made, declared = getattr(_traceparse, name), CLASSES[name]
    public = {each for each in vars(made) if not each.startswith("_")}
    properties = {"meta"} if name == "RawTrace" else set[str]()
    assert public == {each for each in declared if not each.startswith("_")} | properties
    for method, function in declared.items():
        if method in properties or method.startswith("__"):
            continue
        if any(ast.unparse(each) == "overload" for each in function.decorator_list):
            continue
        assert _of_signature(inspect.signature(getattr(made, method))) == _parameters(function), method
