"""Kernels that Inductor generates: how much of their inputs they can touch, and what templates multiply."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_goldens import F, H, L, V, texts

from kernelscope.costs import cost_of
from kernelscope.costs.bind import Call
from kernelscope.costs.triton import iterations
from kernelscope.costs.triton_templates import inner_size
from kernelscope.costs.types import BFLOAT16, FLOAT16, Tensor

BF = "c10::BFloat16"


def figures(name: str, *inputs: Any) -> tuple[int | None, int | None, int | None]:
    cost = cost_of(name, *texts(*inputs))
    return cost.flops, cost.bytes_read, cost.bytes_written


def test_a_slice_costs_its_size() -> None:
    # The text part of a joint sequence: 512 of 4608 tokens in bfloat16.
    x, out = ([1, 4608, 3072], BF), ([1, 512, 3072], BF)
    size = 512 * 3072
    assert figures("triton_poi_fused_slice_1", x, out, V(size)) == (0, 2 * size, 2 * size)
    # In two dimensions, and behind a size that is not fixed.
    assert figures("triton_poi_fused_clone_slice_1", x, out, V(512), V(3072)) == (0, 2 * size, 2 * size)
    assert figures("triton_poi_fused_clone_slice_1", x, out, V(77), V(size)) == (0, 2 * size, 2 * size)
    # The normalisation of a slice sums over 3072 elements in each of 512 rows.
    found = figures("triton_red_fused_native_layer_norm_2", x, ([1, 512, 1], F), V(512), V(3072))
    assert found == (8 * size, 2 * size, 4 * 512)


def test_rows_of_a_table_cost_what_is_looked_up() -> None:
    found = figures(
        "triton_poi_fused_embedding_0", ([32], L), ([201088, 2880], BF), ([32, 2880], BF), V(92160)
    )
    assert found == (0, 8 * 32 + 2 * 92160, 2 * 92160)


def test_both_halves_of_a_gated_activation_are_read() -> None:
    x, out = ([64, 2048], H), ([64, 1024], H)
    assert figures("triton_poi_fused_mul_silu_slice_3", x, out, V(65536))[1] == 2 * 2 * 65536
    assert figures("triton_poi_fused_clone_split_3", x, out, V(65536))[1] == 2 * 65536


def test_windows_and_unrolled_sums_read_more_than_one_element() -> None:
    x, out = ([1, 8, 64, 64], F), ([1, 8, 32, 32], F)
    assert figures("triton_poi_fused_max_pool2d_with_indices_0", x, out, V(8192))[1] == 4 * 8 * 64 * 64
    assert figures("triton_poi_fused_mean_0", ([4, 1000], F), ([1000], F), V(1000))[1] == 4 * 4000
    # The second half of a normalisation reads its slice once.
    found = figures("triton_poi_fused_mean_mul_pow_rsqrt_0", ([9, 1000], F), ([1000], F), V(1000))
    assert found[1] == 4 * 1000


def test_a_tensor_that_is_read_and_written() -> None:
    x, bias = ([2, 64, 32, 32], H), ([64], H)
    size = 2 * 64 * 32 * 32
    assert figures("triton_poi_fused_convolution_relu_4", x, bias, V(size)) == (
        size,
        2 * (size + 64),
        2 * size,
    )


def test_an_empty_tensor_costs_nothing() -> None:
    assert figures("triton_poi_fused_add_0", ([0, 64], F), ([0, 64], F)) == (0, 0, 0)
    assert cost_of("triton_tem_fused_bmm_0", *texts(*[([0, 4, 4], F)] * 3)).status == "missing_shape"


def test_without_loops_whole_tensors_count() -> None:
    x = ([64, 64], F)
    assert figures("triton_poi_fused_add_0", x, x, x) == (4096, 2 * 4 * 4096, 4 * 4096)
    # A part of a table is looked up, and nothing says how much.
    table = (([32], L), ([201088, 2880], BF), ([32, 2880], BF))
    cost = cost_of("triton_poi_fused_embedding_0", *texts(*table))
    assert (cost.status, cost.bytes_read) == ("missing_shape", None)


@pytest.mark.parametrize("name", ["triton_poi_fused_0", "triton_poi_fused_add_martian_0"])
def test_what_a_name_does_not_say_is_unknown(name: str) -> None:
    cost = cost_of(name, *texts(([64], F), ([64], F), V(64)))
    assert (cost.status, cost.flops, cost.bytes_read) == ("unknown_op", None, 256)
    assert "does not list" in cost.note


SIZES = st.integers(1, 40)


@given(SIZES, SIZES, SIZES, st.booleans(), st.lists(st.integers(-3, 0), max_size=2))
def test_nothing_reads_more_than_its_loops_or_its_tensors(
    rows: int, columns: int, more: int, is_flat: bool, others: list[int]
) -> None:
    times = rows * columns
    loops = [times] if is_flat else [rows, columns]
    x, out = ([rows + more, columns], F), ([rows, columns], F)
    _, read, written = figures("triton_poi_fused_slice_0", x, out, *map(V, [*others, *loops]))
    assert (read, written) == (4 * times, 4 * times)


def test_which_numbers_are_sizes_of_loops() -> None:
    def times(name: str, shapes: list[tuple[int, ...]], *numbers: int) -> int | None:
        tensors = [Tensor(shape, FLOAT16) for shape in shapes]
        return iterations(Call(name, [*tensors, *numbers]), tensors)

    assert times("triton_poi_fused_add_0", [(8, 16), (8, 16)], 128) == 128
    assert times("triton_poi_fused_add_0", [(8, 16), (8, 16)], 8, 16) == 128
    assert times("triton_poi_fused_add_0", [(8, 16), (8, 16)], 2, 4, 16) == 128
    assert times("triton_poi_fused_add_0", [(888,)], 0, 25136, 201088, 201088, 0, 888) == 888
    assert times("triton_poi_fused_add_0", [(7,), (9,)], 4, 5) is None
    assert times("triton_red_fused_sum_0", [(8, 16), (8,)], 8, 16) == 128
    assert times("triton_red_fused_sum_0", [(4, 8, 16), (4, 8)], 3, 32, 16) == 512
    assert times("triton_per_fused_sum_0", [(1000,), ()], 1, 1000) == 1000


M, N, K = 48, 32, 64
PRODUCTS = {
    "mm": ([([M, K], H), ([K, N], H), ([M, N], H)], 2 * M * N * K),
    # As they lie in memory: a batch of rows, the weight of a linear layer, a bias in front.
    "addmm": ([([N], H), ([4, 12, K], H), ([N, K], H), ([M, N], H)], 2 * M * N * K),
    "addmm_gelu": ([([N], H), ([M, K], H), ([N, K], H), ([M, N], H)], 2 * M * N * K),
    "add_mm_mul": ([([M, K], H), ([N, K], H), ([M, N], H), ([M, N], H)], 2 * M * N * K),
    "bmm": ([([6, M, K], BF), ([6, K, N], BF), ([6, M, N], BF)], 6 * 2 * M * N * K),
    "_scaled_mm": (
        [([M, K], "c10::Float8_e4m3fn"), ([N, K], "c10::Float8_e4m3fn"), ([M, N], BF)],
        2 * M * N * K,
    ),
    "convolution": ([([2, 8, 18, 18], H), ([4, 8, 3, 3], H), ([2, 4, 16, 16], H)], 2 * 2 * 4 * 256 * 8 * 9),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_from_templates(name: str) -> None:
    tensors, flops = PRODUCTS[name]
    grid = (V(40), V(1), V(1))
    cost = cost_of(f"triton_tem_fused_{name}_7", *texts(*tensors, *grid))
    assert (cost.flops, cost.status, cost.model) == (flops, "estimate", "template")
    width = {H: 2, BF: 2, "c10::Float8_e4m3fn": 1}
    moved = [width[kind] * _numel(shape) for shape, kind in tensors]
    assert (cost.bytes_read, cost.bytes_written) == (sum(moved[:-1]), moved[-1])
    assert cost.dtype is not None
    assert cost.dtype.bytes == width[tensors[-2][1]]


def _numel(shape: list[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def test_what_is_no_product_is_not_taken_for_one() -> None:
    tensors = [([M, K], H), ([K + 1, N], H), ([M, N], H)]
    assert cost_of("triton_tem_fused_mm_0", *texts(*tensors)).status == "missing_shape"
    assert cost_of("triton_tem_fused_mm_0", *texts(*tensors[:2])).status == "missing_shape"
    cost = cost_of("triton_tem_fused_flex_attention_0", *texts(*[([1, 8, 64, 64], H)] * 4))
    assert (cost.status, cost.flops) == ("unknown_op", None)


@given(SIZES, SIZES, SIZES, st.integers(1, 5))
def test_the_inner_size_follows_from_the_others(m: int, n: int, k: int, batch: int) -> None:
    out = Tensor((batch, m, n), BFLOAT16)
    for a, b in permutations([(m, k), (k, n)]):
        assert inner_size(Tensor((batch, *a), FLOAT16), Tensor((batch, *b), FLOAT16), out, batch=batch) == k
