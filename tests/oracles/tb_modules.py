"""The module view of the TensorBoard plugin, computed slowly from the events of a file.

It follows the plugin's documented rules call by call: a tree per thread by nesting, GPU work by the
External id of its runtime call. Figures are sums over all calls of an instance, wherever it stands.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

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
