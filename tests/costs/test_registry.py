"""Models of operators: names, user files, shared formulas, laws, recorded inputs, documentation."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelscope.costs import (
    CONVENTIONS,
    Call,
    Cost,
    ShapeError,
    Tensor,
    cost_of,
    find_dtype,
    find_model,
    load_models,
    models,
    operator,
    registry,
)
from kernelscope.costs.attention import Mask, attended_pairs, attention_flops
from kernelscope.costs.bind import NO_VALUE, bind, parse_value
from kernelscope.costs.communication import bus_factor, collective_kind, message_bytes
from kernelscope.costs.mixture_of_experts import experts_flops, experts_used
from kernelscope.costs.recurrent import recurrent_layer_flops
from kernelscope.costs.state_space import selective_scan_flops
from kernelscope.costs.triton import fused_operators
from kernelscope.costs.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT32, INT64, UNKNOWN_DTYPE, promote
from kernelscope.errors import InvalidArgumentError

X = "[[8, 64]]", '["float"]'


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    """Takes back what a test registers."""
    before = dict(registry._MODELS)
    yield
    registry._MODELS.clear()
    registry._MODELS.update(before)
    registry._FOUND.clear()


@pytest.mark.parametrize(
    ("name", "model"),
    [
        *[(name, None) for name in ("", "aten::", "aten::addx", "add", "aten::_", "mm", "xaten::mm")],
        ("triton_tem_0", None),
        *[("aten::add", "binary"), ("aten::add_", "binary"), ("aten::add.Tensor", "binary")],
        *[("aten::add_.Scalar", "binary"), ("aten::add.out", "binary"), ("aten::mm_out", "mm")],
        *[("aten::__and__", "binary"), ("aten::detach_", "view"), ("detach", "view")],
        *[("symm_mem::multimem_all_reduce_", "same_size"), ("triton_poi_fused_add_0", "inductor")],
    ],
)
def test_names(name: str, model: str | None) -> None:
    found = find_model(name)
    assert (found and found.name) == model


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


def _load(folder: Path, text: str) -> int:
    path = folder / "my_costs.py"
    path.write_text(text)
    return load_models(str(path))


def test_a_users_file(tmp_path: Path) -> None:
    assert cost_of("mylib::rope", *X).status == "unknown_op"
    text = (
        "from kernelscope.costs import Call, Cost, operator\n"
        "@operator('mylib::rope', 'mylib::unrope')\n"
        "def rope(call: Call) -> Cost:\n"
        "    x = call.tensor(0)\n"
        "    return Cost(3 * x.numel, x.read, x.nbytes, x.dtype)\n"
    )
    assert _load(tmp_path, text) == 2
    assert cost_of("mylib::rope", *X).flops == 1536


@pytest.mark.parametrize("text", ["raise RuntimeError('no')", "def broken(:", "import martian_module"])
def test_a_users_file_that_fails(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="failed"):
        _load(tmp_path, text)
    with pytest.raises(InvalidArgumentError, match="do not exist"):
        load_models(str(tmp_path / "missing.py"))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *[("raise RuntimeError('no')", "unknown_op"), ("return 1 / 0", "unknown_op")],
        *[("return undefined", "unknown_op"), ("return None", "unknown_op"), ("return 7", "unknown_op")],
        *[("raise KeyError('x')", "missing_shape"), ("call.nothing()", "unknown_op")],
        *[("call.tensor(5)", "missing_shape"), ("return call.args[7]", "missing_shape")],
        ("return Cost(-1, 0, 0, None)", "missing_shape"),
        ("return Cost(2**70, 0, 0, None)", "missing_shape"),
    ],
)
def test_a_model_that_fails_costs_only_its_own_row(tmp_path: Path, body: str, status: str) -> None:
    header = "from kernelscope.costs import Cost, operator\n@operator('mylib::bad')\ndef bad(call):\n"
    _load(tmp_path, f"{header}    {body}\n")
    cost = cost_of("mylib::bad", *X)
    assert (cost.status, cost.flops) == (status, None)
    assert cost.note


def test_a_model_needs_a_name() -> None:
    with pytest.raises(InvalidArgumentError):
        operator()
    with pytest.raises(InvalidArgumentError):
        operator("aten::x", "")


def _pairs(queries: int, keys: int, mask: Mask) -> int:
    """By counting."""
    shift = keys - queries if mask.bottom_right else 0
    right = 0 if mask.causal else mask.right
    return sum(
        (right < 0 or key <= query + shift + right) and (mask.left < 0 or key >= query + shift - mask.left)
        for query in range(queries)
        for key in range(keys)
    )


@pytest.mark.parametrize("bottom_right", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("left", [-1, 0, 2])
@pytest.mark.parametrize("right", [-1, 0, 3])
def test_masks_keep_what_counting_says(bottom_right: bool, causal: bool, left: int, right: int) -> None:
    mask = Mask(causal, left, right, bottom_right)
    for queries in range(7):
        for keys in range(7):
            assert attended_pairs(queries, keys, mask) == _pairs(queries, keys, mask), (queries, keys)


def test_pure_formulas() -> None:
    assert attended_pairs(10**12, 10**12, Mask(causal=True)) == 10**12 * (10**12 + 1) // 2
    assert attention_flops(559 * 559, 16, 64, 64, batch=16) == 20478754816
    assert recurrent_layer_flops(16, 128, 256, 4) == 12582912
    assert recurrent_layer_flops(1, 2, 3, 4, directions=2, projected=5) == 2 * (2 * 12 * 7 + 2 * 5 * 3)
    assert experts_flops(888, 2880, 2880, top_k=4) == 176770252800
    assert experts_used(1, 128, 4) == 4
    assert experts_used(888, 128, 4) == 128
    assert selective_scan_flops(1, 1024, 2048, 16, skip=True, gate=True) == 316669952


def test_collectives() -> None:
    assert bus_factor("all_reduce", 8) == 1.75
    for kind in ("all_gather", "reduce_scatter", "all_to_all"):
        assert bus_factor(kind, 8) == 0.875
    assert bus_factor("broadcast", 8) == bus_factor("send", 2) == 1
    assert bus_factor("all_reduce", 1) == 0
    assert message_bytes("all_gather", 10, 80) == 80
    assert message_bytes("reduce_scatter", 80, 10) == 80
    assert collective_kind("nccl:_all_gather_base") == "all_gather"
    assert collective_kind("c10d::allreduce_") == collective_kind("allreduce") == "all_reduce"
    assert collective_kind("x") is None


def test_names_of_fused_kernels() -> None:
    assert fused_operators("triton_poi_fused_add_cos_sin_0") == ["add", "cos", "sin"]
    name = "triton_per_fused_native_layer_norm_native_layer_norm_backward__to_copy_12"
    assert fused_operators(name) == ["native_layer_norm", "native_layer_norm_backward", "_to_copy"]
    assert fused_operators("triton_poi_fused_add_copy__3") == ["add", "copy"]
    assert fused_operators("triton_poi_fused_copy__mul_3") == ["copy", "mul"]
    assert fused_operators("triton_poi_fused_martian_0") is None
    assert fused_operators("triton_poi_fused_add__martian_0") is None
    assert fused_operators("sgemm") is None


SIZES = st.integers(1, 40)
SHAPES = st.lists(SIZES, min_size=1, max_size=4)


def _cost(name: str, *shapes: list[int], values: tuple[str, ...] = ()) -> Cost:
    dims = [*shapes, *([] for _ in values)]
    types = [*("float" for _ in shapes), *("Scalar" for _ in values)]
    concrete = [*("" for _ in shapes), *values]
    return cost_of(name, json.dumps(dims), json.dumps(types), None, json.dumps(concrete))


def _figures(cost: Cost) -> tuple[int, int, int]:
    assert cost.flops is not None
    assert cost.bytes_read is not None
    assert cost.bytes_written is not None
    return cost.flops, cost.bytes_read, cost.bytes_written


POINTWISE = "relu sigmoid exp neg silu gelu isnan sign".split()
BINARY = "add mul div maximum eq threshold_backward silu_backward".split()


@given(st.sampled_from(POINTWISE + BINARY), SHAPES, st.integers(2, 9))
def test_pointwise_costs_are_linear_in_the_batch(name: str, shape: list[int], times: int) -> None:
    operands = 2 if name in BINARY else 1
    once = _figures(_cost(f"aten::{name}", *[shape] * operands))
    more = _figures(_cost(f"aten::{name}", *[[times * shape[0], *shape[1:]]] * operands))
    assert more == tuple(times * figure for figure in once)


@given(st.sampled_from(BINARY), SHAPES)
def test_broadcasting_never_reads_more_than_the_dense_operand(name: str, shape: list[int]) -> None:
    dense = _figures(_cost(f"aten::{name}", shape, shape))
    wide = _figures(_cost(f"aten::{name}", shape, [1] * len(shape)))
    assert wide[0] == dense[0]
    assert wide[2] == dense[2]
    assert wide[1] <= dense[1]


@given(SIZES, SIZES, SIZES, SIZES, st.integers(2, 9))
def test_products_are_linear_in_every_size(b: int, m: int, n: int, k: int, times: int) -> None:
    def flops(b: int, m: int, n: int, k: int) -> int:
        return _figures(_cost("aten::bmm", [b, m, k], [b, k, n]))[0]

    once = flops(b, m, n, k)
    assert flops(times * b, m, n, k) == flops(b, times * m, n, k) == times * once
    assert flops(b, m, times * n, k) == flops(b, m, n, times * k) == times * once


@given(SIZES, SIZES, SIZES, SIZES)
def test_a_batch_of_products_is_as_many_products(b: int, m: int, n: int, k: int) -> None:
    single = _figures(_cost("aten::mm", [m, k], [k, n]))
    assert _figures(_cost("aten::bmm", [b, m, k], [b, k, n])) == tuple(b * figure for figure in single)


@given(SHAPES, st.data())
def test_reductions_read_all_and_write_less(shape: list[int], data: st.DataObject) -> None:
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    for name in ("sum", "mean", "amax", "argmax"):
        cost = _cost(f"aten::{name}", shape, values=(f"[{dim}]" if name != "argmax" else str(dim), "False"))
        flops, read, written = _figures(cost)
        size = read // 4
        assert read == size * 4
        assert flops >= size
        assert written == size // shape[dim] * (8 if name == "argmax" else 4)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 30), st.integers(1, 30), st.booleans())
def test_masked_attention_costs_no_more(batch: int, heads: int, length: int, size: int, causal: bool) -> None:
    shapes = [[batch, heads, length, size]] * 3
    full = _cost("aten::_scaled_dot_product_flash_attention", *shapes, values=("0.0", "False"))
    masked = _cost("aten::_scaled_dot_product_flash_attention", *shapes, values=("0.0", str(causal)))
    assert (masked.flops or 0) <= (full.flops or 0)
    assert (masked.flops or 0) >= (full.flops or 0) // 2
    assert (masked.bytes_read, masked.bytes_written) == (full.bytes_read, full.bytes_written)


@given(SHAPES)
def test_copies_move_without_arithmetic(shape: list[int]) -> None:
    for name in ("clone", "copy_"):
        flops, read, written = _figures(_cost(f"aten::{name}", shape, shape))
        assert flops == 0
        assert read == written


@given(st.lists(st.integers(0, 5), max_size=4))
def test_empty_tensors_cost_nothing(shape: list[int]) -> None:
    shape = [*shape, 0]
    for name in ("relu", "clone", "zero_"):
        assert sum(_figures(_cost(f"aten::{name}", shape))) == 0


MM = "[[8, 64], [64, 32]]"
HALF = '["c10::Half", "c10::Half"]'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1", 1), ("-100", -100), ("0.", 0.0), ("1.0000000000000001e-05", 1e-5), ("-inf", float("-inf"))],
        *[("True", True), ("False", False), ("None", None)],
        *[("[3, 3]", (3, 3)), ("[]", ()), ("[True, False, True]", (True, False, True))],
    ],
)
def test_values(text: str, value: Any) -> None:
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@pytest.mark.parametrize(
    "text", ["", "none", "__import__('os')", "[1, [2]]", "[" * 5000 + "]" * 5000, "[1 2]", "1;2"]
)
def test_what_is_no_value(text: str) -> None:
    assert parse_value(text) is not None
    assert not isinstance(parse_value(text), (int, float, str, tuple))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *[("c10::BFloat16", 2), ("c10::Half", 2), ("float", 4), ("double", 8), ("long int", 8), ("long", 8)],
        *[("int", 4), ("short int", 2), ("unsigned char", 1), ("signed char", 1), ("bool", 1)],
        *[("c10::Float8_e4m3fn", 1), ("c10::complex<float>", 8), ("c10::Float4_e2m1fn_x2", 1)],
        *[("torch.float16", 2), ("float32", 4), ("Half", 2), ("Byte", 1), ("fp16", 2), ("fp32", 4)],
        # A size in bytes to NumPy, in bits to Triton.
        *[("<i8", 8), ("<f4", 4), ("|u1", 1)],
        *[("*i8", 1), ("*i64", 8), ("*fp16", 2), ("*bf16", 2), ("*i1", 1)],
    ],
)
def test_element_types(name: str, size: int) -> None:
    found = find_dtype(name)
    assert found is not None
    assert found.bytes == size


@pytest.mark.parametrize("name", ["", "Scalar", "i8", "u1", "float33", "TensorList", "<x4", "*"])
def test_names_of_no_element_type(name: str) -> None:
    assert find_dtype(name) is None


def test_promotion() -> None:
    assert promote([INT64, FLOAT16]) == FLOAT16
    assert promote([FLOAT16, BFLOAT16]) == FLOAT32
    assert promote([BOOL, INT32]) == INT32


def test_kinds_of_inputs() -> None:
    call = bind(
        "aten::x",
        "[[2, 3], [], [], [[4], [5, 6]], [], [], []]",
        '["float", "Scalar", "", "TensorList", "long int", "ScalarList", "TensorList"]',
        "[[3, 1], [], [], [[1], [6, 1]], [], [], []]",
        '["", "7", "", "", "", "[1, 2]", ""]',
        list_dtype="c10::BFloat16",
    )
    assert call is not None
    assert call.tensor(0) == Tensor((2, 3), FLOAT32, (3, 1))
    assert call.integer(1) == 7
    assert call.optional(2) is None
    assert call.tensor_list(3) == (Tensor((4,), BFLOAT16, (1,)), Tensor((5, 6), BFLOAT16, (6, 1)))
    assert call.tensor(4).shape == ()
    assert call.integers(5) == (1, 2)
    with pytest.raises(ShapeError, match="not recorded"):
        call.tensor_list(6)


def test_values_that_were_not_recorded_are_no_defaults() -> None:
    dims, types = "[[2, 3], [], []]", '["float", "Scalar", ""]'
    bare = bind("aten::x", dims, types)
    assert bare is not None
    assert bare.args[1] is NO_VALUE
    for index in (1, 2, 9):
        with pytest.raises(ShapeError, match="not recorded"):
            bare.integer(index, 5)
    full = bind("aten::x", dims, types, None, '["", "", ""]')
    assert full is not None
    assert full.integer(2, 5) == 5


DAMAGED_DIMS = [
    *(None, "", "null", "{}", "[[8, 64], [64, 32]", "[" * 100_000, "[]", "[[8, 64]]", "[[8, 64], null]"),
    *("[[8, 64], []]", "[[8, 64], [64]]", "[[8, 64], [63, 32]]", "[[8, 64], [64, -32]]"),
    *("[[8, 64], [64, 1e3]]", '[[8, 64], [64, "32"]]', "[[8, 64], [64, true]]", "[[8, 64], [64, [32]]]"),
    *("[[8, 64], [64, 99999999999999999999999]]", f"[[8, 64], [64, {'9' * 5000}]]"),
    *("[[4611686018427387904, 1], [1, 4611686018427387904]]", f"[[8, 64], {[1] * 100}]"),
]
DAMAGED_TYPES = [None, "[", '["c10::Half"]', '["c10::Half", "c10::Martian"]', "[1, 2]"]


def test_capital_names_of_2021_are_scalars_only_without_a_shape() -> None:
    call = bind("aten::x", "[[], [2]]", '["Int", "Double"]')
    assert call is not None
    assert call.args[0] is NO_VALUE
    assert call.tensor(1).dtype.bytes == 8


@pytest.mark.parametrize(
    ("dims", "types", "status"),
    [
        *((dims, HALF, "missing_shape") for dims in DAMAGED_DIMS),
        *((MM, types, "unknown_dtype") for types in DAMAGED_TYPES),
        (MM, HALF, "exact"),
    ],
)
def test_damage_has_a_status(dims: str | None, types: str | None, status: str) -> None:
    cost = cost_of("aten::mm", dims, types)
    assert cost.status == status
    assert (cost.bytes_read is None) == (status != "exact")
    # The FLOPs of a product do not depend on the element type.
    assert cost.flops == (None if status == "missing_shape" else 32768)


def test_ragged_strides_are_ignored() -> None:
    for strides in (None, "[[1], [32, 1]]", "[[64, 1]]", '[["a", 1], 3]', "[[64, 1], [32, 1]"):
        assert cost_of("aten::mm", MM, HALF, strides).bytes_read == 2 * (8 * 64 + 64 * 32)


def test_broadcasts_cost_what_they_touch() -> None:
    assert Tensor((888, 2880), BFLOAT16, (1, 0)).read == 888 * 2
    assert Tensor((4, 3), FLOAT32, (3, 1)).touched == 12
    # Windows that overlap: 10 windows of 4 that move by 1 hold 13 numbers.
    assert Tensor((10, 4), FLOAT32, (1, 1)).touched == 13
    assert Tensor((0, 4), FLOAT32, (0, 1)).touched == 0


def test_unknown_operators_and_conventions() -> None:
    assert cost_of("mylib::unheard_of", MM, HALF) == Cost(None, None, None, None, "unknown_op")
    assert cost_of("", MM, HALF).status == "unknown_op"
    assert cost_of("aten::relu", MM, HALF, convention="torch").status == "unknown_op"
    with pytest.raises(KeyError):
        cost_of("aten::mm", MM, HALF, convention="martian")  # type: ignore[arg-type]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 70)
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "float", "c10::Half", "TensorList", "Scalar", "[3, 3]", "True", "1", "x"]),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=30,
)
TEXT = st.none() | st.text(max_size=20) | JSON.map(json.dumps)
DIMS = TEXT | st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=9).map(json.dumps)


@given(st.sampled_from(sorted(models())), DIMS, TEXT, TEXT, TEXT, st.sampled_from(sorted(CONVENTIONS)))
def test_no_text_raises(
    name: str, dims: Any, types: Any, strides: Any, concrete: Any, convention: Any
) -> None:
    cost = cost_of(name, dims, types, strides, concrete, convention=convention)
    assert isinstance(cost, Cost)
    for figure in (cost.flops, cost.bytes_read, cost.bytes_written):
        assert figure is None or 0 <= figure < 2**63
    assert "failed" not in cost.note, cost.note
    if cost.status == "missing_shape":
        assert cost.flops is None


def test_unknown_type_stands_for_no_bytes() -> None:
    assert UNKNOWN_DTYPE.bytes == 0


ROOT = Path(__file__).resolve().parents[2]


def _run_examples(text: str, folder: Path) -> list[str]:
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for example in examples:
        _load(folder, example)
    return examples


def test_examples(tmp_path: Path) -> None:
    assert len(_run_examples((ROOT / "docs/costs.md").read_text(), tmp_path)) == 2
    cost = cost_of("mylib::scale_and_shift_", "[[8, 64], [64], [64]]", '["float", "float", "float"]')
    assert _figures(cost) == (1024, 2048 + 512, 2048)


def test_a_newcomer_adds_a_model_in_ten_lines(tmp_path: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("## How to add a cost model") :]
    (example,) = _run_examples(section[: section.index("\n## ", 5)], tmp_path)
    assert len([line for line in example.splitlines() if line]) <= 10
    # The second operand repeats one row: it is read once.
    texts = "[[8, 64], [8, 64], []]", '["float", "float", "Scalar"]', "[[64, 1], [0, 1], []]", '["", "", "2"]'
    for name in ("mylib::scale_and_add", "mylib::scale_and_add_", "mylib::scale_and_add.out"):
        cost = cost_of(name, *texts)
        assert _figures(cost) == (1024, 2048 + 256, 2048)
        assert (cost.status, cost.model) == ("exact", "scale_and_add")
    assert cost_of("mylib::scale_and_add", None).status == "missing_shape"


def test_every_model_says_what_it_counts() -> None:
    silent = [name for name, model in models().items() if len((model.function.__doc__ or "").strip()) < 20]
    assert silent == []
