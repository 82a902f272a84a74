"""Tables of nsys databases against what ``nsys stats`` prints, which shares no code with the package."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from traces import NO_SHARED, ORACLES, SHARED, need, read, rows_of, text_of

import kernelscope as ks
from kernelscope.compat.nsys import missing_reason, parse, read_for
from kernelscope.report.compat import nsys

TRACES = SHARED / "traces" / "nsys"
STATS = ORACLES / "nsys-stats"
H100 = "h100-2gpu-emit-nvtx-2026.2"
GRAPHS = "cuda-graphs-2025.5.2"
CPU = "cpu-nvtx-2023.4"


def trace(database: str) -> ks.Trace:
    return read(need(TRACES / f"{database}.sqlite"))


def test_ids_repeat_across_processes() -> None:
    read_trace = trace(H100)
    calls = read_trace.launches.select(call="row", call_pid="pid", correlation="correlation")
    assert not calls.select("call_pid", "correlation").is_duplicated().any()
    by_id_alone = read_trace.gpu_ops.join(calls, on="correlation")
    assert by_id_alone.filter(pl.col("pid") != pl.col("call_pid")).height > 0
    linked = read_trace.gpu_ops.join(calls, left_on="launch_row", right_on="call")
    assert linked.height == by_id_alone.filter(pl.col("pid") == pl.col("call_pid")).height
    assert (linked["pid"] == linked["call_pid"]).all()
    kernels = read_trace.gpu_ops.filter(kind="kernel")
    links = dict(kernels.group_by(pl.col("link").cast(pl.String)).len().iter_rows())
    assert links == {"containment": 1632, "no_launch": 1810}


def test_graphs_are_gpu_work() -> None:
    read_trace = trace(GRAPHS)
    graphs = read_trace.gpu_ops.filter(pl.col("kind") == "graph")
    assert (graphs.height, graphs["dur_ns"].sum()) == (2, 3104)
    launches = graphs.join(read_trace.launches, left_on="launch_row", right_on="row", suffix="_call")
    assert launches["name_call"].cast(pl.String).to_list() == ["cudaGraphLaunch"] * 2
    assert read_trace.steps["kernel_ns"].sum() >= 3104
    assert told(read_trace, "graph_without_nodes") == [2]


def test_payloads_that_the_export_left_out_are_told_once() -> None:
    read_trace = trace(H100)
    assert told(read_trace, "payloads_left_out") == [1]
    assert read_trace.collectives.is_empty()
    assert not read_trace.gpu_ops["match"].count()


def told(of: ks.Trace, code: str) -> list[int]:
    return of.diagnostics.filter(pl.col("code").cast(pl.String) == code)["count"].to_list()


def test_a_recording_of_the_cpu() -> None:
    read_trace = trace(CPU)
    ranges = read_trace.ranges
    crossing = ranges.filter(pl.col("end_tid").is_not_null())
    assert crossing["kind"].to_list() == ["start_end"]
    categories = ranges.drop_nulls("category").select("domain", "category").unique()
    assert sorted(categories.iter_rows(), key=str) == [("DOM1", "c1"), (None, "catA")]
    assert read_trace.meta.recorder == "Nsight Systems 2023.4.4.54, schema 3.7.2"
    arguments = dict(read_trace.extra_args.select("row", "value").iter_rows())
    assert arguments == {2: "7", 5: "42", 6: "3.5", 8: "-3"}


Row = dict[str, str]
SYNTHETIC_GPU = "__added_TARGET_INFO_GPU"


def case_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.gz').removesuffix('.csv')}"


def cases() -> list[object]:
    """Every CSV: its file, the database, and the report with its arguments."""
    found: list[object] = []
    for path in sorted(STATS.glob("*/*.csv*")):
        stem = case_of(path).partition("/")[2]
        database = TRACES / f"{path.parent.name}.sqlite"
        if path.parent.name == "edge":
            edge, stem = stem.split(".")
            database = path.with_name(f"{edge}.sqlite")
        report = re.sub(r"_(base|mangled|nvtx-name)$", r":\1", stem.removesuffix(SYNTHETIC_GPU))
        if stem.startswith("rule_"):
            report = re.sub(r"_(rows|gap|threshold)=", r":\1=", stem.removeprefix("rule_"))
        found.append(pytest.param(path, database, report, id=f"{path.parent.name}/{path.name}"))
    return found or [
        pytest.param(None, None, None, marks=pytest.mark.skip(reason=NO_SHARED), id="no-oracles")
    ]


def ours(database: Path, text: str, whole: ks.Trace | None = None) -> str:
    """Our CSV, of what a report needs or of a ``whole`` trace; empty for something that was not recorded."""
    report, question = parse(text)
    trace = whole or read_for(database, report, question)
    if missing_reason(trace, report) is not None:
        return ""
    out = io.BytesIO()
    nsys.write_csv(report.parts(trace, question), report.fields_by(question.by), out)
    return out.getvalue().decode().rstrip("\n")


def text(rows: list[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def connect(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{database}?mode=ro&immutable=1", uri=True)


# --- deviations: each makes of nsys' rows those that are right


def without_versions(rows: list[Row], database: Path) -> list[Row]:
    """nsys takes a version of four digits off the name of an API function and leaves longer ones."""
    names = [name for name in ("Name", "Operation", "API Function", "API Name") if rows and name in rows[0]]
    stripped = [{**row, names[0]: re.sub(r"_v\d{5}$", "", row[names[0]])} for row in rows]
    assert stripped != rows
    return stripped


def exact_throughput(rows: list[Row], database: Path) -> list[Row]:
    """nsys divides a second by the duration without a remainder before it multiplies."""
    query = "SELECT start, bytes, end - start FROM CUPTI_ACTIVITY_KIND_MEMCPY"
    with connect(database) as connection:
        copies = {(start, dur): size for start, size, dur in connection.execute(query)}
    changed = 0
    exact: list[Row] = []
    for row in rows:
        duration = int(row["Duration (ns)"])
        size = copies.get((int(row["Start (ns)"]), duration))
        if size is not None:
            assert row["Throughput (MB/s)"] == f"{size * (1_000_000_000 // duration) / 1e6:.3f}"
            right = f"{size * 1e9 / duration / 1e6:.3f}"
            changed += right != row["Throughput (MB/s)"]
            row = {**row, "Throughput (MB/s)": right}
        elif row["Throughput (MB/s)"]:
            # A memset: its bytes are 0.000 MB in the CSV.
            row = {**row, "Throughput (MB/s)": memset_rate(database, row)}
        exact.append(row)
    assert changed
    return exact


def memset_rate(database: Path, row: Row) -> str:
    query = "SELECT bytes FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE start = ? AND correlationId = ?"
    with connect(database) as connection:
        (size,) = connection.execute(query, (int(row["Start (ns)"]), int(row["CorrId"]))).fetchone()
    return f"{size * 1e9 / int(row['Duration (ns)']) / 1e6:.3f}"


def without_added_name(rows: list[Row], database: Path) -> list[Row]:
    """The database has no names of GPUs; nsys ran on a copy with one added."""
    return [{**row, "Device": row["Device"].removeprefix("SYNTH GPU ")} for row in rows]


def with_graphs(rows: list[Row], database: Path) -> list[Row]:
    """nsys leaves executions of graphs out, which are GPU work: here 3104 ns beside 4704 ns."""
    query = """
        SELECT start, end - start, correlationId, contextId, streamId, graphId
        FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE
    """
    with connect(database) as connection:
        graphs = connection.execute(query).fetchall()
    assert sum(graph[1] for graph in graphs) == 3104
    if "CorrId" in rows[0]:
        blank = dict.fromkeys(rows[0], "")
        added = [
            {
                **blank, "Start (ns)": str(start), "Duration (ns)": str(dur), "CorrId": str(correlation),
                "Device": "NVIDIA GeForce RTX 3060 (0)", "Ctx": str(context), "Strm": str(stream),
                "Name": f"[CUDA graph {graph}]",
            }
            for start, dur, correlation, context, stream, graph in graphs
        ]  # fmt: skip
        return sorted([*rows, *added], key=lambda row: int(row["Start (ns)"]))
    figures = ["3104", "2", "1552.0", "1552.0", "1376", "1728", "248.9", "CUDA_GRAPH", "[CUDA graph 1]"]
    added_row = dict(zip(rows[0], ["", *figures], strict=True))
    all_rows = sorted([*rows, added_row], key=lambda row: -int(row["Total Time (ns)"]))
    total = sum(int(row["Total Time (ns)"]) for row in all_rows)
    return [{**row, "Time (%)": f"{100 * int(row['Total Time (ns)']) / total:.1f}"} for row in all_rows]


CHANGED: dict[str, list[Callable[[list[Row], Path], list[Row]]]] = {
    f"{H100}/cuda_api_sum": [without_versions],
    f"{H100}/cuda_api_trace": [without_versions],
    f"{H100}/cuda_api_gpu_sum": [without_versions],
    f"{H100}/cuda_kern_exec_sum": [without_versions],
    f"{H100}/cuda_kern_exec_trace": [without_versions],
    f"{H100}/cuda_gpu_trace{SYNTHETIC_GPU}": [without_added_name, exact_throughput],
    f"{GRAPHS}/cuda_api_sum": [without_versions],
    f"{GRAPHS}/cuda_api_trace": [without_versions],
    f"{GRAPHS}/cuda_api_gpu_sum": [without_versions, with_graphs],
    f"{GRAPHS}/cuda_gpu_sum": [with_graphs],
    f"{GRAPHS}/cuda_gpu_trace": [exact_throughput, with_graphs],
}

_MEANS = "100.0,100.0,100,100,0.0"
_ONE = f"100,{_MEANS}"

# nsys fails or loses rows on these; the databases are small enough to say what is right.
REPLACED = {
    # A domain that two threads register is named once.
    "edge/dom2.nvtx_gpu_proj_sum": f"NCCL:ncclAllReduce,PushPop,100,990,1,{_MEANS},1,1.0,0.0,0.0",
    "edge/dom2.nvtx_gpu_proj_trace": "NCCL:ncclAllReduce,500,100,10,990,PushPop,111,111,1,0,0,3,,:3",
    "edge/dom2.nvtx_kern_sum": f"NCCL:ncclAllReduce,PushPop,111,111,1,1,{_ONE},kern_a<int>",
    "edge/dom2.nvtx_pushpop_trace": "10,1000,990,0,990,NCCL:ncclAllReduce,111,111,0,0,3,,:3,"
    "NCCL:ncclAllReduce",
    # A domain may be named by a registered string.
    "edge/domid.nvtx_gpu_proj_sum": f"MYDOM:REG_RANGE,PushPop,100,990,1,{_MEANS},1,1.0,0.0,0.0",
    "edge/domid.nvtx_gpu_proj_trace": "MYDOM:REG_RANGE,500,100,10,990,PushPop,111,111,1,0,0,2,,:2",
    "edge/domid.nvtx_kern_sum": f"MYDOM:REG_RANGE,PushPop,111,111,1,1,{_ONE},kern_a<int>",
    "edge/domid.nvtx_pushpop_trace": "10,1000,990,0,990,MYDOM:REG_RANGE,111,111,0,0,2,,:2,MYDOM:REG_RANGE",
    # Ranges with the same bounds nest as they were pushed.
    "edge/ident.nvtx_gpu_proj_sum": "B,PushPop,100,800,1,100.0,100.0,100,100,0.0,1,1.0,1.0,1.0\n"
    "C,PushPop,100,800,1,100.0,100.0,100,100,0.0,1,1.0,2.0,1.0\n"
    "leaf,PushPop,100,100,1,100.0,100.0,100,100,0.0,1,1.0,3.0,0.0\n"
    "outer,PushPop,100,1000,1,100.0,100.0,100,100,0.0,1,1.0,0.0,1.0",
    "edge/ident.nvtx_gpu_proj_trace": "outer,500,100,0,1000,PushPop,111,111,1,0,1,1,,:1\n"
    "B,500,100,100,800,PushPop,111,111,1,1,1,2,1,:1:2\n"
    "C,500,100,100,800,PushPop,111,111,1,2,1,3,2,:1:2:3\n"
    "leaf,500,100,200,100,PushPop,111,111,1,3,0,4,3,:1:2:3:4",
    "edge/ident.nvtx_pushpop_trace": "0,1000,1000,800,200,outer,111,111,0,1,1,,:1,outer\n"
    "100,900,800,800,0,B,111,111,1,1,2,1,:1:2,--B\n"
    "100,900,800,100,700,C,111,111,2,1,3,2,:1:2:3,----C\n"
    "200,300,100,0,100,leaf,111,111,3,0,4,3,:1:2:3:4,------leaf",
    # A kernel counts once under a name: it ran for 100 ns, and nsys itself counts one instance.
    "edge/nest.nvtx_kern_sum": f"X,PushPop,111,111,2,1,{_ONE},kern_a<int>",
    # A range without an end lasts to the end of the session, here of the last event (700), not to the
    # last time stamp of NVTX (50): the launch at 60 lies in it.
    "edge/open.nvtx_gpu_proj_sum": "open,PushPop,200,700,1,200.0,200.0,200,200,0.0,2,2.0,0.0,1.0\n"
    "closed,PushPop,100,40,1,100.0,100.0,100,100,0.0,1,1.0,1.0,0.0",
    "edge/open.nvtx_gpu_proj_trace": "open,500,200,0,700,PushPop,111,111,2,0,1,1,,:1\n"
    "closed,500,100,10,40,PushPop,111,111,1,1,0,2,1,:1:2",
    "edge/open.nvtx_kern_sum": f"closed,PushPop,111,111,1,1,{_ONE},kern_a<int>\n"
    "open,PushPop,111,111,1,2,200,100.0,100.0,100,100,0.0,kern_a<int>",
    "edge/open.nvtx_pushpop_trace": "0,700,700,40,660,open,111,111,0,1,1,,:1,open\n"
    "10,50,40,0,40,closed,111,111,1,0,2,1,:1:2,--closed",
    # A range that a thread ends that is named is a range, whether that is another thread or the same.
    "edge/startend.nvtx_gpu_proj_sum": "SE_null,StartEnd,100,990,1,100.0,100.0,100,100,0.0,1,1.0,1.0,0.0\n"
    "SE_other,StartEnd,100,990,1,100.0,100.0,100,100,0.0,1,1.0,0.0,0.0\n"
    "SE_same,StartEnd,100,990,1,100.0,100.0,100,100,0.0,1,1.0,0.0,1.0",
    "edge/startend.nvtx_gpu_proj_trace": "SE_same,500,100,10,990,StartEnd,111,111,1,0,1,1,,:1\n"
    "SE_null,500,100,10,990,StartEnd,111,111,1,1,0,2,1,:1:2\n"
    "SE_other,500,100,10,990,StartEnd,111,111,1,0,0,3,,:3",
    "edge/startend.nvtx_kern_sum": f"SE_null,StartEnd,111,111,1,1,{_ONE},kern_a<int>\n"
    f"SE_other,StartEnd,111,111,1,1,{_ONE},kern_a<int>\n"
    f"SE_same,StartEnd,111,111,1,1,{_ONE},kern_a<int>",
}

# nsys prints nothing, and exits with 0, for 'not recorded' and for 'recorded, and there is none'. Here the
# first is an error and the second a report with a heading and these rows.
ANSWERED = {
    f"{GRAPHS}/cuda_gpu_kern_sum_nvtx-name": 1,
    f"{GRAPHS}/nvtx_gpu_proj_sum": 0,
    f"{GRAPHS}/nvtx_gpu_proj_trace": 1,
    f"{GRAPHS}/nvtx_kern_sum": 1,
    f"{GRAPHS}/nvtx_pushpop_sum": 0,
    f"{GRAPHS}/nvtx_pushpop_trace": 0,
    f"{GRAPHS}/nvtx_startend_sum": 0,
    f"{GRAPHS}/nvtx_sum": 0,
    f"{GRAPHS}/um_sum": 0,
    f"{GRAPHS}/um_total_sum": 0,
    f"{H100}/nvtx_startend_sum": 0,
    f"{H100}/rule_cuda_memcpy_sync_rows=-1": 0,
    f"{H100}/rule_cuda_memset_sync_rows=-1": 0,
    f"{H100}/um_sum": 0,
    f"{H100}/um_total_sum": 0,
    "edge/startend.nvtx_pushpop_trace": 0,
    # Needs no TARGET_INFO_GPU here.
    f"{H100}/cuda_gpu_trace": 4368,
}
NOT_RECORDED = {f"{GRAPHS}/um_cpu_page_faults_sum", f"{H100}/osrt_sum", f"{H100}/um_cpu_page_faults_sum"}


@pytest.mark.parametrize(("path", "database", "report"), cases())
def test_report(path: Path, database: Path, report: str) -> None:
    case = case_of(path)
    expected, found = text_of(path).rstrip("\n"), ours(database, report)
    whole = read(database)
    assert ours(database, report, whole) == found
    # Whatever nsys makes of it, every range has a place.
    assert whole.ranges.filter(kind="push_pop")["depth"].null_count() == 0
    if case in REPLACED:
        # The headings are those of the same report in other cases.
        assert found.partition("\n")[2] == REPLACED[case]
        assert found != expected
        return
    if case in ANSWERED or case in NOT_RECORDED:
        assert expected == ""
        assert (found == "") == (case in NOT_RECORDED)
        assert len(rows_of(found)) == ANSWERED.get(case, 0)
        return
    if case in CHANGED:
        right = rows_of(expected)
        for deviation in CHANGED[case]:
            right = deviation(right, database)
        expected, found = text(right), text(rows_of(found))
    if report == "nvtx_pushpop_trace":
        # Order among ranges of one start is open in nsys.
        expected, found = by_start(expected), by_start(found)
    assert found == expected


def by_start(table: str) -> str:
    return text(sorted(rows_of(table), key=lambda row: (int(row["Start (ns)"]), int(row["RangeId"]))))


def test_every_deviation_is_of_a_report_that_is_there() -> None:
    if not STATS.is_dir():
        pytest.skip(NO_SHARED)
    known = {case_of(path) for path in STATS.glob("*/*.csv*")}
    assert {*CHANGED, *ANSWERED, *NOT_RECORDED, *REPLACED} <= known


def test_rules_join_calls_of_their_own_process() -> None:
    """nsys joins by correlation id alone, which finds calls of other processes, too."""
    database = STATS / "edge" / "coll.sqlite"
    if not database.exists():
        pytest.skip(NO_SHARED)
    query = """
        SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY m JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
        ON m.correlationId = r.correlationId
    """
    with connect(database) as connection:
        assert connection.execute(query).fetchone() == (2,)
    (row,) = rows_of(ours(database, "cuda_memcpy_async"))
    assert (row["PID"], row["API Name"]) == ("112", "cudaMemcpyAsync_v3020")
