"""What the twins found wrong, each on a trace as small as it can be."""

from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
import slow_reader
from events import V100, Events
from kernelscope import analysis
from oracles.traces import TRACES, need
from twin import cost_sums
from twin.beside import read_both
from twin.figures import Figures, compare

_MODULE = {"Python id": 1, "Python parent id": None, "Python module id": 0}


def test_an_annotation_hides_no_operator_that_it_overlaps_in_part(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::empty", 0, 20)
    # It begins inside the operator and ends behind it.
    events.annotation("my range", 10, 30)
    events.memory(15, 512, device_type=1)
    table = analysis.memory_table(events.read(tmp_path))
    assert table.select("device", "name", "self_allocated_bytes").rows() == [("GPU0", "aten::empty", 512)]


def test_a_module_that_is_called_inside_a_gradient_of_itself_has_a_flame_graph(tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 40, Sequence_number=3, Fwd_thread_id=1)
    events.add("python_function", "nn.Module: Linear_0", 10, 20, args=_MODULE)
    events.op("aten::linear", 12, 10, Sequence_number=3)
    for name, tid, at, kind in (("s", 7, 12, {}), ("f", 7, 0, {"bp": "e"})):
        arrow = {"ph": name, "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 7, "tid": tid, "ts": at}
        events.events.append(arrow | kind)
    trace = events.read(tmp_path)
    assert trace.ops["module_row"].null_count() == 0
    stacks = dict(analysis.folded_stacks(trace, by="module").select("stack", "value_ns").iter_rows())
    assert stacks == {
        "aten::mm": 20_000,
        "aten::mm;Linear_0": 10_000,
        "aten::mm;Linear_0;aten::linear": 10_000,
    }


def test_a_summed_curve_does_not_say_what_lies_idle(tmp_path: Path) -> None:
    events = Events()
    events.memory(0, -512, device_type=1)
    events.events[-1]["args"]["Total Reserved"] = 4096
    summary = analysis.memory_summary(events.read(tmp_path)).row(0, named=True)
    assert (summary["source"], summary["peak_reserved_bytes"]) == ("summed", 4096)
    assert (summary["fragmentation_bytes"], summary["fragmentation_share"]) == (None, None)


def test_an_annotation_takes_no_time_of_a_gradient_that_it_overlaps_in_part(tmp_path: Path) -> None:
    events = Events()
    events.add("python_function", "nn.Module: Linear_0", 0, 30, args=_MODULE)
    events.op("aten::linear", 5, 10, Sequence_number=3)
    events.op("MmBackward0", 50, 20, tid=8, Sequence_number=3, Fwd_thread_id=1)
    args = {"External id": next(events.ids)}
    events.add("user_annotation", "my range", 60, 30, tid=8, args=args)
    for name, tid, at, kind in (("s", 7, 5, {}), ("f", 8, 50, {"bp": "e"})):
        arrow = {"ph": name, "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 7, "tid": tid, "ts": at}
        events.events.append(arrow | kind)
    table = analysis.module_table(events.read(tmp_path))
    assert table.select("path", "backward_host_ns").rows() == [("Linear_0", 20_000)]


@pytest.mark.parametrize("launch_first", [False, True])
def test_a_launch_lies_in_the_module_of_its_time(tmp_path: Path, *, launch_first: bool) -> None:
    events = Events()
    events.add("python_function", "nn.Module: Triton_0", 10, 5, args=_MODULE)
    events.call(10, 5, 1)
    events.kernel("triton_poi", 20, 8, 1)
    if launch_first:
        events.events.reverse()
    table = analysis.module_table(events.read(tmp_path))
    assert table.select("path", "device_self_ns").rows() == [("Triton_0", 8_000)]


def test_a_call_that_reaches_over_a_step_belongs_to_the_one_it_begins_in(tmp_path: Path) -> None:
    events = Events()
    for step in range(2):
        events.annotation(f"ProfilerStep#{step}", 100 * step, 100)
    events.call(90, 20, 1)
    events.kernel("sgemm", 120, 10, 1)
    path = events.write(tmp_path / "trace.json")
    rows = slow_reader.read(path)
    assert ks.read(path).gpu_ops["step"].to_list() == [work["step"] for work in rows["gpu_ops"]] == [0]


def on_a_gpu(name: str, folder: Path, **device: int) -> ks.Trace:
    """A product of this kernel's name on a GPU."""
    events = Events(V100 | device)
    events.op("aten::mm", 0, 20, Input_Dims=[[64, 64], [64, 64]], Input_type=["float", "float"])
    events.call(2, 4, 1)
    events.kernel(name, 30, 50, 1)
    return events.read(folder)


def test_the_costs_of_an_operator_and_its_kernels_agree_on_tensor_cores(tmp_path: Path) -> None:
    # Only the marks in the name tell.
    trace = on_a_gpu("my_s1688_kernel", tmp_path)
    (cost,) = analysis.costs(trace).to_dicts()
    assert (cost["tensor_cores"], cost["tensor_core_ns"]) == (True, 50_000)
    assert analysis.kernel_table(trace)["tensor_cores"].to_list() == [True]
    assert analysis.op_table(trace)["tc_self_pct"].to_list() == [100.0]


def test_a_product_of_an_unknown_kernel_may_use_tensor_cores_where_there_are_any(tmp_path: Path) -> None:
    name = "my_matmul_kernel"
    flags = [
        analysis.kernel_table(on_a_gpu(name, tmp_path, computeMajor=major))["tensor_cores"].item()
        for major in (6, 7, 8, 9)
    ]
    assert flags == [False, None, None, None]


def test_no_type_limits_where_no_peak_is_known(tmp_path: Path) -> None:
    events = Events({"id": 0, "name": "a GPU of no table"})
    events.op("aten::copy_", 0, 20, Input_Dims=[[64], [64]], Input_type=["float", "float"])
    events.call(2, 4, 1)
    events.copy(30, 50, 1)
    (row,) = analysis.roofline(events.read(tmp_path)).to_dicts()
    assert (row["bound"], row["limit_type"]) == ("bus", None)


def of_steps(path: Path) -> tuple[pl.DataFrame, Figures]:
    trace, rows = read_both(path)
    owned = cost_sums.Owned(rows, analysis.costs(trace).to_dicts())
    return analysis.efficiency(trace), cost_sums.efficiency(owned)


def test_efficiency_knows_all_gpu_time_of_steps() -> None:
    for name in ("sglang-decode-graph-mi300", "mi250-minitoy-rocm", "sampled-rank0of128", "triton-a100"):
        found, twin = of_steps(need(TRACES / f"{name}.json.gz"))
        figures = ("step", "device_ns", "known_pct")
        compare(
            found.with_row_index("at"), {at: {n: row[n] for n in figures} for at, row in twin.items()}, "at"
        )


def test_steps_of_one_number_have_their_own_efficiency(tmp_path: Path) -> None:
    events = Events()
    # Two cycles of a profiler: the second counts anew, and has twice the work.
    for at, products in ((0, 1), (1_000, 2)):
        events.annotation("ProfilerStep#3", at, 100)
        for number in range(products):
            begin = at + 10 + 20 * number
            events.op("aten::mm", begin, 10, Input_Dims=[[4, 8], [8, 4]], Input_type=["float", "float"])
            events.call(begin + 2, 2, begin)
            events.kernel("sgemm", begin + 5, 8, begin)
    found = analysis.efficiency(events.read(tmp_path))
    assert found.select("step", "device_ns", "flops").rows() == [(3, 8_000, 256), (3, 16_000, 512)]


def test_a_call_at_the_very_end_of_a_step_is_in_it(tmp_path: Path) -> None:
    events = Events()
    for at in (0, 100):
        events.annotation("ProfilerStep#0", at, 100)
    events.call(20, 5, 1)
    events.kernel("sgemm", 30, 10, 1)
    events.call(200, 0, 2)
    events.kernel("sgemm", 210, 20, 2)
    found = analysis.efficiency(events.read(tmp_path))
    assert found.select("step", "device_ns").rows() == [(0, 10_000), (0, 20_000)]


def test_a_gpu_that_is_used_for_half_of_the_time_is_used_enough(tmp_path: Path) -> None:
    events = Events(V100, {**V100, "id": 1})
    events.kernel("sgemm", 0, 16, 1)
    events.kernel("sgemm", 22, 22, 2, device=1)
    (found,) = analysis.recommendations(events.read(tmp_path)).filter(id="low_utilisation").to_dicts()
    assert (found["device"], found["value"]) == (0, pytest.approx(16 / 44))
