"""The reports of ``nsys stats`` and the rules of ``nsys analyze``, by the same names.

docs/nsys.md lists where they differ from nsys, each with the proof that nsys is wrong there.
"""

from kernelscope.compat.nsys.asking import left_out, missing, nsys_report, parse, read_for
from kernelscope.compat.nsys.registry import REPORTS
from kernelscope.compat.nsys.report import BREAKDOWN, Field, Figure, Question, Report

__all__ = [
    "BREAKDOWN",
    "REPORTS",
    "Field",
    "Figure",
    "Question",
    "Report",
    "left_out",
    "missing",
    "nsys_report",
    "parse",
    "read_for",
]
