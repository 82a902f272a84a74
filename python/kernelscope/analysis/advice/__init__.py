"""What to do about what a trace shows: one small rule for each thing that can be wrong."""

from kernelscope.analysis.advice.table import recommendations as recommendations

__all__ = ["recommendations"]
