"""What GPU work is spent on, by the names of kernels."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.analysis import kernel_categories, load_categories
from kernelscope.analysis.kernels import categories

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"


@pytest.fixture(autouse=True)
def _own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(categories, "_chosen", [])


def trace_of(folder: Path, *works: tuple[str, str, int]) -> ks.Trace:
    """A trace of GPU work, each with its category in the file, name and duration in us."""
    events = [
        {
            "ph": "X",
            "cat": cat,
            "name": name,
            "ts": 10 * at,
            "dur": us,
            "pid": 0,
            "tid": 7,
            "args": {"device": 0, "stream": 7},
        }
        for at, (cat, name, us) in enumerate(works)
    ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return ks.read(path)


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn", "gemm"),
        ("nvjet_tst_128x152_64x6_2x1_v_bz_TNN", "gemm"),
        ("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64> >(Flash_fwd_params)", "attention"),
        ("fused_moe_kernel", "moe"),
        ("void vllm::moe::topkGatingSoftmax<8, 64, 4, 16>(float const*)", "moe"),
        ("triton_red_fused_rms_norm_0", "norm"),
        ("void vllm::act_and_mul_kernel<c10::BFloat16, silu>(c10::BFloat16*)", "activation"),
        ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)", "rope"),
        ("void vllm::dynamic_per_token_scaled_fp8_quant_kernel<c10::BFloat16>(float*)", "quantisation"),
        ("void vllm::reshape_and_cache_flash_kernel<__half, __half>(__half const*)", "kv-cache"),
        ("void cross_device_reduce_1stage<c10::Half, 2>(RankData*)", "communication"),
        (
            "void at::native::vectorized_elementwise_kernel<4, add(int)::{lambda(float)#1}>(int)",
            "elementwise",
        ),
        ("void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float> >(long)", "optimizer"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "convolution"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*)", "softmax"),
        (
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_kernel0_0",
            "attention",
        ),
        ("void cudnn::fusion::convert_dq_to_16bits<true>(void const*, void*, unsigned int)", "attention"),
        (
            "void at::native::(anonymous namespace)::upsample_nearest2d_out_frame<c10::BFloat16>(int)",
            "pooling",
        ),
        (
            "void vector_fft_symm_r2c<8192u, EPT<16u>, 1u, 0u, (padding_t)70>(kernel_arguments_t<unsigned>)",
            "fft",
        ),
        ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*, int)", "convolution"),
        (
            "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::ReduceAdd>(int)",
            "indexing",
        ),
        ("void at::native::(anonymous namespace)::masked_scale_kernel<bool, float>(int)", "elementwise"),
        (
            "void at::native::krn_partials_per_segment<long>(long*, long const*, long const*, long)",
            "embedding",
        ),
        ("void at::native::ComputeBackwardFusedParamsCUDAKernel<float>(long, long, long)", "norm"),
        ("void elemWiseRNNcell<__nv_bfloat16, __nv_bfloat16, float>(int, int)", "activation"),
        ("my_secret_thing", "other"),
        ("", "other"),
    ],
)
def test_kernels_are_what_their_names_say(name: str, category: str, tmp_path: Path) -> None:
    table = kernel_categories(trace_of(tmp_path, ("kernel", name, 5)))
    assert table.rows() == [(category, 1, 1, 5000, 1.0, 0)]


def test_copies_are_copies_and_sums_are_whole(tmp_path: Path) -> None:
    works = [
        ("gpu_memcpy", "Memcpy HtoD (gemm)", 3),
        ("kernel", "sgemm", 4),
        ("kernel", "hgemm", 2),
        ("kernel", "sgemm", 1),
    ]
    table = kernel_categories(trace_of(tmp_path, *works))
    assert table.select("category", "calls", "kernels", "total_ns").rows() == [
        ("gemm", 3, 2, 7000),
        ("copy", 1, 1, 3000),
    ]
    assert table["share"].sum() == 1
    assert kernel_categories(trace_of(tmp_path)).is_empty()


def test_rules_of_a_file(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, ("kernel", "sgemm_secret", 4), ("kernel", "sgemm", 2), ("kernel", "thing", 1))
    assert kernel_categories(trace)["category"].to_list() == ["gemm", "other"]
    own = tmp_path / "own.toml"
    own.write_text(
        '[[rule]]\ncategory = "mine"\npattern = "secret"\n[[rule]]\ncategory = "gemm"\npattern = "gemm"\n'
    )
    assert load_categories(str(own)) == 2
    assert kernel_categories(trace).select("category", "total_ns").rows() == [
        ("mine", 4000),
        ("gemm", 2000),
        ("other", 1000),
    ]
    # The form of vLLM's gputrc2graph, whose last rule is for all others.
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps({"vllm": {"llama": {"gemm": "GEMM", "thing|stuff": "rest", "": "misc"}}}))
    assert load_categories(str(graph)) == 2
    assert kernel_categories(trace).select("category", "total_ns").rows() == [("GEMM", 6000), ("rest", 1000)]


@pytest.mark.parametrize(
    ("text", "says"),
    [("[[rule]]\ncategory = 1\n", "0 category"), ("[[rule", "cannot be read"), ('{"a": 1}', "0 category"),
     ("", "0 category"), ('[[rule]]\ncategory = "a"\npattern = "(?=b)"\n', "look-around")],
)  # fmt: skip
def test_files_without_rules_are_refused(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ks.errors.InvalidArgumentError, match=says):
        load_categories(str(path))
    with pytest.raises(ks.errors.InvalidArgumentError, match=r"none\.toml"):
        load_categories(str(tmp_path / "none.toml"))
    assert categories.category_rules()[0].category == "communication"


@pytest.mark.slow
def test_names_of_real_traces_are_known() -> None:
    files = sorted((TRACES / "kineto").glob("*.json.gz")) + sorted((TRACES / "nsys").glob("*.sqlite"))
    if not files:
        pytest.skip("the real traces of ../shared are not here")
    for path in files:
        # The jobs of MTIA say nothing of what they compute.
        if "mtia" in path.name:
            continue
        table = kernel_categories(ks.read(path, capture=()))
        unknown = table.filter(pl.col("category") == "other")["share"].sum()
        assert unknown < 0.02, path.name
