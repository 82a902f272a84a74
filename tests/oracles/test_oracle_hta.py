"""Every table of HolisticTraceAnalysis 0.6.1, under its own row selection."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from traces import NO_SHARED, ORACLES, TRACES, need, read, rows_of, text_of

from kernelscope import analysis
from kernelscope.compat import hta
from kernelscope.compat.hta.tables import hta_events

HTA = ORACLES / "hta"


PAIR = "sampled-rank0and1of128"
"""Two ranks that were loaded together."""


@dataclass(frozen=True)
class Case:
    """What the tool says of one rank in a folder of its answers, and what we say of the same trace."""

    folder: Path
    rank: int

    @property
    def trace(self) -> Any:
        name = self.folder.name.removesuffix("-noround")
        return read(TRACES / f"{f'sampled-rank{self.rank}of128' if name == PAIR else name}.json.gz")

    @property
    def shift(self) -> float:
        """Ranks that are loaded together count from the first event of any of them."""
        return 192.0 if self.folder.name == PAIR and self.rank == 1 else 0.0

    def ask(self, question: Callable[..., pl.DataFrame], **options: Any) -> pl.DataFrame:
        return question(self.trace, rounded=not self.folder.name.endswith("-noround"), **options)

    def rows(self, name: str) -> list[dict[str, str]] | None:
        """The rows of this rank in a table. Null if the tool failed to make it."""
        found = [path for path in (self.folder / f"{name}.gz", self.folder / name) if path.exists()]
        if not found:
            return None
        return [row for row in rows_of(text_of(found[0])) if int(row.get("rank", self.rank)) == self.rank]


def cases() -> list[object]:
    found: list[object] = []
    for folder in sorted(HTA.glob("*/")) if HTA.is_dir() else []:
        if folder.name == "special":
            continue
        ranks = json.loads((folder / "meta.json").read_text())["ranks"]
        found += [pytest.param((folder, rank), id=f"{folder.name}-{rank}") for rank in ranks]
    skipped = pytest.param(None, marks=pytest.mark.skip(reason=NO_SHARED), id="no-shared-traces")
    return found or [skipped]


@pytest.fixture(params=cases())
def case(request: pytest.FixtureRequest) -> Case:
    """Every rank of every folder."""
    return Case(*request.param)


def assert_same(actual: pl.DataFrame, expected: list[dict[str, str]], *, skip: tuple[str, ...] = ()) -> None:
    """Every cell of ``actual`` is what the table says; an empty cell is null."""
    assert actual.height == len(expected)
    for name in actual.columns:
        if name in skip:
            continue
        wanted = [row[name] for row in expected]
        values = actual[name].to_list()
        if actual.schema[name] == pl.String:
            assert values == wanted, name
        else:
            numbers = [float(cell) if cell else None for cell in wanted]
            assert [v is None for v in values] == [n is None for n in numbers], name
            pairs = [(v, n) for v, n in zip(values, numbers, strict=True) if n is not None]
            assert [v for v, _ in pairs] == pytest.approx([n for _, n in pairs], rel=1e-9, abs=1e-9), name


def test_events(case: Case) -> None:
    expected = case.rows(f"events_rank{case.rank}.csv")
    assert expected is not None
    events = case.ask(hta_events)
    assert [str(row) for row in events["row"]] == [row["index"] for row in expected]
    shift = case.shift
    assert [ts + shift for ts in events["ts"]] == [float(row["ts"]) for row in expected]
    assert events["dur"].to_list() == [float(row["dur"]) for row in expected]
    assert events["name"].fill_null("").to_list() == [row["name"] for row in expected]
    assert events["cat"].to_list() == [row["cat"] for row in expected]
    for ours, theirs in (("stream", "stream"), ("correlation", "correlation")):
        assert events[ours].to_list() == [int(row[theirs]) for row in expected]
    # 0 is a partner that is not there, and -1 an event without a correlation id.
    partners = [max(int(row["index_correlation"]), 0) for row in expected]
    assert events["partner"].fill_null(0).to_list() == partners


def test_the_shift_is_between_the_first_events() -> None:
    if not TRACES.is_dir():
        pytest.skip(NO_SHARED)
    starts = [
        min(
            frame["start_ns"].min()
            for frame in (trace.ops, trace.launches, trace.gpu_ops, trace.gpu_annotations)
            if frame.height
        )
        for trace in (read(TRACES / f"sampled-rank{rank}of128.json.gz") for rank in (0, 1))
    ]
    assert starts[1] - starts[0] == 192_000


# Function, file of the answer, and the columns by which both sides are sorted.
ANSWERS: list[tuple[Callable[..., pl.DataFrame], str, tuple[str, ...]]] = [
    (hta.temporal_breakdown, "temporal_breakdown.csv", ()),
    (hta.comm_comp_overlap, "comm_comp_overlap.csv", ()),
    (hta.kernel_breakdown, "kernel_breakdown_all_kernels.csv", ("kernel_type", "name")),
    (hta.idle_time, "idle_time.csv", ()),
    (hta.idle_intervals, "idle_interval_stats.csv", ()),
]
# It fails on these for a trace without GPU work; the answer has no row.
FAILING = ("temporal_breakdown.csv", "idle_time.csv", "idle_interval_stats.csv")


@pytest.mark.parametrize(("answer", "name", "keys"), ANSWERS, ids=[name for _, name, _ in ANSWERS])
def test_table(case: Case, answer: Callable[..., pl.DataFrame], name: str, keys: tuple[str, ...]) -> None:
    expected = case.rows(name)
    assert expected is not None or name in FAILING
    rows = sorted(expected or [], key=lambda row: [row[key] for key in keys])
    assert_same(case.ask(answer), rows, skip=("rank",))


def test_kernel_types(case: Case) -> None:
    expected = case.rows("kernel_type_breakdown.csv")
    assert expected is not None
    if case.folder.name == PAIR:
        # The tool adds the ranks up.
        answers = [replace(case, rank=rank).ask(hta.kernel_type_breakdown) for rank in (0, 1)]
        both = pl.concat(answers).group_by("kernel_type").agg(pl.col("sum").sum())
        share = (100 * pl.col("sum") / pl.col("sum").sum()).round(1)
        answer = both.with_columns(percentage=share).sort("sum", descending=True)
    else:
        answer = case.ask(hta.kernel_type_breakdown)
    assert_same(answer, expected)


def test_kernels_of_which_few_are_named(case: Case) -> None:
    """The tool sums the rest up as "others", then takes mean, min and max of sums, not of launches."""
    answer = case.ask(hta.kernel_breakdown)
    expected = case.rows("kernel_breakdown.csv")
    assert expected is not None
    assert_same(with_its_fault(answer), sorted(expected, key=type_and_name), skip=("rank",))


def with_its_fault(kernels: pl.DataFrame) -> pl.DataFrame:
    parts: list[pl.DataFrame] = []
    for _, part in kernels.group_by("kernel_type", maintain_order=True):
        if part.height <= 10:
            parts.append(part)
            continue
        ordered = part.sort("sum (us)", descending=True, maintain_order=True)
        running = ordered["sum (us)"].cum_sum()
        far = running > running.quantile(0.8, interpolation="linear")
        far = far | (pl.arange(part.height, eager=True) >= 10)
        total = pl.col("sum (us)")
        named = ordered.with_columns(name=pl.when(far).then(pl.lit("others")).otherwise("name"))
        parts.append(
            named.group_by("name", "kernel_type", "rank")
            .agg(
                total.sum(),
                total.max().alias("max (us)"),
                total.min().alias("min (us)"),
                total.std().fill_null(0.0).alias("stddev"),
                total.mean().alias("mean (us)"),
            )
            .select(part.columns)
        )
    return pl.concat(parts).sort("kernel_type", "name") if parts else kernels


def type_and_name(row: dict[str, str]) -> tuple[str, str]:
    return row["kernel_type"], row["name"]


@pytest.mark.parametrize("side", ["cpu", "gpu"])
def test_annotations(case: Case, side: str) -> None:
    answer = case.ask(hta.annotation_breakdown, on_gpu=side == "gpu")
    expected = case.rows(f"{side}_user_annotation_breakdown.csv")
    if expected is None:
        # It writes no table without annotations.
        assert answer.is_empty()
    else:
        assert_same(answer, sorted(expected, key=lambda row: row["name"]), skip=("rank",))


def test_launch_stats(case: Case) -> None:
    answer = case.ask(hta.launch_stats)
    expected = case.rows(f"launch_stats_rank{case.rank}.csv")
    assert expected is not None
    columns = answer.columns
    assert_same(
        answer.sort(columns), sorted(expected, key=lambda row: [float(row[column]) for column in columns])
    )


def instants(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[list[Any], float]]:
    """What happens at each (place, time), in no order, and the value that holds after it."""
    found: dict[tuple[Any, ...], tuple[list[Any], float]] = {}
    for place, at, what, value in rows:
        happened, _ = found.get((place, at), ([], 0.0))
        found[place, at] = (sorted([*happened, what]), value)
    return found


def test_queue_length(case: Case) -> None:
    """The tool's sort leaves equal times in any order: compared instant by instant."""
    answer = case.ask(hta.queue_length)
    expected = case.rows(f"queue_length_ts_rank{case.rank}.csv") or []
    shift = case.shift
    ours = [
        (row["stream"], row["ts"] + shift, row["index"], row["queue_length"]) for row in answer.to_dicts()
    ]
    theirs = [
        (int(row["stream"]), float(row["ts"]), int(row["index"]), int(row["queue_length"]))
        for row in expected
    ]
    assert instants(ours) == instants(theirs)
    assert all(row["tid"] == row["stream"] for row in answer.to_dicts())


def test_queue_summary(case: Case) -> None:
    summary = case.ask(hta.queue_summary)
    expected = described(case.folder / "queue_length_summary.csv", case.rank, ["stream"])
    series = case.rows(f"queue_length_ts_rank{case.rank}.csv") or []
    assert summary["stream"].to_list() == sorted({int(row["stream"]) for row in series})
    ours = case.ask(hta.queue_length)
    for row in summary.to_dicts():
        stream = row["stream"]
        theirs = [int(r["queue_length"]) for r in series if int(r["stream"]) == stream]
        assert describe(theirs) == pytest.approx(expected[str(stream)], rel=1e-9)
        # Where the order of equal times differs, so do the lengths between them, and nothing else.
        if sorted(theirs) == sorted(ours.filter(stream=stream)["queue_length"].to_list()):
            assert [row[column] for column in COLUMNS] == pytest.approx(expected[str(stream)], rel=1e-9)
        else:
            assert len(set(ours.filter(stream=stream)["ts"])) < len(theirs)
            assert row["count"] == expected[str(stream)][0]


COLUMNS = ("count", "mean", "std", "min", "25%", "50%", "75%", "max")


def describe(values: list[Any]) -> list[float]:
    series = pl.Series(values, dtype=pl.Float64)
    quartiles = [series.quantile(share, interpolation="linear") for share in (0.25, 0.5, 0.75)]
    return [series.len(), series.mean(), series.std(), series.min(), *quartiles, series.max()]


def described(path: Path, rank: int, keys: list[str]) -> dict[str, list[float]]:
    """The rows of a table with two lines of headings, or three where it has an index."""
    if not path.exists():
        return {}
    found: dict[str, list[float]] = {}
    for row in list(csv.reader(io.StringIO(path.read_text())))[2:]:
        if len(row) == len(COLUMNS) + len(keys) + 1 and row[0] == str(rank) and row[2]:
            found[row[1]] = [float(cell) for cell in row[2:]]
    return found


def test_memory_bandwidth(case: Case) -> None:
    """Compared instant by instant, as the queue is."""
    answer = case.ask(hta.memory_bandwidth)
    expected = case.rows(f"memory_bw_ts_rank{case.rank}.csv") or []
    shift = case.shift
    ours = instants([(r["name"], r["ts"] + shift, r["pid"], r["memory_bw_gbps"]) for r in answer.to_dicts()])
    theirs = instants(
        [(r["name"], float(r["ts"]), int(r["pid"]), float(r["memory_bw_gbps"])) for r in expected]
    )
    assert ours.keys() == theirs.keys()
    for key, (happened, rate) in theirs.items():
        assert ours[key][0] == happened
        # Sums of float64 in another order: what is left after all copies have ended is not quite 0.
        assert ours[key][1] == pytest.approx(rate, rel=1e-9, abs=1e-9)


def test_memory_bandwidth_summary(case: Case) -> None:
    summary = case.ask(hta.memory_bandwidth_summary)
    expected = described(case.folder / "memory_bw_summary.csv", case.rank, ["name"])
    series = case.rows(f"memory_bw_ts_rank{case.rank}.csv") or []
    ours = case.ask(hta.memory_bandwidth).filter(pl.col("memory_bw_gbps") > 0)
    for row in summary.to_dicts():
        name = row["name"]
        rates = [float(r["memory_bw_gbps"]) for r in series if r["name"] == name]
        theirs = [rate for rate in rates if rate > 0]
        mine = ours.filter(name=name)["memory_bw_gbps"].to_list()
        assert describe(theirs) == pytest.approx(expected[name], rel=1e-9)
        if len(mine) == len(theirs) and sorted(mine) == pytest.approx(sorted(theirs), rel=1e-9):
            assert [row[column] for column in COLUMNS] == pytest.approx(expected[name], rel=1e-9)
        else:
            # A copy begins when another ends, and the order of the two decides about a point between them.
            times = [r["ts"] for r in series if r["name"] == name]
            assert len(set(times)) < len(times)


def test_own_answers_are_those_without_rounding() -> None:
    """A trace of one step, without synchronisations on streams, leaves nothing else to differ."""
    case = Case(need(HTA / "owlv2-h100-noround"), 0)
    trace = case.trace
    # Its times are float64 microseconds since 1970, which tell a quarter of a microsecond apart.
    (gpu,) = analysis.temporal_breakdown(trace).to_dicts()
    (theirs,) = case.rows("temporal_breakdown.csv") or []
    assert gpu["span_ns"] / 1000 == pytest.approx(float(theirs["kernel_time(us)"]), abs=0.5)
    assert gpu["idle_ns"] / 1000 == pytest.approx(float(theirs["idle_time(us)"]), rel=1e-5)
    assert gpu["compute_ns"] / 1000 == pytest.approx(float(theirs["compute_time(us)"]), rel=1e-5)
    idle = analysis.idle_summary(trace, by=("stream", "cause"))
    expected = {
        (int(row["stream"]), row["idle_category"]): float(row["idle_time"])
        for row in case.rows("idle_time.csv") or []
    }
    actual = {(row["stream"], row["cause"]): row["idle_ns"] / 1000 for row in idle.to_dicts()}
    assert {key: value for key, value in expected.items() if value} == pytest.approx(actual, rel=1e-3)
    launches = {row["correlation"]: row for row in analysis.launches(trace).to_dicts()}
    for row in case.rows("launch_stats_rank0.csv") or []:
        own = launches[int(row["correlation"])]
        assert own["cpu_dur_ns"] / 1000 == pytest.approx(float(row["cpu_duration"]))
        assert own["gpu_dur_ns"] / 1000 == pytest.approx(float(row["gpu_duration"]))
        assert own["launch_delay_ns"] / 1000 == pytest.approx(float(row["launch_delay"]), abs=0.5)


@pytest.mark.parametrize(
    ("table", "name"),
    [("nccl_parser_config", "a100-nccl-rank0of2-2024"), ("ns_resolution_trace", "v100-ns-2024")],
)
def test_op_launch_delay(table: str, name: str) -> None:
    path = need(HTA / "special" / f"aten_op_delay_{table}.csv")
    answer = hta.op_launch_delay(read(TRACES / f"{name}.json.gz"))
    order = ("aten_op_name", "kernel_sequence")
    rows = sorted(rows_of(path.read_text()), key=lambda row: tuple(map(row.get, order)))
    # Three decimals of a mean of float64, rounded by either side.
    means = ("avg_aten_op_launch_delay", "avg_runtime_delay")
    assert_same(answer.sort(order), rows, skip=means)
    for column in means:
        assert answer.sort(order)[column].to_list() == pytest.approx(
            [float(row[column]) for row in rows], abs=0.0011
        )


def test_frequent_sequences() -> None:
    path = need(HTA / "special" / "frequent_seq_trace_diff_control_atenlinear.csv")
    trace = read(TRACES / "a100-control-rank3of8-2022.json.gz")
    answer = hta.kernel_sequences(trace, "aten::linear")
    assert_same(answer, rows_of(path.read_text()))
