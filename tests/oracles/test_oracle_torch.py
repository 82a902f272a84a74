"""Against torch 2.13's own ``key_averages()`` of the live profiles behind four traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traces import ORACLES, files

from kernelscope import compat

Read = Callable[[Path], Any]
Load = Callable[[Path], Any]

TIMES = {"cpu_time_total": "cpu_total_ns", "self_cpu_time_total": "cpu_self_ns"}
MEMORY = {"cpu_memory_usage": "cpu_memory_bytes", "self_cpu_memory_usage": "cpu_self_memory_bytes"}
ORACLE_FILES = files(ORACLES / "torch-cpu", "*.oracle.json.gz")


def expected_rows(rows: list[dict[str, Any]], *, by_shape: bool, memory: bool) -> Counter[tuple[Any, ...]]:
    """Torch's rows, times in whole ns."""
    return Counter(
        (
            row["key"],
            (row["input_shapes"] or "[]") if by_shape else None,
            row["count"],
            *(round(row[theirs] * 1000) for theirs in TIMES),
            *(row[theirs] if memory else None for theirs in MEMORY),
            row["flops"],
        )
        for row in rows
    )


def actual_rows(trace: Any, *, by_shape: bool) -> Counter[tuple[Any, ...]]:
    table = compat.torch_profiler.key_averages(trace, group_by_input_shape=by_shape)
    return Counter(
        (
            row["name"],
            (row["input_shapes"] or "[]") if by_shape else None,
            row["count"],
            *(row[ours] for ours in TIMES.values()),
            *(row[ours] for ours in MEMORY.values()),
            row["flops"] or 0,
        )
        for row in table.to_dicts()
    )


@pytest.mark.parametrize("by_shape", [False, True], ids=["name", "name-and-shape"])
@pytest.mark.parametrize("path", ORACLE_FILES)
def test_key_averages(read: Read, load_json: Load, path: Path, by_shape: bool) -> None:
    trace = read(path.with_name(path.name.replace(".oracle", "")))
    rows = load_json(path)["by_shape" if by_shape else "key_averages"]
    memory = trace.memory.height > 0
    # What was not recorded is 0 to torch.
    assert memory or all(row[theirs] == 0 for row in rows for theirs in MEMORY)
    expected = expected_rows(rows, by_shape=by_shape, memory=memory)
    actual = actual_rows(trace, by_shape=by_shape)
    assert sorted((expected - actual).items()) == []
    assert sorted((actual - expected).items()) == []


@pytest.mark.parametrize("path", ORACLE_FILES)
def test_key_averages_by_stack(read: Read, load_json: Load, path: Path) -> None:
    """The profiles were not verbose, so torch has no stack in any row, and rows as without stacks."""
    trace = read(path.with_name(path.name.replace(".oracle", "")))
    expected = Counter(
        (row["key"], tuple(row["stack"]), row["count"], round(row["cpu_time_total"] * 1000))
        for row in load_json(path)["by_stack_5"]
    )
    table = compat.torch_profiler.key_averages(trace, group_by_stack_n=5)
    actual = Counter(
        (row["name"], tuple(row["stack"]), row["count"], row["cpu_total_ns"]) for row in table.to_dicts()
    )
    assert actual == expected


@pytest.mark.parametrize("path", ORACLE_FILES)
def test_order_of_rows(read: Read, load_json: Load, path: Path) -> None:
    trace = read(path.with_name(path.name.replace(".oracle", "")))
    rows = load_json(path)["key_averages"]
    assert compat.torch_profiler.key_averages(trace)["name"].to_list() == [row["key"] for row in rows]
