"""The examples of the documentation run."""

import re
from pathlib import Path

from kernelscope.costs import cost_of, load_models, models, registry

ROOT = Path(__file__).resolve().parents[2]


def _examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs/costs.md").read_text(), re.DOTALL)


def test_examples(tmp_path: Path) -> None:
    before = dict(registry._MODELS)
    examples = _examples()
    assert len(examples) == 2
    try:
        for index, text in enumerate(examples):
            path = tmp_path / f"example{index}.py"
            path.write_text(text)
            load_models(str(path))
        dims, types = "[[8, 64], [64], [64]]", '["float", "float", "float"]'
        cost = cost_of("mylib::scale_and_shift_", dims, types)
        assert (cost.flops, cost.bytes_read, cost.bytes_written) == (1024, 2048 + 512, 2048)
    finally:
        registry._MODELS.clear()
        registry._MODELS.update(before)
        registry._FOUND.clear()


def test_every_model_says_what_it_counts() -> None:
    silent = [name for name, model in models().items() if len((model.function.__doc__ or "").strip()) < 20]
    assert silent == []
