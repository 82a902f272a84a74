"""Layer-wise NVTX ranges in databases of nsys: modules and shapes without a profiler of operators."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import kernelscope as ks
from kernelscope.analysis import module_table, op_table
from nsys_database import Database


def _write(path: Path, *, operators: bool = False) -> Path:
    database = Database(path)
    for layer in range(2):
        start = 10_000 * layer
        name = f"model.layers.{layer}"
        database.range(f"{{'Module': '{name}', 'Inputs': [[32, 4096]]}}", start, start + 9_000)
        text = f"{{'Module': '{name}.mlp', 'TrainableParams': {{'w': (8, 4)}}, 'Inputs': [[32, 4096], None]}}"
        database.range(text, start + 1_000, start + 8_000)
        if operators:
            database.range("aten::mm, op_id = 3, sizes = [[4, 4]]", start + 2_000, start + 3_000)
        database.call(start + 2_100, start + 2_200, correlation=layer + 1)
        database.kernel(start + 4_000, start + 4_500 + 100 * layer, correlation=layer + 1)
    return database.close()


def test_layers_are_modules_and_have_shapes(tmp_path: Path) -> None:
    trace = ks.read(_write(tmp_path / "layers.sqlite"))
    modules = module_table(trace).select("module", "device_total_ns")
    assert dict(modules.rows()) == {
        "model.layers.0": 500, "model.layers.0.mlp": 500, "model.layers.1": 600, "model.layers.1.mlp": 600,
    }  # fmt: skip
    ops = op_table(trace, by=("name", "input_dims")).filter(pl.col("device_self_ns") > 0)
    assert set(ops.select("name", "input_dims", "device_self_ns").rows()) == {
        ("model.layers.0.mlp", "[[32, 4096], []]", 500), ("model.layers.1.mlp", "[[32, 4096], []]", 600),
    }  # fmt: skip
    # What was pushed stays as it was.
    assert trace.ranges["name"].cast(pl.String).str.starts_with("{'Module'").all()


def test_operators_have_their_own_shapes_in_modules(tmp_path: Path) -> None:
    trace = ks.read(_write(tmp_path / "both.sqlite", operators=True))
    assert trace.ops["name"].unique().to_list() == ["aten::mm"]
    assert trace.ops["module"].to_list() == ["model.layers.0.mlp", "model.layers.1.mlp"]
