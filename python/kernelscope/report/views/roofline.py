"""Achieved and attainable performance of the GPU, and the share of its time with known costs."""

from typing import TYPE_CHECKING

from kernelscope.report.parts import Note, Page, Part
from kernelscope.report.parts.tables import Table
from kernelscope.report.views import missing
from kernelscope.trace import Trace

if TYPE_CHECKING:
    from kernelscope.report.roofline.answers import RooflineAnswers

ORDER = 82
TABLES = missing.TABLES
PAGE = Page(
    "roofline",
    "Roofline and costs",
    "Achieved and attainable performance of each operator, and the time between them.",
)
_EFFICIENCY = (
    "step", "name", "mfu_pct", "hfu_pct", "flops_per_s", "model_flops_per_s_per_gpu", "flops",
    "recompute_flops", "total_ns", "tokens", "tokens_per_s", "known_pct", "peak_flops_per_s",
    "peak_type", "gpus",
)  # fmt: skip
_COLUMNS = (
    "device_ns", "attained_pct", "bound", "saveable_ns", "flops_per_s", "bytes_per_s", "intensity",
    "attainable_flops_per_s", "attainable_ns", "limit_type", "calls", "kernels", "flops", "bytes_read",
    "bytes_written", "missed_ns", "flag",
)  # fmt: skip


def page(trace: Trace) -> list[Part]:
    """Returns the roofline of the operators."""
    # The text has no such view, and shall not wait for the cost models.
    from kernelscope.report.roofline.answers import answer

    return roofline_parts(trace, answer(trace, ("name",)))


def roofline_parts(trace: Trace, answers: "RooflineAnswers") -> list[Part]:
    """Returns the roofline of the rows of ``answers``."""
    from kernelscope.report.roofline.plot import notes, roofline_figures

    if answers.table.is_empty():
        text = "No GPU operation has an operator, so nothing can be compared with the roofs."
        lacks = missing.notes(trace, "roofline", "kernels", "operators", "links")
        return [*(lacks or [Note(text, missing=True)])]
    figures = roofline_figures(answers)
    parts: list[Part] = [*figures, *(Note(text) for text in notes(answers) if figures)]
    what = "Achieved and attainable. Saveable is the busy time beyond the attainable time."
    columns = tuple(dict.fromkeys((*answers.by, *_COLUMNS)))
    parts.append(Table("roofline-table", "Against the roofs", what, answers.table, columns))
    parts += _known(answers)
    return [*parts, *missing.notes(trace, "roofline", "gpu_limits")]


def _known(answers: "RooflineAnswers") -> list[Part]:
    """The utilisation of each step, and for how much of the time costs are known."""
    parts: list[Part] = []
    if answers.efficiency.height:
        what = "FLOPs of each step over its wall time, relative to the peak of all GPUs."
        titles = {"total_ns": "Wall time"}
        title = "FLOPs utilisation of each step"
        parts.append(Table("efficiency", title, what, answers.efficiency, _EFFICIENCY, titles=titles))
    what = "GPU time by whether the costs of its operators are known."
    columns = ("status", "operators", "device_ns", "linked_pct", "device_pct")
    parts.append(Table("coverage", "Coverage", what, answers.coverage, columns))
    if answers.findings.height:
        what = "Operators with unknown costs, and reasons."
        columns = ("name", "message", "count", "device_ns", "code")
        parts.append(Table("cost-findings", "Unknown costs", what, answers.findings, columns))
    return parts
