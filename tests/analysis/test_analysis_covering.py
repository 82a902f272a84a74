"""Unions of intervals and what they hide, against instants; and the time of GPUs, which rests on both."""

from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import draws
from events import Events
from kernelscope import analysis
from kernelscope.analysis.gpu.summary import inside_ns
from kernelscope.analysis.intervals import Intervals, covered_ns, group_codes, merged
from kernelscope.compat import hta
from kernelscope.errors import InvalidArgumentError

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(-3, 12), st.sampled_from("ab")), max_size=15)


def frame(spans: list[tuple[int, int, str]]) -> pl.DataFrame:
    rows = [(start, start + length, group) for start, length, group in spans]
    schema = {"start_ns": pl.Int64, "end_ns": pl.Int64, "group": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def instants(rows: pl.DataFrame) -> set[tuple[str, int]]:
    return {
        (g, t)
        for start, end, g in rows.select("start_ns", "end_ns", "group").rows()
        for t in range(start, end)
    }


@given(SPANS)
def test_merged_is_the_union(spans: list[tuple[int, int, str]]) -> None:
    parts = merged(frame(spans), by=["group"])
    assert instants(parts) == instants(frame(spans))
    for _, one in parts.group_by("group"):
        ends, starts = one["end_ns"].to_list(), one["start_ns"].to_list()
        assert all(end < start for end, start in zip(ends, starts[1:], strict=False))
        assert all(end > start for end, start in zip(ends, starts, strict=True))
    everything = merged(frame(spans), by=[])
    assert (everything["end_ns"] - everything["start_ns"]).sum() == len(
        {t for _, t in instants(frame(spans))}
    )


@given(SPANS, SPANS)
def test_hidden_is_what_both_have(
    spans: list[tuple[int, int, str]], cover: list[tuple[int, int, str]]
) -> None:
    rows, covered = frame(spans), instants(frame(cover))
    hidden = Intervals(merged(frame(cover), by=["group"]), by=["group"]).hidden_ns(rows)
    expected = [len(instants(rows[place]) & covered) for place in range(rows.height)]
    assert hidden.to_list() == expected
    # Only some of them hide anything.
    marks = pl.Series([at % 2 == 0 for at in range(len(cover))], dtype=pl.Boolean)
    marked = instants(frame(cover).filter(marks))
    hidden = Intervals(frame(cover), by=["group"]).part(marks).hidden_ns(rows)
    assert hidden.to_list() == [len(instants(rows[place]) & marked) for place in range(rows.height)]


@given(SPANS)
def test_covered_time_by_group_and_level(spans: list[tuple[int, int, str]]) -> None:
    rows = frame(spans).with_row_index("level").with_columns(level=pl.col("level") % 3)
    for group, covered in covered_ns(rows, by=["group"]).rows():
        assert covered == sum(own == group for own, _ in instants(rows))
    assert covered_ns(rows, by=[]).item() == len({t for _, t in instants(rows)})
    for group, level, covered in Intervals(rows, by=["group"]).covered_ns(rows["level"]).rows():
        upto = instants(rows.filter(pl.col("level") <= level, group=group))
        assert covered == len(upto)


@given(SPANS, st.integers(0, 30), st.integers(0, 20))
def test_classes_stand_for_their_intervals(
    spans: list[tuple[int, int, str]], first: int, length: int
) -> None:
    rows, window = (
        frame(spans).with_row_index("of").with_columns(of=pl.col("of") % 3),
        (first, first + length),
    )
    intervals, of = Intervals(rows, by=["group"]), rows["of"]
    levels, shares = pl.Series([1, 0, 2]), pl.Series([0.5, 0.0, 0.75])
    for asked in (None, window):
        by_class = intervals.covered_ns(levels, of=of, window=asked)
        assert by_class.equals(intervals.covered_ns(levels.gather(of), window=asked))
        by_class = intervals.filled_ns(shares, of=of, window=asked)
        assert by_class.equals(intervals.filled_ns(shares.gather(of), window=asked))
    marks = pl.Series([True, False, True])
    assert intervals.part(marks, of=of).union().equals(intervals.part(marks.gather(of)).union())
    works = rows.select("start_ns", dur_ns=pl.col("end_ns") - pl.col("start_ns"))
    found = inside_ns(works, of, 3, window=window)
    for number, (count, inside) in enumerate(found.rows()):
        own = [
            len(instants(rows[at]) & {(g, t) for g in "ab" for t in range(*window)}) for at in range(len(of))
        ]
        own = [own[at] for at in range(len(of)) if of[at] == number]
        assert (count, inside) == (sum(one > 0 for one in own), sum(own))


@given(SPANS)
def test_gaps_are_what_nothing_covers(spans: list[tuple[int, int, str]]) -> None:
    rows = frame(spans).filter(pl.col("end_ns") >= pl.col("start_ns"))
    rows = rows.with_columns(dur_ns=pl.col("end_ns") - pl.col("start_ns")).with_row_index("call")
    # Calls of every other work are known.
    known = rows.select(pl.when(pl.col("call") % 2 == 0).then("call")).to_series()
    calls = rows.select(start_ns=pl.col("start_ns") - pl.col("call") % 5)
    found = Intervals(rows.drop("end_ns"), by=["group"]).gaps(known, calls)
    found = found.with_columns(start_ns=rows["start_ns"].gather(found["at"]) - found["dur_ns"])
    late = [
        None if at % 2 else calls["start_ns"][at] > start for at, start in found["at", "start_ns"].iter_rows()
    ]
    assert found["is_late"].to_list() == late
    ends = rows[found["at"]].with_columns(end_ns="start_ns", start_ns=found["start_ns"])
    for (group,), own in rows.group_by("group"):
        whole = pl.DataFrame(
            {"group": [group], "start_ns": own["start_ns"].min(), "end_ns": own["end_ns"].max()}
        )
        assert instants(ends.filter(group=group)) == instants(whole) - instants(own)


@given(SPANS)
def test_filled_time_is_the_sum_up_to_one(spans: list[tuple[int, int, str]]) -> None:
    rows = frame(spans).filter(pl.col("end_ns") >= pl.col("start_ns"))
    rows = rows.with_row_index("share").with_columns(share=(pl.col("share") % 4) / 4)
    for group, filled in Intervals(rows, by=["group"]).filled_ns(rows["share"]).rows():
        at = [
            sum(share for share, start, end, own in rows.rows() if own == group and start <= t < end)
            for t in range(60)
        ]
        assert filled == sum(min(1, share) for share in at)


@given(SPANS)
def test_runs_end_where_the_label_changes(spans: list[tuple[int, int, str]]) -> None:
    rows = frame(spans).with_row_index("at").with_columns(label=pl.col("at") % 2, marked=pl.col("at") % 5 > 0)
    found = Intervals(rows, by=["group"]).runs(rows["marked"], rows["label"])
    ordered = rows.sort("group", "start_ns", "at")
    changes = pl.any_horizontal(pl.col(c) != pl.col(c).shift(1) for c in ("group", "label", "marked"))
    ordered = ordered.with_columns(run=changes.fill_null(value=False).cum_sum()).filter("marked")
    expected = ordered.filter(pl.len().over("run") > 1)
    assert found["at"].to_list() == expected["at"].to_list()
    assert found["run"].to_list() == (expected["run"].rle_id()).to_list()


KEYS = st.lists(
    st.tuples(
        st.sampled_from([None, -5, 0, 7, 2**62, -(2**62)]),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, 0.5, 1.5]),
        st.sampled_from([None, True, False]),
    ),
    max_size=20,
)


@given(SPANS)
def test_intervals_by_other_groups_are_as_if_new(spans: list[tuple[int, int, str]]) -> None:
    # Groups that lie in those of before, as streams do in GPUs; such that lie across them; and one of all.
    rows = frame(spans).with_row_index("row")
    rows = rows.with_columns(inner=pl.col("row") % 2, across=pl.col("row") % 3)
    old = Intervals(rows, by=["group"])
    for by in (["group", "inner"], ["across"], []):
        regrouped, new = old.regrouped(rows.select(by), group_codes(rows, by)), Intervals(rows, by=by)
        assert regrouped.union().equals(new.union())
        assert regrouped.shared_ns().to_list() == pytest.approx(new.shared_ns().to_list())


@given(SPANS)
def test_shares_of_a_group_sum_to_what_it_covers(spans: list[tuple[int, int, str]]) -> None:
    rows = frame(spans)
    shared = Intervals(rows, by=["group"]).shared_ns()
    for (group,), own in rows.with_columns(shared=shared).group_by("group"):
        covered = [moment for name, moment in instants(rows) if name == group]
        assert own["shared"].sum() == pytest.approx(len(covered))


@given(KEYS)
def test_groups_agree_in_all_columns(
    keys: list[tuple[int | None, str | None, float | None, bool | None]],
) -> None:
    names = ["stream", "name", "rate", "flag"]
    schema = dict(zip(names, (pl.Int64, pl.Categorical, pl.Float64, pl.Boolean), strict=True))
    rows = pl.DataFrame(keys, schema=schema, orient="row").with_columns(start_ns=pl.lit(3), end_ns=pl.lit(5))
    covered = covered_ns(rows, by=names)
    assert covered["covered_ns"].to_list() == [2] * covered.height
    assert sorted(covered.select(names).rows(), key=str) == sorted(
        rows.select(names).unique().rows(), key=str
    )
    by_stream = covered_ns(rows, by=["stream"])["stream"]
    assert by_stream.equals(by_stream.sort(nulls_last=False))


Work = list[tuple[int, int, str]]
WORK = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 25), st.sampled_from(["gemm", "ncclDevKernel_X", "copy"])),
    min_size=1,
    max_size=14,
)


def record(work: Work) -> Events:
    events = Events()
    for place, (start, length, what) in enumerate(work):
        events.call(start / 10, 0.1, place + 1)
        if what == "copy":
            events.copy(start, length, place + 1, stream=place)
        else:
            events.kernel(what, start, length, place + 1, stream=place)
    return events


@pytest.mark.slow
@settings(max_examples=draws.count(40, 800))
@given(WORK)
def test_every_moment_counts_once(work: Work) -> None:
    with TemporaryDirectory() as folder:
        trace = record(work).read(Path(folder))
    running = {t: {what for start, length, what in work if start <= t < start + length} for t in range(90)}
    first = min(start for start, _, _ in work)
    last = max(start + length for start, length, _ in work)
    compute = {t for t, names in running.items() if "gemm" in names}
    talk = {t for t, names in running.items() if "ncclDevKernel_X" in names}
    copies = {t for t, names in running.items() if "copy" in names}
    (row,) = analysis.temporal_breakdown(trace).to_dicts()
    assert row["span_ns"] == (last - first) * 1000
    assert row["compute_ns"] == len(compute) * 1000
    assert row["communication_ns"] == len(talk - compute) * 1000
    assert row["memory_ns"] == len(copies - talk - compute) * 1000
    assert row["idle_ns"] == (last - first) * 1000 - len(compute | talk | copies) * 1000
    overlap = analysis.comm_comp_overlap(trace).to_dicts()
    if any(what == "ncclDevKernel_X" for _, _, what in work):
        (found,) = overlap
        assert found["communication_ns"] == len(talk) * 1000
        assert found["overlap_ns"] == len(talk & compute) * 1000
        assert found["exposed_ns"] == len(talk - compute) * 1000
        assert found["overlap"] == (len(talk & compute) / len(talk) if talk else None)
    else:
        assert overlap == []


def test_overlap_by_name_and_device(tmp_path: Path) -> None:
    events = Events()
    events.kernel("ncclDevKernel_A", 0, 10, 1, stream=1)
    events.kernel("ncclDevKernel_B", 5, 10, 2, stream=2)
    events.kernel("ncclDevKernel_B", 0, 10, 3, device=1)
    events.kernel("gemm", 8, 4, 4, stream=3)
    trace = events.read(tmp_path)
    by_name = analysis.comm_comp_overlap(trace, by="name")
    assert by_name.select("name", "calls", "communication_ns", "exposed_ns").rows() == [
        # Its calls run on two GPUs, only one of which computes.
        ("ncclDevKernel_B", 2, 20_000, 16_000),
        ("ncclDevKernel_A", 1, 10_000, 8_000),
    ]
    by_device = analysis.comm_comp_overlap(trace).select("device", "communication_ns", "overlap_ns")
    assert sorted(by_device.rows()) == [(0, 15_000, 4_000), (1, 10_000, 0)]
    with pytest.raises(InvalidArgumentError, match="cannot group by"):
        analysis.comm_comp_overlap(trace, by="colour")


@pytest.mark.parametrize("question", ["temporal_breakdown", "comm_comp_overlap", "idle_time", "launch_stats"])
def test_tables_of_hta_with_and_without_its_rounding(tmp_path: Path, question: str) -> None:
    trace = record([(0, 5, "gemm")]).read(tmp_path)
    rounded, exact = (getattr(hta, question)(trace, rounded=rounded) for rounded in (True, False))
    assert rounded.equals(exact)
