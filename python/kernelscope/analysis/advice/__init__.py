"""Recommendations derived from a trace, one small rule per possible problem."""

from kernelscope.analysis.advice.sequences import sequence_savings as sequence_savings
from kernelscope.analysis.advice.table import best_changes as best_changes
from kernelscope.analysis.advice.table import recommendations as recommendations

__all__ = ["best_changes", "recommendations", "sequence_savings"]
