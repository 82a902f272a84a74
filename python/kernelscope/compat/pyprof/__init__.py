"""PyProf's view of a trace: one record and one row of 20 columns per kernel.

``records`` converts a trace to the records that ``pyprof.parse`` wrote, ``read_records`` reads a file of
them, and ``pyprof_table`` returns the columns that ``pyprof.prof`` printed. With ``compat=True`` the result
equals PyProf's including its known errors, otherwise these are corrected (``docs/pyprof.md`` lists them).
"""

from kernelscope.lazy import import_lazily
from kernelscope.trace import about_a_trace

import_lazily(__name__, entry=about_a_trace)
