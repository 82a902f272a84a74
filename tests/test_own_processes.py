"""Processes of our own import nothing from the folder that they start in, which may be one of traces."""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path

import pytest

import kernelscope as ks
from kernelscope.batch import ProcessPool


@pytest.fixture(autouse=True)
def folder_of_strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "kernelscope", "pickle", "polars"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger was imported')")
    monkeypatch.chdir(tmp_path)


def test_workers_of_a_batch() -> None:
    with ProcessPool(1, threads=1) as pool:
        found = pool.submit(pkgutil.resolve_name, "sys:path").result()
    assert found == [path for path in sys.path if path]


def test_statements(tiny: Path) -> None:
    trace = ks.read(tiny)
    assert ks.sql(trace, "select count(*) as n from ops").rows() == [(trace.ops.height,)]
