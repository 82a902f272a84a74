"""What a lake holds, when a source is read again, and the documentation of lakes."""

from __future__ import annotations

import inspect
import json
import os
import pickle
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jobs import batch, files_of

import kernelscope as ks
from demo_jobs import read_job, write_job
from kernelscope import analysis, report
from kernelscope.batch.lake import Lake
from kernelscope.batch.sources import Source
from kernelscope.compat import hta, nsys, pyprof, torch_profiler
from kernelscope.errors import InvalidArgumentError
from kernelscope.report.text.cluster import to_text

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_a_lake_holds_what_reading_gives(job: Path, tmp_path: Path) -> None:
    ks.batch.run(job, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    assert lake.ranks.collect()["rank"].to_list() == [0, 1, 2]
    for rank in range(3):
        trace = ks.read(job / f"rank{rank}.pt.trace.json")
        for name, frame in trace.tables.items():
            theirs = lake.tables[name].filter(pl.col("rank") == rank).drop("run", "rank", "window").collect()
            ours = frame.rename({"rank": "group_rank"}) if name == "collectives" else frame
            assert theirs.equals(ours), name
            assert theirs.schema == ours.schema, name
        again = lake.trace(rank)
        assert all(again.tables[name].equals(frame) for name, frame in trace.tables.items())
        assert all(again.tables[name].schema == frame.schema for name, frame in trace.tables.items())
        known = ("format", "compression", "content_bytes", "recorder", "base_time_ns", "world_size", "seen")
        assert [getattr(again.meta, name) for name in known] == [getattr(trace.meta, name) for name in known]
    with pytest.raises(InvalidArgumentError, match="has no rank 9"):
        lake.trace(9)
    ks.batch.run(job, tmp_path / "lake", run="again")
    lake = ks.scan(tmp_path / "lake")
    with pytest.raises(InvalidArgumentError, match="rank 1 more than once"):
        lake.trace(1)
    assert lake.trace(1, run="again").tables["ops"].equals(ks.read(job / "rank1.pt.trace.json").ops)


def test_findings_open_no_large_table(job: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ks.batch.run(job, lake)
    expected = analysis.cluster_of([ks.read(path) for path in sorted(job.iterdir())])
    for large in ("gpu_ops", "ops", "launches", "collectives"):
        for path in lake.rglob(f"{large}.parquet"):
            path.write_bytes(b"")
    found = analysis.cluster_of(ks.scan(lake))
    assert analysis.rank_calls(found).height
    assert analysis.rank_calls(found).equals(analysis.rank_calls(expected))
    assert analysis.cluster_findings(found).equals(analysis.cluster_findings(expected))
    assert ks.scan(lake).manifest["calls"].sum() == analysis.rank_calls(found).height


def test_a_lake_says_what_is_known_of_each_rank(job: Path, tmp_path: Path) -> None:
    ks.batch.run(job, tmp_path / "lake", run="night")
    lake = ks.scan(tmp_path / "lake")
    assert lake.runs == ["night"]
    row = lake.manifest.row(1, named=True)
    trace = ks.read(job / "rank1.pt.trace.json")
    assert (row["rank"], row["rank_from"], row["outcome"]) == (1, "metadata", "done")
    assert (row["host"], row["base_time_ns"]) == (trace.meta.host, trace.meta.base_time_ns)
    assert row["world_size"] == 3
    steps = trace.steps["step"].drop_nulls()
    assert (row["first_step"], row["last_step"], row["steps"]) == (steps.min(), steps.max(), steps.len())
    assert row["events"] == trace.meta.seen


def test_unchanged_sources_are_not_read_again(job: Path, tmp_path: Path) -> None:
    traces = shutil.copytree(job, tmp_path / "traces")
    assert batch(traces, tmp_path / "lake")[0] == dict.fromkeys(["rank0", "rank1", "rank2"], "done")
    before = files_of(tmp_path / "lake")
    assert set(batch(traces, tmp_path / "lake")[0].values()) == {"unchanged"}
    assert files_of(tmp_path / "lake") == before

    changed = traces / "rank1.pt.trace.json"
    changed.write_bytes(changed.read_bytes().replace(b"aten::", b"aten__"))
    found, _ = batch(traces, tmp_path / "lake")
    assert found == {"rank0": "unchanged", "rank1": "done", "rank2": "unchanged"}
    names = ks.scan(tmp_path / "lake", ranks=[1]).ops.select(pl.col("name").cast(pl.String)).collect()
    assert not names["name"].str.contains("aten::").any()


def test_an_edit_whose_time_was_set_back_is_noticed(job: Path, tmp_path: Path) -> None:
    trace = shutil.copy2(job / "rank0.pt.trace.json", tmp_path)
    batch(trace, tmp_path / "lake")
    stat = os.stat(trace)
    content = Path(trace).read_bytes()
    Path(trace).write_bytes(content[:-4000].replace(b"node00", b"node77") + content[-4000:])
    os.utime(trace, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert batch(trace, tmp_path / "lake")[0] == {"rank0": "done"}


def test_what_the_system_saw_no_change_of_is_not_even_opened(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = shutil.copytree(job, tmp_path / "traces")
    batch(traces, tmp_path / "lake")
    opened: list[str] = []
    fingerprint = Source.fingerprint

    def noted(source: Source) -> str:
        opened.append(source.base.split(".")[0])
        return fingerprint(source)

    def read_after(seconds: int) -> None:
        """Makes it as if traces were read so long after they were written."""
        for rank in range(3):
            trace = traces / f"rank{rank}.pt.trace.json"
            read_ns = trace.stat().st_ctime_ns + seconds * 10**9
            os.utime(tmp_path / f"lake/run=default/rank={rank}/window=0/_entry.json", ns=(read_ns, read_ns))

    monkeypatch.setattr(Source, "fingerprint", noted)
    # Too short a time to tell another change by the time.
    read_after(1)
    assert batch(traces, tmp_path / "lake")[1].unchanged == 3
    assert sorted(opened) == ["rank0", "rank1", "rank2"]
    opened.clear()
    read_after(5)
    assert batch(traces, tmp_path / "lake")[1].unchanged == 3
    assert opened == []
    # Any change, of the name or the times of a file, too, lets its content be looked at.
    (traces / "rank1.pt.trace.json").chmod(0o600)
    assert batch(traces, tmp_path / "lake")[1].unchanged == 3
    assert opened == ["rank1"]


def test_a_part_of_a_lake(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    for name, frame in lake.part(0, [2, 0]).tables.items():
        assert frame.collect().equals(lake.tables[name].filter(pl.col("rank") != 1).collect()), name
    assert lake.part(1, [0]).ops.collect().is_empty()


def test_other_options_read_again(job: Path, tmp_path: Path) -> None:
    trace = job / "rank0.pt.trace.json"
    batch(trace, tmp_path / "lake")
    assert batch(trace, tmp_path / "lake", strict=True)[0] == {"rank0": "done"}
    assert batch(trace, tmp_path / "lake", strict=True)[0] == {"rank0": "unchanged"}


def test_a_moved_source_is_the_same_source(job: Path, tmp_path: Path) -> None:
    traces = shutil.copytree(job, tmp_path / "traces")
    batch(traces, tmp_path / "lake")
    moved = traces.rename(tmp_path / "elsewhere")
    assert set(batch(moved, tmp_path / "lake")[0].values()) == {"unchanged"}
    sources = ks.scan(tmp_path / "lake").manifest["source"].to_list()
    assert sources == [str(moved / f"rank{rank}.pt.trace.json") for rank in range(3)]


def test_ranks_are_added_to_a_lake(job: Path, tmp_path: Path) -> None:
    for rank in (2, 0):
        batch(job / f"rank{rank}.pt.trace.json", tmp_path / "lake")
    assert ks.scan(tmp_path / "lake").ranks.collect()["rank"].to_list() == [0, 2]


def test_runs_lie_side_by_side(job: Path, tmp_path: Path) -> None:
    for run in ("before", "after"):
        batch(job, tmp_path / "lake", run=run)
    lake = ks.scan(tmp_path / "lake")
    assert lake.runs == ["after", "before"]
    assert lake.gpu_ops.group_by("run", "rank").len().collect().height == 6
    steps = ks.scan(tmp_path / "lake", run="after", ranks=[1]).steps.collect()
    assert steps["run"].unique().to_list() == ["after"]


def test_a_table_without_rows_has_its_columns(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    ranges = ks.scan(tmp_path / "lake").ranges.collect()
    assert ranges.height == 0
    assert ranges.columns == [*(c.name for c in ks.schema.table("ranges").columns), "run", "rank", "window"]


def test_command_line(cli: Run, job: Path, tmp_path: Path) -> None:
    done = cli("batch", job, "--out", "lake", "--workers", "2", "--memory", "2GB", "--no-summary")
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["rank"] for line in lines} == {0, 1, 2}
    assert {line["status"] for line in lines} == {"done"}
    assert all(line["peak_bytes"] > 10_000_000 and line["seconds"] > 0 for line in lines)
    assert "3 traces in" in done.stderr
    again = cli("batch", job, "--out", "lake", "--no-json-lines", "--no-summary")
    assert (again.returncode, again.stdout) == (0, "")
    assert "0 read, 3 unchanged" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["batch", "nowhere", "--out", "lake"], "nowhere"),
        (["batch", ".", "--out", "../lake-beside"], "found no trace"),
        (["batch", ".", "--out", "lake"], "is the input"),
        (["batch", ".", "--out", "."], "is the input"),
        (["batch", ".", "--out", "lake", "--run", "a/b"], "letters"),
        (["batch", ".", "--out", "lake", "--workers", "0"], "at least 1"),
        (["batch", "."], "--out"),
    ],
)
def test_usage(cli: Run, arguments: list[str], message: str) -> None:
    done = cli(*arguments)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("error", [OSError("no account"), pl.exceptions.ComputeError("no account")])
def test_a_batch_without_a_summary_has_not_failed(
    cli: Run, job: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> str:
        raise error

    monkeypatch.setattr("kernelscope.cli.batch._in_process", fail)
    done = cli("batch", job, "--out", "lake")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "kernelscope: no summary: no account")


def test_a_lake_lists_its_tables(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    assert {*ks.schema.TABLES, "ranks", "manifest", "trace"} <= {*dir(ks.scan(tmp_path / "lake"))}


def test_what_a_lake_has_not(job: Path, tmp_path: Path) -> None:
    with pytest.raises(ks.errors.TraceNotFoundError, match="kernelscope batch"):
        ks.scan(tmp_path)
    batch(job, tmp_path / "lake")
    with pytest.raises(ks.errors.InvalidArgumentError, match="no rank 7"):
        ks.scan(tmp_path / "lake", ranks=[7])
    with pytest.raises(ks.errors.InvalidArgumentError, match="no run 'x'"):
        ks.scan(tmp_path / "lake", run="x")
    with pytest.raises(AttributeError, match="nonsense"):
        ks.scan(tmp_path / "lake").nonsense  # noqa: B018


Job = tuple[ks.batch.Lake, Mapping[str, Any]]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """64 ranks with four faults, and the truth about them."""
    folder = tmp_path_factory.mktemp("faulty")
    write_job(folder / "traces", ranks=64, size_bytes=1_600_000)
    batch(folder / "traces", folder / "lake")
    truth = json.loads((folder / "traces/cluster.truth.json").read_text())
    return ks.scan(folder / "lake"), truth


@pytest.fixture(scope="module")
def findings(faulty: Job) -> dict[str, pl.DataFrame]:
    found = ks.analysis.cluster_findings(faulty[0])
    return {name: found.filter(finding=name) for name in found["finding"].unique()}


def test_nothing_else_is_found(findings: dict[str, pl.DataFrame]) -> None:
    assert set(findings) == {"slow_rank", "slow_link", "late_data_loader", "clock_offset"}


def test_slow_rank_and_link(faulty: Job, findings: dict[str, pl.DataFrame]) -> None:
    assert findings["slow_rank"]["ranks"].to_list() == [[faulty[1]["slow_rank"]["rank"]]]
    link = faulty[1]["slow_link"]
    (row,) = findings["slow_link"].to_dicts()
    assert row["ranks"] == link["ranks"]
    assert row["group"].startswith(link["process_group"])
    assert row["value"] == pytest.approx(1 / link["factor"], rel=0.02)


def test_late_data_loader(faulty: Job, findings: dict[str, pl.DataFrame]) -> None:
    late = faulty[1]["late_data_loader"]
    (row,) = findings["late_data_loader"].to_dicts()
    assert row["ranks"] == [late["rank"]]
    true_ns = sum(step["late_ns"] for step in late["steps"])
    assert row["lost_ns"] == pytest.approx(true_ns, rel=0.05)
    stragglers = ks.analysis.stragglers(faulty[0])
    of_rank = stragglers.filter((pl.col("rank") == late["rank"]) & (pl.col("cause") == "data"))
    assert of_rank["step"].to_list() == [step["step"] for step in late["steps"]]


def test_clock_offsets(faulty: Job) -> None:
    truth = pl.Series(faulty[1]["clock_offsets_ns"])
    offsets = ks.analysis.clock_offsets(faulty[0]).sort("rank")
    # What is known is how far clocks are from each other; the answer counts from the median.
    error = offsets["offset_ns"] - offsets["offset_ns"][0] - (truth - truth[0])
    assert error.abs().max() < 1_000
    assert offsets["residual_ns"].max() < 1_000


def test_summary_names_them(faulty: Job) -> None:
    lake, truth = faulty
    text = to_text(lake)
    assert text.startswith("64 ranks on 8 hosts")
    first = text.split("\n2. ")[0]
    assert f"Rank {truth['slow_rank']['rank']} is late" in first
    assert f"Rank {truth['late_data_loader']['rank']} is late" in first
    ranks = truth["slow_link"]["ranks"]
    assert f"[{','.join(map(str, ranks))}]" in first
    assert "all_reduce" in text.split("\n2. ")[1]
    assert "loads data" in text.split("\n3. ")[1]


def test_the_same_from_traces_in_memory(faulty: Job) -> None:
    lake, truth = faulty
    some = sorted({*truth["slow_link"]["ranks"], truth["slow_rank"]["rank"], 0})
    paths = {row["rank"]: row["source"] for row in lake.ranks.collect().iter_rows(named=True)}
    traces = [ks.read(Path(paths[rank])) for rank in some]
    part = ks.scan(lake.path, ranks=some)
    columns = ["kind", "group", "collectives", "total_ns", "wait_ns", "exposed_ns"]
    by = ("kind", "group")
    ours = ks.analysis.communication(part, by=by).select(columns)
    assert ours.equals(ks.analysis.communication(traces, by=by).select(columns))


_PARTS = ["compute_ns", "exposed_ns", "memory_ns", "idle_ns"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[ks.Trace]:
    return read_job(tmp_path_factory.mktemp("rank-time"), ranks=4)


@pytest.fixture(scope="module")
def found(traces: list[ks.Trace], tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    lake = tmp_path_factory.mktemp("rank-time-lake") / "lake"
    batch([trace.meta.path for trace in traces], lake)
    return analysis.rank_gpu_time(ks.scan(lake))


def test_parts_are_those_of_each_trace(traces: list[ks.Trace], found: pl.DataFrame) -> None:
    for trace in traces:
        alone = analysis.temporal_breakdown(trace).rename({"communication_ns": "exposed_ns"})
        of_rank = found.filter(pl.col("rank") == trace.meta.rank)
        columns = ["device", "span_ns", *_PARTS]
        assert of_rank.select(columns).rows() == alone.select(columns).rows()
        assert of_rank["compute_ns"].min() > 0


def test_overlap_is_that_of_each_trace(traces: list[ks.Trace], found: pl.DataFrame) -> None:
    columns = ["device", "communication_ns", "overlap_ns", "exposed_ns", "overlap"]
    for trace in traces:
        alone = analysis.comm_comp_overlap(trace).sort("device")
        of_rank = found.filter(pl.col("rank") == trace.meta.rank)
        assert of_rank.select(columns).rows() == alone.select(columns).rows()
        assert alone["overlap_ns"].min() > 0


def test_traces_in_memory_answer_the_same(traces: list[ks.Trace], found: pl.DataFrame) -> None:
    assert analysis.rank_gpu_time(traces).equals(found)
    assert found.select(pl.sum_horizontal(_PARTS)).to_series().equals(found["span_ns"], check_names=False)


def test_rank_without_gpu_work_has_no_row(traces: list[ks.Trace], tmp_path: Path) -> None:
    quiet = tmp_path / "rank9.json"
    quiet.write_text(
        '{"distributedInfo": {"rank": 9}, "traceEvents": ['
        '{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'
    )
    both = analysis.rank_gpu_time([ks.read(quiet), traces[2]])
    assert both["rank"].unique().to_list() == [2]
    assert analysis.rank_gpu_time([ks.read(quiet)]).schema == both.schema


def test_all_readers_see_the_same(job: Path, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    batch(job, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    for name in ("gpu_ops", "collectives", "ops"):
        ours = lake.tables[name].group_by("rank").len().sort("rank").collect().rows()
        pattern = f"{tmp_path}/lake/*/*/*/{name}.parquet"
        query = f"SELECT rank, count(*) FROM read_parquet('{pattern}', hive_partitioning = false)"
        assert duckdb.sql(f"{query} GROUP BY rank ORDER BY rank").fetchall() == ours
        paths = sorted(map(str, tmp_path.glob(f"lake/*/*/*/{name}.parquet")))
        theirs = pandas.read_parquet(paths, partitioning=None).groupby("rank").size()
        assert [(int(rank), count) for rank, count in theirs.items()] == ours


def _public_questions() -> list[Any]:
    packages = (analysis, hta, nsys, pyprof, torch_profiler, report)
    found = [(package, name) for package in packages for name in package.__all__]
    return [pytest.param(getattr(p, name), id=f"{p.__name__}.{name}") for p, name in found]


@pytest.fixture(scope="module")
def lake(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    place = tmp_path_factory.mktemp("asked") / "lake"
    batch(job, place)
    return ks.scan(place)


@pytest.mark.parametrize("ask", [p for p in _public_questions() if inspect.isfunction(p.values[0])])
def test_a_lake_is_answered_or_told_that_it_cannot_be(
    ask: Callable[..., Any], lake: Lake, tmp_path: Path
) -> None:
    parameters = inspect.signature(ask).parameters
    traces = [name for name, p in parameters.items() if re.search("Trace|Source|Lake", str(p.annotation))]
    if not traces:
        pytest.skip("takes no trace")
    needed = {name: True for name, p in parameters.items() if p.default is p.empty}
    takes_lakes = "Source" in str(parameters[traces[0]].annotation) or "Lake" in str(
        parameters[traces[0]].annotation
    )
    if takes_lakes:
        known: dict[str, Any] = {"changes": {}, "to": "perfetto", "out": tmp_path / "job.json"}
        ask(**dict.fromkeys(traces, lake), **{name: known[name] for name in needed if name in known})
    else:
        for value in (lake, lake.gpu_ops, "lake/", None):
            with pytest.raises(InvalidArgumentError, match="needs one trace"):
                ask(**needed | dict.fromkeys(traces, value))
    assert pickle.loads(pickle.dumps(ask)) is ask


@pytest.mark.parametrize("planted", [".batch", ".batch/lock", "run=default", "run=default/rank=1"])
def test_a_link_in_a_lake_costs_nothing_outside(job: Path, tmp_path: Path, planted: str) -> None:
    outside, lake = tmp_path / "outside", tmp_path / "lake"
    (outside / "rank=7").mkdir(parents=True)
    for name in ("precious.txt", "rank=7/data.txt"):
        (outside / name).write_text("precious")
    # A folder that is no lake would be refused whatever is in it.
    ks.batch.run(job / "rank0.pt.trace.json", lake, run="other", workers=1)
    link = lake / planted
    if planted.startswith(".batch"):
        shutil.rmtree(lake / ".batch")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside / "precious.txt" if planted.endswith("lock") else outside)
    if planted.endswith("rank=1"):
        ks.batch.run(job, lake, workers=1)
    else:
        with pytest.raises(InvalidArgumentError, match="is a link"):
            ks.batch.run(job, lake, workers=1)
    kept = {str(path.relative_to(outside)): path.read_text() for path in outside.rglob("*.txt")}
    assert kept == {"precious.txt": "precious", "rank=7/data.txt": "precious"}
