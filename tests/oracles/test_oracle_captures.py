"""Replayed graphs with their captures: against TraceLens, and with captures that were spoiled."""

from __future__ import annotations

import copy
import gzip
import json
import random
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pytest
from traces import ORACLES, TRACES, load_json, need, rows_of

import draws
import kernelscope as ks
from kernelscope.analysis import costs, op_table
from kernelscope.check import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KERNELS = {"sglang": 544, "vllm": 421}
ENGINES = tuple(KERNELS)
# TraceLens' numbers of us are sums of float64 starts and ends of 1e12 us.
_US_PER_KERNEL = 1e-3

Events = list[dict[str, Any]]


def replay_path(engine: str) -> Path:
    return need(TRACES / f"{engine}-decode-graph-mi300.json.gz")


def capture_path(engine: str) -> Path:
    return need(TRACES / "graph-capture" / f"{engine}-decode-bs32.json.gz")


@lru_cache(maxsize=2)
def with_capture(engine: str) -> ks.Trace:
    return ks.read(replay_path(engine), capture=capture_path(engine))


@lru_cache(maxsize=4)
def events_of(path: Path) -> Events:
    """Events without Python frames, which make files of this size slow to write."""
    return [event for event in load_json(path)["traceEvents"] if event.get("cat") != "python_function"]


class Matched(NamedTuple):
    """The op that each replayed kernel was given, by its start; null for none."""

    ops: list[int | None]
    how: list[str | None]


def matched(folder: Path, replay: Events, *captures: Events) -> Matched:
    files: list[Path] = []
    for number, events in enumerate((replay, *captures)):
        files.append(folder / f"{number}.json")
        files[-1].write_text(json.dumps({"traceEvents": events}))
    trace = ks.read(files[0], capture=files[1:])
    replayed = trace.gpu_ops.join(trace.launches.select(launch_row="row", call="name"), on="launch_row")
    replayed = replayed.filter(pl.col("call").cast(pl.String) == "hipGraphLaunch")
    ops = trace.captured_ops.select(captured_op_row="row", made_ns="start_ns")
    # In the order of the file, whatever their streams and times.
    found = replayed.sort("row").join(ops, on="captured_op_row", how="left", maintain_order="left")
    return Matched(found["made_ns"].to_list(), found["match"].cast(pl.String).to_list())


def truth(engine: str, folder: Path) -> list[int | None]:
    return matched(folder, events_of(replay_path(engine)), events_of(capture_path(engine))).ops


def recall(found: Matched, expected: list[int | None]) -> float:
    """The share of kernels with the right op; fails if any has a wrong one."""
    wrong = [
        at for at, (op, right) in enumerate(zip(found.ops, expected, strict=True)) if op not in (None, right)
    ]
    assert not wrong, f"{len(wrong)} wrong, the first at {wrong[0]}"
    return sum(op is not None for op in found.ops) / len(expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_replayed_kernel_is_found(engine: str) -> None:
    trace = with_capture(engine)
    count = KERNELS[engine]
    assert trace.gpu_ops["match"].cast(pl.String).value_counts().sort("count")["count"].to_list()[-1] == count
    assert trace.gpu_ops.filter(pl.col("match") == "exact")["captured_op_row"].null_count() == 0
    assert trace.captured_graphs["replayed"].to_list() == [count]
    assert [verdict for verdict in check(trace) if verdict.faults] == []


@pytest.mark.parametrize("engine", ENGINES)
def test_kernel_time_per_operator_is_tracelens(engine: str) -> None:
    table = op_table(with_capture(engine), by=("name", "input_dims"), collapse=False)
    ours = {(row["name"], shapes(row["input_dims"])): row for row in table.iter_rows(named=True)}
    path = need(ORACLES / "tracelens" / f"{engine}-decode-graph-mi300" / "unified_perf_summary.csv")
    theirs: dict[tuple[str, str], tuple[int, float]] = {}
    for row in rows_of(path.read_text()):
        key = (row["name"], shapes(row["Input Dims"]))
        count, us = theirs.get(key, (0, 0.0))
        theirs[key] = count + int(row["operation_count"]), us + float(row["Kernel Time (µs)_sum"])
    compared = 0.0
    for (name, dims), (count, us) in theirs.items():
        # Kernels without operator, parts of the experts and copies inside operators are rows of its own.
        if (
            "->" in name
            or name.startswith("pseudo_op::")
            or (name, dims) == ("aten::copy_", "[[32],[32],[]]")
        ):
            continue
        known = [row for key, row in ours.items() if key[0].startswith(name) and key[1] == dims]
        assert [row["calls"] for row in known] == [count], name
        assert known[0]["device_total_ns"] / 1000 == pytest.approx(us, abs=_US_PER_KERNEL * 2 * count), name
        compared += us
    experts = sum(us for (name, _), (_, us) in theirs.items() if name.startswith("pseudo_op::moe"))
    if experts:
        own = sum(row["device_self_ns"] for key, row in ours.items() if key[0] == "vllm::moe_forward")
        assert own / 1000 == pytest.approx(experts, abs=0.2)
    total = sum(us for _, us in theirs.values())
    assert (compared + experts) / total > 0.99


def shapes(text: str | None) -> str:
    """Shapes as both write them."""
    text = (text or "").replace(" ", "").replace("(", "[").replace(",)", ")").replace(")", "]")
    return text or "[]"


@pytest.mark.parametrize(("engine", "least"), [("sglang", 0.99), ("vllm", 0.97)])
def test_costs_cover_replayed_work(engine: str, least: float) -> None:
    trace = with_capture(engine)
    known = costs(trace).filter(pl.col("flops").is_not_null())
    assert known["device_ns"].sum() / trace.gpu_ops["dur_ns"].sum() >= least


@pytest.mark.parametrize("engine", ENGINES)
def test_flops_are_tracelens(engine: str) -> None:
    """Products and attention to the last FLOP; the experts differ by what their grid shows."""
    trace = with_capture(engine)
    flops = dict(costs(trace).group_by("name").agg(pl.col("flops").sum()).iter_rows())
    path = need(ORACLES / "tracelens" / f"{engine}-decode-graph-mi300" / "unified_perf_summary.csv")
    theirs: dict[str, int] = {}
    for row in rows_of(path.read_text()):
        if row["op category"] in ("GEMM", "InferenceAttention", "MoE_unfused") and row["GFLOPS"]:
            family = row["op category"]
            total = round(float(row["GFLOPS"]) * 1e9) * int(row["operation_count"])
            theirs[family] = theirs.get(family, 0) + total
    products = sum(flops.get(name, 0) for name in ("aten::mm", "aten::addmm"))
    # They count the addition of a bias, which is part of the product here.
    biases = 24 * 32 * (5120 + 2880 + 32) if engine == "vllm" else 0
    assert products + biases == pytest.approx(theirs["GEMM"], rel=1e-9)
    attention = sum(value for name, value in flops.items() if "attention" in name)
    assert attention == pytest.approx(theirs["InferenceAttention"], rel=1e-9)
    if engine == "vllm":
        # They take the hidden size of 3072 for the inner one. The grid of 1748 blocks has 46 tiles of 128
        # columns for 38 blocks of rows: twice the inner size is at most 5888, and 3072 would need 48 tiles.
        assert flops["vllm::moe_forward"] * 3072 == theirs["MoE_unfused"] * 2944


def test_a_capture_is_found_where_it_lies(tmp_path: Path) -> None:
    replay, capture = events_of(replay_path("vllm")), events_of(capture_path("vllm"))
    beside = tmp_path / "capture_traces"
    beside.mkdir()
    with gzip.open(beside / "bs32.json.gz", "wt") as file:
        json.dump({"traceEvents": capture}, file)
    (beside / "broken.json").write_text("no trace")
    (tmp_path / "replay.json").write_text(json.dumps({"traceEvents": replay}))
    trace = ks.read(tmp_path / "replay.json")
    assert trace.gpu_ops["captured_op_row"].count() == KERNELS["vllm"]
    codes = dict(trace.diagnostics.select(pl.col("code").cast(pl.String), "count").iter_rows())
    assert (codes["replay_matched"], codes["capture_unreadable"]) == (KERNELS["vllm"], 1)
    assert ks.read(tmp_path / "replay.json", capture=()).gpu_ops["captured_op_row"].count() == 0
    # The same file may hold both.
    (tmp_path / "both.json").write_text(json.dumps({"traceEvents": capture + replay}))
    both = ks.read(tmp_path / "both.json", capture=())
    assert both.gpu_ops["captured_op_row"].count() == KERNELS["vllm"]
    assert both.captured_graphs["source"].to_list() == [None]
    with pytest.raises(ks.errors.KernelscopeError, match="broken"):
        ks.read(tmp_path / "replay.json", capture=beside / "broken.json")


def launches_of(capture: Events) -> Events:
    calls = [event for event in capture if "kernel" in event.get("args", {})]
    return sorted(calls, key=lambda event: event["ts"])


def removed(capture: Events, at: int) -> Events:
    """Without an operator and what it launched."""
    ident = launches_of(capture)[at]["args"]["External id"]
    return [event for event in capture if event.get("args", {}).get("External id") != ident]


def forgotten(capture: Events, at: int) -> Events:
    """Without the record of an operator, but for its launches."""
    ident = launches_of(capture)[at]["args"]["External id"]
    is_op = lambda event: event.get("cat") == "cpu_op" and event["args"].get("External id") == ident  # noqa: E731
    return [event for event in capture if not is_op(event)]


def renamed(capture: Events, at: int) -> Events:
    """A launch that names another kernel."""
    launches_of(capture)[at]["args"]["kernel"] = "another_kernel"
    return capture


def swapped(capture: Events, at: int) -> Events:
    """A launch that changed places with the next of another kernel."""
    calls = launches_of(capture)
    first = calls[at]
    second = next((c for c in calls[at + 1 :] if c["args"]["kernel"] != first["args"]["kernel"]), None)
    if second is not None:
        first["ts"], second["ts"] = second["ts"], first["ts"]
    return capture


@pytest.mark.parametrize("spoil", [removed, forgotten, renamed, swapped], ids=lambda spoil: spoil.__name__)
@pytest.mark.parametrize("engine", ENGINES)
def test_spoiled_captures_give_no_wrong_operator(
    engine: str, spoil: Callable[[Events, int], Events], tmp_path: Path
) -> None:
    expected = truth(engine, tmp_path)
    least = 1.0
    for seed in range(draws.seed, draws.seed + draws.count(2, 40)):
        at = random.Random(seed).randrange(KERNELS[engine])
        capture = spoil(copy.deepcopy(events_of(capture_path(engine))), at)
        least = min(least, recall(matched(tmp_path, events_of(replay_path(engine)), capture), expected))
    assert least >= 0.98, f"recall {least:.1%}"


def sized(capture: Events, size: int) -> Events:
    """The capture of another batch size whose kernels have the same names."""
    text = json.dumps(capture).replace("capture_32_", f"capture_{size}_").replace("[32, ", f"[{size}, ")
    return json.loads(text)


@pytest.mark.parametrize("engine", ENGINES)
def test_batch_sizes_are_not_confused(engine: str, tmp_path: Path) -> None:
    expected = truth(engine, tmp_path)
    replay, capture = events_of(replay_path(engine)), events_of(capture_path(engine))
    others = [sized(capture, size) for size in (16, 64)]
    right_and_others = matched(tmp_path, replay, others[0], capture, others[1])
    assert recall(right_and_others, expected) == 1
    for other in others:
        assert recall(matched(tmp_path, replay, other), expected) == 0
    unnamed = [
        [e for e in events if not str(e["name"]).startswith("capture_")] for events in (capture, others[0])
    ]
    assert recall(matched(tmp_path, replay, *unnamed), expected) == 0, "two that fit equally"
    assert recall(matched(tmp_path, replay, capture, capture), expected) == 1, "twice the same is no doubt"


def kernels_of(replay: Events) -> Events:
    launch = next(event for event in replay if event["name"] == "hipGraphLaunch")
    of_launch = launch["args"]["correlation"]
    works = [e for e in replay if e.get("cat") == "kernel" and e["args"]["correlation"] == of_launch]
    return sorted(works, key=lambda event: event["ts"])


def on_two_streams(replay: Events, second: set[int]) -> Events:
    """Work of which some is on a second stream, each in order, whose starts are mixed."""
    replay = copy.deepcopy(replay)
    kernels = kernels_of(replay)
    starts = [event["ts"] for event in kernels]
    split: tuple[Events, Events] = ([], [])
    for at, event in enumerate(kernels):
        split[at in second].append(event)
    for stream, events in zip((3, 4), split, strict=True):
        order = sorted(random.Random(stream).sample(range(len(starts)), len(events)))
        for event, at in zip(events, order, strict=True):
            event["tid"] = event["args"]["stream"] = stream
            event["ts"] = starts[at] + stream / 100
    return replay


@pytest.mark.parametrize("engine", ENGINES)
def test_interleaved_streams_give_no_wrong_operator(engine: str, tmp_path: Path) -> None:
    expected = truth(engine, tmp_path)
    replay, capture = events_of(replay_path(engine)), events_of(capture_path(engine))
    norms = {at for at, event in enumerate(kernels_of(replay)) if "norm" in event["name"].lower()}
    apart = matched(tmp_path, on_two_streams(replay, norms), capture)
    assert recall(apart, expected) == 1, "each name on one stream"
    for seed in range(4):
        second = random.Random(seed).sample(range(len(expected)), len(expected) // 3)
        recall(matched(tmp_path, on_two_streams(replay, set(second)), capture), expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_missing_work_leaves_the_rest(engine: str, tmp_path: Path) -> None:
    expected = truth(engine, tmp_path)
    for seed in range(4):
        replay = copy.deepcopy(events_of(replay_path(engine)))
        lost = random.Random(seed).sample(kernels_of(replay), 3)
        kept = [event for event in replay if all(event is not other for other in lost)]
        of_kept = [op for op, event in zip(expected, kernels_of(replay), strict=True) if event not in lost]
        assert recall(matched(tmp_path, kept, events_of(capture_path(engine))), of_kept) > 0.98


def cut_captures(capture: Events) -> Iterator[Events]:
    calls = launches_of(capture)
    for share in (0.1, 0.6, 0.95):
        last = calls[int(share * len(calls))]["ts"]
        yield [event for event in capture if event.get("ts", 0) < last]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_capture_that_was_cut_off(engine: str, tmp_path: Path) -> None:
    expected = truth(engine, tmp_path)
    found = [
        matched(tmp_path, events_of(replay_path(engine)), capture)
        for capture in cut_captures(events_of(capture_path(engine)))
    ]
    recalls = [round(recall(one, expected), 1) for one in found]
    assert recalls in ([0.0, 0.6, 0.9], [0.0, 0.6, 1.0])
    assert {how for one in found for how in one.how} == {"aligned", None}


def test_captures_of_another_model(tmp_path: Path) -> None:
    for engine, other in (ENGINES, ENGINES[::-1]):
        replay, capture = events_of(replay_path(engine)), events_of(capture_path(other))
        assert set(matched(tmp_path, replay, capture).ops) == {None}
        # The same with a few layers less.
        fewer = events_of(capture_path(engine))
        middle = launches_of(fewer)[100]["ts"], launches_of(fewer)[200]["ts"]
        fewer = [e for e in fewer if not ("kernel" in e.get("args", {}) and middle[0] <= e["ts"] < middle[1])]
        assert set(matched(tmp_path, replay, fewer).ops) == {None}
