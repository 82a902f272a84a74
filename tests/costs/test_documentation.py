"""The examples of the documentation run."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelscope.costs import cost_of, load_models, models, registry

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def registered() -> Iterator[None]:
    """Takes back what a test registers."""
    before = dict(registry._MODELS)
    yield
    registry._MODELS.clear()
    registry._MODELS.update(before)
    registry._FOUND.clear()


def _examples(path: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


def _run(examples: list[str], folder: Path) -> None:
    for index, text in enumerate(examples):
        path = folder / f"example{index}.py"
        path.write_text(text)
        load_models(str(path))


def test_examples(tmp_path: Path, registered: None) -> None:
    examples = _examples("docs/costs.md")
    assert len(examples) == 2
    _run(examples, tmp_path)
    dims, types = "[[8, 64], [64], [64]]", '["float", "float", "float"]'
    cost = cost_of("mylib::scale_and_shift_", dims, types)
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (1024, 2048 + 512, 2048)


def test_a_newcomer_adds_a_model_in_ten_lines(tmp_path: Path, registered: None) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("## How to add a cost model") :]
    (example,) = re.findall(r"```python\n(.*?)```", section[: section.index("\n## ", 5)], re.DOTALL)
    assert len([line for line in example.splitlines() if line]) <= 10
    _run([example], tmp_path)
    # The second operand repeats one row: it is read once.
    texts = "[[8, 64], [8, 64], []]", '["float", "float", "Scalar"]', "[[64, 1], [0, 1], []]", '["", "", "2"]'
    for name in ("mylib::scale_and_add", "mylib::scale_and_add_", "mylib::scale_and_add.out"):
        cost = cost_of(name, *texts)
        assert (cost.flops, cost.bytes_read, cost.bytes_written) == (1024, 2048 + 256, 2048)
        assert (cost.status, cost.model) == ("exact", "scale_and_add")
    assert cost_of("mylib::scale_and_add", None).status == "missing_shape"


def test_every_model_says_what_it_counts() -> None:
    silent = [name for name, model in models().items() if len((model.function.__doc__ or "").strip()) < 20]
    assert silent == []
