"""Costs of compiled regions: kernels count for what launched them, and never for the region around them."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from events import Events
from kernelscope import analysis
from kernelscope.trace import Trace
from oracles.traces import TRACES, read

BF = "c10::BFloat16"
H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 80 * 2**30, "numSms": 132}
GRAPH = "## Call CompiledFxGraph fk5onoiwbd3xbw5q5nyunzpzhwsjzqyhqvnnzhjfhqkpiybhsnxe ##"
TOKENS, WIDTH = 4608, 3072


class Compiled(Events):
    """A block of a diffusion transformer as inductor runs it; each ``run`` launches one kernel."""

    def launch(self, ts: float, kernel: str, dur: float, *, triton: bool = False) -> None:
        number = next(self.ids)
        category, call = (
            ("cuda_driver", "cuLaunchKernelEx") if triton else ("cuda_runtime", "cudaLaunchKernel")
        )
        self.add(category, call, ts, 1, args={"correlation": number})
        self.kernel(kernel, 10_000 + 100 * ts, dur, number)

    def run(self, ts: float, name: str, kernel: str, dur: float, *inputs: tuple[list[int], str]) -> None:
        shapes, types = ([part[at] for part in inputs] for at in (0, 1))
        self.op(name, ts, 5, Input_Dims=shapes, Input_type=types)
        self.launch(ts + 2, kernel, dur)

    def triton(self, ts: float, name: str, dur: float, shapes: list[list[int]], *loops: int) -> None:
        numbers = [str(size) for size in loops]
        recorded: dict[str, Any] = {
            "Input_Dims": [*shapes, *([] for _ in loops)],
            "Input_type": [*([BF] * len(shapes)), *("Scalar" for _ in loops)],
            "Concrete_Inputs": [*("" for _ in shapes), *numbers],
        }
        self.op(name, ts, 5, **recorded, kernel_backend="triton", kernel_hash="cabc", num_warps=8)
        self.launch(ts + 2, name, dur, triton=True)


def block(annotated: bool) -> Compiled:
    """The region with a graph in it, which older recorders write as an operator."""
    e = Compiled(H100)
    e.op("Torch-Compiled Region: 3/0", 0, 100)
    e.annotation(GRAPH, 5, 90) if annotated else e.op(GRAPH, 5, 90)
    x, w, y = ([TOKENS, WIDTH], BF), ([WIDTH, WIDTH], BF), ([TOKENS, WIDTH], BF)
    e.triton(
        10,
        "triton_red_fused__to_copy_add_mul_native_layer_norm_0",
        20,
        [*[[TOKENS, WIDTH]] * 2],
        TOKENS,
        WIDTH,
    )
    e.run(
        20,
        "aten::addmm",
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT",
        140,
        ([WIDTH], BF),
        x,
        w,
        ([], ""),
        ([], ""),
        y,
    )
    e.triton(
        30, "triton_tem_fused_addmm_gelu_1", 150, [[WIDTH], *([shape for shape, _ in (x, w, y)])], 24, 36, 1
    )
    heads = {
        "Input_Dims": [*[[1, 24, TOKENS, 128]] * 3, [], [], [], []],
        "Input_type": [BF, BF, BF, "Scalar", "Scalar", "Scalar", "Scalar"],
        "Concrete_Inputs": ["", "", "", "0.", "False", "False", "0.088388"],
    }
    e.op("aten::_scaled_dot_product_flash_attention", 40, 9, **heads)
    e.launch(45, "flash_fwd_kernel", 900)
    e.triton(50, "triton_poi_fused_clone_slice_2", 3, [[TOKENS, WIDTH], [512, WIDTH]], 512 * WIDTH)
    # Nothing says what launched these.
    e.launch(60, "triton_poi_fused_3", 40, triton=True)
    e.launch(70, "Kernel2", 50)
    return e


@pytest.mark.parametrize("annotated", [True, False])
def test_kernels_count_for_what_launched_them(tmp_path: Path, annotated: bool) -> None:
    trace = block(annotated).read(tmp_path)
    costs = analysis.costs(trace)
    found = {row["name"]: row for row in costs.to_dicts()}
    elements = TOKENS * WIDTH
    product = 2 * elements * WIDTH
    assert {name: row["flops"] for name, row in found.items() if row["flops"] is not None} == {
        "triton_red_fused__to_copy_add_mul_native_layer_norm_0": (8 + 1 + 1) * elements,
        "aten::addmm": product,
        "triton_tem_fused_addmm_gelu_1": product,
        "aten::_scaled_dot_product_flash_attention": 4 * 24 * TOKENS * TOKENS * 128,
        "triton_poi_fused_clone_slice_2": 0,
    }
    assert found["triton_poi_fused_clone_slice_2"]["bytes_read"] == 2 * 512 * WIDTH
    around = [row for name, row in found.items() if "Compiled" in name]
    assert [(row["status"], row["device_ns"], row["kernels"]) for row in around] == [
        ("unknown_op", 90_000, 2)
    ]
    assert costs["device_ns"].sum() == trace.gpu_ops["dur_ns"].sum()
    # The slice attains what it copies, not the whole of its input.
    roofs = analysis.roofline(trace)
    assert roofs.filter((pl.col("attained_pct") > 100) | pl.col("flag").is_not_null()).is_empty()
    known = 100 * (1 - 90_000 / int(trace.gpu_ops["dur_ns"].sum()))
    assert analysis.efficiency(trace)["known_pct"].item() == pytest.approx(known)


def backward(direct: str) -> Compiled:
    """A compiled forward with one product, and its gradient, whose kernels have no operators."""
    e = Compiled(H100)
    e.op("CompiledFunction", 0, 50, Sequence_number=5, Fwd_thread_id=0)
    x = ([64, 64], BF)
    e.run(10, "aten::mm", "nvjet_tst", 4, x, x)
    e.add("cpu_op", f"autograd::engine::evaluate_function: {direct}", 100, 50, tid=8)
    e.op(direct, 101, 45, tid=8, Sequence_number=5, Fwd_thread_id=1)
    for at in (110, 120, 130):
        number = next(e.ids)
        e.add("cuda_runtime", "cudaLaunchKernel", at, 1, tid=8, args={"correlation": number})
        e.kernel("triton__0d1d2d3d", 50_000 + at * 100, 10, number)
    flow = {"id": 5, "pid": 7, "cat": "fwdbwd", "name": "fwdbwd"}
    e.events.append({**flow, "ph": "s", "tid": 7, "ts": 0})
    e.events.append({**flow, "ph": "f", "tid": 8, "ts": 101, "bp": "e"})
    return e


def test_the_gradient_of_a_compiled_graph_is_not_that_of_one_product_in_it(tmp_path: Path) -> None:
    found = analysis.costs(backward("CompiledFunctionBackward").read(tmp_path))
    row = found.filter(name="CompiledFunctionBackward").row(0, named=True)
    assert (row["status"], row["flops"], row["device_ns"]) == ("unknown_op", None, 30_000)
    found = analysis.costs(backward("MyFunctionBackward").read(tmp_path))
    assert found.filter(name="MyFunctionBackward")["status"].item() == "estimate"


@pytest.mark.parametrize(
    "name", ["a100-pyper-rank0of16-2023", "v100-test-rank1of2-2022", "eager-b200-rank0of8", "triton-a100"]
)
def test_no_region_has_a_cost(shared: Path, name: str) -> None:
    trace: Trace = read(TRACES / f"{name}.json.gz")
    costs = analysis.costs(trace)
    regions = costs.filter(pl.col("name").str.contains("CompiledFunction|Torch-Compiled|CompiledFxGraph"))
    assert set(regions["status"]) <= {"unknown_op"}
    assert regions["flops"].null_count() == regions.height
    generated = costs.filter(pl.col("name").str.starts_with("triton_"))
    assert set(generated["status"]) <= {"estimate"}
    assert (generated["flops"] > 0).all()
