"""The part of a large trace that represents the whole where showing every event would be too much."""

from dataclasses import replace
from typing import NamedTuple

import polars as pl

from kernelscope.analysis.ranges.beside_operators import ranges_beside_operators
from kernelscope.analysis.steps.breakdown import step_times
from kernelscope.memo import per_trace
from kernelscope.trace import Trace
from kernelscope.units import format_percent

MOST_EVENTS = 200_000
"""Number of host events above which the views of single events show a step instead of the whole trace."""

_SHARE_OF_MOST = 0.5
"""Number of host events in the window of a trace without steps, or of a larger step. Its bounds are
arbitrary, so a longer window is not more informative."""

_CUT = ("ops", "launches", "gpu_ops", "python", "ranges", "memory", "gpu_annotations")


class Window(NamedTuple):
    """A trace, cut to a window if it is large; ``part`` describes the window."""

    trace: Trace
    part: str

    @property
    def remark(self) -> str:
        """Returns a remark about the cut, empty if there is none."""
        return f"The trace is large, so this shows {self.part}." if self.part else ""


def host_events(trace: Trace) -> int:
    """Returns the number of operators, calls, Python frames and ranges of ``trace``."""
    ranges = ranges_beside_operators(trace)
    return sum(frame.height for frame in (trace.ops, trace.launches, trace.python, ranges))


def origin_ns(trace: Trace) -> int:
    """Returns the start of the first event, the origin of times on the page."""
    extent = trace.extent()
    return extent[0] if extent else 0


@per_trace
def window_of(trace: Trace) -> Window:
    """Returns ``trace`` itself, or if it is large its median step or the middle of that.

    A large trace without steps gives its own middle.
    """
    return window_of_steps(trace, step_times(trace), trace.extent())


def window_of_steps(trace: Trace, steps: pl.DataFrame, extent: tuple[int, int] | None) -> Window:
    """Returns the same for a trace of this extent with these steps.

    Columns: ``steps`` needs ``step``, ``start_ns`` and ``total_ns``.
    """
    if host_events(trace) <= MOST_EVENTS or extent is None:
        return Window(trace, "")
    if steps.height < 2:
        found, share = _middle(trace, *extent)
        return Window(found, f"{format_percent(share)} of its time, from the middle")
    median = steps.sort("total_ns", "start_ns").row(steps.height // 2, named=True)
    start, end = median["start_ns"], median["start_ns"] + median["total_ns"]
    found, share = _middle(cut(trace, start, end), start, end)
    part = f"step {median['step']}, which has the median duration"
    return Window(found, part if share == 1 else f"{format_percent(share)} of {part}, from its middle")


def _middle(trace: Trace, start_ns: int, end_ns: int) -> tuple[Trace, float]:
    """``trace``, which lasts from ``start_ns`` to ``end_ns``, or if it is large its middle, and its share."""
    whole = end_ns - start_ns
    start, end = start_ns, end_ns
    # Where the middle is denser than the rest, once is not enough.
    while (events := host_events(trace)) > MOST_EVENTS and end > start:
        length = int((end - start) * _SHARE_OF_MOST * MOST_EVENTS / events)
        start = (start + end - length) // 2
        end = start + length
        trace = cut(trace, start, end)
    return trace, (end - start) / whole if whole else 1.0


def cut(trace: Trace, start_ns: int, end_ns: int) -> Trace:
    """Returns the part of ``trace`` in ``[start_ns, end_ns)``. Events that extend beyond it are shortened."""
    return replace(trace, **{name: _cut(trace.tables[name], start_ns, end_ns) for name in _CUT})


def _cut(frame: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    if frame.is_empty():
        return frame
    begins = pl.col("start_ns") < end_ns
    if "dur_ns" not in frame.columns:
        return frame.filter(begins, pl.col("start_ns") >= start_ns)
    inside = frame.filter(begins, pl.col("start_ns") + pl.col("dur_ns").fill_null(0) > start_ns)
    start = pl.col("start_ns").clip(lower_bound=start_ns)
    end = (pl.col("start_ns") + pl.col("dur_ns")).clip(upper_bound=end_ns)
    # Null where the duration is not known.
    return inside.with_columns(start_ns=start, dur_ns=end - start)
