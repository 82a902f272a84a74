"""The views of the page, one file each: a trace goes in, tables and figures come out."""

from typing import TYPE_CHECKING

from kernelscope.report.html.parts import View
from kernelscope.report.html.sources import Sources
from kernelscope.report.html.views import diagnostics, kernels, operators, overview, ranges, roofline

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def every_view(trace: "Trace") -> list[View]:
    """The views of the page in the order of its menu."""
    sources = Sources(trace)
    return [
        make(sources)
        for make in (
            overview.view,
            operators.view,
            kernels.view,
            roofline.view,
            ranges.view,
            diagnostics.view,
        )
    ]
