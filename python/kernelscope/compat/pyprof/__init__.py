"""PyProf's view of a trace: one record and one row of 20 columns per kernel.

``records`` turns a trace into the records that ``pyprof.parse`` wrote, ``read_records`` reads a file of
them, and ``pyprof_table`` gives the columns that ``pyprof.prof`` printed. With ``compat=True`` the answer is
that of PyProf with its known faults, otherwise they are repaired (``docs/pyprof.md`` lists them).
"""

from kernelscope.lazy import import_lazily
from kernelscope.trace import about_a_trace

import_lazily(__name__, entry=about_a_trace)
