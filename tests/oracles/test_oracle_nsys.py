"""Tables of nsys databases against the reports of ``nsys stats``, which shares no code with the package."""

from __future__ import annotations

import csv
import gzip
import io
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from traces import ORACLES, SHARED, files, need

import kernelscope as ks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Reader = Callable[[Path], ks.Trace]

TRACES = SHARED / "traces" / "nsys"
STATS = ORACLES / "nsys-stats"
H100 = "h100-2gpu-emit-nvtx-2026.2"
GRAPHS = "cuda-graphs-2025.5.2"
CPU = "cpu-nvtx-2023.4"


def report(database: str, name: str) -> list[dict[str, str]]:
    plain = STATS / database / f"{name}.csv"
    packed = plain.with_name(plain.name + ".gz")
    path = packed if packed.exists() else need(plain)
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [row for row in csv.DictReader(io.StringIO(raw.decode())) if any(row.values())]


def trace(read: Reader, database: str) -> ks.Trace:
    return read(need(TRACES / f"{database}.sqlite"))


def sums(frame: pl.DataFrame, column: str = "dur_ns") -> dict[str, tuple[int, int, int, int]]:
    """Count, total, least and greatest of each name."""
    value = pl.col(column)
    grouped = frame.group_by(pl.col("name").cast(pl.String)).agg(
        value.len().alias("n"), value.sum().alias("sum"), value.min().alias("min"), value.max().alias("max")
    )
    return {name: (n, total, least, most) for name, n, total, least, most in grouped.iter_rows()}


def expected_sums(rows: list[dict[str, str]], count: str) -> dict[str, tuple[int, int, int, int]]:
    name = "Name" if "Name" in rows[0] else "Operation"
    return {
        row[name]: (
            int(row[count]),
            int(row["Total Time (ns)"]),
            int(row["Min (ns)"]),
            int(row["Max (ns)"]),
        )
        for row in rows
    }


@pytest.mark.parametrize(("database", "kernels"), [(H100, 3442), (GRAPHS, 3)])
def test_kernels(read: Reader, database: str, kernels: int) -> None:
    frame = trace(read, database).gpu_ops.filter(pl.col("kind") == "kernel")
    assert frame.height == kernels
    assert sums(frame) == expected_sums(report(database, "cuda_gpu_kern_sum"), "Instances")
    for option, column in (("base", "short_name"), ("mangled", "mangled_name")):
        renamed = frame.with_columns(name=pl.col(column))
        assert sums(renamed) == expected_sums(report(database, f"cuda_gpu_kern_sum_{option}"), "Instances")


@pytest.mark.parametrize("database", [H100, GRAPHS])
def test_copies_and_memsets(read: Reader, database: str) -> None:
    frame = trace(read, database).gpu_ops.filter(pl.col("kind").is_in(["memcpy", "memset"]))
    assert sums(frame) == expected_sums(report(database, "cuda_gpu_mem_time_sum"), "Count")
    megabytes = {
        row["Operation"]: (int(row["Count"]), row["Total (MB)"], row["Min (MB)"], row["Max (MB)"])
        for row in report(database, "cuda_gpu_mem_size_sum")
    }
    ours = {
        name: (count, *(f"{value / 1e6:.3f}" for value in values))
        for name, (count, *values) in sums(frame, "bytes").items()
    }
    assert ours == megabytes


@pytest.mark.parametrize("database", [H100, GRAPHS])
def test_api_calls(read: Reader, database: str) -> None:
    # nsys strips versions of four digits and leaves those of five in the name.
    version = pl.col("api_version")
    name = pl.col("name").cast(pl.String)
    shown = pl.when(version >= 10_000).then(name + "_v" + version.cast(pl.String)).otherwise(name)
    calls = trace(read, database).launches.with_columns(name=shown)
    assert sums(calls) == expected_sums(report(database, "cuda_api_sum"), "Num Calls")


def test_calls_of_the_operating_system(read: Reader) -> None:
    spans = trace(read, GRAPHS).spans.filter(pl.col("category") == "osrt")
    assert sums(spans) == expected_sums(report(GRAPHS, "osrt_sum"), "Num Calls")


@pytest.mark.parametrize(("database", "linked"), [(H100, 1632), (GRAPHS, 3)])
def test_launches_are_those_of_the_same_process(read: Reader, database: str, linked: int) -> None:
    expected = [
        (
            int(row["API Start (ns)"]),
            int(row["Kernel Start (ns)"]),
            int(row["PID"]),
            int(row["TID"]),
            row["Kernel Name"],
        )
        for row in report(database, "cuda_kern_exec_trace")
    ]
    read_trace = trace(read, database)
    kernels = read_trace.gpu_ops.filter(pl.col("kind") == "kernel")
    launches = read_trace.launches.select(launch_row="row", call_ns="start_ns", call_pid="pid", tid="tid")
    pairs = kernels.join(launches, on="launch_row").select(
        "call_ns", "start_ns", "pid", "tid", pl.col("name").cast(pl.String)
    )
    assert pairs.height == linked
    assert sorted(pairs.iter_rows()) == sorted(expected)


def raw_text(ranges: pl.DataFrame) -> pl.DataFrame:
    """The text of a range as the program gave it."""

    def part(key: str) -> pl.Expr:
        value = pl.col(key if key != "seq" else "sequence")
        return pl.when(value.is_not_null()).then(pl.format(f", {key} = {{}}", value)).otherwise(pl.lit(""))

    text = pl.concat_str(pl.col("name").cast(pl.String), part("seq"), part("op_id"))
    return ranges.with_columns(text=text)


def test_every_range_keeps_its_text_and_its_place(read: Reader) -> None:
    read_trace = trace(read, H100)
    shift = read_trace.meta.properties["tables"]["NVTX_EVENTS"]["row_of_rowid_0"]
    ranges = raw_text(read_trace.ranges).with_columns(pl.col("row", "parent_row") - shift)
    children = ranges.group_by(parent_row="parent_row").len("children")
    ranges = ranges.join(children, left_on="row", right_on="parent_row", how="left")
    ours = ranges.select(
        "row",
        "start_ns",
        "dur_ns",
        "text",
        "pid",
        "tid",
        "depth",
        pl.col("children").fill_null(0),
        "parent_row",
    )
    expected = [
        (
            int(row["RangeId"]),
            int(row["Start (ns)"]),
            int(row["Duration (ns)"]),
            row["Name"],
            int(row["PID"]),
            int(row["TID"]),
            int(row["Lvl"]),
            int(row["NumChild"]),
            int(row["ParentId"]) if row["ParentId"] else None,
        )
        for row in report(H100, "nvtx_pushpop_trace")
    ]
    assert sorted(ours.iter_rows()) == sorted(expected)


def test_kernels_by_innermost_range(read: Reader) -> None:
    read_trace = trace(read, H100)
    kernels = read_trace.gpu_ops.filter(pl.col("kind") == "kernel")
    ranges = raw_text(read_trace.ranges).select(range_row="row", text="text")
    named = kernels.join(ranges, on="range_row", how="left")
    kernel = pl.col("name").cast(pl.String)
    named = named.with_columns(
        name=pl.when(pl.col("text").is_null()).then(kernel).otherwise(pl.col("text") + "/" + kernel)
    )
    assert sums(named) == expected_sums(report(H100, "cuda_gpu_kern_sum_nvtx-name"), "Instances")
    links = dict(kernels.group_by(pl.col("link").cast(pl.String)).len().iter_rows())
    assert links == {"nvtx_range": 1632, "no_launch": 1810}


def test_ids_repeat_across_processes(read: Reader) -> None:
    read_trace = trace(read, H100)
    calls = read_trace.launches.select(call="row", call_pid="pid", correlation="correlation")
    assert not calls.select("call_pid", "correlation").is_duplicated().any()
    by_id_alone = read_trace.gpu_ops.join(calls, on="correlation")
    assert by_id_alone.filter(pl.col("pid") != pl.col("call_pid")).height > 0
    linked = read_trace.gpu_ops.join(calls, left_on="launch_row", right_on="call")
    assert linked.height == by_id_alone.filter(pl.col("pid") == pl.col("call_pid")).height
    assert (linked["pid"] == linked["call_pid"]).all()


def test_graphs_are_gpu_work(read: Reader) -> None:
    read_trace = trace(read, GRAPHS)
    graphs = read_trace.gpu_ops.filter(pl.col("kind") == "graph")
    assert (graphs.height, graphs["dur_ns"].sum()) == (2, 3104)
    launches = graphs.join(read_trace.launches, left_on="launch_row", right_on="row", suffix="_call")
    assert launches["name_call"].cast(pl.String).to_list() == ["cudaGraphLaunch"] * 2
    assert read_trace.steps["kernel_ns"].sum() >= 3104


def test_a_recording_of_the_cpu(read: Reader) -> None:
    read_trace = trace(read, CPU)
    ranges = read_trace.ranges
    named = ranges.filter(pl.col("kind") != "mark").with_columns(
        name=pl.concat_str((pl.col("domain").cast(pl.String) + ":").fill_null(""), "name")
    )
    expected = {row["Range"]: int(row["Total Time (ns)"]) for row in report(CPU, "nvtx_sum")}
    assert {name: total for name, (_, total, _, _) in sums(named).items()} == expected
    crossing = ranges.filter(pl.col("end_tid").is_not_null())
    assert crossing["kind"].to_list() == ["start_end"]
    categories = ranges.drop_nulls("category").select("domain", "category").unique()
    assert sorted(categories.iter_rows(), key=str) == [("DOM1", "c1"), (None, "catA")]
    assert read_trace.meta.recorder == "Nsight Systems 2023.4.4.54, schema 3.7.2"
    assert dict(read_trace.extra_args.select("row", "value").iter_rows()) == {
        2: "7",
        5: "42",
        6: "3.5",
        8: "-3",
    }


@pytest.mark.parametrize("path", files(STATS / "edge", "*.sqlite"))
def test_edge_cases_nest(read: Reader, path: Path) -> None:
    expected: list[Any] = [
        (int(row["RangeId"]), int(row["Lvl"]), int(row["ParentId"]) if row["ParentId"] else None)
        for row in report("edge", f"{path.stem}.nvtx_pushpop_trace")
        if row.get("Lvl")
    ]
    read_trace = read(path)
    shift = read_trace.meta.properties["tables"]["NVTX_EVENTS"]["row_of_rowid_0"]
    ranges = read_trace.ranges.filter(pl.col("kind") == "push_pop")
    ours = list(ranges.select(pl.col("row") - shift, "depth", pl.col("parent_row") - shift).iter_rows())
    if path.stem not in ("dom2", "ident", "open"):  # nsys fails on the first, and loses rows of the others
        assert sorted(ours) == sorted(expected)
    # Whatever nsys makes of it, every range has a place.
    assert len(ours) == ranges.height
    assert ranges["depth"].null_count() == 0
