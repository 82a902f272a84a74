"""What the GPU achieved and could have, and for how much of its time that is known."""

import polars as pl

from kernelscope.report.html.parts import Figure, Note, Part, View
from kernelscope.report.html.sources import Sources
from kernelscope.report.html.tables import Table
from kernelscope.report.roofline_plot import figure, notes

_AXES = ("xaxis", "yaxis")
_COLUMNS = (
    "name", "device_ns", "attained_pct", "bound", "saveable_ns", "flops_per_s", "bytes_per_s", "intensity",
    "attainable_flops_per_s", "attainable_ns", "limit_type", "calls", "kernels", "flops", "bytes_read",
    "bytes_written", "missed_ns", "flag",
)  # fmt: skip


def view(sources: Sources) -> View:
    """The roofline."""
    what = "What each operator achieved, what the GPU could have, and the time that lies between."
    return View("roofline", "Roofline and costs", what, _parts(sources))


def _parts(sources: Sources) -> list[Part]:
    answers = sources.roofline
    if answers.table.is_empty():
        text = (
            "No operator's cost is known together with its GPU time: record with record_shapes=True and"
            " ProfilerActivity.CUDA among the activities."
        )
        return [Note(text, missing=True)]
    parts: list[Part] = []
    plot = figure(answers)
    if plot["data"]:
        what = (
            "Each marker is an operator, as large as its GPU time. Right of the ridge computing limits it,"
            " left of it memory; the lines are what the GPU can do at most."
        )
        # The page has its own colours.
        axes = {name: {k: v for k, v in plot["layout"][name].items() if k != "gridcolor"} for name in _AXES}
        parts.append(Figure("roofline", "Roofline", what, plot["data"], axes, height=520))
        parts += [Note(text) for text in notes(answers)]
    what = "Achieved and attainable by operator. Saveable is the busy time beyond the attainable."
    parts.append(Table("roofline-table", "Operators against the roofs", what, answers.table, _COLUMNS))
    parts.append(_efficiency(answers.efficiency))
    what = "GPU time by whether the costs of its operators are known."
    parts.append(
        Table(
            "coverage",
            "Coverage",
            what,
            answers.coverage,
            ("status", "operators", "device_ns", "linked_pct", "device_pct"),
        )
    )
    if answers.findings.height:
        what = "Operators whose costs are not known, and why."
        columns = ("name", "message", "count", "device_ns", "code")
        parts.append(Table("cost-findings", "Unknown costs", what, answers.findings, columns))
    return parts


def _efficiency(table: pl.DataFrame) -> Table:
    columns = (
        "step",
        "name",
        "mfu_pct",
        "flops_per_s",
        "flops",
        "total_ns",
        "known_pct",
        "peak_flops_per_s",
        "peak_type",
        "gpus",
    )
    what = "FLOPs of each step over its wall time, against what all GPUs can compute."
    return Table(
        "efficiency", "FLOPs utilisation of each step", what, table, columns, titles={"total_ns": "Wall time"}
    )
