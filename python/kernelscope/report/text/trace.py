"""The report as text: tables that fit the terminal."""

from rich.console import RenderableType

from kernelscope.report import views
from kernelscope.report.text import summary
from kernelscope.report.text.cells import Shape, note
from kernelscope.trace import Trace

_GLOSSARY = "Meaning of a figure: kernelscope schema --figures WORD"


def parts(trace: Trace, also: tuple[str, ...], shape: Shape) -> list[RenderableType]:
    """Yields the header and every view with a text.

    Requested views come before the last view, which is about the file.

    For a trace of several ranks, all of this for each rank.
    """
    if trace.parts:
        return [text for part in trace.parts for text in parts(part, also, shape)]
    shown = [view for view in views.every() if hasattr(view, "text") and not views.is_on_request(view)]
    shown.sort(key=lambda view: getattr(view, "TEXT_ORDER", view.ORDER))
    shown[-1:-1] = [views.named(name) for name in also]
    texts = [part for view in shown for part in view.text(trace, shape)]
    return [summary.header(trace, shape), *texts, note(_GLOSSARY, shape)]
