"""Traces and views that display themselves: short, static and escaped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_report_text import trace_of

import kernelscope as ks

HOSTILE = "<img src=x onerror=alert(1)>&amp;"


def test_a_trace_shows_its_tables(tmp_path: Path) -> None:
    shown = trace_of(tmp_path, steps=3)._repr_html_()
    assert "<td>gpu_ops</td><td>3</td>" in shown
    assert "kineto" in shown
    assert "counters" not in shown


def test_every_view_shows_itself_without_a_script(tmp_path: Path) -> None:
    views = ks.report.views(trace_of(tmp_path, steps=30, name=HOSTILE))
    assert len(views) == 13
    for name, view in views.items():
        shown = view._repr_html_()
        assert f"<h3>{view.title}</h3>" in shown, name
        assert not re.search(r"<(?!/?(h3|h4|p|table|tr|th|td)\b)", shown), name
    assert "&lt;img src=x" in views["kernels"]._repr_html_()


def test_views_are_bounded(tmp_path: Path) -> None:
    few = ks.report.views(trace_of(tmp_path, steps=30))
    many = ks.report.views(trace_of(tmp_path, steps=900))
    for name in few:
        assert len(many[name]._repr_html_()) < len(few[name]._repr_html_()) + 500, name
        assert len(many[name]._repr_html_()) < 20_000, name
    assert "and 890 more" in many["overview"]._repr_html_()


@pytest.mark.parametrize("view", ["modules", "memory", "ranges", "communication"])
def test_what_is_missing_is_said(tmp_path: Path, view: str) -> None:
    assert re.search(
        r"<p>.*(Profile|record).*</p>", ks.report.views(trace_of(tmp_path, steps=1))[view]._repr_html_()
    )
