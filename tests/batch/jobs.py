"""Jobs of a few ranks, and how lakes are compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import kernelscope as ks
from kernelscope import _traceparse
from kernelscope.batch.reports import BatchReport, RankReport


def write_job(folder: Path, *, ranks: int, size_bytes: int = 1_000_000, gzip: bool = False) -> Path:
    """A demo job: ``rank0.pt.trace.json`` and so on in ``folder``."""
    _traceparse.write_demo(
        folder, size_bytes=size_bytes, ranks=ranks, seed=1, layout="native", gzip=gzip, truth=False
    )
    return folder


def files_of(lake: Path) -> dict[str, bytes]:
    """Every file of a lake, hidden ones included."""
    return {str(path.relative_to(lake)): path.read_bytes() for path in lake.rglob("*") if path.is_file()}


def assert_same(lake: Path, expected: Mapping[str, bytes]) -> None:
    """Compares a lake with the files of another."""
    files = files_of(lake)
    assert sorted(files) == sorted(expected)
    assert [name for name, content in files.items() if content != expected[name]] == []


def batch(inputs: object, lake: Path, **options: object) -> tuple[dict[str, str], BatchReport]:
    """Runs a batch; gives what became of each source, by the name of its file, and the report."""
    found: dict[str, str] = {}

    def note(rank: RankReport, report: BatchReport) -> None:
        found[Path(rank.entry.source).name.split(".")[0]] = rank.status

    report = ks.batch.run(inputs, lake, on_rank=note, **options)  # type: ignore[arg-type]
    return found, report
