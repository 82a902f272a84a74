"""Traces that the installed PyTorch records here and now, against what it says of them itself."""

import gzip
import importlib.util
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks

if importlib.util.find_spec("torch") is None:
    pytest.skip("PyTorch is not installed", allow_module_level=True)

import torch
from torch.profiler import ProfilerActivity, profile, record_function

Table = dict[str, tuple[int, int]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Three training steps on the CPU: the profiler, and the trace it exported."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    batch = torch.randn(32, 8)
    path = tmp_path_factory.mktemp("torch") / "cpu.pt.trace.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        record_shapes=True,
        profile_memory=True,
    ) as profiler:
        for _ in range(4):
            with record_function("forward"):
                loss = model(batch).sum()
            loss.backward()
            profiler.step()
    return profiler, path


def _torch_says(profiler: Any) -> Table:
    """Calls and total microseconds by name, as the profiler counts them."""
    return {row.key: (row.count, round(row.cpu_time_total)) for row in profiler.key_averages()}


def _we_say(path: Path) -> Table:
    rows = ks.compat.torch_profiler.key_averages(ks.read(path)).filter(pl.col("device") == "cpu")
    return {row["name"]: (row["count"], round(row["cpu_total_ns"] / 1000)) for row in rows.to_dicts()}


def test_names_and_counts(recorded: tuple[Any, Path]) -> None:
    profiler, path = recorded
    torch_says, we_say = _torch_says(profiler), _we_say(path)
    assert {name: row[0] for name, row in we_say.items()} == {
        name: row[0] for name, row in torch_says.items()
    }


def test_times(recorded: tuple[Any, Path]) -> None:
    profiler, path = recorded
    torch_says, we_say = _torch_says(profiler), _we_say(path)
    for name, (count, total_us) in torch_says.items():
        # The file has ns; the profiler's own table rounds each call to the us.
        assert we_say[name][1] == pytest.approx(total_us, abs=count + 1), name


def test_nothing_is_lost_or_repaired(recorded: tuple[Any, Path]) -> None:
    trace = ks.read(recorded[1], strict=True)
    assert trace.meta.seen == trace.meta.kept > 100
    assert trace.diagnostics.filter(pl.col("severity").cast(pl.String) != "info").is_empty()
    assert trace.meta.flags == {"record_shapes": True, "profile_memory": True}
    assert trace.steps["step"].drop_nulls().len() == 3
    assert {"forward", "backward"} <= set(trace.ops["phase"].drop_nulls().cast(pl.String))


def test_compressed_is_the_same(recorded: tuple[Any, Path], tmp_path: Path) -> None:
    packed = tmp_path / "cpu.json.gz"
    with recorded[1].open("rb") as source, gzip.open(packed, "wb") as target:
        shutil.copyfileobj(source, target)
    plain, unpacked = ks.read(recorded[1]), ks.read(packed)
    for name, frame in plain.tables.items():
        assert unpacked.tables[name].equals(frame), name


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "tab\there", "é", "nan", "}, {", "\x01"])
def test_any_annotation_name(tmp_path: Path, name: str) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        with record_function(name):
            torch.ones(3).sum()
        torch.zeros(3)
    path = tmp_path / "named.json"
    profiler.export_chrome_trace(str(path))
    trace = ks.read(path)
    assert (trace.meta.dropped, trace.meta.seen) == (0, trace.meta.kept)
    assert {"aten::sum", "aten::zeros"} <= set(trace.ops["name"].cast(pl.String))
    assert trace.ops.filter(pl.col("category").cast(pl.String) == "user_annotation").height == 1
