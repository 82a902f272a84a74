"""Every FLOP and byte figure that TraceLens printed for the shared traces."""

import ast
import csv
import gzip
import io
import json
import math
from pathlib import Path

import pytest

from kernelscope.costs import cost_of

# Not reproduced. The kernel's operators are counted by a table of TraceLens's own, and its bytes are 0 for
# float and int; the figures of vLLM's attention come from the step's annotation, which is no input.
LEFT_OUT = ("triton_", "vllm::unified_attention")

TRACES = ("owlv2-h100", "qwen1.5-0.5b-h100", "resnet-act-checkpoint-mi300", "eager-b200-rank0of8")


def _rows(folder: Path) -> list[dict[str, str]]:
    plain, packed = folder / "unified_perf_summary.csv", folder / "unified_perf_summary.csv.gz"
    text = plain.read_text() if plain.exists() else gzip.decompress(packed.read_bytes()).decode()
    return [
        row for row in csv.DictReader(io.StringIO(text)) if row["has_perf_model"] == "True" and row["GFLOPS"]
    ]


def _json(cell: str) -> str | None:
    return json.dumps(ast.literal_eval(cell)) if cell else None


@pytest.mark.parametrize("trace", TRACES)
def test_figures_of_tracelens(shared: Path, trace: str) -> None:
    rows = [
        row for row in _rows(shared / "oracles/tracelens" / trace) if not row["name"].startswith(LEFT_OUT)
    ]
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
    assert cost_of("aten::copy_", *texts, convention="tracelens").flops == 512
    assert cost_of("aten::copy_", *texts).flops == 0
    assert cost_of("aten::copy_", *texts, convention="tracelens").bytes_read == 4096
    assert (cost_of("aten::copy_", *texts).bytes_read, cost_of("aten::copy_", *texts).bytes_written) == (
        256,
        2048,
    )
    # bool has no size to it.
    texts = "[[8], [8]]", '["bool", "bool"]'
    assert cost_of("aten::copy_", *texts, convention="tracelens").status == "unknown_dtype"
    assert cost_of("aten::copy_", *texts).bytes_written == 8
