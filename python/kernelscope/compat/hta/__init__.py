"""The tables of HolisticTraceAnalysis 0.6.1, with its columns, units and rounding, for one rank.

With ``rounded=False`` they are those that it prints with ``HTA_DISABLE_NS_ROUNDING=1``. Where its answers are
wrong by its own definition they are not copied: see docs/analyses.md.
"""

from kernelscope.lazy import import_lazily
from kernelscope.trace import about_a_trace

import_lazily(__name__, entry=about_a_trace)
