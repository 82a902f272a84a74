"""The roofline: achieved performance of operators as named bubbles, below the peaks of the GPUs."""

from typing import Any

from kernelscope.memo import per_trace
from kernelscope.report.names import safe, short
from kernelscope.report.roofline.answers import RooflineAnswers, answer
from kernelscope.report.roofline.plot import placed, roofs
from kernelscope.trace import Trace
from kernelscope.view.parameters import Parameters

MOST_BUBBLES = 200
"""Maximum number of bubbles in an answer, the largest time first."""

_WIDTH = 40
_FIGURES = (
    "device_ns", "calls", "intensity", "flops_per_s", "bytes_per_s", "attained_pct", "bound", "limit_type",
    "saveable_ns",
)  # fmt: skip


def roofline(trace: Trace, _asked: Parameters) -> dict[str, Any]:
    """Returns the ``bubbles`` of the operators with known FLOPs and bytes, the largest time first.

    A bubble has its ``name``, ``short`` form, ``share`` of the GPU time, and the figures of the table. Each
    of ``roofs`` is a kind of GPU: ``label``, ``bandwidth`` (bytes/s) and ``rates`` (FLOP/s) by type, the
    highest first. ``left`` is the number of omitted small bubbles; the notes of the view list unknown costs.
    """
    answers = _answers(trace)
    known = placed(answers)
    total = int(answers.coverage["device_ns"].sum()) or 1
    shown = known.sort("device_ns", "name", descending=[True, False]).head(MOST_BUBBLES)
    return {
        "bubbles": [
            {
                "name": safe(row["name"]),
                "short": short(row["name"], _WIDTH),
                "share": row["device_ns"] / total,
                **{name: row[name] for name in _FIGURES},
            }
            for row in shown.iter_rows(named=True)
        ],
        "roofs": [
            {
                "label": roof.label,
                "bandwidth": roof.bandwidth,
                "rates": sorted(roof.rates.items(), key=lambda item: -item[1]),
            }
            for roof in roofs(answers, known)
        ],
        "left": known.height - shown.height,
    }


@per_trace
def _answers(trace: Trace) -> RooflineAnswers:
    """The figures of the view's tables, by the name of the operator."""
    return answer(trace, ("name",))
