"""The first screen: a verdict, the step by category, possible savings, and the largest costs."""

from typing import Any

import polars as pl

from kernelscope import analysis
from kernelscope.analysis.grouping import ON_TRACKS
from kernelscope.analysis.steps.breakdown import CATEGORIES
from kernelscope.errors import NotRecordedError
from kernelscope.report.names import safe, short
from kernelscope.report.parts.columns import COLUMNS
from kernelscope.report.parts.tables import Table, with_share
from kernelscope.report.parts.window import origin_ns
from kernelscope.report.text.summary import trace_facts
from kernelscope.report.views import doubts, missing, recommendations
from kernelscope.trace import Trace
from kernelscope.units import format_count, format_ns, format_percent
from kernelscope.view.parameters import Parameters
from kernelscope.view.places import SHORT, event, place

_CAUSES = 3
_KERNELS = 5
_OF_CAUSE = ("id", "device", "title", "severity", "evidence", "remedy", "saving_ns", "saving_share", "cited")
_OF_KERNEL = ("name", "total_ns", "share_pct", "calls", "mean_ns", "attained_pct")

_WORDS = {
    "kernel_ns": "goes to kernels",
    "memcpy_ns": "goes to copies that no kernel hides",
    "memset_ns": "goes to memsets that no kernel hides",
    "communication_ns": "goes to communication that no kernel hides",
    "runtime_ns": "goes to runtime API calls while the GPU is idle",
    "dataloader_ns": "goes to data loading while the GPU is idle",
    "cpu_exec_ns": "goes to other host work while the GPU is idle",
    "other_ns": "has no recorded activity",
}


def overview(trace: Trace, _asked: Parameters) -> dict[str, Any]:
    """Returns the first screen.

    The result has a ``verdict``, the ``parts`` of the mean step, ``causes`` with possible savings, the
    largest ``kernels``, ``tiles`` of known figures, and ``facts`` of the file.
    """
    figures = analysis.overview(trace, costs=True).row(0, named=True)
    # The GPUs of one kind of advice share a line, which is that of the worst.
    causes = recommendations.separate(trace).unique("id", keep="first", maintain_order=True)
    kernels = with_share(analysis.kernel_table(trace), "total_ns")
    missed = [note.text for note in missing.notes(trace, "steps", "kernels")]
    return {
        "verdict": verdict(figures, causes),
        "step_ns": figures["step_ns"],
        "parts": [{"key": name, "ns": figures[name], **COLUMNS[name]._asdict()} for name in CATEGORIES],
        "causes": causes.head(_CAUSES).select(_OF_CAUSE).to_dicts(),
        "all_causes": causes.height,
        "kernels": Table("kernels", "The largest kernels", "", kernels.head(_KERNELS), _OF_KERNEL).payload(),
        "all_kernels": kernels.height,
        "tiles": [
            {"key": key, "value": figures[key], **COLUMNS[key]._asdict()}
            for key in ("utilisation", "sm_efficiency", "occupancy_pct", "tensor_core_share", "mfu_pct")
            if figures[key] is not None
        ],
        "facts": [[name, safe(value)] for name, value in trace_facts(trace).items() if value],
        "notes": [*doubts.sentences(trace), *missed],
    }


def verdict(figures: dict[str, Any], causes: pl.DataFrame) -> str:
    """Returns one or two sentences: the step time and its largest part, and the largest possible saving."""
    step = figures["step_ns"]
    if not step:
        return "The trace has no complete step, so the step time is unknown."
    steps = figures["steps"]
    largest = max(CATEGORIES, key=lambda name: figures[name] or 0)
    share = format_percent((figures[largest] or 0) / step)
    mean = f" (the mean of {format_count(steps)} steps)" if steps > 1 else ""
    sentence = f"A step takes {format_ns(step)}{mean}; {share} of it {_WORDS[largest]}."
    if causes.is_empty():
        return f"{sentence} No rule applies to it."
    first = causes.row(0, named=True)
    won = first["saving_share"]
    end = "" if won is None else f", which can save at most {format_percent(won)}"
    return f"{sentence} Look first at: {first['title']}{end}."


def evidence(trace: Trace, asked: Parameters) -> dict[str, Any]:
    """Returns the evidence of the finding ``id`` of ``device``: its sentences and its most important events.

    Events have ``row``, ``name``, ``short``, ``start`` and ``length``; ``place`` is that of the first.
    """
    name, device = asked.text("id"), asked.text("device", "")
    found = recommendations.separate(trace).filter(id=name)
    if device:
        found = found.filter(pl.col("device") == asked.whole("device"))
    if found.is_empty():
        raise NotRecordedError(f"this trace has no finding {name[:40]!r}")
    finding = found.row(0, named=True)
    rows = _cited(trace, finding["table"], finding["rows"] or [])
    return {
        **{name: finding[name] for name in (*_OF_CAUSE, "table")},
        "rows": rows,
        "place": place(trace, event(trace, rows[0]["row"]).values) if rows else None,
    }


def _cited(trace: Trace, table: str | None, rows: list[int]) -> list[dict[str, Any]]:
    """The events of a table with these numbers, in this order; none if they have no place in the timeline."""
    if table is None or table not in ON_TRACKS:
        return []
    wanted = pl.DataFrame({"row": rows}, schema={"row": pl.UInt32})
    frame = trace.tables[table].select("row", "name", "start_ns", "dur_ns")
    found = wanted.join(frame, on="row", how="inner", maintain_order="left")
    return [
        {
            "row": row,
            "name": safe(name),
            "short": short(name, SHORT),
            "start": start - origin_ns(trace),
            "length": length or 0,
        }
        for row, name, start, length in found.with_columns(pl.col("name").cast(pl.String)).iter_rows()
    ]
