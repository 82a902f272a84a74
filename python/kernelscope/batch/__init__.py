"""Many traces at once: one Parquet data set per table, read by as many workers as there are cores.

``run`` fills a lake, ``scan`` opens one. Nothing here holds more than a few lines per trace, however many
there are: tables exist in the workers only.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelscope.batch.coordinator import run as run
    from kernelscope.batch.lake import Lake as Lake
    from kernelscope.batch.lake import scan as scan
    from kernelscope.batch.manifest import Entry as Entry
    from kernelscope.batch.pool import ProcessPool as ProcessPool
    from kernelscope.batch.reports import BatchReport as BatchReport
    from kernelscope.batch.reports import RankReport as RankReport
    from kernelscope.batch.sizing import cores as cores

_MODULE_OF = {
    "BatchReport": "reports",
    "Entry": "manifest",
    "Lake": "lake",
    "ProcessPool": "pool",
    "RankReport": "reports",
    "cores": "sizing",
    "run": "coordinator",
    "scan": "lake",
}

__all__ = ["BatchReport", "Entry", "Lake", "ProcessPool", "RankReport", "cores", "run", "scan"]


def __getattr__(name: str) -> object:
    # The coordinator needs no Polars, and must not pay for it.
    if name in _MODULE_OF:
        return getattr(importlib.import_module(f"kernelscope.batch.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'kernelscope.batch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
