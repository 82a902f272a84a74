"""Brings answers into the form of the TensorBoard plugin's raw values, for comparison."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from kernelscope import analysis

STEP_COLUMNS = {
    "Kernel": "kernel_ns",
    "Memcpy": "memcpy_ns",
    "Memset": "memset_ns",
    "Communication": "communication_ns",
    "Runtime": "runtime_ns",
    "DataLoader": "dataloader_ns",
    "CpuOp": "cpu_exec_ns",
    "Other": "other_ns",
    "Total": "total_ns",
}


def us(ns: Any) -> Any:
    """Microseconds as the plugin holds them: whole where the file has whole ones."""
    if ns is None:
        return None
    return ns // 1000 if isinstance(ns, int) and ns % 1000 == 0 else ns / 1000


def steps(trace: Any) -> list[dict[str, Any]]:
    rows = analysis.step_breakdown(trace).to_dicts()
    return [
        {"step": str(row["step"] or 0), **{theirs: us(row[ours]) for theirs, ours in STEP_COLUMNS.items()}}
        for row in rows
    ]


def operators(trace: Any, *, by_input: bool) -> dict[Any, dict[str, Any]]:
    """Rows by name, or by name and input shape."""
    found: dict[Any, dict[str, Any]] = {}
    for row in analysis.op_table(trace, by=("name", "input_dims") if by_input else ("name",)).to_dicts():
        key = (row["name"], shape(row["input_dims"])) if by_input else row["name"]
        found[key] = {
            "calls": row["calls"],
            "host_duration": us(row["host_total_ns"]),
            "self_host_duration": us(row["host_self_ns"]),
            # The plugin writes 0 where a trace has no GPU work.
            "device_duration": us(row["device_total_ns"]) or 0,
            "self_device_duration": us(row["device_self_ns"]) or 0,
            "tc_eligible": row["tc_eligible"],
            "tc_self_ratio": (row["tc_self_pct"] or 0) / 100,
            "tc_total_ratio": (row["tc_total_pct"] or 0) / 100,
        }
    return found


def expected_operators(rows: list[dict[str, Any]], *, by_input: bool) -> dict[Any, dict[str, Any]]:
    dropped = ("name", "input_shape", "tc_self_duration", "tc_total_duration")
    return {
        (row["name"], shape(row["input_shape"])) if by_input else row["name"]: {
            key: value for key, value in row.items() if key not in dropped
        }
        for row in rows
    }


def shape(text: str | None) -> str:
    """One spelling for shapes; the plugin writes Python lists, and an empty one where there is none."""
    return json.dumps(json.loads((text or "[]").replace("'", '"')))


def kernels(trace: Any) -> dict[str, dict[str, Any]]:
    return {
        row["name"]: {
            # What is unknown to us is 0 or false to the plugin.
            "tc_used": row["tensor_cores"] or False,
            "count": row["calls"],
            "sum": us(row["total_ns"]),
            "mean": us(row["mean_ns"]),
            "max": us(row["max_ns"]),
            "min": us(row["min_ns"]),
            "blocks_per_sm": row["blocks_per_sm"] or 0.0,
            "occupancy": row["occupancy_pct"] or 0.0,
        }
        for row in analysis.kernel_table(trace).to_dicts()
    }


def kernels_by_launch(trace: Any) -> dict[Any, dict[str, Any]]:
    """Rows by kernel, operator and launch size, of the kernels that an operator launched."""
    by = ("name", "op", "grid", "block", "registers", "shared_memory_bytes")
    table = analysis.kernel_table(trace, by=by).filter(pl.col("op").is_not_null())
    return {
        launch_key(row, "op", "registers", "shared_memory_bytes"): {
            "calls": row["calls"],
            "total": us(row["total_ns"]),
            "min": us(row["min_ns"]),
            "max": us(row["max_ns"]),
            "blocks_per_sm": row["blocks_per_sm"] or 0.0,
            "occupancy": row["occupancy_pct"] or 0.0,
            "tc_used": row["tensor_cores"] or False,
        }
        for row in table.to_dicts()
    }


def launch_key(row: dict[str, Any], op: str, registers: str, shared: str) -> tuple[Any, ...]:
    size = [json.dumps(row[c]) if isinstance(row[c], list) else shape(row[c]) for c in ("grid", "block")]
    # The plugin groups a missing value as 0.
    return (row["name"], row[op], *size, int(row[registers] or 0), int(row[shared] or 0))


def expected_by_launch(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {
        launch_key(row, "op_name", "regs_per_thread", "shared_memory"): {
            "calls": row["calls"],
            "total": row.get("total", row.get("total_duration")),
            "min": row.get("min", row.get("min_duration")),
            "max": row.get("max", row.get("max_duration")),
            "blocks_per_sm": row.get("blocks_per_sm", row.get("avg_blocks_per_sm")),
            "occupancy": row.get("occupancy", row.get("avg_occupancy")),
            "tc_used": row["tc_used"],
        }
        for row in rows
    }


def gpus(trace: Any) -> dict[str, dict[str, Any]]:
    return {
        str(row["device"]): {
            "util": row["utilisation"],
            "sm_eff": row["sm_efficiency"],
            "occ": row["occupancy_pct"],
            "tc_ratio": row["tensor_core_share"],
        }
        for row in analysis.gpu_summary(trace).to_dicts()
        if row["kernels"]
    }


def differences(actual: Any, expected: Any, where: str = "") -> list[str]:
    """Where two nested values differ; numbers by more than a part in 10^9."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        found = [f"{where}/{key}: not expected" for key in actual.keys() - expected.keys()]
        found += [f"{where}/{key}: missing" for key in expected.keys() - actual.keys()]
        for key in actual.keys() & expected.keys():
            found += differences(actual[key], expected[key], f"{where}/{key}")
        return sorted(found)
    if isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        return [
            d for i, (a, e) in enumerate(zip(actual, expected)) for d in differences(a, e, f"{where}/{i}")
        ]
    if isinstance(actual, (int, float)) and isinstance(expected, (int, float)):
        near = abs(actual - expected) <= 1e-9 * max(abs(actual), abs(expected))
        return [] if near else [f"{where}: {actual} instead of {expected}"]
    return [] if actual == expected else [f"{where}: {actual!r} instead of {expected!r}"]
