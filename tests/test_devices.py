"""Devices of every kind: their calls, work and collectives, whatever recorded them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from events import Events
from kernelscope import analysis
from kernelscope.analysis.diff.host_attribution import claims

# The categories of a call, a kernel and a copy, and the name of the call that starts a kernel.
RECORDERS = {
    "xpu": ("xpu_driver", "kernel", "gpu_memcpy", "urEnqueueKernelLaunch"),
    "level zero": ("xpu_runtime", "kernel", "gpu_memcpy", "zeCommandListAppendLaunchKernel"),
    "privateuse1": ("privateuse1_runtime", "kernel", "gpu_memcpy", "vendorLaunchKernel"),
    "privateuse1 driver": ("privateuse1_driver", "kernel", "gpu_memcpy", "vendorLaunchKernel"),
    "gcu": ("gcu_runtime", "kernel", "GCU_MEMCPY", "topsLaunchKernel"),
    "any": ("runtime", "kernel", "gpu_memcpy", "vendorLaunchKernel"),
    "mtia": ("mtia_runtime", "mtia_ccp_events", "mtia_ccp_events", "runFunction - job_prep"),
}


@pytest.mark.parametrize("recorder", RECORDERS)
def test_work_of_any_device(recorder: str, tmp_path: Path) -> None:
    call, kernel, copy, launch = RECORDERS[recorder]
    events = Events()
    events.op("aten::mm", 0, 100)
    events.add(call, launch, 10, 5, args={"correlation": 1})
    events.add(call, "copy", 30, 5, args={"correlation": 2})
    events.add(call, "synchronizeStream", 50, 40, args={"correlation": 3})
    events.add(kernel, "gemm", 20, 30, pid=3, tid=9, args={"stream": 9, "correlation": 1})
    events.add(copy, "dma_request", 60, 10, pid=3, tid=9, args={"stream": 9, "correlation": 2, "size": 64})
    trace = events.read(tmp_path)
    found = trace.gpu_ops.select("kind", "device", "stream", "bytes", "link", "op_row").rows()
    assert found == [("kernel", 3, 9, None, "containment", 0), ("memcpy", 3, 9, 64, "containment", 0)]
    assert trace.launches["activity"].to_list() == ["launch", None, "wait"]
    (gpu,) = analysis.gpu_summary(trace).filter(pl.col("kernels") > 0).to_dicts()
    assert (gpu["device"], gpu["gpu_kernel_ns"], gpu["busy_ns"]) == (3, 30_000, 30_000)
    (step,) = analysis.step_breakdown(trace).to_dicts()
    parts = [step[f"{name}_ns"] for name in ("kernel", "memcpy", "runtime", "cpu_exec")]
    assert parts == [30_000, 10_000, 5_000 + 10_000 + 20_000, 25_000]
    assert analysis.kernel_table(trace).select("name", "total_ns").rows() == [("gemm", 30_000)]


def test_events_of_streams_are_no_work(tmp_path: Path) -> None:
    events = Events()
    events.add("mtia_runtime", "enqueueCommand waitOnEvent", 0, 5, args={"correlation": 4})
    wait = {"stream": 9, "wait_on_stream": 8, "correlation": 4}
    events.add("mtia_ccp_events", "event_wait", 5, 500, pid=0, tid=77, args=wait)
    events.add("mtia_ccp_events", "event_record", 1, 1, pid=0, tid=77, args={"stream": 8})
    trace = events.read(tmp_path)
    assert trace.gpu_ops.is_empty()
    columns = ("name", "device", "stream", "wait_stream", "launch_row")
    assert trace.syncs.select(columns).rows() == [
        ("event_wait", 0, 9, 8, 0),
        ("event_record", 0, 8, None, None),
    ]


def test_synchronisations_and_collectives_of_an_xpu(tmp_path: Path) -> None:
    events = Events()
    events.op("record_param_comms", 10, 30)
    events.add("xpu_runtime", "urEnqueueKernelLaunch", 12, 3, args={"correlation": 5, "External id": 1})
    args = {"correlation": 5, "External id": 1, "device": 0, "stream": 3}
    events.add("kernel", "oneccl_reduce_base<float, 2, 16>", 50, 20, pid=0, tid=3, args=args)
    # What oneCCL says of the call is the host's.
    events.add("collective_comm", "xccl::allreduce", 15, 20, args={"Communicator_id": 1})
    events.add("xpu_runtime", "zeEventHostSynchronize", 60, 15, args={"correlation": 9})
    events.add("xpu_sync", "zeEventHostSynchronize", 60, 15, pid=-1, args={"correlation": 9})
    trace = events.read(tmp_path)
    assert trace.gpu_ops.select("op_row", "is_communication").rows() == [(0, True)]
    assert trace.syncs.select("category", "launch_row").rows() == [("xpu_sync", 4)]
    assert trace.launches.select("activity").to_series().to_list() == ["launch", "wait"]
    (gpu,) = analysis.gpu_summary(trace).to_dicts()
    assert (gpu["device"], gpu["busy_ns"]) == (0, 20_000)
    (step,) = analysis.step_breakdown(trace).to_dicts()
    assert step["communication_ns"] == 20_000


def test_engines_of_an_hpu(tmp_path: Path) -> None:
    """Each is a stream; what names no event of the hardware is a call."""
    events = Events()
    events.add("hpu_op", "launch recipe", 0, 5, args={"recipeName": "r"})
    events.add("hpu_op", "gemm", 10, 20, pid=0, tid=6001, args={"HW event name": "MMEH_WB"})
    events.add("hpu_op", "DmaCopy", 10, 5, pid=0, tid=4002, args={"HW event name": "DBG_DMA_TRC_WR"})
    trace = events.read(tmp_path)
    assert trace.launches["name"].to_list() == ["launch recipe"]
    found = trace.gpu_ops.select("name", "kind", "device", "stream").rows()
    assert found == [("gemm", "kernel", 0, 6001), ("DmaCopy", "memcpy", 0, 4002)]


def test_an_unknown_category_is_no_work(tmp_path: Path) -> None:
    """Not even with a stream: that a trace names one does not say that anything ran on it."""
    events = Events()
    args = {"device": 0, "stream": 7, "correlation": 1}
    events.add("something new", "x", 0, 5, args=args)
    events.add("mtia_insight", "x", 0, 5, args=args)
    events.add("collective_comm", "xccl::allreduce", 0, 5, args={"Communicator_id": 1})
    trace = events.read(tmp_path)
    assert trace.gpu_ops.is_empty()
    assert trace.spans["category"].to_list() == ["something new", "mtia_insight", "collective_comm"]


def test_collectives_of_a_device(tmp_path: Path) -> None:
    events = Events()
    events.add("collective_comm", "broadcast_2", 0, 5, pid=1, tid=4, args={"device": 1, "stream": 4})
    (work,) = events.read(tmp_path).gpu_ops.to_dicts()
    assert (work["kind"], work["device"], work["stream"], work["is_communication"]) == ("kernel", 1, 4, True)


COMMUNICATE = [
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void dpsk::ep::internode::dispatch<8>(int)",
    "void <unnamed>::multimem_all_reduce_kernel<c10::BFloat16, (int)16>(T1 *)",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<half>(half*)",
]
COMPUTE = [
    "void at::native::vectorized_elementwise_kernel<4, ncclOp>(int)",
    "triton_red_fused_all_reduce_0",
    "void cutlass::ep_kernel(float*)",
]


@pytest.mark.parametrize("name", COMMUNICATE + COMPUTE)
def test_communication_by_name(name: str, tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 0, 100)
    events.call(10, 5, 1)
    events.kernel(name, 20, 30, 1)
    trace = events.read(tmp_path)
    communicates = name in COMMUNICATE
    assert trace.gpu_ops["is_communication"].to_list() == [communicates]
    (step,) = analysis.step_breakdown(trace).to_dicts()
    assert (step["communication_ns"], step["kernel_ns"]) == ((30_000, 0) if communicates else (0, 30_000))


def host_and_kernel() -> Events:
    """An all-reduce that the host is in for 300 us, and whose kernel runs for 50."""
    events = Events()
    events.annotation("ProfilerStep#1", 0, 1000)
    events.op("c10d::allreduce_", 100, 300)
    events.op("record_param_comms", 110, 200)
    events.add("user_annotation", "nccl:all_reduce", 120, 100)
    events.call(130, 10, 1)
    events.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", 350, 50, 1)
    return events


def test_operators_of_collectives_are_host_work(tmp_path: Path) -> None:
    trace = host_and_kernel().read(tmp_path)
    (step,) = analysis.step_breakdown(trace).to_dicts()
    parts = [step[f"{name}_ns"] for name in ("communication", "runtime", "cpu_exec", "other")]
    assert parts == [50_000, 10_000, 240_000, 700_000]
    assert trace.ops["activity"].to_list() == ["step", *["communication"] * 3]
    of_ops = claims(trace).filter(kind="op")
    assert set(of_ops["category"].cast(pl.String)) == {"cpu_exec"}


def test_no_advice_about_the_host_in_collectives(tmp_path: Path) -> None:
    advice = analysis.recommendations(host_and_kernel().read(tmp_path))
    assert "communication" not in advice["id"].to_list()
