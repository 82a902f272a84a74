"""FLOPs and bytes that PyProf and TraceLens print for their records."""

import ast
import csv
import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from kernelscope.costs import cost_of
from kernelscope.costs.pyprof import Kernel, Marker, parse_marker, pyprof_cost

GEMM, CUDNN = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", "volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f"
F, T, S = "torch.nn.functional", "torch", "Tensor"


def _arg(shape: tuple[int, ...], dtype: str = "float16") -> dict[str, Any]:
    return {"name": "", "type": "tensor", "shape": shape, "dtype": dtype}


def _number(value: object, name: str = "") -> dict[str, Any]:
    return {"name": name, "type": type(value).__name__, "value": value}


A, X = _arg((8, 64)), _arg((32, 64, 56, 56))
MM = (_arg((8, 64)), _arg((64, 32)))
LSTM = (_arg((16, 128), "float32"), _arg((16, 256), "float32"))
LINEAR = (A, _arg((32, 64)), _arg((32,)))

# Module, function, arguments, kernel, FLOPs, bytes.
VALUES: dict[str, tuple[str, str, tuple[Any, ...], Kernel, int, int]] = {
    "linear": (F, "linear", LINEAR, Kernel(GEMM), 32768, 3328),
    "linear, splitK": (F, "linear", LINEAR, Kernel("splitKreduce_kernel", sub=1), 32768, 3328),
    "linear, bias": (F, "linear", LINEAR, Kernel("elementwise_kernel", sub=2), 256, 1024),
    "linear, rows": (F, "linear", (_arg((4, 8, 64)), _arg((32, 64))), Kernel(GEMM), 131072, 7168),
    "linear, third gradient": (F, "linear", LINEAR, Kernel(GEMM, backward=True, sub=2), 0, 0),
    "conv2d": (
        *(F, "conv2d", (X, _arg((128, 64, 3, 3)), _number(None), _number(2), _number((1, 1)))),
        *(Kernel(CUDNN), 3699376128, 19415040),
    ),
    "conv2d, a group": (
        *(F, "conv2d", (X, _arg((128, 16, 3, 3)), _number(4, "groups")), Kernel(CUDNN)),
        *(859963392, 9192448),
    ),
    "conv2d, all groups": (
        *(F, "conv2d", (X, _arg((128, 16, 3, 3)), _number(4, "groups")), Kernel("2d_grouped_direct_kernel")),
        *(3439853568, 36769792),
    ),
    "conv2d, gradient": (
        *(F, "conv2d", (X, _arg((128, 64, 3, 3)), _number(None), _number(1), _number((1, 1)))),
        *(Kernel(CUDNN, backward=True), 14797504512, 38682624),
    ),
    "conv2d, bias": (F, "conv2d", (X, _arg((128, 64, 3, 3))), Kernel("calc_bias_diff"), 11943936, 47775744),
    "conv2d, helper": (F, "conv2d", (X, _arg((128, 64, 3, 3))), Kernel("nchwToNhwcKernel"), 0, 0),
    "conv1d": (
        *(F, "conv1d", (_arg((8, 16, 100), "float32"), _arg((32, 16, 3), "float32"), _number(1, "padding"))),
        *(Kernel(CUDNN), 2457600, 159744),
    ),
    "addmm": (T, "addmm", (_arg((8, 32)), *MM), Kernel(GEMM), 32768, 5632),
    "mm": (T, "mm", (_arg((8, 64), "float32"), _arg((64, 32), "float32")), Kernel(GEMM), 32768, 11264),
    "bmm": (T, "bmm", (_arg((3, 8, 64)), _arg((3, 64, 32))), Kernel(GEMM), 98304, 16896),
    "matmul": (S, "__matmul__", (_arg((3, 8, 64)), _arg((64, 32))), Kernel(GEMM), 98304, 5632),
    "matmul, dot": (
        *(T, "matmul", (_arg((64,), "float32"), _arg((64,), "float32")), Kernel("dot_kernel"), 128, 516),
    ),
    "add": (S, "__add__", (A, A), Kernel("elementwise_kernel"), 512, 3072),
    "add, broadcast": (T, "add", (A, _arg((64,))), Kernel("k"), 512, 2176),
    "add, number": (S, "__add__", (A, _number(2)), Kernel("k"), 512, 2052),
    "mul, gradient": (S, "__mul__", (A, A), Kernel("k", backward=True), 512, 3072),
    "add, gradient": (S, "__add__", (A, A), Kernel("k", backward=True), 0, 2048),
    "lt": (S, "__lt__", (A, A), Kernel("k"), 512, 2560),
    "pow": (S, "__pow__", (A, _number(2)), Kernel("k"), 10240, 2052),
    "exp": (T, "exp", (A,), Kernel("k"), 10240, 2048),
    "addcmul": (T, "addcmul", (A, A, A), Kernel("k"), 1536, 4096),
    "relu": (F, "relu", (A,), Kernel("k"), 512, 2048),
    "relu, gradient": (F, "relu", (A,), Kernel("k", backward=True), 512, 3072),
    "softmax": (F, "softmax", (A, _number(-1)), Kernel("k"), 20480, 3072),
    "softmax, gradient": (F, "softmax", (A, _number(-1)), Kernel("k", backward=True), 20480, 5120),
    "log_softmax": (F, "log_softmax", (A, _number(-1)), Kernel("k"), 10752, 3072),
    "mse_loss": (F, "mse_loss", (_arg((8, 64), "float32"),) * 2, Kernel("k"), 2049, 4096),
    "mse_loss, gradient": (
        *(F, "mse_loss", (_arg((8, 64), "float32"),) * 2, Kernel("k", backward=True), 3073, 6144),
    ),
    "batch_norm": (F, "batch_norm", (X,), Kernel("k"), 51380224, 51380224),
    "batch_norm, second": (F, "batch_norm", (X,), Kernel("k", sub=1), 51380224, 0),
    "batch_norm, gradient": (F, "batch_norm", (X,), Kernel("k", backward=True), 51380224, 64225280),
    "dropout": (F, "dropout", (A,), Kernel("k"), 2560, 2048),
    "embedding": (
        *(F, "embedding", (_arg((4, 16), "int64"), _arg((1000, 64), "float32")), Kernel("k"), 0, 33280),
    ),
    "embedding, gradient": (
        *(F, "embedding", (_arg((4, 16), "int64"), _arg((1000, 64), "float32"))),
        *(Kernel("k", backward=True), 0, 49152),
    ),
    "mean": (T, "mean", (A,), Kernel("k"), 513, 1026),
    "sum": (S, "sum", (A,), Kernel("k"), 512, 1024),
    "norm": (T, "norm", (A,), Kernel("k"), 1025, 1024),
    "cat": (T, "cat", (A, A, _number(1, "dim")), Kernel("k"), 0, 4096),
    "gather": (T, "gather", (A, _number(1), _arg((8, 2), "int64")), Kernel("k"), 0, 2048),
    "index_select": (T, "index_select", (A, _number(0), _arg((3,), "int64")), Kernel("k"), 0, 792),
    "copy_": (S, "copy_", (_arg((8, 64), "float32"), A), Kernel("k"), 0, 3072),
    "clone": (S, "clone", (A,), Kernel("k"), 0, 2048),
    "half": (S, "half", (_arg((8, 64), "float32"),), Kernel("k"), 0, 3072),
    "nonzero": (T, "nonzero", (_arg((8, 64), "bool"),), Kernel("k"), 0, 8704),
    "masked_select": (T, "masked_select", (A, _arg((8, 64), "uint8")), Kernel("k"), 0, 2560),
    "adam": ("fused_adam_cuda", "adam", (_arg((64,), "float32"),) * 5, Kernel("k"), 0, 1792),
    "LSTMCell, input": ("LSTMCell", "forward", LSTM, Kernel("volta_sgemm_128x64_nn"), 4194304, 598016),
    "LSTMCell, state": (
        *("LSTMCell", "forward", LSTM, Kernel("volta_sgemm_128x64_nn", sub=1), 8388608, 1130496),
    ),
    "LSTMCell, gates": ("LSTMCell", "forward", LSTM, Kernel("LSTM_elemWise_fp", sub=2), 0, 180224),
    "LSTMCell, by input": (
        *("LSTMCell", "forward", LSTM, Kernel("volta_sgemm_128x64_nn", backward=True, grid_x=2)),
        *(8388608, 1130496),
    ),
    "LSTMCell, by weight": (
        *("LSTMCell", "forward", LSTM, Kernel("volta_sgemm_128x64_nt", backward=True, grid_x=2)),
        *(8388608, 1130496),
    ),
    "randperm": (T, "randperm", (_number(100),), Kernel("k"), 300, 800),
    "zeros": (T, "zeros", (_number((3, 4)),), Kernel("k"), 0, 48),
    "full": (T, "full", (_number((3, 4)), _number(1.5)), Kernel("k"), 0, 48),
}


@pytest.mark.parametrize("name", VALUES)
def test_reference_values(name: str) -> None:
    mod, op, args, kernel, flops, moved = VALUES[name]
    cost = pyprof_cost(Marker(mod, op, args), kernel)
    assert cost is not None
    assert (cost.flops, cost.bytes, cost.modelled) == (flops, moved, True)


@pytest.mark.parametrize("op", ["gelu", "layer_norm", "max_pool2d", "scaled_dot_product_attention", "conv3d"])
def test_what_it_has_no_model_for_is_zero(op: str) -> None:
    assert pyprof_cost(Marker(F, op, (A,)), Kernel(GEMM)) == (0, 0, False)


@pytest.mark.parametrize(
    ("mod", "op", "args", "kernel"),
    [
        ("torch", "softmax", (A,), Kernel("k")),
        ("torch", "clone", (A,), Kernel("k")),
        ("Tensor", "mm", MM, Kernel(GEMM)),
        (T, "matmul", MM, Kernel("nvjet_hsh_128x128")),
        (S, "__add__", (_arg((8, 64), "bfloat16"),) * 2, Kernel("k")),
        (T, "mul", (A, A), Kernel("k", backward=True)),
        (T, "masked_select", (A, _arg((8, 64), "bool")), Kernel("k")),
    ],
)
def test_where_it_aborts_there_is_no_figure(mod: str, op: str, args: tuple[Any, ...], kernel: Kernel) -> None:
    assert pyprof_cost(Marker(mod, op, args), kernel) is None


@pytest.mark.parametrize(
    "text",
    ["", "x", "{}", "[1]", "{'mod': 1, 'op': 'x', 'args': []}", "__import__('os')", "(" * 10_000, "{'mod'"],
)
def test_text_that_is_no_marker(text: str) -> None:
    assert parse_marker(text) is None


def test_operators_of_kineto_take_the_same_formulas() -> None:
    for name, dims, flops, moved in (
        ("aten::mm", "[[8, 64], [64, 32]]", 32768, 11264),
        ("aten::add", "[[8, 64], [8, 64]]", 512, 6144),
        ("aten::_softmax", "[[8, 64], [], []]", 20480, 6144),
        ("aten::threshold_backward", "[[8, 64], [8, 64], []]", 512, 6144),
    ):
        second = "Scalar" if name == "aten::_softmax" else "float"
        types = f'["float", "{second}", "Scalar"]'
        cost = cost_of(name, dims, types, None, '["", "", ""]', convention="pyprof")
        assert (cost.flops, cost.bytes_read) == (flops, moved), name
    assert cost_of("aten::gelu", "[[8, 64]]", '["float"]', convention="pyprof").status == "unknown_op"
    bfloat16 = cost_of("aten::exp", "[[8, 64]]", '["c10::BFloat16"]', convention="pyprof")
    assert bfloat16.status == "missing_shape"


def test_goldens(shared: Path) -> None:
    folder = shared / "oracles/pyprof"
    records = [ast.literal_eval(line) for line in (folder / "golden.dict").read_text().splitlines()]
    with (folder / "golden.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(records) == len(rows) == 100
    for record, row in zip(records, rows, strict=True):
        marker = parse_marker(record["marker"][0]) if record["marker"] else Marker("na", "na", ())
        assert marker is not None
        kernel = Kernel(record["kShortName"], record["dir"] == "bprop", record["subSeqId"], record["grid"][0])
        cost = pyprof_cost(marker, kernel)
        assert cost is not None, marker
        want = int(float(row["FLOPs"])), int(float(row["Bytes"]))
        assert (cost.flops, cost.bytes) == want, (marker, kernel)


# Not reproduced. The kernel's operators are counted by a table of TraceLens's own, and its bytes are 0 for
# float and int; the figures of vLLM's attention come from the step's annotation, which is no input.
LEFT_OUT = ("triton_", "vllm::unified_attention")


def _rows(folder: Path) -> list[dict[str, str]]:
    plain, packed = folder / "unified_perf_summary.csv", folder / "unified_perf_summary.csv.gz"
    text = plain.read_text() if plain.exists() else gzip.decompress(packed.read_bytes()).decode()
    rows = csv.DictReader(io.StringIO(text))
    return [row for row in rows if row["has_perf_model"] == "True" and row["GFLOPS"]]


def _json(cell: str) -> str | None:
    return json.dumps(ast.literal_eval(cell)) if cell else None


@pytest.mark.parametrize(
    "trace", ["owlv2-h100", "qwen1.5-0.5b-h100", "resnet-act-checkpoint-mi300", "eager-b200-rank0of8"]
)
def test_figures_of_tracelens(shared: Path, trace: str) -> None:
    found = _rows(shared / "oracles/tracelens" / trace)
    rows = [row for row in found if not row["name"].startswith(LEFT_OUT)]
    assert len(rows) > 5
    for row in rows:
        texts = [_json(row[key]) for key in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")]
        cost = cost_of(row["name"], *texts, convention="tracelens")
        assert cost.flops is not None, (row["name"], texts, cost)
        assert math.isclose(cost.flops / 1e9, float(row["GFLOPS"]), rel_tol=1e-12), (row["name"], texts)
        moved = float(row["Data Moved (MB)"] or "nan")
        if math.isnan(moved):
            assert cost.status == "unknown_dtype"
        else:
            assert cost.bytes_read is not None
            assert math.isclose(cost.bytes_read / 2**20, moved, rel_tol=1e-12), (row["name"], texts)


def test_known_faults() -> None:
    """Where TraceLens is wrong, and what is right."""
    texts = "[[5, 128], [], []]", '["float", "ScalarList", "Scalar"]', None, '["", "[0]", "True"]'
    # It takes every reduction to have one result.
    assert cost_of("aten::sum", *texts, convention="tracelens").bytes_read == 641 * 4
    assert cost_of("aten::sum", *texts).bytes_written == 128 * 4
    # It counts a FLOP for each copied element, and whole tensors where strides of 0 repeat a row.
    texts = "[[8, 64], [8, 64]]", '["float", "float"]', "[[64, 1], [0, 1]]"
    theirs, ours = (cost_of("aten::copy_", *texts, convention=name) for name in ("tracelens", "kernelscope"))
    assert (theirs.flops, theirs.bytes_read) == (512, 4096)
    assert (ours.flops, ours.bytes_read, ours.bytes_written) == (0, 256, 2048)
    # bool has no size to it.
    texts = "[[8], [8]]", '["bool", "bool"]'
    assert cost_of("aten::copy_", *texts, convention="tracelens").status == "unknown_dtype"
    assert cost_of("aten::copy_", *texts).bytes_written == 8
