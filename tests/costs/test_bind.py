"""Recorded inputs are read to the letter, and damaged ones give a status: never an exception or a guess."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelscope.costs import Cost, ShapeError, Tensor, cost_of, models
from kernelscope.costs.bind import NO_VALUE, bind, parse_value
from kernelscope.costs.dtypes import BFLOAT16, FLOAT32, find_dtype, promote
from kernelscope.costs.types import UNKNOWN_DTYPE

MM = "[[8, 64], [64, 32]]"
HALF = '["c10::Half", "c10::Half"]'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-100", -100),
        ("0.", 0.0),
        ("1.0000000000000001e-05", 1e-5),
        ("True", True),
        ("False", False),
        ("None", None),
        ("[3, 3]", (3, 3)),
        ("[]", ()),
        ("[True, False, True]", (True, False, True)),
        ("-inf", float("-inf")),
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
        *[
            ("<i8", 8),
            ("<f4", 4),
            ("|u1", 1),
            ("*i8", 1),
            ("*i64", 8),
            ("*fp16", 2),
            ("*bf16", 2),
            ("*i1", 1),
        ],
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
    named = {name: find_dtype(name) for name in ("bool", "int32", "int64", "float16", "bfloat16", "float32")}
    types = {name: dtype for name, dtype in named.items() if dtype is not None}
    assert promote([types["int64"], types["float16"]]).name == "float16"
    assert promote([types["float16"], types["bfloat16"]]) == FLOAT32
    assert promote([types["bool"], types["int32"]]).name == "int32"


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


def test_capital_names_of_2021_are_scalars_only_without_a_shape() -> None:
    call = bind("aten::x", "[[], [2]]", '["Int", "Double"]')
    assert call is not None
    assert call.args[0] is NO_VALUE
    assert call.tensor(1).dtype.bytes == 8


@pytest.mark.parametrize(
    ("dims", "types", "status"),
    [
        (None, None, "missing_shape"),
        ("", HALF, "missing_shape"),
        ("null", HALF, "missing_shape"),
        ("{}", HALF, "missing_shape"),
        ("[[8, 64], [64, 32]", HALF, "missing_shape"),
        ("[" * 100_000, HALF, "missing_shape"),
        ("[]", "[]", "missing_shape"),
        ("[[8, 64]]", HALF, "missing_shape"),
        ("[[8, 64], null]", HALF, "missing_shape"),
        ("[[8, 64], []]", HALF, "missing_shape"),
        ("[[8, 64], [64]]", HALF, "missing_shape"),
        ("[[8, 64], [63, 32]]", HALF, "missing_shape"),
        ("[[8, 64], [64, -32]]", HALF, "missing_shape"),
        ("[[8, 64], [64, 1e3]]", HALF, "missing_shape"),
        ('[[8, 64], [64, "32"]]', HALF, "missing_shape"),
        ("[[8, 64], [64, true]]", HALF, "missing_shape"),
        ("[[8, 64], [64, [32]]]", HALF, "missing_shape"),
        ("[[8, 64], [64, 99999999999999999999999]]", HALF, "missing_shape"),
        (f"[[8, 64], [64, {'9' * 5000}]]", HALF, "missing_shape"),
        ("[[4611686018427387904, 1], [1, 4611686018427387904]]", HALF, "missing_shape"),
        (f"[[8, 64], {[1] * 100}]", HALF, "missing_shape"),
        (MM, None, "unknown_dtype"),
        (MM, "[", "unknown_dtype"),
        (MM, '["c10::Half"]', "unknown_dtype"),
        (MM, '["c10::Half", "c10::Martian"]', "unknown_dtype"),
        (MM, "[1, 2]", "unknown_dtype"),
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


@given(
    st.sampled_from(sorted(models())),
    DIMS,
    TEXT,
    TEXT,
    TEXT,
    st.sampled_from(["kernelscope", "torch", "tracelens", "pyprof"]),
)
def test_no_text_raises(
    name: str, dims: Any, types: Any, strides: Any, concrete: Any, convention: Any
) -> None:
    cost = cost_of(name, dims, types, strides, concrete, convention=convention)
    assert isinstance(cost, Cost)
    for figure in (cost.flops, cost.bytes_read, cost.bytes_written):
        assert figure is None or 0 <= figure < 2**63
    assert "failed" not in cost.note or cost.status == "unknown_op"
    if cost.status == "missing_shape":
        assert cost.flops is None


@given(st.sampled_from(sorted(models())), DIMS, TEXT, TEXT, TEXT)
def test_own_models_do_not_fail(name: str, dims: Any, types: Any, strides: Any, concrete: Any) -> None:
    cost = cost_of(name, dims, types, strides, concrete)
    assert "failed" not in cost.note, cost.note


def test_unknown_type_stands_for_no_bytes() -> None:
    assert UNKNOWN_DTYPE.bytes == 0
