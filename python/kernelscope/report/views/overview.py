"""The figures of the trace at a glance."""

from typing import TYPE_CHECKING

import polars as pl

from kernelscope import analysis

if TYPE_CHECKING:
    from kernelscope.trace import Trace

ORDER = 80


def frames(trace: "Trace") -> dict[str, pl.DataFrame]:
    """The frames of the view, by the names of their files."""
    return {"overview": analysis.overview(trace)}
