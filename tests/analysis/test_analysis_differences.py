"""What makes one trace slower than another."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from slowed_copies import slowed

import kernelscope as ks
from demo_jobs import write_job
from events import GRADIENT, Events
from kernelscope import analysis
from kernelscope.analysis.diff.comparison import compare
from kernelscope.analysis.diff.kernel_keys import kernel_key
from kernelscope.analysis.diff.tables import KEYS, differences
from kernelscope.errors import InvalidArgumentError, NotRecordedError
from nsys_database import Database

RECORDED = Path(__file__).resolve().parents[1] / "recorded"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine steps of a transformer in training."""
    return write_job(tmp_path_factory.mktemp("demo"), size_bytes=3_000_000, seed=3)[0]


def test_a_trace_does_not_differ_from_itself(demo: Path) -> None:
    trace, again = ks.read(demo), ks.read(demo)
    for by in (KEYS, "category", "module", ("op", "name")):
        assert analysis.diff(trace, again, by=by).is_empty()
    assert analysis.diff_operators(trace, again).is_empty()
    assert analysis.diff_kernels(trace, again).is_empty()
    assert analysis.diff_steps(trace, again)["delta_ns"].to_list() == [0] * 9


@pytest.mark.parametrize(
    ("nsys", "kineto"),
    [
        ("void <unnamed>::fill<(int)4, (bool)1>(T1 *)", "void (anonymous namespace)::fill<4, true>(float*)"),
        (
            "void add<(int)4, std::array<char *, (unsigned long)3>>(int, T2)",
            "void add<4, std::array<char*, 3ul> >(int, std::array<char*, 3ul>)",
        ),
        (
            "void map<at::copy(at::Iterator &)::[lambda() (instance 2)]::operator ()() const>(int)",
            "void map<at::copy(at::Iterator&)::{lambda()#2}::operator()() const>(int)",
        ),
        ("void pick<(short)-1, (unsigned char)2>(const T1 *)", "void pick<-1, 2>(float const*)"),
    ],
)
def test_kernels_are_the_same_whichever_demangler_named_them(nsys: str, kineto: str, tmp_path: Path) -> None:
    database = Database(tmp_path / "before.sqlite")
    database.insert("StringIds", id=50, value=nsys)
    database.call(10_000, 15_000)
    database.kernel(20_000, 30_000, demangledName=50)
    events = Events()
    events.call(10, 5, 1)
    events.kernel(kineto, 20, 30, 1)
    before, after = ks.read(database.close()), events.read(tmp_path)
    (row,) = analysis.diff_kernels(before, after, costs=False).to_dicts()
    assert (row["name"], row["name_before"]) == (kineto, nsys)
    assert (row["calls_before"], row["calls_after"], row["total_delta_ns"]) == (1, 1, 20_000)
    assert before.gpu_ops["name"].to_list() == [nsys], "as recorded, which NVIDIA's reports print"


def test_kernels_of_other_template_values_are_others() -> None:
    names = (
        "void fill<(int)4>(T1 *)", "void fill<8>(float*)", "void fill<4, true>(float*)", "fill", ")", "",
        "gemm_1l", "gemm_1",
    )  # fmt: skip
    assert len({kernel_key(name) for name in names}) == len(names)
    assert kernel_key("f(" * 1_000) == "f(" * 1_000
    assert kernel_key(f"f{' ' * 1_000_000}g") == "f g"


def test_threads_that_do_as_much_are_paired_alike(tmp_path: Path) -> None:
    e = Events()
    for thread in range(8):
        e.add("cpu_op", f"op{thread}", 10, 40, tid=thread)
    trace, again = e.read(tmp_path), e.read(tmp_path)
    assert analysis.diff_operators(trace, again).is_empty()


@pytest.mark.slow
def test_a_slower_kernel_comes_first_with_its_operator_and_module(demo: Path, tmp_path: Path) -> None:
    """One kernel of one module takes 10 % longer in a copy: nothing else makes the difference."""
    trace = ks.read(demo)
    ops = trace.ops.select("row", "module", op="name")
    work = trace.gpu_ops.filter(pl.col("kind") == "kernel").join(ops, left_on="op_row", right_on="row")
    work = work.filter(pl.col("module").is_not_null() & pl.col("step").is_not_null())
    slow = work.sort("dur_ns", descending=True).row(0, named=True)
    kernel, module, op = slow["name"], slow["module"], slow["op"]
    chosen = set(work.filter(name=kernel, module=module, op=op)["correlation"])
    assert len(chosen) >= 9

    copy = tmp_path / "slow.json"
    added = slowed(
        demo, copy, lambda e: e["name"] == kernel and e["args"]["correlation"] in chosen, percent=10
    )
    both = compare(trace, ks.read(copy))
    changes, steps = differences(both), both.steps
    first = changes.row(0, named=True)
    assert (first["name"], first["op"], first["module"]) == (kernel, op, module)
    assert first["delta_ns"] * 9 == pytest.approx(sum(added))
    assert changes["delta_ns"].sum() == pytest.approx(steps["delta_ns"].mean(), abs=1e-6)
    assert steps["delta_ns"].sum() == sum(added) > 0
    for by in KEYS:
        table = differences(both, by=by)
        assert table["delta_ns"].sum() == pytest.approx(steps["delta_ns"].mean(), abs=1e-6)
        assert table[by][0] == first[by]
    kernels = analysis.diff_kernels(trace, ks.read(copy))
    assert kernels["name"].to_list() == [kernel]
    ratio = kernels["mean_ns_after"][0] / kernels["mean_ns_before"][0]
    share = (
        work.filter(name=kernel, module=module, op=op)["dur_ns"].sum()
        / work.filter(name=kernel)["dur_ns"].sum()
    )
    assert ratio == pytest.approx(1 + 0.1 * share, rel=1e-3)
    operators = analysis.diff_operators(trace, ks.read(copy))
    assert operators["op"][0] == op
    assert operators["device_delta_ns"][0] * 9 == pytest.approx(sum(added))


def test_moments_belong_to_the_parts_of_the_steps(demo: Path) -> None:
    trace = ks.read(demo)
    both = compare(trace, trace)
    parts = both.parts.group_by("category").agg(pl.col("before_ns").sum())
    breakdown = analysis.step_breakdown(trace)
    assert dict(parts.rows()) == {
        name.removesuffix("_ns"): breakdown[name].sum()
        for name in analysis.CATEGORIES
        if breakdown[name].sum()
    }


def layers(count: int, *, first: int = 0, extra: bool = False, kernel: str = "gemm") -> Events:
    """Layers of one module class each, with one kernel; ``extra`` puts a normalisation before the second."""
    e = Events()
    e.annotation("ProfilerStep#1", 0, 1000)
    at, launch = 10, iter(range(1, 1000))
    frames = iter(range(1, 1000))

    def layer(name: str, op: str, work: str, dur: float) -> None:
        nonlocal at
        correlation = next(launch)
        module = {"Python id": next(frames), "Python parent id": None, "Python module id": 0}
        e.add("python_function", f"nn.Module: {name}", at, 40, args=module)
        e.op(op, at + 5, 30, Input_Dims=[[2, 3]])
        e.call(at + 10, 5, correlation)
        e.kernel(work, at + 20, dur, correlation)
        at += 50

    for number in range(count):
        if extra and number == 1:
            layer("LayerNorm_9", "aten::layer_norm", "norm", 20)
        layer(f"Linear_{first + number}", "aten::linear", kernel, 10)
    return e


def test_modules_are_aligned_and_not_looked_up_by_name(tmp_path: Path) -> None:
    """Numbered anew and with a layer put between them, modules are compared with what they were."""
    before = layers(3).read(tmp_path / "a")
    after = layers(3, first=1, extra=True).read(tmp_path / "b")
    both = compare(before, after)
    names = dict(
        both.parts.filter(pl.col("module_before").is_not_null()).select("module", "module_before").rows()
    )
    assert names == {"Linear_1": "Linear_0", "Linear_2": "Linear_1", "Linear_3": "Linear_2"}
    changes = differences(both, by=("category", "module", "name"))
    norm = changes.filter(name="norm").row(0, named=True)
    assert (norm["module"], norm["calls_before"], norm["calls_after"]) == ("LayerNorm_9", 0, 1)
    assert norm["delta_ns"] == 20_000
    assert changes.filter(name="gemm").is_empty()
    assert changes["delta_ns"].sum() == both.steps["delta_ns"].mean()


def test_a_kernel_in_the_place_of_another(tmp_path: Path) -> None:
    before, after = layers(2).read(tmp_path / "a"), layers(2, kernel="fused").read(tmp_path / "b")
    both = compare(before, after)
    assert differences(both).is_empty()
    work = both.parts.filter(name="fused")
    assert set(work["name_before"].drop_nulls()) == {"gemm"}
    # Neither is slower, so no kernel changed, though its name did.
    assert analysis.diff_kernels(before, after).is_empty()


def test_noise_is_marked(tmp_path: Path) -> None:
    def steps(lengths: list[float]) -> Any:
        e, at = Events(), 0.0
        for number, length in enumerate(lengths):
            e.annotation(f"ProfilerStep#{number}", at, length)
            e.op("aten::mm", at, length)
            at += length
        return e.read(tmp_path / str(lengths[0]))

    steady, noisy, slow = steps([100, 101, 99]), steps([90, 110, 106]), steps([200, 201, 199])
    row = analysis.diff(steady, noisy, by="op").row(0, named=True)
    assert (row["delta_ns"], row["is_noise"]) == (2_000, True)
    # Variances 1 and 112 us^2.
    assert row["spread_ns"] == pytest.approx(113**0.5 * 1000)
    assert analysis.diff(steady, slow, by="op")["is_noise"].to_list() == [False]


def test_a_phase_of_training_that_changed(tmp_path: Path) -> None:
    """A step computes a layer again, and waits for it: the other phases stay as they were."""

    def training(*, checkpointed: bool) -> ks.Trace:
        e = Events()
        e.annotation("ProfilerStep#1", 0, 100)
        e.op("aten::mm", 10, 10, Sequence_number=1)
        e.op(GRADIENT, 40, 40, Sequence_number=1, Fwd_thread_id=1)
        if checkpointed:
            e.op("aten::mm", 42, 15, Sequence_number=2)
            e.call(45, 2, 1)
            e.kernel("gemm", 50, 10, 1)
        e.op("aten::mm", 60, 10)
        e.call(61, 2, 2)
        e.kernel("gemm", 70, 20, 2)
        return e.read(tmp_path / str(checkpointed))

    before, after = (training(checkpointed=checkpointed) for checkpointed in (False, True))
    changes = analysis.diff_phases(before, after)
    assert changes.select("phase", "device_delta_ns", "host_delta_ns").rows() == [
        ("recompute", 10_000, 15_000),
        ("backward", 0, -15_000),
    ]
    back = analysis.diff_phases(after, before)
    assert back["device_delta_ns"].to_list() == [-10_000, 0]


@pytest.mark.parametrize("kind", ["fsdp2-keep", "fsdp2-accumulate"])
def test_changes_of_training_sum_to_the_difference(kind: str) -> None:
    before, after = (ks.read(RECORDED / f"sharding/{name}-rank0.json.gz") for name in ("fsdp2", kind))
    for trace in (before, after):
        assert analysis.diff_phases(trace, trace).is_empty()
        assert analysis.diff_dimensions(trace, trace).is_empty()
    phases = analysis.diff_phases(before, after)
    own = [analysis.training_phases(trace).sum()["host_ns"].item() for trace in (before, after)]
    assert phases["host_delta_ns"].sum() == own[1] - own[0]
    (dimension,) = analysis.diff_dimensions(before, after).to_dicts()
    calls = [analysis.rank_calls(trace).height for trace in (before, after)]
    assert dimension["dimension"] == "fsdp"
    assert [dimension["calls_before"], dimension["calls_after"]] == calls
    # Three units stay gathered until the backward pass, or everything happens twice.
    assert dimension["calls_delta"] == {"fsdp2-keep": -3, "fsdp2-accumulate": calls[0]}[kind]


def test_traces_that_do_not_train_have_no_phases(tmp_path: Path) -> None:
    before, after = layers(2).read(tmp_path / "a"), layers(3).read(tmp_path / "b")
    assert analysis.diff_phases(before, after).is_empty()
    assert analysis.diff_dimensions(before, after).is_empty()


def test_traces_without_steps_or_operators(tmp_path: Path) -> None:
    first, second = Events(), Events()
    first.kernel("alone", 0, 10, 1)
    second.kernel("alone", 0, 15, 1)
    before, after = first.read(tmp_path / "a"), second.read(tmp_path / "b")
    assert analysis.diff(before, after).select("op", "name", "delta_ns").rows() == [(None, "alone", 5_000)]
    nothing = Events().read(tmp_path)
    with pytest.raises(NotRecordedError, match="nothing with a duration"):
        analysis.diff(nothing, after)
    with pytest.raises(NotRecordedError, match="marks no steps"):
        analysis.diff(layers(1).read(tmp_path / "c"), after)
    with pytest.raises(InvalidArgumentError, match="cannot group by"):
        analysis.diff(before, after, by="stream")
