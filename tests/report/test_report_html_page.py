"""The page as a file: what it may run, what it holds, and that text of a trace is only ever data."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.errors import InvalidArgumentError
from kernelscope.report import render
from kernelscope.report.html import libraries, page, write_page
from kernelscope.report.html.cells import label, texts, written
from kernelscope.report.html.columns import COLUMNS
from kernelscope.report.html.parts import Note, View
from kernelscope.report.html.tables import MOST_ROWS, Table
from kernelscope.report.html.views import every_view


def page_with(view: View, *, title: str) -> str:
    """A page with one view and without libraries."""
    libraries = dict.fromkeys(("plotly", "datatables", "datatables-style"), b"")
    return b"".join(page.to_page([view], title=title, libraries=libraries)).decode()


def views_of(text: str) -> dict[str, Any]:
    """The payload of every view of a page."""
    blocks = re.findall(r'<script type="application/gzip" id="view-(\w+)">([^<]*)</script>', text)
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
    for pid in (7, 8):
        host = {"ph": "X", "pid": pid, "tid": pid}
        for step in (1, 2):
            at = 1000 * (2 * step + pid)
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
    assert "kernelscope.report.text" in loaded
    assert not [name for name in loaded if name.startswith(("kernelscope.report.html", "plotly", "itables"))]
