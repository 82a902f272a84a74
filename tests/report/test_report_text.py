"""The text report: width, escapes, answers, idle time, names, and jobs of many ranks."""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser
from rich.cells import cell_len

import kernelscope as ks
from demo_jobs import write_job
from events import Events
from kernelscope.report import render
from kernelscope.report.html import cluster, cluster_path
from kernelscope.report.html.cluster import write_cluster_page
from kernelscope.report.names import safe, short
from kernelscope.report.parts.path_bars import path_bars
from kernelscope.report.text.cluster import to_text

HOSTILE = "[bold red]k[/] :smile: \x1b[2J\u202e 核心 " + "é" * 200


def trace_of(folder: Path, *, steps: int, name: str = "gemm") -> ks.Trace:
    """``steps`` steps of one operator, one launch and one kernel each."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        at = 1000 * step
        host = {"ph": "X", "pid": 7, "tid": 7}
        own = {"External id": step + 1}
        call = {**own, "correlation": step + 1}
        gpu = {"ph": "X", "pid": 0, "tid": 7, "args": {"device": 0, "stream": 7, **call}}
        events += [
            host | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 900},
            host | {"cat": "cpu_op", "name": "aten::mm", "ts": at + 10, "dur": 100, "args": own},
            host
            | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 20, "dur": 10, "args": call},
            gpu | {"cat": "kernel", "name": name, "ts": at + 200, "dur": 300 + step},
        ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return ks.read(path)


def text_of(trace: ks.Trace, folder: Path, **options: Any) -> str:
    out = folder / "report.txt"
    render(trace, out=out, **options)
    return out.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 100, 160, 250])
def test_no_line_is_wider_than_asked_for(tmp_path: Path, width: int) -> None:
    text = text_of(trace_of(tmp_path, steps=30, name=HOSTILE), tmp_path, width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("width", [80, 160])
def test_real_traces_fit(shared: Path, tmp_path: Path, width: int) -> None:
    for path in sorted((shared / "traces" / "kineto").glob("*.json.gz")):
        lines = text_of(ks.read(path), tmp_path, width=width).splitlines()
        # The path of the file is never cut.
        assert max(cell_len(line) for line in lines[2:]) <= width, path.name


def test_names_are_neither_markup_nor_control(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=1, name=HOSTILE), tmp_path, width=160)
    assert "[bold red]k[/] :smile:" in text
    assert "核心" in text
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_what_it_says(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=2), tmp_path, width=100)
    lines = text.splitlines()
    assert any(line.startswith("Mean of 2 steps: 900.0 us") for line in lines)
    assert any(line.split()[:5] == ["K", "kernel", "300.5", "us", "33.4"] for line in lines)
    assert any(
        line.split() == "aten::mm 601.0 us 100.0 % 2 601.0 us 180.0 us 200.0 us".split() for line in lines
    )
    assert any(line.startswith("gemm") and "601.0 us  100.0 %      2" in line for line in lines)
    assert "Nothing was repaired and nothing was lost." in text


def test_a_bar_for_each_step_is_as_long_as_the_step(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=3), tmp_path, width=124)
    bars = [line.split()[-1] for line in text.splitlines() if line.strip()[:1].isdecimal() and "KKK" in line]
    assert [len(bar) for bar in bars] == [80, 80, 80]
    # A third of a step is its kernel: 300 of 900 us.
    assert [bar.count("K") for bar in bars] == [27, 27, 27]


def test_of_many_steps_the_longest_are_shown(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=50), tmp_path, width=100)
    assert "The 20 longest of 50 steps, in order of time." in text


def test_top(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=1)
    few, many = (text_of(trace, tmp_path, top=top).count("aten::mm") for top in (1, 10))
    assert few == many == 2


def test_damage_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    good = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    path.write_text('{"schemaVersion": 1, "traceEvents": [' + good + ", " + good[:40])
    text = text_of(ks.read(path), tmp_path, width=80)
    assert "Faults and oddities of the file" in text
    assert "lost" in text
    assert "First at byte" in text


def test_versions_are_readable(tmp_path: Path) -> None:
    path = tmp_path / "versions.json"
    versions = '"cuda_driver_version": 13000, "cuda_runtime_version": 12090, "hip_runtime_version": 60443483'
    path.write_text('{"schemaVersion": 1, ' + versions + ', "nccl_version": "2.27.5", "traceEvents": []}')
    text = text_of(ks.read(path), tmp_path, width=120)
    assert "CUDA driver 13.0, CUDA runtime 12.9, HIP runtime 6.4.43483, NCCL 2.27.5" in text


def test_empty_trace(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": []}')
    text = text_of(ks.read(path), tmp_path)
    for part in ("neither steps nor operators", "no operators", "no kernels", "no GPU operations"):
        assert part in text


def test_ascii_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of(tmp_path, steps=2, name=HOSTILE)
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    render(trace, width=80)
    sys.stdout.flush()
    assert b"aten::mm" in raw.getvalue()


def test_colour_on_a_terminal_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    trace = trace_of(tmp_path, steps=2)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    shown: dict[str, str] = {}
    for kind, stream in {"terminal": Terminal(), "pipe": io.StringIO()}.items():
        monkeypatch.setattr(sys, "stdout", stream)
        render(trace, width=80)
        shown[kind] = stream.getvalue()
    assert "\x1b[32m" in shown["terminal"]
    assert "█" in shown["terminal"]
    assert "\x1b" not in shown["pipe"]
    assert "KKK" in shown["pipe"]


def test_the_weightiest_advice_stands_in_the_text(tmp_path: Path) -> None:
    text = text_of(trace_of(tmp_path, steps=3, name=HOSTILE), tmp_path, width=100)
    start = text.index("Recommendations")
    assert text.index("Steps") < start < text.index("Operators by")
    assert "The host launches too slowly" in text[start:]
    # That the GPU is hardly used has the same cause, and is said with it.
    assert "Share of time with a kernel" in text[start:]
    assert "GPUs run kernels for less than half of the time" not in text
    # The name of a kernel is quoted in the evidence, and stays text.
    assert "\x1b" not in text


def test_nothing_is_said_where_there_is_no_advice(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [op]}))
    assert "Recommendations" not in text_of(ks.read(path), tmp_path)


def test_advice_is_in_the_json(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=3)
    out = tmp_path / "report.json"
    render(trace, format="json", out=out)
    rows = json.loads(out.read_text())["recommendations"]
    assert {row["id"] for row in rows} >= {"low_utilisation", "launch_bound"}
    assert all(set(row["rows"]) <= set(trace.tables[row["table"]]["row"]) for row in rows)


def launched(
    number: int, ts: float, start: float, dur: float, *, name: str, stream: int
) -> list[dict[str, Any]]:
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 7,
        "tid": 7,
        "ts": ts,
        "dur": 2,
    }
    work = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": dur}
    args = {"correlation": number, "device": 0, "stream": stream}
    return [call | {"args": {"correlation": number}}, work | {"args": args}]


@pytest.fixture
def trace(tmp_path: Path) -> ks.Trace:
    host = {"ph": "X", "pid": 7, "tid": 7}
    events = [
        {**host, "cat": "cpu_op", "name": "aten::slow", "ts": 30, "dur": 60, "args": {"External id": 1}},
        *launched(1, 0, 5, 15, name="gemm", stream=7),
        *launched(2, 85, 100, 40, name="ncclDevKernel_AllReduce", stream=20),
        *launched(3, 87, 130, 50, name="gemm", stream=7),
        *launched(4, 90, 184, 6, name="gemm", stream=7),
    ]
    path = tmp_path / "idle.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return ks.read(path)


def test_text(trace: ks.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    render(trace, format="text")
    text = capsys.readouterr().out
    assert "30.00 us of 40.00 us is exposed (75.0 %)" in text
    lines = text.splitlines()
    assert any(line.startswith("GPU idle: 84.00 us, ") for line in lines)
    (host,) = [line.split("  ") for line in lines if line.startswith("waiting for the host")]
    assert [cell.strip() for cell in host if cell] == [
        "waiting for the host to launch",
        "80.00 us",
        "95.2 %",
        "1",
        "80.00 us",
    ]
    assert any(line.startswith("between operations in the queue") and "4.000 us" in line for line in lines)
    (operator,) = [
        line for line in lines[lines.index("Host activity during that time") :] if "aten::slow" in line
    ]
    assert "80.00 us" in operator


def test_json(trace: ks.Trace, capsys: pytest.CaptureFixture[str]) -> None:
    render(trace, format="json")
    document = json.loads(capsys.readouterr().out)
    (overlap,) = document["overlap"]
    assert (overlap["communication_ns"], overlap["exposed_ns"]) == (40_000, 30_000)
    assert {row["cause"]: row["idle_ns"] for row in document["idle"]} == {
        "host_wait": 80_000,
        "kernel_wait": 4_000,
    }
    assert {row["host"]: row["idle_ns"] for row in document["idle_hosts"]} == {
        "aten::slow": 80_000,
        None: 4_000,
    }
    (gpu,) = document["gpu_time"]
    assert gpu["idle_ns"] == 84_000


def test_nothing_is_said_where_there_is_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    event = {"ph": "X", "pid": 7, "tid": 7, "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5}
    path = tmp_path / "host.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    render(ks.read(path), format="text")
    text = capsys.readouterr().out
    assert "idle:" not in text
    assert "exposed" not in text


ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::AddFunctor<float>, at::detail::Array<char*, 3>)"
)


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("aten::mm", 40, "aten::mm"),
        (ELEMENTWISE, 300, ELEMENTWISE),
        (
            ELEMENTWISE,
            110,
            ELEMENTWISE.removeprefix("void ").partition("(")[0],
        ),
        (ELEMENTWISE, 75, "vectorized_elementwise_kernel<4, AddFunctor<float>, Array<char*, 3> >"),
        (ELEMENTWISE, 60, "vectorized_elementwise_kernel<4, AddFunctor, Array >"),
        (ELEMENTWISE, 40, "vectorized_elementwise_kernel<4, AddFun…"),
        ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", 30, "ampere_bf16_s16816ge…s_64x4_tn"),
        ("ncclKernel_AllReduce_RING_LL(ncclDevComm*)", 40, "ncclKernel_AllReduce_RING_LL"),
        ("void (anonymous namespace)::softmax<float>(float*)", 24, "softmax<float>"),
        (None, 20, "(no name)"),
        ("(((((((((((((((", 8, "(((((…(("),
        (")" * 20, 8, ")))))…))"),
    ],
)  # fmt: skip
def test_short(name: str | None, width: int, shown: str) -> None:
    assert short(name, width) == shown


@given(st.text(), st.integers(1, 60))
def test_short_fits_and_is_safe(name: str, width: int) -> None:
    shown = short(name, width)
    assert len(shown) <= width
    assert not any(unicodedata.category(c) in ("Cc", "Zl", "Zp") for c in shown)


@given(st.text(alphabet="<>(),: ab:{}#~", max_size=60), st.integers(4, 40))
def test_short_survives_any_brackets(name: str, width: int) -> None:
    assert len(short(name, width)) <= width


def test_safe_drops_what_a_terminal_acts_upon() -> None:
    assert safe("a\x1b[31mred\x07\u202eback\r\nb\x9b2J") == "a [31mred back b 2J"
    assert len(safe("x" * 10**7)) < 10**4


VIEWS = [
    "first",
    "path",
    "ranks",
    "collectives",
    "dimensions",
    "pipeline",
    "steps",
    "clocks",
    "files",
    "glossary",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ks.batch.Lake:
    """Sixteen ranks with faults, and a trace that is none."""
    folder = tmp_path_factory.mktemp("job")
    write_job(folder / "traces", ranks=16, size_bytes=1_600_000, seed=3)
    (folder / "traces/rank99.json").write_text("<script>alert(1)</script>")
    ks.batch.run(folder / "traces", folder / "lake")
    return ks.scan(folder / "lake")


@pytest.fixture(scope="module")
def page(lake: ks.batch.Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("itables", reason="itables, which ships the tables of the page, is not installed")
    out = tmp_path_factory.mktemp("page") / "cluster.html"
    write_cluster_page(lake, out, title="job", sources=lake.manifest, notes=["Rank 3 of 16 missing."])
    return out


def views_of(page: Path) -> dict[str, Any]:
    found = re.findall(
        r'<script type="application/gzip" id="view-([\w-]+)">([^<]*)</script>', page.read_text()
    )
    return {name: json.loads(gzip.decompress(base64.b64decode(content))) for name, content in found}


def part_of(view: dict[str, Any], name: str) -> dict[str, Any]:
    return next(part for part in view["parts"] if part.get("id") == name)


@pytest.mark.slow
def test_page_has_its_views(page: Path, lake: ks.batch.Lake) -> None:
    views = views_of(page)
    assert list(views) == VIEWS
    findings = part_of(views["first"], "findings")
    assert {"slow rank", "late data loader"} <= set(findings["data"][0]["texts"])
    assert any(part.get("text") == "Rank 3 of 16 missing." for part in views["first"]["parts"])
    own = part_of(views["ranks"], "heat-maps")["choices"][0]["part"]["traces"][0]
    grid = ks.analysis.rank_heatmap(lake).drop("rank")
    assert len(own["z"]) == 16
    assert own["z"][3] == pytest.approx([ns / 1e6 for ns in grid.row(3)], abs=1e-4)
    assert part_of(views["ranks"], "rank-table")["rows"] == 16
    assert part_of(views["files"], "files")["rows"] == 17


@pytest.mark.slow
def test_critical_path_of_the_page(page: Path, lake: ks.batch.Lake) -> None:
    view = views_of(page)["path"]
    path = ks.analysis.critical_path(lake)
    expected = ks.analysis.critical_path_table(lake, by=("rank", "bound_by"))
    assert part_of(view, "path-ranks")["rows"] == expected.height
    for table in (part_of(view, "path-ranks"), part_of(view, "path-events")):
        place = [column["key"] for column in table["columns"]].index("path_ns")
        assert sum(table["data"][place]) == path["dur_ns"].sum()
    # The bars of the longest step follow one another and fill it.
    bars = [
        (start, length, rank)
        for trace in part_of(view, "path-step")["traces"]
        for start, length, rank in zip(trace["base"], trace["x"], trace["y"], strict=True)
    ]
    bars.sort()
    for (start, length, _), (following, *_) in pairwise(bars):
        assert start + length == pytest.approx(following, abs=3e-4)
    steps = ks.analysis.rank_steps(lake)
    assert bars[-1][0] + bars[-1][1] - bars[0][0] >= steps["total_ns"].max() / 1e6 - 3e-4


def test_bars_of_a_long_path() -> None:
    many = pl.DataFrame({"rank": [0] * 9_000 + [1] * 1_000, "bound_by": ["host", "launch"] * 5_000})
    path = many.with_columns(start_ns=pl.int_range(10_000) * 10, dur_ns=pl.lit(10), row=pl.int_range(10_000))
    bars = path_bars(path, 5, 99_995)
    assert bars.height <= 1_001
    assert bars["start_ns"][0] == 5
    assert bars["end_ns"][-1] == 99_995
    assert (bars["end_ns"].head(-1) == bars["start_ns"].tail(-1)).all()
    assert bars.filter(rank=1)["start_ns"].min() == 90_000


def test_many_ranks_have_no_path_on_their_page(lake: ks.batch.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_path, "MOST_RANKS", 15)
    [part] = cluster_path.critical_path(lake, ks.analysis.cluster_of(lake)).parts
    assert "use kernelscope critical-path" in part.payload()["text"]


@pytest.mark.slow
def test_page_stays_small(page: Path) -> None:
    """Data of 16 ranks; the libraries are the rest."""
    content = sum(len(gzip.compress(json.dumps(view).encode())) for view in views_of(page).values())
    assert content < 60_000


@pytest.mark.slow
def test_heat_map_of_many_ranks_and_steps() -> None:
    steps = pl.DataFrame({"rank": range(5_000)}).join(pl.DataFrame({"step": range(700)}), how="cross")
    slow = (pl.col("rank") == 4_321) & (pl.col("step") == 555)
    steps = steps.with_columns(own_ns=pl.when(slow).then(9_000_000).otherwise(5_000_000))
    trace = cluster._heat_map(steps, "own_ns").traces[0]
    assert len(trace["z"]) == len(trace["y"]) <= 1_000
    assert {len(row) for row in trace["z"]} == {len(trace["x"])}
    assert len(trace["x"]) <= 200
    # One slow step of one rank among 3.5 million is still there.
    assert sum(value == 9.0 for row in trace["z"] for value in row) == 1


def test_page_in_a_browser(browser: Browser, page: Path) -> None:
    from browsing import Opened

    opened = Opened(browser, page)
    try:
        assert opened.views() == VIEWS
        for view in VIEWS:
            opened.show(view)
        assert opened.page.locator("text=NotATraceError").count() == 0
        assert opened.complaints == []
    finally:
        opened.close()


def test_steps_without_a_number_are_in_no_range(tmp_path: Path) -> None:
    traces: list[ks.Trace] = []
    for rank, names in enumerate((("ProfilerStep#1", "ProfilerStep#2"), ())):
        events = Events()
        for at, name in enumerate(names):
            events.annotation(name, 100 * at, 100)
        for at in range(2):
            events.op("aten::mm", 100 * at, 50)
            events.call(100 * at + 10, 5, at + 1)
            events.kernel("sgemm", 100 * at + 20, 30, at + 1)
        traces.append(events.read(tmp_path / f"{rank}", distributedInfo={"rank": rank, "world_size": 2}))
    assert to_text(traces[:1]).startswith("1 rank, 2 steps, 1 to 2, ")
    assert to_text(traces).startswith("2 ranks, 3 steps, ")
    assert "1 to 2" not in to_text(traces)


def test_ranks_without_steps_and_collectives(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("itables", reason="itables, which ships the tables of the page, is not installed")
    document = json.loads(tiny.read_text())
    document["traceEvents"] = document["traceEvents"][2:]
    tiny.write_text(json.dumps(document))
    ks.batch.run(tiny, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    write_cluster_page(lake, tmp_path / "page.html", title="job")
    views = views_of(tmp_path / "page.html")
    assert [name for name in VIEWS if views[name]["parts"][0].get("missing")] == [
        "collectives",
        "dimensions",
        "pipeline",
        "clocks",
    ] or [name for name in VIEWS if views[name]["parts"][0].get("missing")] == [
        "ranks",
        "collectives",
        "dimensions",
        "pipeline",
        "steps",
        "clocks",
    ]
    text = to_text(lake)
    assert text.startswith("1 rank")
    assert "No rank is slower than the others." in text
    assert "All communication is hidden behind computation, or there is none." in text


def test_nothing_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text("no trace")
    ks.batch.run(tmp_path / "rank0.json", tmp_path / "lake")
    with pytest.raises(ks.errors.InvalidArgumentError, match="no rank"):
        to_text(ks.scan(tmp_path / "lake"))
