"""The tables of HolisticTraceAnalysis 0.6.1, with its columns, units and rounding, for one rank.

With ``rounded=False`` they equal its output with ``HTA_DISABLE_NS_ROUNDING=1``. Answers that are wrong by its
own definition are not copied; see docs/analyses.md.
"""

from kernelscope.lazy import import_lazily
from kernelscope.trace import about_a_trace

import_lazily(__name__, entry=about_a_trace)
