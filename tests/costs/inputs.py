"""Recorded inputs of an operator, as the ops table has them."""

import json
from typing import Any


class V:
    """A number or list among the inputs."""

    def __init__(self, value: object) -> None:
        self.text = str(value)


def texts(*inputs: Any) -> tuple[str, str, str, str]:
    """The row's texts from ``(shape, type[, strides])``, ``V(value)``, lists of shapes, or None."""
    dims, types, strides, concrete = (json.dumps(column) for column in zip(*map(_texts_of_input, inputs)))
    return dims, types, strides, concrete


def _texts_of_input(item: Any) -> tuple[list[Any], str, list[int] | None, str]:
    if isinstance(item, V):
        return [], "ScalarList" if item.text.startswith("[") else "Scalar", [], item.text
    if isinstance(item, list):
        return item, "TensorList", [], ""
    return ([], "", [], "") if item is None else (item[0], item[1], item[2] if len(item) > 2 else None, "")
