"""The views of the page, one file each: a trace goes in, tables and figures come out."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelscope.report.html.parts import View
from kernelscope.report.html.sources import Sources
from kernelscope.report.html.views import (
    advice,
    communication,
    diagnostics,
    flame,
    gpus,
    kernels,
    memory,
    modules,
    operators,
    overview,
    ranges,
    roofline,
    timeline,
)
from kernelscope.report.html.window import MOST_EVENTS, host_events
from kernelscope.trace import trim_heap

if TYPE_CHECKING:
    from kernelscope.trace import Trace

VIEWS: tuple[Callable[[Sources], View], ...] = (
    overview.view,
    advice.view,
    operators.view,
    kernels.view,
    modules.view,
    gpus.view,
    memory.view,
    roofline.view,
    communication.view,
    ranges.view,
    timeline.view,
    flame.view,
    diagnostics.view,
)
"""Every view, in the order of the menu."""


def every_view(trace: "Trace") -> list[View]:
    """The views of the page in the order of its menu."""
    sources = Sources(trace)
    views: list[View] = []
    for make in VIEWS:
        views.append(make(sources))
        if host_events(trace) > MOST_EVENTS:
            # What a view needed is free, but not yet the system's.
            trim_heap()
    return views
