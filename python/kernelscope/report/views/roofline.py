"""What the GPU achieved and could have, and for how much of its time that is known."""

from typing import TYPE_CHECKING, Any

from kernelscope.report.parts import Figure, Note, Page, Part
from kernelscope.report.parts.tables import Table
from kernelscope.report.roofline import RooflineAnswers, answer
from kernelscope.report.roofline_plot import figure, notes
from kernelscope.report.views import missing

if TYPE_CHECKING:
    from kernelscope.trace import Trace


ORDER = 82
TABLES = missing.TABLES
PAGE = Page(
    "roofline",
    "Roofline and costs",
    "What each operator achieved, what the GPU could have, and the time that lies between.",
)
_AXES = ("xaxis", "yaxis")
_EFFICIENCY = (
    "step", "name", "mfu_pct", "flops_per_s", "flops", "total_ns", "known_pct", "peak_flops_per_s",
    "peak_type", "gpus",
)  # fmt: skip
_COLUMNS = (
    "name", "device_ns", "attained_pct", "bound", "saveable_ns", "flops_per_s", "bytes_per_s", "intensity",
    "attainable_flops_per_s", "attainable_ns", "limit_type", "calls", "kernels", "flops", "bytes_read",
    "bytes_written", "missed_ns", "flag",
)  # fmt: skip


def page(trace: "Trace") -> list[Part]:
    """The roofline."""
    answers = answer(trace, ("name",))
    table = answers.table
    if table.is_empty():
        text = "No GPU work has an operator, so there is nothing to hold against the roofs."
        lacks = missing.notes(trace, "roofline", "kernels", "operators", "links")
        return [*(lacks or [Note(text, missing=True)])]
    parts: list[Part] = []
    plot = figure(answers)
    if plot["data"]:
        what = (
            "Each marker is an operator, as large as its GPU time. Right of the ridge computing limits it,"
            " left of it memory; the lines are what the GPU can do at most."
        )
        # The page has its own colours.
        axes = {name: {k: v for k, v in plot["layout"][name].items() if k != "gridcolor"} for name in _AXES}
        parts.append(
            Figure("roofline", "Roofline", what, [_themed(t) for t in plot["data"]], axes, height=520)
        )
        parts += [Note(text) for text in notes(answers)]
    what = "Achieved and attainable by operator. Saveable is the busy time beyond the attainable."
    parts.append(Table("roofline-table", "Operators against the roofs", what, table, _COLUMNS))
    parts += _known(answers)
    return [*parts, *missing.notes(trace, "roofline", "gpu_limits")]


def _themed(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace of the plot with its roofs in a colour that shows on any page."""
    if "line" not in trace:
        return trace
    return {
        **trace,
        "line": {**trace["line"], "color": "--faint"},
        "textfont": {"color": "--faint", "size": 12},
    }


def _known(answers: RooflineAnswers) -> list[Part]:
    """The utilisation of each step, and for how much of the time costs are known."""
    parts: list[Part] = []
    if answers.efficiency.height:
        what = "FLOPs of each step over its wall time, against what all GPUs can compute."
        titles = {"total_ns": "Wall time"}
        title = "FLOPs utilisation of each step"
        parts.append(Table("efficiency", title, what, answers.efficiency, _EFFICIENCY, titles=titles))
    what = "GPU time by whether the costs of its operators are known."
    columns = ("status", "operators", "device_ns", "linked_pct", "device_pct")
    parts.append(Table("coverage", "Coverage", what, answers.coverage, columns))
    if answers.findings.height:
        what = "Operators whose costs are not known, and why."
        columns = ("name", "message", "count", "device_ns", "code")
        parts.append(Table("cost-findings", "Unknown costs", what, answers.findings, columns))
    return parts
