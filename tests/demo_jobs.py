"""Jobs of the demo, as input of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelscope as ks
from kernelscope import _traceparse


def write_job(
    folder: Path,
    *,
    ranks: int = 1,
    size_bytes: int = 1_000_000,
    seed: int = 1,
    layout: str = "native",
    gzip: bool = False,
    cause: str | None = None,
) -> list[Path]:
    """Writes ``rank0.pt.trace.json`` and so on into ``folder``; gives their paths."""
    written = _traceparse.write_demo(
        folder,
        size_bytes=size_bytes,
        ranks=ranks,
        seed=seed,
        layout=layout,
        gzip=gzip,
        truth=False,
        cause=cause,
    )
    return [path for path, *_ in written]


def read_job(folder: Path, **options: Any) -> list[ks.Trace]:
    """Writes a job, and reads it."""
    return [ks.read(path) for path in write_job(folder, **options)]
