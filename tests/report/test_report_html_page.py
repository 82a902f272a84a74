"""The page as a file: what it may run, what it holds of a large trace, and views in notebooks."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import itertools
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from test_report_text import trace_of

import kernelscope as ks
from events import Events
from kernelscope.errors import InvalidArgumentError
from kernelscope.report import render
from kernelscope.report.html import libraries, page
from kernelscope.report.html.page import every_view, write_page
from kernelscope.report.parts import Note, View, window
from kernelscope.report.parts.cells import label, texts, written
from kernelscope.report.parts.columns import COLUMNS
from kernelscope.report.parts.tables import MOST_ROWS, Table
from kernelscope.report.views import timeline
from kernelscope.report.views.flame import _figure
from kernelscope.report.views.modules import _nested


def page_with(view: View, *, title: str) -> str:
    """A page with one view and without libraries."""
    libraries = dict.fromkeys(("plotly", "datatables", "datatables-style"), b"")
    return b"".join(page.to_page([view], title=title, libraries=libraries)).decode()


def views_of(text: str) -> dict[str, Any]:
    """The payload of every view of a page."""
    blocks = re.findall(r'<script type="application/gzip" id="view-([\w-]+)">([^<]*)</script>', text)
    return {name: json.loads(gzip.decompress(base64.b64decode(content))) for name, content in blocks}


@pytest.fixture
def text(tiny: Path, tmp_path: Path) -> str:
    pytest.importorskip("itables", reason="itables, which ships the tables of the page, is not installed")
    out = tmp_path / "page.html"
    write_page(ks.read(tiny), out)
    return out.read_text()


def test_only_the_pages_own_script_may_run(text: str) -> None:
    policy = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)"', text)[0]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    assert not re.search(r"https?:", policy)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(script) == 1
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in rules["script-src"]
    assert not re.search(
        r"\son\w+=|href=\"(?!#)|src=", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    )


def test_views_hold_the_answers(text: str, tiny: Path) -> None:
    views = views_of(text)
    menu = json.loads(re.findall(r'id="views">(.*?)</script>', text)[0])
    assert [view["id"] for view in menu] == list(views)
    kernels = next(
        p["part"] for part in views["kernels"]["parts"] if part["kind"] == "group" for p in part["choices"]
    )
    columns = [column["key"] for column in kernels["columns"]]
    assert kernels["data"][columns.index("name")]["texts"] == ["gemm[bold]"]
    assert kernels["data"][columns.index("total_ns")] == [30_500]


def test_a_page_cannot_be_left_by_a_name() -> None:
    hostile = "</script><script>alert(1)</script>{{script}}<!--"
    found = page_with(View("x", hostile, hostile, [Note(hostile)]), title=hostile)
    assert found.count("<script>") == 1
    assert views_of(found)["x"]["parts"][0]["text"] == hostile
    assert "alert(1)</script>" not in found


def test_half_a_surrogate_pair_can_be_written(tmp_path: Path) -> None:
    found = page_with(View("x", "\ud800", "", []), title="\udcff")
    assert views_of(found)["x"]["title"] == "\ud800"
    assert "<title>? - kernelscope</title>" in found


def test_numbers_that_json_lacks_are_unknown() -> None:
    values = pl.Series([1.5, float("nan"), float("inf"), None])
    frame = values.alias("x").to_frame()
    assert frame.select(written("x", values.dtype))["x"].to_list() == [1.5, None, None, None]
    large = pl.DataFrame({"x": pl.Series([2**63, 7], dtype=pl.UInt64)})
    assert large.select(written("x", pl.UInt64()))["x"].to_list() == [None, 7]
    plain = pl.DataFrame({"flag": [True, None], "x": [2**53 - 1, -1]})
    assert plain.select(written(name, plain.schema[name]) for name in plain.columns).equals(plain)


def test_texts_are_stored_once() -> None:
    long = "void at::native::reduce<" + "x" * 90 + ">(int)"
    found = texts(pl.Series(["a", None, long, "a"]))
    assert found["of"] == [0, None, 1, 0]
    assert found["texts"] == ["a", long]
    assert found["short"][0] is None
    assert len(found["short"][1]) < 60


def test_texts_of_100_kb_are_cut_and_say_so() -> None:
    found = texts(pl.Series(["x" * 100_000]))["texts"][0]
    assert len(found) < 5_000
    assert found.endswith("… (100,000 characters)")


def test_labels_are_no_markup() -> None:
    assert label("<b>&") == "&lt;b&gt;&amp;"
    assert label(None) == "(no name)"


def test_tables_are_cut_and_say_of_how_many() -> None:
    frame = pl.DataFrame({"name": [str(n) for n in range(MOST_ROWS + 5)], "calls": range(MOST_ROWS + 5)})
    found = Table("t", "T", "what", frame).payload()
    assert (found["rows"], found["all"]) == (MOST_ROWS, MOST_ROWS + 5)
    assert len(found["data"][1]) == MOST_ROWS


def test_columns_without_a_value_are_left_out() -> None:
    frame = pl.DataFrame(
        {"name": ["a"], "calls": [None], "nobody knows": [1]}, schema_overrides={"calls": pl.Int64}
    )
    assert [column["key"] for column in Table("t", "T", "what", frame).payload()["columns"]] == ["name"]


def test_every_column_says_what_it_is() -> None:
    units = {
        "text",
        "sentence",
        "ns",
        "bytes",
        "count",
        "number",
        "percent",
        "share",
        "FLOP",
        "FLOP/s",
        "B/s",
        "FLOP/B",
        "flag",
    }
    for name, column in COLUMNS.items():
        assert column.unit in units, name
        assert column.title, name
        assert column.what.endswith("."), name


@pytest.mark.parametrize("package", ["plotly", "itables", "orjson"])
def test_a_library_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tmp_path: Path, package: str
) -> None:
    monkeypatch.setattr(libraries, "find_spec", lambda name: None if name == package else find_spec(name))
    with pytest.raises(InvalidArgumentError, match=rf"the page needs {package}.*kernelscope\[page\]"):
        render(ks.read(tiny), format="html", out=tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_steps_of_one_number_have_bars_of_their_own(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    for cycle in (0, 1):
        host = {"ph": "X", "pid": 7, "tid": 7}
        for step in (1, 2):
            at = 1000 * (2 * cycle + step)
            name = f"ProfilerStep#{step}"
            events += [
                host | {"cat": "user_annotation", "name": name, "ts": at, "dur": 900},
                host | {"cat": "cpu_op", "name": "aten::mm", "ts": at + 10, "dur": 100},
            ]
    path = tmp_path / "two.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    overview = next(view for view in every_view(ks.read(path)) if view.id == "overview").payload()
    bars = next(part for part in overview["parts"] if part.get("id") == "step-bars")
    labels = bars["traces"][0]["x"]
    assert labels[0] == "mean"
    assert sorted(labels[1:]) == ["1", "1 (2)", "2", "2 (2)"]


def test_the_browser_parses_plotly_once(text: str) -> None:
    """The function that is all of Plotly stands in brackets, and nothing else of the file has changed."""
    packed = re.findall(r'id="library-plotly">([^<]*)<', text)[0]
    script = gzip.decompress(base64.b64decode(packed)).decode()
    spec = find_spec("plotly")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    shipped = Path(spec.submodule_search_locations[0], "package_data/plotly.min.js").read_text()
    assert re.search(r": this, \(\(\) => \{", script)
    assert script.endswith("return Plotly;\n})));")
    assert len(script) == len(shipped) + 2
    assert script.replace("this, (() =>", "this, () =>", 1)[:-2] + ";" == shipped


def test_no_other_report_imports_the_page(tiny: Path, tmp_path: Path) -> None:
    program = (
        "import sys, kernelscope as ks; from kernelscope.report import render; from pathlib import Path;"
        f"render(ks.read({str(tiny)!r}), out=Path({str(tmp_path / 'out')!r})); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert "kernelscope.report.text.trace" in loaded
    page = ("kernelscope.report.html", "plotly", "itables")
    assert not [name for name in loaded if name.startswith(page)]


def test_a_small_trace_is_shown_whole(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=5)
    found = window.window_of_steps(trace, ks.analysis.step_breakdown(trace), trace.extent())
    assert found.trace is trace
    assert found.remark == ""


def test_of_a_large_trace_the_median_step_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MOST_EVENTS", 4)
    trace = trace_of(tmp_path, steps=5)
    steps = ks.analysis.step_breakdown(trace)
    found = window.window_of_steps(trace, steps, trace.extent())
    median = steps.sort("total_ns", "start_ns").row(2, named=True)
    assert f"step {median['step']}" in found.remark
    assert found.trace.ops["name"].to_list() == [f"ProfilerStep#{median['step']}", "aten::mm"]
    assert found.trace.gpu_ops.height == 1


def test_of_a_large_trace_without_steps_the_middle_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "MOST_EVENTS", 3)
    trace = trace_of(tmp_path, steps=9)
    found = window.window_of_steps(trace, pl.DataFrame(), trace.extent())
    assert "from the middle" in found.remark
    assert 0 < found.trace.ops.height < trace.ops.height


def test_of_a_large_step_the_middle_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of(tmp_path, steps=9)
    first, last = trace.extent() or (0, 0)
    # Nine steps of the recording in each of two, the second of which is the longer one.
    half = (last - first) // 2
    steps = pl.DataFrame({"step": [1, 2], "start_ns": [first, first + half], "total_ns": [half, half + 1]})
    whole = window.window_of_steps(trace, steps, (first, last))
    assert whole.trace is trace
    monkeypatch.setattr(window, "MOST_EVENTS", 6)
    found = window.window_of_steps(trace, steps, (first, last))
    assert " % of step 2, which has the median duration, from its middle" in found.remark
    assert 0 < window.host_events(found.trace) <= 6
    starts = found.trace.ops["start_ns"]
    assert starts.is_between(first + half + half // 4, last - half // 4).all()


def test_what_reaches_out_of_the_window_is_shortened(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=1)
    start = trace.ops["start_ns"].min()
    assert isinstance(start, int)
    found = window.cut(trace, start + 50_000, start + 70_000)
    rows: list[dict[str, Any]] = found.ops.select("start_ns", "dur_ns").to_dicts()
    assert [(row["start_ns"] - start, row["dur_ns"]) for row in rows] == [(50_000, 20_000)] * 2


@pytest.mark.parametrize(
    ("lengths", "inside"),
    [
        ([2, None, 9, 1], [(2, 12, 8), (3, 18, 1)]),
        ([30, 1, None, 9], [(0, 10, 10), (2, 12, None), (3, 18, 2)]),
    ],
)
def test_rows_side_by_side_are_cut_as_others(
    lengths: list[int | None], inside: list[tuple[int | None, ...]]
) -> None:
    frame = pl.DataFrame({"row": range(4), "start_ns": [0, 5, 12, 18], "dur_ns": lengths})
    assert window._cut(frame, 10, 20).rows() == inside


def test_frames_hold_the_time_of_what_they_called() -> None:
    stacks = pl.DataFrame({"stack": ["main;f", "main;g;f", "main"], "value_ns": [5, 7, 1]})
    (icicle,) = _figure(stacks, "op", "operators").traces
    assert icicle["labels"] == ["all", "main", "f", "g", "f"]
    assert icicle["parents"] == ["", "all", "0", "0", "2"]
    assert icicle["values"] == [13, 13, 5, 7, 7]
    deep = pl.DataFrame({"stack": [";".join("f" * 70)], "value_ns": [5]})
    assert _figure(deep, "op", "operators").traces[0]["values"] == [5] * 61


def test_a_module_is_as_wide_as_what_is_inside_it() -> None:
    assert _nested([-1, 0, 0], [10, 8, 5]) == [13, 8, 5]
    assert _nested([-1, 0, 1], [10, 8, 5]) == [10, 8, 5]


def test_the_timeline_of_a_large_trace_has_the_threads_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = trace_of(tmp_path, steps=5)
    whole = ks.report.page_views(trace)["trace"].payload()["parts"]
    monkeypatch.setattr(window, "MOST_EVENTS", 4)
    monkeypatch.setattr(timeline, "_MOST_EVENTS", 4)
    # A copy: the trace keeps what its window is.
    shown, note = ks.report.page_views(dataclasses.replace(trace))["trace"].payload()["parts"]
    assert [part["kind"] for part in whole] == ["timeline"]
    assert [track["label"] for track in shown["tracks"]] == [t["label"] for t in whole[0]["tracks"]]
    assert [len(level["track"]) for level in shown["levels"]] == [5, 5, 4]
    assert [len(level["track"]) for level in whole[0]["levels"]] == [20, 20, 4]
    assert "threads are shown for step" in note["text"]


def test_steps_are_marked_where_the_host_and_where_the_gpu_takes_them_up(tmp_path: Path) -> None:
    events = Events()
    for step in range(2):
        at = 100 * step
        events.annotation(f"ProfilerStep#{step}", at, 100)
        events.op("aten::mm", at, 20)
        events.call(at + 5, 5, step + 1)
        # The first step's kernel ends when the host is in the second one.
        events.kernel("gemm", at + 60, 80, step + 1)
    (shown,) = ks.report.page_views(ks.read(events.write(tmp_path / "ahead.json")))["trace"].payload()[
        "parts"
    ]
    assert [start for start, _, _ in shown["steps"]] == [0, 140_000]
    assert shown["host_starts"] == [0, 100_000]
    assert [track["kind"] for track in shown["tracks"]] == ["stream", "thread"]
    assert "the host runs ahead of the GPU" in shown["what"]
    (level, *_) = shown["levels"]
    named = [shown["names"][name] for name in level["name"]]
    starts = list(itertools.accumulate(level["start_steps"]))
    # The line of a step on the threads is the start of its annotation.
    assert [at for at, name in zip(starts, named, strict=True) if name == "ProfilerStep#1"] == [100_000]


def test_levels_of_detail_keep_times_and_names(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, steps=2)
    (shown,) = ks.report.page_views(trace)["trace"].payload()["parts"]
    level = shown["levels"][0]
    starts, at = [], 0
    for step in level["start_steps"]:
        at += step
        starts.append(at)
    names = [shown["names"][name] for name in level["name"]]
    found = sorted(zip(names, starts, level["length"]))
    assert ("aten::mm", 10_000, 100_000) in found
    assert ("gemm", 1_200_000, 301_000) in found
    assert len(found) == 8


HOSTILE = "<img src=x onerror=alert(1)>&amp;"


def test_a_trace_shows_its_tables(tmp_path: Path) -> None:
    shown = trace_of(tmp_path, steps=3)._repr_html_()
    assert "<td>gpu_ops</td><td>3</td>" in shown
    assert "kineto" in shown
    assert "counters" not in shown


def test_every_view_shows_itself_without_a_script(tmp_path: Path) -> None:
    views = ks.report.page_views(trace_of(tmp_path, steps=30, name=HOSTILE))
    assert len(views) == 19
    for name, view in views.items():
        shown = view._repr_html_()
        assert f"<h3>{view.title}</h3>" in shown, name
        assert not re.search(r"<(?!/?(h3|h4|p|table|tr|th|td)\b)", shown), name
    assert "&lt;img src=x" in views["kernels"]._repr_html_()


def test_views_are_bounded(tmp_path: Path) -> None:
    few = ks.report.page_views(trace_of(tmp_path, steps=30))
    many = ks.report.page_views(trace_of(tmp_path, steps=900))
    for name in few:
        assert len(many[name]._repr_html_()) < len(few[name]._repr_html_()) + 500, name
        assert len(many[name]._repr_html_()) < 20_000, name
    assert "and 890 more" in many["overview"]._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("view", ["modules", "memory", "ranges", "communication"])
def test_what_is_missing_is_said(tmp_path: Path, view: str) -> None:
    assert re.search(
        r"<p>.*(Profile|record).*</p>", ks.report.page_views(trace_of(tmp_path, steps=1))[view]._repr_html_()
    )


@pytest.mark.slow
def test_every_page_has_the_same_policy_and_names_no_folder(tiny: Path, tmp_path: Path) -> None:
    ks.batch.run(tiny, tmp_path / "lake", workers=1)
    for command in (
        ("analyze", tiny, "--format", "html", "--out", "analyze.html"),
        ("roofline", tiny, "--format", "html", "--out", "roofline.html"),
        ("batch", tiny, "--out", tmp_path / "lake", "--html", "batch.html", "--workers", "1"),
    ):
        cli = [sys.executable, "-m", "kernelscope", *map(str, command)]
        subprocess.run(cli, cwd=tmp_path, check=True, capture_output=True)
    texts = [(tmp_path / f"{name}.html").read_text() for name in ("analyze", "roofline", "batch")]
    policies = {re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1] for text in texts}
    assert len(policies) == 1
    assert policies.pop().startswith("default-src &#x27;none&#x27;") or "default-src 'none'" in texts[0]
    for text in texts:
        shown = [text, *(json.dumps(view) for view in views_of(text).values())]
        assert not [part for part in shown if str(tmp_path) in part]
