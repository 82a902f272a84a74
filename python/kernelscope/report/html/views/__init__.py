"""The views of the page, one file each: a trace goes in, tables and figures come out."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from kernelscope.allocator import status_bytes, trim_heap
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


_Made = TypeVar("_Made")
_MOST_THREADS = 4
_MOST_KEPT = 0.9
"""How much memory may stay with the process between views, of the most that reading took."""
_ALWAYS_KEPT = 0.33
"""The same, of the bytes of JSON: less than that is not worth the time that giving it back takes."""
_FIRST = (operators.view, overview.view, flame.view, modules.view)
"""Made first: they take longest, so that no thread has a long one left when the others are done."""
_LAST = (advice.view, roofline.view)
"""Made last: they only show what other views work on, and would wait for it."""


def every_view(trace: "Trace") -> list[View]:
    """The views of the page in the order of its menu."""
    return made_of_views(trace, lambda view: view)


def made_of_views(trace: "Trace", finish: "Callable[[View], _Made]") -> "list[_Made]":
    """What ``finish`` makes of each view of the page, in the order of its menu; several at a time."""
    sources = Sources(trace)
    is_large = host_events(trace) > MOST_EVENTS
    most_bytes = max(_MOST_KEPT * (status_bytes("VmHWM") or 0), _ALWAYS_KEPT * trace.meta.content_bytes)

    def made(make: Callable[[Sources], View]) -> "_Made":
        finished = finish(make(sources))
        # What a view needed is free, but not the system's: the next one is faster with it.
        if is_large and (status_bytes("VmRSS") or 0) > most_bytes:
            trim_heap()
        return finished

    others = (make for make in VIEWS if make not in _FIRST and make not in _LAST)
    order = (*_FIRST, *others, *_LAST)
    # One more than there are cores: now and then each waits for the interpreter or for another's answer.
    with ThreadPoolExecutor(max_workers=min((os.cpu_count() or 1) + 1, _MOST_THREADS)) as makers:
        waiting = {make: makers.submit(made, make) for make in order}
        return [waiting[make].result() for make in VIEWS]
