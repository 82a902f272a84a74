"""Costs of operators of training stacks: worked figures, laws, and gradients through forward operators."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_cases import BF, CASES, Case

from events import Events
from inputs import V, texts
from kernelscope import analysis
from kernelscope.costs import Cost, cost_of, find_model

IDS = [f"{case.operator} {number}" for number, case in enumerate(CASES)]


def cost(case: Case, batch: int) -> Cost:
    return cost_of(case.operator, *texts(*case.inputs(batch)), list_dtype=case.listed)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_worked_figures(case: Case) -> None:
    for batch in (5, 12):
        found = cost(case, batch)
        assert found.status in {"exact", "estimate"}, found.note
        figures = (case.flops(batch), case.read(batch), case.written(batch))
        assert (found.flops, found.bytes_read, found.bytes_written) == figures


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_costs_are_linear_in_the_batch(case: Case) -> None:
    one, two, three = (cost(case, batch) for batch in (5, 10, 15))
    for figure in ("flops", "bytes_read", "bytes_written"):
        first, second, third = (getattr(one, figure), getattr(two, figure), getattr(three, figure))
        assert 0 <= first <= second <= third
        assert second - first == third - second
    assert one.flops == 0 or two.flops == 2 * one.flops


def test_transposition_exchanges_the_operands() -> None:
    a, b, scale = ([8, 64], "c10::Float8_e4m3fn"), ([32, 64], "c10::Float8_e4m3fn"), ([1], "float")
    name = "primus_turbo::hipblaslt_gemm_fp8"
    plain = cost_of(name, *texts(a, scale, b, scale, V(15), V(False), V(True), V(False)))
    # The same product, given as its transpose.
    turned = cost_of(name, *texts(b, scale, a, scale, V(15), V(False), V(True), V(True)))
    assert plain == turned
    assert plain.dtype is not None
    assert (plain.flops, plain.dtype.peak) == (2 * 8 * 32 * 64, "fp8")
    wrong = cost_of(name, *texts(a, scale, b, scale, V(15), V(False), V(False), V(False)))
    assert wrong.status == "missing_shape"


def test_bytes_that_hold_two_numbers() -> None:
    packed, scale = ([8, 32], "unsigned char"), ([8, 2], "unsigned char")
    found = cost_of("aiter::gemm_a4w4", *texts(packed, packed, scale, scale, None))
    assert found.dtype is not None
    assert (found.flops, found.dtype.peak) == (2 * 8 * 8 * 64, "fp4")


def test_a_layout_with_the_batch_first() -> None:
    offsets, q = ([3 + 1], "int"), ([3, 10, 4, 16], BF)
    found = cost_of("FusedAttnFunc", *texts(V(True), V(10), V(10), offsets, offsets, q, q, q))
    packed = ([30, 4, 16], BF)
    same = cost_of("FusedAttnFunc", *texts(V(True), V(10), V(10), offsets, offsets, packed, packed, packed))
    assert (found.flops, found.status) == (same.flops, "estimate") == (2 * 3 * 4 * 100 * 32, "estimate")


@pytest.mark.parametrize(
    ("operator", "inputs"),
    [
        ("_Linear", (([32, 64], BF), ([8, 63], BF))),
        ("_LayerNormMLP", (([8, 64], BF), ([96, 64], BF), ([64, 40], BF))),
        ("tex_ts::te_gemm_ts", (*[([8, 64], BF)] * 11,)),
        ("primus_turbo::grouped_gemm", (([8, 64], BF), ([5, 32, 16], BF))),
        ("MambaSplitConv1dScanCombinedFn", (([1, 64, 42], BF), ([23, 4], BF), None, ([2], BF))),
        ("natten::na2d_forward", (*[([1, 8, 8, 4, 16], BF)] * 3,)),
        ("TokenPermuteMaskMap", (([8, 64], BF), ([8, 8], "bool"), V(-1))),
        ("RingFlashAttnFunc", (*[([1, 10, 4, 16], BF)] * 3, V(0.0), V(0.25), V(True))),
    ],
)
def test_what_does_not_fit_has_no_cost(operator: str, inputs: tuple[object, ...]) -> None:
    found = cost_of(operator, *texts(*inputs))
    assert (found.status, found.flops) == ("missing_shape", None)


GRADIENTS = {
    # Both gradients are products of the forward's size; without a gradient of the weight only one.
    "_Linear": (([32, 64], [8, 64]), 2 * 2 * 8 * 32 * 64),
    "LinearWithFrozenWeight": (([8, 64], [32, 64]), 2 * 8 * 32 * 64),
    # Scores again, and four products of their size: 5 / 2.
    "EvoformerAttention": (([1, 3, 10, 4, 16],) * 3, 5 * 3 * 4 * 100 * 32),
    # The forward has stored the gradients, each of which is multiplied once: 2 b 100 + 8 b bytes of 2.
    "CrossEntropyFunction": (([8, 1, 100], [8, 1]), 8 * 100 + 8 * 4),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_function_finds_its_forward_by_sequence_number(name: str, tmp_path: Path) -> None:
    shapes, flops = GRADIENTS[name]
    types = ["c10::BFloat16"] * len(shapes)
    if name == "CrossEntropyFunction":
        types[1] = "long int"
    program = Events()
    program.op(name, 10, 10, Sequence_number=5, Input_Dims=list(shapes), Input_type=types)
    program.call(12, 1, 1)
    program.kernel("forward", 20, 10, 1)
    node = {"Sequence_number": 5, "Fwd_thread_id": 1}
    program.op(f"autograd::engine::evaluate_function: {name}Backward", 40, 12, **node)
    program.op(f"{name}Backward", 41, 10, **node, Input_Dims=[[]], Input_type=["c10::BFloat16"])
    program.call(42, 1, 2)
    program.kernel("backward", 50, 10, 2)
    costs = analysis.costs(program.read(tmp_path)).sort("op_row")
    assert costs["status"].to_list()[1] == "estimate"
    assert costs["flops"].to_list()[1] == flops


def test_wrappers_leave_their_work_to_what_they_call(tmp_path: Path) -> None:
    shapes, types = [[1, 10, 4, 16]] * 3, ["c10::BFloat16"] * 3
    dims = {"Input_Dims": [*shapes, [], [], []], "Input_type": [*types, "Scalar", "Scalar", "Scalar"]}
    values = {"Concrete_Inputs": ["", "", "", "0.", "0.25", "True"]}
    program = Events()
    program.op("FlashAttnFunc", 10, 20, **dims, **values)
    program.op("flash_attn::_flash_attn_forward", 12, 10, **dims, **values)
    program.call(14, 1, 1)
    program.kernel("flash_fwd", 20, 10, 1)
    costs = analysis.costs(program.read(tmp_path))
    assert costs["name"].to_list() == ["flash_attn::_flash_attn_forward"]
    assert costs["flops"].to_list() == [2 * 4 * 55 * 32]


def test_every_function_is_a_wrapper() -> None:
    functions = {case.operator for case in CASES if "::" not in case.operator}
    leaves = {"sage_fwd_kernel", "sage_quant_kernel_int8", "ConvBias_", "ConvBiasReLU_"}
    leaves |= {name for name in functions if name.startswith(("MoE", "FusedDispatch", "FusedCombine"))}
    for name in functions - leaves:
        model = find_model(name)
        assert model is not None
        assert model.composite, name
