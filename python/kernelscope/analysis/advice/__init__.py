"""Recommendations derived from a trace, one small rule per possible problem."""

from kernelscope.analysis.advice.table import recommendations as recommendations

__all__ = ["recommendations"]
