"""A figure is the same wherever a report prints it, and the glossary says what it means."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope.report import render
from kernelscope.report.parts.columns import COLUMNS
from kernelscope.report.parts.glossary import TEXT_TITLES, terms
from kernelscope.units import format_ns, format_percent
from kernelscope.view.overview import overview as viewer_overview
from kernelscope.view.parameters import Parameters
from oracles.traces import TRACES, files, read

REPORT = Path(ks.__file__).parent / "report"


def titles_of_the_text() -> list[tuple[str, str]]:
    """The title of every column of the text's tables, with the file that has it.

    Columns of SQL and of reports of nsys have the names that their asker or nsys gave them.
    """
    return [
        (ast.literal_eval(node.args[0]), path.name)
        for path in sorted(REPORT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Field"
        if path.relative_to(REPORT).as_posix() not in ("answers.py", "compat/nsys.py")
    ]


def test_every_title_of_the_text_is_in_the_glossary() -> None:
    known = {column.title.casefold() for column in COLUMNS.values()} | set(TEXT_TITLES)
    titles = titles_of_the_text()
    assert len(titles) > 50
    assert [
        (title, file) for title, file in titles if title.casefold() not in known and title not in known
    ] == []
    assert set(TEXT_TITLES.values()) <= set(COLUMNS)


def test_a_word_finds_its_term_first() -> None:
    assert terms("MFU")[0].key == "mfu_pct"
    assert {term.key for term in terms("idle")[:2]} == {"idle_ns", "idle_share"}
    assert terms("SM efficiency")[0].key == "sm_efficiency"
    assert len({term.key for term in terms()}) == len(COLUMNS)


class Places:
    """What a report says of a trace: in JSON, as text and on the page."""

    def __init__(self, trace: ks.Trace, folder: Path) -> None:
        render(trace, format="json", out=folder / "report.json")
        render(trace, out=folder / "report.txt", width=400)
        self.json: dict[str, Any] = json.loads((folder / "report.json").read_text())
        self.text = (folder / "report.txt").read_text()
        views = {name: view.payload() for name, view in ks.report.page_views(trace).items()}
        self._parts = {part.get("id"): part for view in views.values() for part in view["parts"]}

        self.facts: list[list[str]] = self._parts["figures"]["items"]
        self.viewer: dict[str, Any] = viewer_overview(trace, Parameters({}))

    def tile(self, term: str) -> str:
        """The value of a tile of the page."""
        return next(value for _, value, _, key in self.facts if key == term)

    def column(self, table: str, key: str) -> list[Any]:
        """A column of a table of the page; nothing if it holds no value."""
        part = self._parts[table]
        keys = [column["key"] for column in part["columns"]]
        return part["data"][keys.index(key)] if key in keys else []

    def cells(self, heading: str, title: str, rows: int) -> list[str]:
        """The cells of a column of the first rows of a table of the text."""
        lines = self.text[self.text.index(f"\n{heading}") + 1 :].splitlines()
        end = next(m.end() for m in re.finditer(r"\S+(?: \S+)*", lines[1]) if m.group() == title)
        return [re.split(r"\s{2,}", row[:end].rstrip())[-1] for row in lines[3 : 3 + rows]]


def shares(values: list[float | None]) -> list[str]:
    return [format_percent(value) for value in values]


@pytest.mark.parametrize("path", files(TRACES, "*.json.gz"), ids=lambda path: path.name)
def test_a_figure_is_the_same_everywhere(path: Path, tmp_path: Path) -> None:
    trace = read(path)
    if trace.gpu_ops.is_empty():
        pytest.skip("this trace has no GPU work, so none of these figures")
    said = Places(trace, tmp_path)
    (overview,) = said.json["overview"]
    steps = [step for step in said.json["steps"] if not step["is_partial"]]
    assert said.viewer["step_ns"] == overview["step_ns"]
    assert {part["key"]: part["ns"] for part in said.viewer["parts"]} == {
        name: overview[name] for name in ks.analysis.CATEGORIES
    }
    shown = {tile["key"]: tile["value"] for tile in said.viewer["tiles"]}
    assert shown.items() >= {
        (key, overview[key]) for key in ("utilisation", "tensor_core_share") if overview[key] is not None
    }
    totals = [kernel["total_ns"] for kernel in said.json["kernels"][:5]]
    assert said.viewer["kernels"]["data"][1] == totals
    if steps:
        assert f" {said.tile('total_ns')}" in said.viewer["verdict"]
        mean = sum(step["total_ns"] for step in steps) / len(steps)
        assert overview["step_ns"] == pytest.approx(mean)
        assert said.tile("total_ns") == format_ns(mean)
        assert f": {format_ns(mean)}\n" in said.text
    gpus, times = pl.DataFrame(said.json["gpus"]), pl.DataFrame(said.json["gpu_time"])
    # Of each GPU, as text and on the page.
    for key, title in (("utilisation", "utilisation"), ("tensor_core_share", "tensor cores")):
        assert said.cells("GPUs over", title, gpus.height) == shares(gpus[key].to_list())
        assert said.column("gpus", key) == pytest.approx(gpus[key].drop_nulls().to_list(), rel=1e-5)
    assert said.cells("GPUs over", "idle", gpus.height) == shares(times["idle_share"].to_list())
    assert said.column("gpu-time", "idle_share") == pytest.approx(times["idle_share"].to_list(), rel=1e-5)
    if gpus.height == 1:
        for key in ("utilisation", "tensor_core_share"):
            assert overview[key] == pytest.approx(gpus[key][0])
            assert said.tile(key) in (format_percent(gpus[key][0]), "not known")
    # The causes of idle time sum to it, and so does its heading.
    idle = sum(row["idle_ns"] for row in said.json["idle"])
    assert idle == times["idle_ns"].sum() == sum(row["idle_ns"] for row in said.json["idle_hosts"])
    if idle:
        share = format_percent(idle / times["span_ns"].sum())
        assert (
            f"GPU idle: {format_ns(idle)}, {share} of the time between the first and last operation"
            in said.text
        )
    exposed = sum(row["exposed_ns"] for row in said.json["overlap"])
    assert exposed == times["communication_ns"].sum()
    if exposed:
        assert f"{format_ns(exposed)} of " in said.text


@pytest.mark.parametrize(
    "path", files(TRACES, "owlv2*.gz") + files(TRACES, "*decode-graph*.gz") + files(TRACES, "v100-ns*.gz")
)
def test_the_utilisation_of_flops_is_the_same_everywhere(
    path: Path, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    trace = read(path)
    (overview,) = ks.analysis.overview(trace, costs=True).to_dicts()
    _, tile, what, _ = next(item for item in Places(trace, tmp_path).facts if item[3] == "mfu_pct")
    mfu, known = overview["mfu_pct"], overview["known_pct"]
    assert tile == ("not known" if mfu is None else f"{mfu:.1f} %")
    assert f"FLOPs are known for {known:.1f} % of the GPU time" in what
    steps = json.loads(cli("roofline", "--format", "json", path).stdout)["efficiency"]
    device_ns = sum(step["device_ns"] for step in steps)
    assert known == pytest.approx(sum(s["known_pct"] * s["device_ns"] for s in steps) / device_ns)
    text = cli("roofline", path).stdout
    for step in steps:
        assert f"{step['known_pct']:.1f} %" in text
        assert step["mfu_pct"] is None or f"{step['mfu_pct']:.2f} %" in text
