"""One kernel has one name, whatever recorded it, and the recorded name stands beside it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest

import kernelscope as ks
import nsys_database
import nvprof_database
from events import Events
from kernelscope import analysis
from kernelscope.report.conversion import convert
from round_trips import differences

REDUCE = "_ZN4vllm26cross_device_reduce_1stageI14__hip_bfloat16Li8EEEvPNS_8RankDataEi"
"""A kernel that exchanges data between GPUs."""
TYPE_ONLY = "_ZN2at6native4fillIN4vllm26cross_device_reduce_1stageEEEvT_"
"""One that is only named after it in its template arguments."""


def kineto(tmp_path: Path, *names: str) -> ks.Trace:
    events = Events()
    for number, name in enumerate(names):
        events.call(10 * number, 5, number + 1)
        events.kernel(name, 10 * number + 6, 3, number + 1)
    return events.read(tmp_path)


def named(trace: ks.Trace) -> list[tuple[str, str | None]]:
    return trace.gpu_ops.sort("start_ns").select(pl.col("name", "mangled_name").cast(pl.String)).rows()


def test_names_of_kineto_are_demangled(tmp_path: Path) -> None:
    recorded = [
        "_Z4gemmIDF16bLi64EEvPKT_",
        "triton_poi_fused_add_0",
        "_ZN12_GLOBAL__N_15applyIZNS_4zeroEvEUliE_EEvT_",
        "_Z4gemmIDF16bLi64EEvPKT_.kd",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>) [clone .kd]",
        "_dcp_a2a_pack_send_kernel.kd",
        "_Znonsense",
        "void <unnamed>::softmax<(int)4>(int)",
    ]
    gemm = "void gemm<std::bfloat16_t, 64>(std::bfloat16_t const*)"
    trace = kineto(tmp_path, *recorded)
    local = "(anonymous namespace)::zero()::{lambda(int)#1}"
    assert named(trace) == [
        (gemm, recorded[0]),
        (recorded[1], None),
        (f"void (anonymous namespace)::apply<{local}>({local})", recorded[2]),
        (gemm, recorded[3]),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", recorded[4]),
        ("_dcp_a2a_pack_send_kernel", recorded[5]),
        (recorded[6], None),
        (recorded[7], None),
    ]
    # With its descriptor and without it is one kernel.
    calls = dict(analysis.kernel_table(trace).select(pl.col("name").cast(pl.String), "calls").iter_rows())
    assert calls[gemm] == 2


def test_rules_see_the_demangled_name(tmp_path: Path) -> None:
    trace = kineto(tmp_path, REDUCE, TYPE_ONLY)
    assert trace.gpu_ops.sort("start_ns")["is_communication"].to_list() == [True, False]


def test_long_names_say_what_they_multiply_in(tmp_path: Path) -> None:
    # The name is short while it is mangled; written out, what decides stands behind 2,000 characters.
    tile = "NS_6layout32RegularTileAccessIteratorOfATileE"
    name = f"_ZN7cutlass6KernelI{tile}{'S2_' * 60}NS_4gemm11MmaTensorOpINS_10tfloat32_tEEEEEvT_"
    trace = kineto(tmp_path, name)
    assert len(named(trace)[0][0]) > 2000
    assert analysis.kernel_table(trace)["tensor_cores"].to_list() == [True]


def test_one_kernel_has_one_name_in_every_format(tmp_path: Path) -> None:
    nvprof = nvprof_database.Database(tmp_path / "nvprof.sql")
    nvprof.kernel(50, 90, REDUCE)
    nsys = nsys_database.Database(tmp_path / "nsys.sqlite")
    nsys.insert("StringIds", id=40, value=REDUCE)
    nsys.kernel(50, 90, demangledName=40, mangledName=None)
    traces = [ks.read(nvprof.close()), ks.read(nsys.close()), kineto(tmp_path, REDUCE)]
    name = "void vllm::cross_device_reduce_1stage<__hip_bfloat16, 8>(vllm::RankData*, int)"
    assert [named(trace) for trace in traces] == [[(name, REDUCE)]] * 3


def test_a_converted_trace_keeps_both_names(tmp_path: Path) -> None:
    trace = kineto(tmp_path, REDUCE, "_Znonsense", "triton_poi_fused_add_0.kd")
    (path,) = convert(trace, ["perfetto"], tmp_path / "converted.json")
    again = ks.read(path)
    assert named(again) == named(trace)
    assert differences(trace, again) == []


def test_recorded_kernels_are_named_as_the_gnu_demangler_does(shared: Path) -> None:
    """PyTorch demangles with it, too, but an older one, and nothing above 1,024 characters."""
    if shutil.which("c++filt") is None:
        pytest.skip("c++filt of the GNU binutils is not installed")
    pairs: dict[str, str] = {}
    for path in sorted((shared / "traces/kineto").glob("*.json.gz")):
        kernels = ks.read(path).gpu_ops.filter(pl.col("mangled_name").is_not_null())
        pairs |= dict(kernels.select(pl.col("mangled_name", "name").cast(pl.String)).unique().iter_rows())
    done = subprocess.run(["c++filt"], input="\n".join(pairs), capture_output=True, text=True, check=True)
    known = {
        mangled: gnu for mangled, gnu in zip(pairs, done.stdout.splitlines(), strict=True) if gnu != mangled
    }
    assert known
    # Literals are written in another way: (unsigned int)0 is 0u.
    assert {mangled: pairs[mangled].replace("(unsigned int)0", "0u") for mangled in known} == known


def test_real_traces_hold_no_mangled_name_that_is_known(shared: Path) -> None:
    left: set[str] = set()
    for path in sorted((shared / "traces/kineto").glob("*.json.gz")):
        names = ks.read(path).gpu_ops["name"].cast(pl.String).unique()
        left |= set(names.filter(names.str.starts_with("_Z")))
    # A template template argument that says its type (Tn) is newer than the demanglers.
    assert [name for name in left if "TnPFT_" not in name] == []
