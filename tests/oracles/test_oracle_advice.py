"""Laws of the advice about every real trace: plausible savings, one cause once, nothing that contradicts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from traces import SHARED, TRACES, files, need, read

import draws
import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.analysis.advice import record
from kernelscope.analysis.advice.facts import Facts
from kernelscope.analysis.advice.record import Advice
from kernelscope.analysis.advice.table import RULES
from twin import drawn, drawn_databases

ALL = [
    *files(TRACES, "*.json.gz"),
    *files(TRACES / "graph-capture", "*.json.gz"),
    *files(SHARED / "traces/nsys", "*.sqlite"),
    *files(SHARED / "oracles/tb-plugin/unit", "*.trace.json"),
]
Spans = list[tuple[int, int]]

# What these rules change are the gaps before the work that they cite, and for the last the work, too.
OF_GAPS = {
    "launch_bound", "serving_without_graphs", "tiny_kernels", "host_busy", "gpu_idle", "optimizer_not_fused",
}  # fmt: skip
# These change what follows or lies between the rows that they cite: at most all that their GPU idles.
OF_IDLE_TIME = {"synchronising_calls", "graph_breaks"}


def union(spans: Iterable[tuple[int, int]]) -> Spans:
    """Spans that do not touch, in order; empty ones end gaps, too."""
    merged: Spans = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length(spans: Spans) -> int:
    return sum(end - start for start, end in spans)


def within(spans: Spans, steps: Spans) -> int:
    """How much of spans that do not touch lies in steps that do not touch."""
    shared = ((max(a, c), min(b, d)) for a, b in spans for c, d in steps if a <= d and c <= b)
    return length(union(shared))


def intervals(trace: ks.Trace, table: str) -> dict[int, tuple[int, int]]:
    rows = trace.tables[table].select("row", "start_ns", "dur_ns").iter_rows()
    return {row: (start, start + max(dur or 0, 0)) for row, start, dur in rows if start is not None}


class Walls:
    """The wall time, in whole steps, of what a finding changes."""

    def __init__(self, trace: ks.Trace) -> None:
        self.trace = trace
        steps = analysis.step_breakdown(trace).select("start_ns", "total_ns").iter_rows()
        self.steps = union((start, start + total) for start, total in steps)
        self.device = dict(trace.gpu_ops.select("row", "device").iter_rows())
        self.work = intervals(trace, "gpu_ops")
        self.busy = {
            device: union(span for row, span in self.work.items() if self.device[row] == device)
            for device in set(self.device.values())
        }

    def idle(self, device: int | None) -> Spans:
        busy = self.busy.get(device, [])
        return [(a[1], b[0]) for a, b in pairwise(busy)]

    def of(self, rule: str, advice: Advice) -> int:
        rows, table = advice.cites.rows, advice.cites.table
        assert table is not None
        if rule in OF_IDLE_TIME:
            return max((within(self.idle(device), self.steps) for device in self.busy), default=2**63)
        own = intervals(self.trace, table)
        if table != "gpu_ops":
            return within(union(own[row] for row in rows), self.steps)
        walls = []
        for device in {self.device[row] for row in rows}:
            of_device = [row for row in rows if self.device[row] == device]
            spans = [own[row] for row in of_device] if rule not in OF_GAPS - {"optimizer_not_fused"} else []
            if rule in OF_GAPS:
                before = {end: (start, end) for start, end in self.idle(device)}
                spans += [before[own[row][0]] for row in of_device if own[row][0] in before]
            walls.append(within(union(spans), self.steps))
        return max(walls)


def check_promises(trace: ks.Trace) -> None:
    walls = Walls(trace)
    facts = Facts(trace)
    for rule in RULES:
        for advice in rule.find(facts):
            if advice.saving_ns is not None:
                assert 0 <= advice.saving_ns <= walls.of(rule.find.__name__, advice), rule.find.__name__
                assert advice.saving_ns <= length(walls.steps), rule.find.__name__


@pytest.mark.parametrize("path", ALL)
def test_no_finding_promises_more_than_the_wall_time_of_what_it_changes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "MOST_ROWS", 10**9)
    check_promises(read(path))


@settings(max_examples=draws.count(50, 2_000))
@given(events=drawn.traces())
def test_promises_about_traces_drawn_at_random(events: Events) -> None:
    with TemporaryDirectory() as folder:
        check_promises(events.read(Path(folder)))


def test_promises_about_databases_drawn_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MOST_ROWS", 10**9)
    for seed in range(60):
        check_promises(ks.read(drawn_databases.write(tmp_path / f"{seed}.sqlite", seed)))


# What must not stand together, whichever findings say it; what a trace itself shows counts as said.
APART = [
    (r"arger batch|nlarge the batch", r"reduce the batch size|Use less memory|Memory ran out"),
    (r"arger batch|nlarge the batch", r"Only copies run for|Only data loading runs"),
    (
        r"Replay the kernels|--enforce-eager|--disable-cuda-graph",
        r"\(graphs are replayed\)|as graphs already",
    ),
    (r"Fuse them with torch\.compile", r"\(torch\.compile is used\)|TORCH_LOGS=graph_breaks"),
    (r"--enforce-eager", r"--disable-cuda-graph"),
    (r"Record with with_stack=True", r"\(frames are recorded\)|See the Python frames"),
    (r"none of their kernels do", r"Matrix products without tensor cores"),
    (r"Compute in float16", r"Compute in bfloat16"),
    (r"for data[,.].*The GPU was idle|The GPU was idle.*for data[,.]", r"Only data loading runs"),
    (r"The GPU was idle.* for launches", r"waited .* for the next launch"),
    (r"pin_memory=True", r"from pinned memory took"),
]
# Two findings of one cause.
ONCE = [
    ("data_loading", "gpu_idle"), ("launch_bound", "tiny_kernels"),
    ("launch_bound", "serving_without_graphs"),
    ("communication", "exposed_communication"), ("mixed_precision", "off_tensor_cores"),
    ("recompilation", "recompiled_functions"), ("out_of_memory", "memory_near_capacity"),
]  # fmt: skip


def shown(trace: ks.Trace) -> list[str]:
    """What a trace says of the program itself."""
    facts = Facts(trace)
    marks = {
        "(graphs are replayed)": facts.graph_launches,
        "(torch.compile is used)": facts.is_compiled,
        "(frames are recorded)": facts.has_frames,
    }
    return [text for text, holds in marks.items() if holds]


@pytest.mark.parametrize("path", ALL)
def test_no_advice_contradicts_another(path: Path) -> None:
    trace = read(path)
    table = analysis.recommendations(trace)
    said = [f"{row['title']}. {row['evidence']} {row['remedy']}" for row in table.to_dicts()] + shown(trace)
    for one, other in APART:
        both = [[text for text in said if re.search(pattern, text)] for pattern in (one, other)]
        assert not all(both), (one, other)
    alone = table.filter(table["same_cause_as"].is_null())
    spoken = {(row["id"], row["device"]) for row in alone.to_dicts()}
    for one, other in ONCE:
        for rule, device in spoken:
            assert rule != one or not {(other, device), (other, None)} & spoken, (one, other)


@pytest.mark.parametrize("path", ALL)
def test_advice_says_its_cause_its_evidence_and_what_to_do(path: Path) -> None:
    table = analysis.recommendations(read(path))
    for row in table.to_dicts():
        assert row["evidence"].endswith(".")
        assert row["remedy"].endswith(".")
        assert re.search(r"\d", row["evidence"]), row["evidence"]
        assert "advice" not in row["remedy"]
    said = table.filter(table["same_cause_as"].is_null())
    assert said.select("id", "device", "rank").is_duplicated().sum() == 0
    assert set(table["same_cause_as"].drop_nulls()) <= set(said["id"])


def test_copies_of_the_h100s_are_what_is_advised_about() -> None:
    """96.8 % of the time the GPUs copy from pinned memory; a larger batch would copy more."""
    trace = read(need(SHARED / "traces/nsys/h100-2gpu-emit-nvtx-2026.2.sqlite"))
    table = analysis.recommendations(trace)
    found = table.filter(id="exposed_copies").sort("device")
    assert found["device"].to_list() == [0, 1]
    assert table["id"][0] == "exposed_copies"
    busy = analysis.temporal_breakdown(trace)
    for row, times in zip(found.to_dicts(), busy.to_dicts(), strict=True):
        assert "223 copies to the GPU from pinned memory" in row["evidence"]
        # All that only copies, less memsets.
        assert 0.99 * times["memory_ns"] <= row["saving_ns"] <= times["memory_ns"]
    assert not any("batch" in text for text in table["remedy"])


def test_attention_of_owlv2_is_not_fused() -> None:
    table = analysis.recommendations(read(need(TRACES / "owlv2-h100.json.gz")))
    row = table.filter(id="attention_not_fused").to_dicts()[0]
    # 180 softmaxes take 262.5 ms of a step of 1,211 ms, the products around them remain.
    assert row["saving_ns"] == pytest.approx(262.5e6, rel=0.01)
    assert "180 softmaxes" in row["evidence"]
    assert "scaled_dot_product_attention" in row["remedy"]


def test_attention_that_is_fused_is_none_of_that() -> None:
    for name in ("qwen1.5-0.5b-h100", "sampled-rank0of128", "resnet50-v100-2021"):
        table = analysis.recommendations(read(need(TRACES / f"{name}.json.gz")))
        assert "attention_not_fused" not in table["id"].to_list()


def test_serving_without_graphs_is_told_apart_from_serving_with_them() -> None:
    row = analysis.recommendations(read(need(TRACES / "eager-b200-rank0of8.json.gz"))).to_dicts()[0]
    assert row["id"] == "serving_without_graphs"
    assert "--enforce-eager" in row["remedy"]
    for name in ("sglang-decode-graph-mi300", "vllm-decode-graph-mi300", "graph-capture/vllm-decode-bs32"):
        table = analysis.recommendations(read(need(TRACES / f"{name}.json.gz")))
        assert not {"serving_without_graphs", "launch_bound"} & set(table["id"])


def test_a_loader_that_the_gpu_waits_for_is_said_once() -> None:
    table = analysis.recommendations(read(need(TRACES / "owlv2-h100.json.gz")))
    row = table.filter(id="data_loading").to_dicts()[0]
    assert "Share of time with a kernel: GPU 0 45.5 %." in row["evidence"]
    part = table.filter(id="low_utilisation").to_dicts()[0]
    assert (part["same_cause_as"], part["remedy"]) == ("data_loading", row["remedy"])
    assert "gpu_idle" not in table["id"].to_list()


def test_operators_far_below_the_roofline_are_named() -> None:
    table = analysis.recommendations(read(need(TRACES / "sglang-qwen3-8b-mi300.json.gz")))
    row = table.filter(id="below_attainable").to_dicts()[0]
    assert "aten::mm (420.3 ms, 39 %)" in row["evidence"]
    assert 0.2 < row["saving_share"] < 0.26
