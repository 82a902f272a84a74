"""Answers in the form of the TensorBoard plugin's raw values, and its module view computed slowly."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import polars as pl

from kernelscope import analysis

# The plugin's names of what our columns hold.
STEP = {
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
OPERATOR = {
    "calls": "calls",
    "host_duration": "host_total_ns",
    "self_host_duration": "host_self_ns",
    "device_duration": "device_total_ns",
    "self_device_duration": "device_self_ns",
    "tc_eligible": "tc_eligible",
    "tc_self_ratio": "tc_self_pct",
    "tc_total_ratio": "tc_total_pct",
}
KERNEL = {
    "tc_used": "tensor_cores",
    "count": "calls",
    "sum": "total_ns",
    "mean": "mean_ns",
    "max": "max_ns",
    "min": "min_ns",
    "blocks_per_sm": "blocks_per_sm",
    "occupancy": "occupancy_pct",
}
LAUNCH = {
    "calls": "calls",
    "total": "total_ns",
    "min": "min_ns",
    "max": "max_ns",
    "blocks_per_sm": "blocks_per_sm",
    "occupancy": "occupancy_pct",
    "tc_used": "tensor_cores",
}
LAUNCH_KEY = ("op", "registers", "shared_memory_bytes")
PLUGIN_LAUNCH_KEY = ("op_name", "regs_per_thread", "shared_memory")


def renamed(row: dict[str, Any], columns: dict[str, str]) -> dict[str, Any]:
    """A row by the plugin's names and in its microseconds; what is unknown to us is 0 or false to it."""
    values = {theirs: row[ours] or 0 for theirs, ours in columns.items()}
    return {theirs: us(v) if columns[theirs].endswith("_ns") else v for theirs, v in values.items()}


def us(ns: Any) -> Any:
    """Microseconds as the plugin holds them: whole where the file has whole ones."""
    return ns / 1000 if ns % 1000 else int(ns) // 1000


def steps(trace: Any) -> list[dict[str, Any]]:
    rows = analysis.step_breakdown(trace).to_dicts()
    return [{"step": str(row["step"] or 0), **renamed(row, STEP)} for row in rows]


def operators(trace: Any, *, by_input: bool) -> dict[Any, dict[str, Any]]:
    """Rows by name, or by name and input shape."""
    table = analysis.op_table(trace, by=("name", "input_dims") if by_input else ("name",))
    return {
        (row["name"], shape(row["input_dims"])) if by_input else row["name"]: renamed(row, OPERATOR)
        for row in table.to_dicts()
    }


def expected_operators(rows: list[dict[str, Any]], *, by_input: bool) -> dict[Any, dict[str, Any]]:
    return {
        (row["name"], shape(row["input_shape"])) if by_input else row["name"]: {
            key: row[key] * 100 if key.endswith("_ratio") else row[key] for key in OPERATOR
        }
        for row in rows
    }


def shape(text: str | None) -> str:
    """One spelling for shapes; the plugin writes Python lists, and an empty one where there is none."""
    return json.dumps(json.loads((text or "[]").replace("'", '"')))


def kernels(trace: Any) -> dict[str, dict[str, Any]]:
    return {row["name"]: renamed(row, KERNEL) for row in analysis.kernel_table(trace).to_dicts()}


def kernels_by_launch(trace: Any) -> dict[Any, dict[str, Any]]:
    """Rows by kernel, operator and launch size, of the kernels that an operator launched."""
    table = analysis.kernel_table(trace, by=("name", *LAUNCH_KEY[:1], "grid", "block", *LAUNCH_KEY[1:]))
    rows = table.filter(pl.col("op").is_not_null()).to_dicts()
    return {launch_key(row, LAUNCH_KEY): renamed(row, LAUNCH) for row in rows}


def launch_key(row: dict[str, Any], columns: tuple[str, str, str]) -> tuple[Any, ...]:
    size = [json.dumps(row[c]) if isinstance(row[c], list) else shape(row[c]) for c in ("grid", "block")]
    op, registers, shared = (row[column] for column in columns)
    # The plugin groups a missing value as 0.
    return (row["name"], op, *size, int(registers or 0), int(shared or 0))


def expected_by_launch(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """The plugin's rows, in which a figure may be called a duration or an average."""
    return {
        launch_key(row, PLUGIN_LAUNCH_KEY): {
            key: next(row[name] for name in (key, f"{key}_duration", f"avg_{key}") if name in row)
            for key in LAUNCH
        }
        for row in rows
    }


def eligible_launches(trace: Any) -> dict[Any, bool]:
    """Whether tensor cores could serve the operator that launched, by kernel, operator and launch size."""
    launches = analysis.kernels_by_launch(trace).filter(pl.col("op").is_not_null()).to_dicts()
    return {launch_key(row, LAUNCH_KEY): row["op_tc_eligible"] for row in launches}


def expected_eligible(rows: list[dict[str, Any]]) -> dict[Any, bool]:
    return {launch_key(row, PLUGIN_LAUNCH_KEY): row["op_tc_eligible"] for row in rows}


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


RUNTIMES = ("runtime", "cuda_runtime", "cuda_driver", "hip_runtime")
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


def ns(us: Any) -> int:
    """Nanoseconds, exact for stamps with at most three decimals."""
    return round(float(us) * 1000)


def module_statistics(document: dict[str, Any]) -> dict[str, dict[str, int]]:
    """By instance: calls, operators, host total, host self, device total and device self, in ns."""
    threads: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    correlations: dict[Any, int] = defaultdict(int)
    launches: list[tuple[Any, Any]] = []
    timed = [e for e in document["traceEvents"] if e.get("ph") == "X"]
    for event in timed:
        category, args = str(event.get("cat", "")).lower(), event.get("args", {})
        is_module = category == "python_function" and "Python module id" in args
        if is_module or category in ("cpu_op", "operator"):
            threads[event["tid"]].append(
                {
                    "name": event["name"],
                    "start": ns(event["ts"]),
                    "end": ns(event["ts"]) + ns(event["dur"]),
                    "is_module": is_module,
                    "id": args.get("External id"),
                    "children": [],
                }
            )
        elif category in DEVICE_WORK:
            correlations[args.get("correlation")] += ns(event["dur"])
        elif category in RUNTIMES:
            launches.append((args.get("External id"), args.get("correlation")))
    by_op: dict[Any, int] = defaultdict(int)
    for external, correlation in launches:
        if external:
            by_op[external] += correlations.get(correlation, 0)
    found: dict[str, dict[str, int]] = {}
    for nodes in threads.values():
        for node in _nested(nodes, by_op):
            _count(node, found)
    return found


def _nested(nodes: list[dict[str, Any]], by_op: dict[Any, int]) -> list[dict[str, Any]]:
    """The nodes in order, each with its children, its own device time and that of all below it."""
    nodes.sort(key=lambda node: (node["start"], -node["end"]))
    open_nodes: list[dict[str, Any]] = []
    for node in nodes:
        while open_nodes and node["start"] >= open_nodes[-1]["end"]:
            open_nodes.pop()
        if open_nodes:
            open_nodes[-1]["children"].append(node)
        open_nodes.append(node)
        # The first operator with an External id has all launches of it.
        node["own"] = 0 if node["is_module"] else by_op.pop(node["id"], 0)
    for node in reversed(nodes):
        node["total"] = node["own"] + sum(child["total"] for child in node["children"])
    return nodes


def _count(node: dict[str, Any], found: dict[str, dict[str, int]]) -> None:
    if not node["is_module"]:
        return
    operators = [child for child in node["children"] if not child["is_module"]]
    inside = sum(child["end"] - child["start"] for child in node["children"])
    figures = {
        "calls": 1,
        "operators": len(operators),
        "host_total_ns": node["end"] - node["start"],
        "host_self_ns": node["end"] - node["start"] - inside,
        "device_total_ns": node["total"],
        "device_self_ns": node["own"] + sum(child["total"] for child in operators),
    }
    sums = found.setdefault(node["name"].removeprefix("nn.Module: "), dict.fromkeys(figures, 0))
    for key, value in figures.items():
        sums[key] += value
