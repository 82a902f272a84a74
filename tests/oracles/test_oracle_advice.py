"""Laws of the advice about every real trace: plausible savings, one cause once, nothing that contradicts."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from traces import SHARED, TRACES, files, need, read

import draws
import kernelscope as ks
from events import Events
from kernelscope import analysis
from kernelscope.analysis.advice.facts import Facts
from twin import drawn, drawn_databases
from twin.advice import hold_savings

ALL = [
    *files(TRACES, "*.json.gz"),
    *files(TRACES / "graph-capture", "*.json.gz"),
    *files(SHARED / "traces/nsys", "*.sqlite"),
    *files(SHARED / "oracles/tb-plugin/unit", "*.trace.json"),
]


def check_promises(trace: ks.Trace) -> None:
    total_ns = int(analysis.step_times(trace)["total_ns"].sum())
    hold_savings(analysis.recommendations(trace).to_dicts(), total_ns)


@pytest.mark.parametrize("path", ALL)
def test_no_finding_promises_more_than_all_steps(path: Path) -> None:
    check_promises(read(path))


@settings(max_examples=draws.count(50, 2_000))
@given(events=drawn.traces())
def test_promises_about_traces_drawn_at_random(events: Events) -> None:
    with TemporaryDirectory() as folder:
        check_promises(events.read(Path(folder)))


def test_promises_about_databases_drawn_at_random(tmp_path: Path) -> None:
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
        # All that only copies, less what the host then takes to launch the rest.
        assert 0.9 * times["memory_ns"] <= row["saving_ns"] <= times["memory_ns"]
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
