"""Views, memory, modules, counters and advice against the TensorBoard plugin 0.4.3."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tb_compare as tb
from tb_compare import module_statistics
from traces import ORACLES, TRACES, VALID, files, load_json, need, read

from kernelscope import analysis
from kernelscope.analysis.gpu.timeline import sm_segments
from kernelscope.analysis.ops.table import eligible_share

PLUGIN = ORACLES / "tb-plugin"
RESNET = TRACES / "resnet50-v100-2021.json.gz"


def oracle(name: str) -> Any:
    return load_json(need(PLUGIN / f"workers0.span1.{name}"))


def expected_of(path: Path) -> Any:
    """The plugin's answers for a trace of its own tests."""
    return load_json(path.with_name(path.name.replace(".trace.", ".expected.")))


def test_resnet50_step_breakdown() -> None:
    expected = oracle("step_breakdown.json")
    actual = tb.steps(read(need(RESNET)))
    assert tb.differences(actual, expected["steps_raw"]) == []
    averages = {key: sum(step[key] for step in actual) / len(actual) for key in expected["avg_raw"]}
    assert tb.differences(averages, expected["avg_raw"]) == []


@pytest.mark.parametrize("by_input", [False, True], ids=["name", "name-and-shape"])
def test_resnet50_operators(by_input: bool) -> None:
    rows = oracle("operator_table.json.gz")["raw_by_name_input" if by_input else "raw_by_name"]
    expected = tb.expected_operators(rows, by_input=by_input)
    assert len(expected) == len(rows) > 70
    assert tb.differences(tb.operators(read(need(RESNET)), by_input=by_input), expected) == []


def test_resnet50_kernels() -> None:
    rows = oracle("kernel_table.json.gz")["raw_by_name"]
    expected = {row.pop("name"): row for row in rows}
    assert len(expected) == 67
    assert tb.differences(tb.kernels(read(need(RESNET))), expected) == []


def test_resnet50_kernels_by_launch() -> None:
    expected = tb.expected_by_launch(oracle("kernel_table.json.gz")["raw_by_properties_and_op"])
    assert len(expected) == 226
    actual = tb.kernels_by_launch(read(need(RESNET)))
    # A mean weighted by duration over calls that all lasted 0 us is 0 to the plugin, although each
    # call has blocks and an occupancy; here it is the plain mean.
    weightless = [key for key, row in expected.items() if row["total"] == 0]
    assert len(weightless) == 2
    for key in weightless:
        assert expected[key]["blocks_per_sm"] == 0 < actual[key]["blocks_per_sm"]
        for column in ("blocks_per_sm", "occupancy"):
            expected[key][column] = actual[key][column]
    assert tb.differences(actual, expected) == []


def test_resnet50_gpu_summary() -> None:
    raw = oracle("gpu_metrics.json")["raw"]["0"]
    keys = {
        "util": "gpu_utilization",
        "sm_eff": "sm_efficiency",
        "occ": "achieved_occupancy_pct",
        "tc_ratio": "tc_ratio",
    }
    expected = {ours: raw[theirs] for ours, theirs in keys.items()}
    assert tb.differences(tb.gpus(read(need(RESNET)))["0"], expected) == []


def known_faults(expected: Any, raw: Any) -> list[str]:
    """Patterns of the differences that faults of the plugin explain, each fault proved first."""
    events = raw["traceEvents"]
    patterns = []
    for index, step in enumerate(expected["steps"]):
        parts = sum(value for key, value in step.items() if key not in ("step", "Total"))
        if step["Total"] < 0:
            # Without operators, a step lasts minus 2^64 us.
            patterns.append("steps")
        elif parts > step["Total"]:
            # Once the step is used up, the plugin starts over with the whole step: the parts sum to more.
            patterns.append(rf"steps/{index}/\w+: 0 instead of \d+$")
    for name in orphans(events):
        # A kernel whose launch is not recorded is in no operator, although its External id names one.
        patterns += [rf"ops_by_name(_input)?/.*{name}.*/(self_)?device_duration: \d+ instead of 0$"]
        patterns += [rf"launches/.*'{name}'.*: not expected$", r"gpu/\d+/tc_ratio: 0.0 instead of None$"]
    if any(event.get("cat") == "Kernel" and event["name"].startswith("nccl") for event in events):
        # An NCCL kernel is computation to the plugin unless an operator of NCCL's name launched it.
        patterns.append(r"steps/\d+/(Kernel|Communication)")
    return patterns


def orphans(events: list[Any]) -> list[str]:
    """Operators that the External ids of kernels without a recorded launch name."""
    launched = {event["args"]["correlation"] for event in events if event.get("cat") == "Runtime"}
    names = {
        event["args"]["External id"]: event["name"]
        for event in events
        if "External id" in event.get("args", {})
    }
    kernels = [event["args"] for event in events if event.get("cat") == "Kernel"]
    return [
        names[k["external id"]]
        for k in kernels
        if k["correlation"] not in launched and k["external id"] in names
    ]


def calls_elsewhere(events: list[Any]) -> Counter[str]:
    """How long runtime calls last that name an operator of another thread, by its name."""
    ops = {event["args"]["External id"]: event for event in events if event.get("cat") == "Operator"}
    found: Counter[str] = Counter()
    for call in (event for event in events if event.get("cat") == "Runtime"):
        op = ops.get(call["args"].get("external id"))
        if op is not None and op["tid"] != call["tid"]:
            found[op["name"]] += call["dur"]
    return found


COLLECTIVES = re.compile("nccl:|gloo:|c10d::|record_param_comms")


def host_collectives(trace: Any, expected: list[dict[str, Any]]) -> list[str]:
    """Patterns of what differs where the host is in operators of collectives.

    They start what a GPU communicates, or wait for it, and the plugin takes their time for communication.
    To us they are operators as others are; what is either to both is the same in all.
    """
    if not any(COLLECTIVES.match(name) for name in trace.ops["name"].cast(pl.String)):
        return []
    for ours, theirs in zip(tb.steps(trace), expected, strict=True):
        assert ours["Communication"] <= theirs["Communication"] or theirs["Total"] < 0
        rest = theirs["Total"] - theirs["Kernel"] - theirs["Memcpy"] - theirs["Memset"]
        both = ours["Communication"] + ours["CpuOp"]
        # Where the plugin starts over, its parts are too long.
        assert both == min(theirs["Communication"] + theirs["CpuOp"], rest) or theirs["Total"] < 0
    return [r"steps/\d+/(Communication|CpuOp): "]


@pytest.mark.parametrize("path", files(PLUGIN / "unit", "*.trace.json"))
def test_unit_trace(path: Path) -> None:
    expected = expected_of(path)
    trace = read(path)
    elsewhere = calls_elsewhere(load_json(path)["traceEvents"])
    found = tb.differences(tb.steps(trace), expected["steps"], "steps")
    for key, by_input in (("ops_by_name", False), ("ops_by_name_input", True)):
        rows = tb.expected_operators(expected[key] or [], by_input=by_input)
        for (name, *_), row in (((k if by_input else (k,)), r) for k, r in rows.items()):
            # Of an operator's own time the plugin takes runtime calls on other threads, too.
            row["self_host_duration"] += elsewhere[name]
        found += tb.differences(tb.operators(trace, by_input=by_input), rows, key)
    kernels = {
        row["name"]: {k: v for k, v in row.items() if k != "name"}
        for row in expected["kernels_by_name"] or []
    }
    found += tb.differences(tb.kernels(trace), kernels, "kernels")
    launches = tb.expected_by_launch(expected["kernels_by_properties_and_op"] or [])
    # The root of the plugin's tree stands for no operator.
    launches = {key: row for key, row in launches.items() if key[1] != "CallTreeRoot"}
    found += tb.differences(tb.kernels_by_launch(trace), launches, "launches")
    keys = ("util", "sm_eff", "occ", "tc_ratio")
    gpus = {gpu: {key: row[key] for key in keys} for gpu, row in (expected["gpu"] or {}).items()}
    found += tb.differences(tb.gpus(trace), gpus, "gpu")
    faults = known_faults(expected, load_json(path)) + host_collectives(trace, expected["steps"])
    assert [d for d in found if not any(re.match(fault, d) for fault in faults)] == []


MEASURES = {
    "device_total_time": "device_total_ns",
    "device_self_time": "device_self_ns",
    "host_total_time": "host_total_ns",
    "host_self_time": "host_self_ns",
}


def test_pies_of_operators() -> None:
    expected = oracle("operator_pie.json")["by_name"]
    shares = analysis.op_shares(read(need(RESNET)))
    for theirs, ours in MEASURES.items():
        rows = shares.filter(measure=ours)
        assert sorted(rows.select("name", pl.col("value_ns") // 1000).rows()) == sorted(
            (name, value) for name, value in expected[theirs]["rows"]
        )
        top = analysis.op_shares(read(RESNET), top=10).filter(measure=ours)
        if ours.endswith("_total_ns"):
            # What the plugin adds up here overlaps: it is no whole, of which there could be shares.
            assert rows["share"].null_count() == rows.height
            assert top.equals(rows.head(10))
            continue
        assert rows["share"].sum() == pytest.approx(1)
        assert top["value_ns"].sum() == rows["value_ns"].sum()
        assert top["is_rest"].to_list() == [False] * 10 + [True]


@pytest.mark.parametrize("by_input", [False, True], ids=["name", "name-and-shape"])
def test_operators_by_call_stack(by_input: bool) -> None:
    stated = oracle("operator_stack.json.gz")
    expected = stated["by_name_input" if by_input else "by_name"]
    by = ("name", *(("input_dims",) if by_input else ()), "call_stack")
    # The plugin leaves out rows without a stack.
    table = analysis.op_table(read(need(RESNET)), by=by).filter(pl.col("call_stack").is_not_null())
    actual = Counter(
        (
            row["name"],
            tb.shape(row["input_dims"]) if by_input else None,
            row["call_stack"],
            row["calls"],
            *(row[column] // 1000 for column in ("device_self_ns", "device_total_ns")),
            *(row[column] // 1000 for column in ("host_self_ns", "host_total_ns")),
            row["tc_eligible"],
        )
        for row in table.to_dicts()
    )
    wanted = Counter(
        (
            row["name"],
            tb.shape(row["input_shape"]) if by_input else None,
            row["call_stack"],
            row["calls"],
            *(row[f"device_{column}_duration"] for column in ("self", "total")),
            *(row[f"host_{column}_duration"] for column in ("self", "total")),
            row["tc_eligible"] == "Yes",
        )
        for group in expected.values()
        for row in group["data"]
    )
    assert len(wanted) > 300
    assert actual == wanted


def test_gpu_work_below_operators_sums_to_their_device_time() -> None:
    trace = read(need(RESNET))
    below = analysis.op_kernels(trace).group_by(name="op").agg(pl.col("total_ns", "self_ns").sum())
    operators = analysis.op_table(trace, annotations=True).filter(pl.col("device_total_ns") > 0)
    joined = operators.join(below, on="name", how="left")
    assert joined.height == below.height > 50
    assert joined["total_ns"].to_list() == joined["device_total_ns"].to_list()
    assert joined["self_ns"].to_list() == joined["device_self_ns"].to_list()


def test_launch_sizes_of_kernels() -> None:
    rows = oracle("kernel_table.json.gz")["raw_by_properties_and_op"]
    assert tb.eligible_launches(read(need(RESNET))) == tb.expected_eligible(rows)


def test_occupancy_by_limits_is_what_the_recorder_says() -> None:
    # Of a launch that fills the GPU, the achieved occupancy is the theoretical one, in whole percent.
    table = analysis.kernels_by_launch(read(need(RESNET))).filter(pl.col("waves") >= 1)
    assert table.height > 100
    off = (table["theoretical_occupancy_pct"] - table["occupancy_pct"]).abs()
    assert off.max() <= 0.5


def test_share_of_kernel_time_in_eligible_operators() -> None:
    # "Kernels with 68% time are launched by Tensor Cores eligible operators", and 67.6 % before rounding.
    assert eligible_share(read(need(RESNET))) == pytest.approx(0.6761950325595234, rel=1e-12)
    overview = analysis.overview(read(RESNET)).row(0, named=True)
    assert overview["tc_eligible_share"] == eligible_share(read(RESNET))
    assert (overview["steps"], overview["partial_steps"], overview["gpus"]) == (6, 0, 1)


@pytest.mark.parametrize("path", files(PLUGIN / "unit", "*.trace.json"))
def test_tensor_cores_of_unit_traces(path: Path) -> None:
    expected = expected_of(path)
    trace = read(path)
    # What cannot be said is 0 to the plugin.
    assert (eligible_share(trace) or 0.0) == pytest.approx(expected["tc_eligible_ops_kernel_ratio"], rel=1e-9)
    kernels = analysis.kernel_table(trace)
    used = kernels.filter(pl.col("tensor_cores").fill_null(value=False))["total_ns"].sum()
    total = kernels["total_ns"].sum()
    if expected["tc_used_ratio"] is None:
        assert total == 0
    else:
        assert used / total == pytest.approx(expected["tc_used_ratio"], rel=1e-9)
    # The root of the plugin's tree stands for no operator.
    rows = [row for row in expected["kernels_by_properties_and_op"] or [] if row["op_name"] != "CallTreeRoot"]
    assert tb.expected_eligible(rows).items() <= tb.eligible_launches(trace).items()


FIGURES = ("calls", "operators", "host_total_ns", "host_self_ns", "device_total_ns", "device_self_ns")


def by_instance(trace: Any) -> dict[str, dict[str, int]]:
    """Sums over all places of an instance, as the plugin shows them."""
    table = analysis.module_table(trace).group_by("module").agg(pl.col(FIGURES).sum())
    return {row.pop("module"): row for row in table.to_dicts()}


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("qwen1.5-0.5b-h100", 316),
        ("owlv2-h100", 466),
        ("resnet-act-checkpoint-mi300", 73),
        ("eager-b200-rank0of8", 401),
    ],
)
def test_figures_are_those_of_the_plugin(name: str, modules: int) -> None:
    path = need(TRACES / f"{name}.json.gz")
    expected = module_statistics(load_json(path))
    assert len(expected) == modules
    actual = by_instance(read(path))
    assert actual == expected


def test_hierarchy_of_the_unit_case() -> None:
    trace = read(need(ORACLES / "tb-plugin/unit/test_build_module_hierarchy.0.trace.json"))
    table = analysis.module_table(trace)
    # The plugin's own test expects two roots, one with a child that is called three times as it is.
    assert table["path"].to_list() == ["MyModule", "MyModule/Linear", "Conv2"]
    assert table["parent_path"].to_list() == [None, "MyModule", None]
    expected = {
        "calls": [3, 3, 1],
        "operators": [0, 3, 0],
        "host_total_ns": [3 * 211_000, 3 * 62_000, 211_000],
        "host_self_ns": [3 * (211_000 - 62_000), 3 * 62_000 - 96_000, 211_000],
        "device_total_ns": [None, None, None],
    }
    assert {column: table[column].to_list() for column in expected} == expected


def test_modules_that_operators_call_are_not_their_callers_own() -> None:
    path = need(TRACES / "sglang-qwen3-8b-mi300.json.gz")
    expected, actual = module_statistics(load_json(path)), by_instance(read(path))
    different = {name for name in expected if actual[name] != expected[name]}
    # Attention is an operator here, and that calls a module: to the plugin its GPU time is the outer module's
    # own, and the inner module's, too. So what modules did themselves sums to more than what was done.
    assert different
    assert all(name.startswith("Qwen3Attention_") for name in different)
    table = analysis.module_table(read(path))
    inside = table.group_by("parent_path").agg(pl.col("device_total_ns").sum().alias("inside_ns"))
    nested = table.join(inside, left_on="path", right_on="parent_path", how="left")
    own = pl.col("device_total_ns") - pl.col("inside_ns").fill_null(0)
    assert nested.select((own == pl.col("device_self_ns")).all()).item()
    for name in different:
        changed = {key for key in FIGURES if actual[name][key] != expected[name][key]}
        assert changed == {"device_self_ns"}
        row = nested.row(by_predicate=pl.col("module") == name, named=True)
        assert expected[name]["device_self_ns"] + row["inside_ns"] > row["device_total_ns"]


MEMORY_FIGURES = (
    "calls", "increase_bytes", "self_increase_bytes", "allocations", "self_allocations", "allocated_bytes",
    "self_allocated_bytes",
)  # fmt: skip


def figures(trace: Any) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for row in analysis.memory_table(trace).iter_rows(named=True):
        found[row["device"]][row["name"]] = [row[column] for column in MEMORY_FIGURES]
    return dict(found)


def test_memory_of_resnet50_operators() -> None:
    # The plugin shows kilobytes with two digits; calls and counts are whole.
    stated = oracle("memory.json")["stats_KB"]["rows"]
    expected = {device: {row[0]: row[1:] for row in rows} for device, rows in stated.items()}
    assert {device: len(rows) for device, rows in expected.items()} == {"CPU": 12, "GPU0": 44}
    actual = figures(read(need(RESNET)))
    in_bytes = (1, 2, 5, 6)
    shown = {
        device: {
            name: [in_kib(v) if i in in_bytes else v for i, v in enumerate(row)] for name, row in rows.items()
        }
        for device, rows in actual.items()
    }
    assert shown == expected


def in_kib(size: int) -> float:
    """As the plugin rounds: two digits, or the first that is not 0."""
    kib = size / 1024
    if kib == 0 or abs(kib) >= 0.01:
        return round(kib, 2)
    digits = next(n for n in range(3, 20) if round(kib, n) != 0)
    return round(kib, digits)


def test_unit_case() -> None:
    expected = load_json(need(PLUGIN / "unit/test_memory_view.0.expected.json"))["memory_stats_bytes"]
    actual = figures(read(PLUGIN / "unit/test_memory_view.0.trace.json"))
    # The oracle writes own figures first and calls last.
    order = (2, 6, 4, 1, 5, 3, 0)
    assert {
        d: {n: [row[i] for i in order] for n, row in rows.items()} for d, rows in actual.items()
    } == expected


def pairs_of_the_plugin(document: Any) -> list[tuple[Any, ...]]:
    """Allocations with their frees by the plugin's rule: an address is the same on all devices."""
    records = [e for e in document["traceEvents"] if e.get("ph") == "i" and e["name"] == "[memory]"]
    records.sort(key=lambda e: e["ts"])
    waiting: dict[int, tuple[int, int]] = {}
    found: list[tuple[Any, ...]] = []
    for event in records:
        args = event["args"]
        address, size, time = args["Addr"], args["Bytes"], round(event["ts"] * 1000)
        if size > 0:
            if address in waiting:
                found.append((address, *waiting[address], None))
            waiting[address] = (size, time)
        elif address in waiting:
            found.append((address, *waiting.pop(address), time))
        else:
            found.append((address, -size, None, time))
    return found + [(address, *allocated, None) for address, allocated in waiting.items()]


@pytest.mark.parametrize(
    "path",
    [
        TRACES / "qwen1.5-0.5b-h100.json.gz",
        TRACES / "owlv2-h100.json.gz",
        PLUGIN / "unit/test_memory_view.0.trace.json",
        PLUGIN / "unit/test_memory_curve_step_plot.0.trace.json",
    ],
    ids=lambda path: path.name.split(".")[0],
)
def test_pairing(path: Path) -> None:
    expected = pairs_of_the_plugin(load_json(need(path)))
    table = analysis.memory_allocations(read(path), pairing="address")
    actual = table.select("address", "bytes", "alloc_ns", "free_ns").rows()
    assert sorted(actual, key=str) == sorted(expected, key=str)


def test_qwen_events_and_peak() -> None:
    trace = read(need(TRACES / "qwen1.5-0.5b-h100.json.gz"))
    events = analysis.memory_allocations(trace).group_by("device").len().sort("device")
    assert events.rows() == [("CPU", 100), ("GPU0", 1125)]
    summary = analysis.memory_summary(trace)
    assert dict(summary.select("device", "peak_bytes").iter_rows())["GPU0"] == 2_088_508_416
    held = analysis.memory_peak(trace, by=("op", "module"))
    of_gpu = held.filter(device="GPU0")
    assert of_gpu["bytes"].sum() == 2_088_508_416
    assert of_gpu.filter("is_older")["bytes"].item() == 984_742_400


def test_curves_are_what_the_allocator_says() -> None:
    path = need(PLUGIN / "unit/test_memory_curve_step_plot.0.trace.json")
    records = [event for event in load_json(path)["traceEvents"] if event["name"] == "[memory]"]
    curve = analysis.memory_timeline(read(path))
    for device, kind in (("CPU", 0), ("GPU0", 1)):
        expected = [
            (e["ts"] * 1000, e["args"]["Total Allocated"], e["args"]["Total Reserved"])
            for e in records
            if e["args"]["Device Type"] == kind
        ]
        points = curve.filter(device=device).select("start_ns", "allocated_bytes", "reserved_bytes")
        assert points.rows() == sorted(expected)


def buckets(trace: Any, device: int) -> list[tuple[float, float]]:
    """As the plugin writes them: start in microseconds and value, and a last one at the end."""
    rows = analysis.gpu_timeline(trace).filter(device=device).to_dicts()
    found = [(row["start_ns"] / 1000, row["utilisation"]) for row in rows]
    return [*found, ((rows[-1]["start_ns"] + rows[-1]["dur_ns"]) / 1000, 0)]


def same(actual: list[tuple[float, ...]], expected: list[Any]) -> bool:
    flat = [value for row in expected for value in row]
    return [value for row in actual for value in row] == pytest.approx(flat, rel=1e-9, abs=1e-9)


def test_counters_of_resnet50() -> None:
    expected = oracle("gpu_metrics.json")["raw"]["0"]
    trace = read(need(RESNET))
    assert same(buckets(trace, 0), expected["util_buckets"])
    timeline = analysis.gpu_timeline(trace)
    summary = analysis.gpu_summary(trace).row(0, named=True)
    # All kernels lie inside the steps, so that both integrals are of the same thing.
    busy = (timeline["utilisation"] * timeline["dur_ns"]).sum()
    assert busy == pytest.approx(summary["busy_ns"], rel=1e-3)
    full = (timeline["sm_efficiency"] * timeline["dur_ns"]).sum()
    assert full == pytest.approx(summary["sm_efficiency"] * summary["window_ns"], rel=1e-3)


@pytest.mark.parametrize("path", files(PLUGIN / "unit", "*.trace.json"))
def test_counters_of_unit_trace(path: Path) -> None:
    expected = expected_of(path)["gpu"] or {}
    trace = read(path)
    devices = analysis.gpu_timeline(trace)["device"].unique().to_list()
    assert sorted(map(str, devices)) == sorted(expected)
    for device, stated in expected.items():
        assert same(buckets(trace, int(device)), stated["util_buckets"])
        segments = sm_segments(trace).filter(device=int(device))
        # Where nothing runs, the plugin's sum of floats may be a little more than 0.
        ranges = [row for row in stated["sm_eff_ranges"] if row[2] > 1e-12]
        found = [(start / 1000, end / 1000, value) for _, start, end, value in segments.rows()]
        assert same(found, ranges)


# What the plugin's sentences begin with, and the share that they state.
SENTENCES = {
    "data_loading": r"This run has high time cost on input data loading\. (?P<value>[\d.]+)%",
    "data_parallel": r".*DataParallel.*DistributedDataParallel",
    "ddp_backend": r".*[Nn]ccl",
    "communication": r"This run has high time cost on communication\. (?P<value>[\d.]+)%",
    "low_utilisation": r"GPU (?P<gpus>[\d, and]+) ha(?:s|ve) low utilization",
    "mixed_precision": r"Kernels with (?P<value>[\d.]+)% time",
    "memory_near_capacity": r"Device memory usage",
}


def stated(sentences: list[str]) -> dict[str, str | None]:
    """By rule, what the plugin says: the share in percent, or the GPUs."""
    found: dict[str, str | None] = {}
    for sentence in sentences:
        for rule, pattern in SENTENCES.items():
            match = re.match(pattern, sentence)
            if match:
                groups = match.groupdict()
                found[rule] = groups.get("value", groups.get("gpus"))
                break
        else:
            raise AssertionError(f"a sentence of no known rule: {sentence}")
    return found


def ours(trace: Any) -> dict[str, str | None]:
    """The same of what we say."""
    found: dict[str, str | None] = {}
    for row in analysis.recommendations(trace).to_dicts():
        if row["id"] == "low_utilisation":
            found[row["id"]] = ", ".join(re.findall(r"GPU (\d+)", row["evidence"]))
        elif row["id"] == "mixed_precision":
            found[row["id"]] = f"{row['value'] * 100:.0f}"
        elif row["id"] in SENTENCES:
            found[row["id"]] = f"{row['value'] * 100:.1f}"
    return found


def test_advice_of_resnet50() -> None:
    expected = stated(oracle("recommendations.json")["list"])
    assert expected == {"data_loading": "33.4", "mixed_precision": "68"}
    assert ours(read(need(RESNET))) == expected


@pytest.mark.parametrize("path", files(PLUGIN / "unit", "*.trace.json"))
def test_advice_of_unit_trace(path: Path) -> None:
    oracle = expected_of(path)
    trace = read(path)
    expected, actual = stated(oracle["recommendations"] or []), ours(trace)
    mean = oracle["avg"]
    if "communication" in expected and host_collectives(trace, oracle["steps"]):
        # The host's operators of collectives alone make it so much.
        steps = analysis.step_breakdown(trace)
        assert steps["communication_ns"].sum() < 0.1 * steps["total_ns"].sum()
        del expected["communication"]
    if "communication" in actual and "communication" not in expected:
        # Either the step lasts minus 2^64 us to the plugin, which finds no operators in it, or it takes a
        # kernel of NCCL for computing, as no operator of NCCL's name launched it.
        kernels = [event for event in load_json(path)["traceEvents"] if event.get("cat") == "Kernel"]
        of_nccl = bool(kernels) and all(kernel["name"].startswith("nccl") for kernel in kernels)
        assert mean["Total"] < 0 or (of_nccl and mean["Communication"] == 0 < mean["Kernel"])
        del actual["communication"]
    assert actual == expected


OF_NVIDIA = {"mixed_precision", "off_tensor_cores", "ddp_backend"}


@pytest.mark.parametrize("path", VALID)
def test_advice_on_real_traces(path: Path) -> None:
    trace = read(path)
    table = analysis.recommendations(trace)
    makes = trace.devices["name"].cast(pl.String).drop_nulls()
    if (trace.devices["warp_size"] == 64).any() or makes.str.contains("AMD").any():
        assert not OF_NVIDIA & set(table["id"])
    for row in table.to_dicts():
        assert row["saving_share"] is None or 0 <= row["saving_share"] <= 1, row["id"]
        assert set(row["rows"]) <= set(trace.tables[row["table"]]["row"].to_list())
        assert len(row["rows"]) == min(row["cited"], 100)
        assert row["cited"] > 0 or row["id"] == "low_utilisation"
        above = row["value"] > row["threshold"]
        assert above != (row["id"] in {"low_utilisation", "exposed_communication"})


def test_the_plugins_advice_for_amd_is_not_given() -> None:
    # To the plugin no kernel of AMD's uses matrix cores, so that it advises mixed precision to a bf16 model.
    trace = read(need(TRACES / "sglang-qwen3-8b-mi300.json.gz"))
    assert "Cijk_" in " ".join(trace.gpu_ops["name"].cast(pl.String).drop_nulls())
    assert not OF_NVIDIA & set(analysis.recommendations(trace)["id"])
