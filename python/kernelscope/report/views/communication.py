"""Communication: size, speed, and the share hidden by computation."""

from kernelscope import analysis
from kernelscope.analysis.gpu.time import overlaps
from kernelscope.report.parts import Note, Page, Part
from kernelscope.report.parts.tables import Table
from kernelscope.report.views import missing
from kernelscope.trace import Trace

ORDER = 84
TABLES = missing.TABLES
PAGE = Page(
    "communication",
    "Communication",
    "Collectives of this rank: sizes, speed, and the share of their time that computation hides.",
)
_COLUMNS = (
    "kind", "group_size", "message_bytes", "collectives", "calls", "total_ns", "exposed_ns",
    "transfer_p50_ns", "transfer_p90_ns", "transfer_max_ns", "algorithm_bytes_per_s", "bus_bytes_per_s",
)  # fmt: skip


def page(trace: Trace) -> list[Part]:
    """Returns the communication of this rank."""
    notes = missing.notes(trace, "communication")
    if notes:
        return [*notes]
    parts: list[Part] = []
    overlap, names = overlaps(trace, [["device"], ["name"]])
    if overlap.height:
        what = "Exposed time: communication runs and nothing computes on that GPU."
        parts.append(Table("overlap", "Overlap with computing", what, overlap))
    table = analysis.communication(analysis.cluster_of(trace))
    if table.height:
        what = (
            "By kind and message size. With one rank, waiting for others counts as transfer; "
            "kernelscope.analysis.communication over several ranks separates them."
        )
        parts.append(Table("collectives", "Collectives", what, table, _COLUMNS))
    if names.height:
        what = "Communication kernels by name."
        parts.append(Table("communication-kernels", "Kernels", what, names))
    return parts or [Note("The trace names collectives, but recorded none of their operations.")]
