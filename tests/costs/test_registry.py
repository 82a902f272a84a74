"""Models are found under every form of an operator's name, and a user's file can add its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelscope.costs import Call, Cost, cost_of, find_model, load_models, models, operator, registry
from kernelscope.errors import InvalidArgumentError

X = "[[8, 64]]", '["float"]'


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = dict(registry._MODELS)
    yield
    registry._MODELS.clear()
    registry._MODELS.update(before)
    registry._FOUND.clear()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        *[("aten::add", "binary"), ("aten::add_", "binary"), ("aten::add.Tensor", "binary")],
        *[("aten::add_.Scalar", "binary"), ("aten::add.out", "binary"), ("aten::mm_out", "mm")],
        *[("aten::__and__", "binary"), ("aten::detach_", "view"), ("detach", "view")],
        *[("symm_mem::multimem_all_reduce_", "same_size"), ("triton_poi_fused_add_0", "inductor")],
    ],
)
def test_names(name: str, model: str) -> None:
    found = find_model(name)
    assert found is not None
    assert found.name == model


@pytest.mark.parametrize(
    "name", ["", "aten::", "aten::addx", "add", "aten::_", "mm", "xaten::mm", "triton_tem_0"]
)
def test_names_of_no_model(name: str) -> None:
    assert find_model(name) is None


def test_wrappers_are_told_from_what_does_the_work() -> None:
    composite = {name for name, model in models().items() if model.composite}
    assert {"aten::linear", "aten::matmul", "aten::conv2d", "aten::softmax"} <= composite
    assert composite.isdisjoint({"aten::mm", "aten::addmm", "aten::cudnn_convolution", "aten::_softmax"})


def test_in_place_forms_write_the_type_of_their_operand() -> None:
    texts = "[[8], [8]]", '["c10::Half", "float"]'
    assert cost_of("aten::add", *texts).bytes_written == 32
    assert cost_of("aten::add_", *texts).bytes_written == 16


def test_a_model_is_one_function() -> None:
    @operator("mylib::scale")
    def _scale(call: Call) -> Cost:
        x = call.tensor(0)
        return Cost(x.numel, x.read, x.nbytes, x.dtype)

    cost = cost_of("mylib::scale_.out", *X)
    assert (cost.flops, cost.bytes_read, cost.model, cost.status) == (512, 2048, "scale", "exact")


def test_a_later_model_replaces_an_earlier_one() -> None:
    assert cost_of("aten::neg", *X).flops == 512

    @operator("aten::neg")
    def _neg(call: Call) -> Cost:
        return Cost(1, 2, 3, call.tensor(0).dtype)

    assert cost_of("aten::neg", *X).flops == 1


def test_a_users_file(tmp_path: Path) -> None:
    path = tmp_path / "my_costs.py"
    path.write_text(
        "from kernelscope.costs import Call, Cost, operator\n"
        "@operator('mylib::rope', 'mylib::unrope')\n"
        "def rope(call: Call) -> Cost:\n"
        "    x = call.tensor(0)\n"
        "    return Cost(3 * x.numel, x.read, x.nbytes, x.dtype)\n"
    )
    assert cost_of("mylib::rope", *X).status == "unknown_op"
    assert load_models(str(path)) == 2
    assert cost_of("mylib::rope", *X).flops == 1536


@pytest.mark.parametrize("text", ["raise RuntimeError('no')", "def broken(:", "import martian_module"])
def test_a_users_file_that_fails(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(InvalidArgumentError, match="failed"):
        load_models(str(path))
    with pytest.raises(InvalidArgumentError, match="do not exist"):
        load_models(str(tmp_path / "missing.py"))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *[
            ("raise RuntimeError('no')", "unknown_op"),
            ("return 1 / 0", "unknown_op"),
            ("return undefined", "unknown_op"),
            ("return None", "unknown_op"),
            ("return 7", "unknown_op"),
        ],
        *[("call.tensor(5)", "missing_shape"), ("return call.args[7]", "missing_shape")],
        *[
            ("return Cost(-1, 0, 0, None)", "missing_shape"),
            ("return Cost(2**70, 0, 0, None)", "missing_shape"),
        ],
    ],
)
def test_a_model_that_fails_costs_only_its_own_row(tmp_path: Path, body: str, status: str) -> None:
    path = tmp_path / "failing.py"
    path.write_text(
        f"from kernelscope.costs import Cost, operator\n@operator('mylib::bad')\ndef bad(call):\n    {body}\n"
    )
    load_models(str(path))
    cost = cost_of("mylib::bad", *X)
    assert (cost.status, cost.flops) == (status, None)
    assert cost.note


def test_a_model_needs_a_name() -> None:
    with pytest.raises(InvalidArgumentError):
        operator()
    with pytest.raises(InvalidArgumentError):
        operator("aten::x", "")
