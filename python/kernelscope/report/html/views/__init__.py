"""The views of the page, one file each: a trace goes in, tables and figures come out."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

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

    def made(make: Callable[[Sources], View]) -> "_Made":
        return finish(make(sources))

    others = (make for make in VIEWS if make not in _FIRST and make not in _LAST)
    order = (*_FIRST, *others, *_LAST)
    # One more than there are cores: now and then each waits for the interpreter or for another's answer.
    with ThreadPoolExecutor(max_workers=min((os.cpu_count() or 1) + 1, _MOST_THREADS)) as makers:
        waiting = {make: makers.submit(made, make) for make in order}
        return [waiting[make].result() for make in VIEWS]
