"""Every table of every shared trace: against the slow reader, with nothing lost or left unlinked silently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from traces import ORACLES, SHARED, VALID, files, read

import kernelscope as ks
import slow_reader
from kernelscope import analysis

JSON_TEXT = ("input_dims", "input_types", "input_strides", "concrete_inputs")


def comparable(frame: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """The columns in plain types and in order of the file; JSON text in one spelling."""
    plain = frame.select(columns).with_columns(pl.col(pl.Categorical).cast(pl.String))
    for column in set(columns) & set(JSON_TEXT):
        spelled = {text: respelled(text) for text in plain[column].drop_nulls().unique()}
        plain = plain.with_columns(pl.col(column).replace(spelled))
    keys = [c for c in ("row", "start_ns", "device") if c in columns]
    return plain.sort(keys, maintain_order=True)


def respelled(text: str) -> str:
    try:
        return json.dumps(json.loads(text))
    except ValueError:
        return text


@pytest.mark.parametrize("path", [*VALID, *files(ORACLES / "tb-plugin" / "unit", "*.trace.json")])
def test_tables(path: Path) -> None:
    fast = ks.read(path)
    slow = slow_reader.read(path, slow_reader.demangled(fast.gpu_ops.iter_rows(named=True)))
    different: dict[str, str] = {}
    for table, names in slow_reader.COLUMNS.items():
        columns = names.split()
        ours = fast.tables[table].select(columns)
        theirs = pl.DataFrame(slow[table], schema=ours.schema)
        try:
            assert_frame_equal(
                comparable(ours, columns), comparable(theirs, columns), check_dtypes=False, rel_tol=1e-12
            )
        except AssertionError as error:
            different[table] = str(error)
    assert different == {}


@pytest.mark.parametrize("path", VALID)
def test_every_event_is_in_one_table(path: Path) -> None:
    tables: dict[str, Any] = ks.read(path).tables
    seen = ks.read(path).meta.seen
    extra = ("extra_args", "collectives", "steps")
    rows = pl.concat(
        frame.select(pl.col("row").unique())
        for name, frame in tables.items()
        if "row" in frame.columns and name not in extra
    )["row"]
    assert rows.is_duplicated().sum() == 0
    assert rows.len() == seen


@pytest.mark.parametrize("path", files(SHARED / "traces" / "nsys", "*nvtx*.sqlite"))
def test_ranges_do_what_their_names_say(path: Path) -> None:
    trace = ks.read(path)
    steps = set(trace.steps["name"].drop_nulls())
    assert trace.ranges.height > 0
    for name, activity in trace.ranges.select(pl.col("name", "activity").cast(pl.String)).unique().rows():
        by_name = slow_reader.activity_of_name(name or "")
        assert activity == ("step" if name in steps else by_name), name


FOUND = {"external_id", "containment", "gpu_external_id"}
REASONS = {"no_op", "no_launch", "no_correlation"}


@pytest.mark.parametrize("path", VALID)
def test_nothing_is_lost(path: Path) -> None:
    trace = read(path)
    assert trace.meta.seen == trace.meta.kept > 0
    assert trace.meta.dropped == 0
    assert trace.diagnostics.filter(pl.col("severity").cast(pl.String) != "info").rows() == []


# What torch writes for names and values that its writer does not escape, and what remains of each.
BROKEN = {
    "braces-in-name": ("repaired_event", 'x},{"ph":"X"', None),
    "control-kwarg": ("control_character", "fast", {"msg": "a\x01b"}),
    "inf-kwarg": ("bare_non_finite", "fast", {"lr": "inf"}),
    "metadata-quote": ("bad_metadata", "ok", None),
    "nan-kwarg": ("bare_non_finite", "fast", {"lr": "nan"}),
    "quote-in-name": ("repaired_event", 'load "train" split', None),
    "quote-list-kwarg": ("repaired_event", "fast", {"msg": ['a"b']}),
    # These are valid, but the recorder changed the name.
    "backslash-name": (None, "C:/data/x", None),
    "newline-name": (None, "ab", None),
    "non-ascii-name": (None, "unknown", None),
    "tab-in-name": (None, "unknown", None),
}


@pytest.mark.parametrize("path", files(ORACLES / "torch-cpu" / "invalid", "*.json"))
def test_a_broken_value_costs_nothing_else(path: Path) -> None:
    code, name, kwargs = BROKEN[path.name.removesuffix(".json")]
    trace = ks.read(path)
    assert (trace.meta.seen, trace.meta.kept, trace.meta.dropped) == (20, 20, 0)
    found = trace.diagnostics.select(pl.col("code", "severity").cast(pl.String), "count").rows()
    assert found == ([] if code is None else [(code, "repaired", 1)])
    # All files record the same nine operators under an annotation of their own.
    names = trace.ops["name"].cast(pl.String).to_list()
    assert names[0] == name
    assert names[1:] == ["aten::ones", "aten::empty", "aten::fill_", "aten::add", *names[5:]]
    assert len(names) == 9
    extra = trace.extra_args.select(pl.all().cast(pl.String)).filter(pl.col("key").is_in(list(kwargs or {})))
    assert {row["key"]: json.loads(row["value"]) for row in extra.to_dicts()} == (kwargs or {})


@pytest.mark.parametrize("path", VALID)
def test_every_kernel_has_an_op_or_a_reason(path: Path) -> None:
    trace = read(path)
    work = trace.gpu_ops.with_columns(pl.col("link").cast(pl.String))
    linked = pl.col("op_row").is_not_null()
    assert set(work.filter(linked)["link"]) <= FOUND
    assert set(work.filter(~linked)["link"]) <= REASONS
    known = work.filter(linked).join(trace.ops, left_on="op_row", right_on="row", how="semi")
    assert known.height == work.filter(linked).height


def linked_ns(trace: ks.Trace) -> int:
    """The time of GPU work that an operator launched, or what ran while an annotation was open."""
    calls = trace.launches.select("track", "start_ns", "dur_ns", launch_row="row")
    work = trace.gpu_ops.select("op_row", "launch_row", work_ns="dur_ns").join(
        calls, on="launch_row", how="left"
    )
    linked = int(work.filter(pl.col("op_row").is_not_null())["work_ns"].sum())
    annotations = trace.ops.filter("is_annotation").select(
        "track", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    opened = list(annotations.iter_rows())
    for call in work.filter(pl.col("op_row").is_null() & pl.col("track").is_not_null()).iter_rows(named=True):
        end = call["start_ns"] + call["dur_ns"]
        around = (
            t == call["track"] and start <= call["start_ns"] and end <= closed for t, start, closed in opened
        )
        linked += call["work_ns"] if any(around) else 0
    return linked


@pytest.mark.parametrize("path", VALID)
def test_kernel_time_is_the_same_over_ops_and_over_kernels(path: Path) -> None:
    trace = read(path)
    total = int(trace.gpu_ops["dur_ns"].sum())
    unlinked = total - linked_ns(trace)
    for collapse in (True, False):
        table = analysis.op_table(trace, annotations=True, collapse=collapse)
        assert int(table["device_self_ns"].sum()) + unlinked == total
    kernels = analysis.kernel_table(trace)
    of_kernels = int(trace.gpu_ops.filter(pl.col("kind") == "kernel")["dur_ns"].sum())
    assert int(kernels["total_ns"].sum()) == of_kernels
    by_op = analysis.kernel_table(trace, by=("op", "name"))
    assert int(by_op["total_ns"].sum()) == of_kernels


@pytest.mark.parametrize("path", VALID)
def test_step_parts_sum_to_the_step(path: Path) -> None:
    table = analysis.step_breakdown(read(path), include_partial=True)
    assert table.select(pl.sum_horizontal(analysis.CATEGORIES) == pl.col("total_ns")).to_series().all()
    assert table.select(pl.min_horizontal(analysis.CATEGORIES) >= 0).to_series().all()


@pytest.mark.parametrize("path", VALID)
def test_device_totals_of_roots_sum_to_the_linked_time(path: Path) -> None:
    trace = read(path)
    calls = analysis.ops(trace)
    roots = calls.filter(pl.col("parent_row").is_null())
    # An annotation also has what autograd launches for its thread, whose operators are roots of their own.
    twice = analysis.annotation_table(trace, ("row", "parent_row")).filter(pl.col("parent_row").is_null())
    total = int(roots["device_total_ns"].sum()) - int(twice["other_thread_ns"].sum())
    assert total == linked_ns(trace)
