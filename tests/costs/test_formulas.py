"""The formulas that models share, against counting and by hand."""

import pytest

from kernelscope.costs.attention import Mask, attended_pairs, attention_flops
from kernelscope.costs.communication import bus_factor, collective_kind, message_bytes
from kernelscope.costs.mixture_of_experts import experts_flops, experts_used
from kernelscope.costs.recurrent import recurrent_layer_flops
from kernelscope.costs.state_space import selective_scan_flops
from kernelscope.costs.triton import fused_operators


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
    assert (
        bus_factor("all_gather", 8) == bus_factor("reduce_scatter", 8) == bus_factor("all_to_all", 8) == 0.875
    )
    assert bus_factor("broadcast", 8) == bus_factor("send", 2) == 1
    assert bus_factor("all_reduce", 1) == 0
    assert message_bytes("all_gather", 10, 80) == 80
    assert message_bytes("reduce_scatter", 80, 10) == 80
    kinds = {
        name: collective_kind(name)
        for name in ("nccl:_all_gather_base", "c10d::allreduce_", "allreduce", "x")
    }
    assert kinds == {
        "nccl:_all_gather_base": "all_gather",
        "c10d::allreduce_": "all_reduce",
        "allreduce": "all_reduce",
        "x": None,
    }


def test_names_of_fused_kernels() -> None:
    assert fused_operators("triton_poi_fused_add_cos_sin_0") == ["add", "cos", "sin"]
    name = "triton_per_fused_native_layer_norm_native_layer_norm_backward__to_copy_12"
    assert fused_operators(name) == ["native_layer_norm", "native_layer_norm_backward", "_to_copy"]
    assert fused_operators("triton_poi_fused_martian_0") is None
    assert fused_operators("sgemm") is None
