"""The page and the text about a job of many ranks."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import kernelscope as ks
from kernelscope import _traceparse
from kernelscope.report import cluster_text
from kernelscope.report.html import cluster_views
from kernelscope.report.html.cluster import write_cluster_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VIEWS = ["first", "ranks", "collectives", "steps", "clocks", "files"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ks.batch.Lake:
    """Sixteen ranks with faults, and a trace that is none."""
    folder = tmp_path_factory.mktemp("job")
    _traceparse.write_demo(
        folder / "traces", size_bytes=1_600_000, ranks=16, seed=3, layout="native", gzip=False, truth=False
    )
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
    found = re.findall(r'<script type="application/gzip" id="view-(\w+)">([^<]*)</script>', page.read_text())
    return {name: json.loads(gzip.decompress(base64.b64decode(content))) for name, content in found}


def part_of(view: dict[str, Any], name: str) -> dict[str, Any]:
    return next(part for part in view["parts"] if part.get("id") == name)


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


def test_page_stays_small(page: Path) -> None:
    """Data of 16 ranks; the libraries are the rest."""
    content = sum(len(gzip.compress(json.dumps(view).encode())) for view in views_of(page).values())
    assert content < 60_000


def test_heat_map_of_many_ranks_and_steps() -> None:
    steps = pl.DataFrame({"rank": range(5_000)}).join(pl.DataFrame({"step": range(700)}), how="cross")
    slow = (pl.col("rank") == 4_321) & (pl.col("step") == 555)
    steps = steps.with_columns(own_ns=pl.when(slow).then(9_000_000).otherwise(5_000_000))
    trace = cluster_views._heat_map(steps, "own_ns").traces[0]
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
        "clocks",
    ] or [name for name in VIEWS if views[name]["parts"][0].get("missing")] == [
        "ranks",
        "collectives",
        "steps",
        "clocks",
    ]
    text = cluster_text.to_text(lake)
    assert text.startswith("1 rank")
    assert "No rank is slower than the others." in text
    assert "All communication is hidden behind computation, or there is none." in text


def test_nothing_to_look_at(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text("no trace")
    ks.batch.run(tmp_path / "rank0.json", tmp_path / "lake")
    with pytest.raises(ks.errors.InvalidArgumentError, match="no rank"):
        cluster_text.to_text(ks.scan(tmp_path / "lake"))
