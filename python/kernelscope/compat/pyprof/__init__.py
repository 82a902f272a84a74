"""PyProf's view of a trace: one record and one row of 20 columns per kernel.

``records`` turns a trace into the records that ``pyprof.parse`` wrote, ``read_records`` reads a file of
them, and ``pyprof_table`` gives the columns that ``pyprof.prof`` printed. Each takes ``compat``: with it
the answer is that of PyProf with its known faults, without it the faults are repaired (``docs/pyprof.md``
lists them).
"""

from kernelscope.compat.pyprof.calls import call_of_ops, captured_calls
from kernelscope.compat.pyprof.columns import COLUMNS, DEFAULT_COLUMNS, Column
from kernelscope.compat.pyprof.dictionary import format_record, read_records
from kernelscope.compat.pyprof.record import KernelRecord
from kernelscope.compat.pyprof.records import records
from kernelscope.compat.pyprof.rows import Row, rows
from kernelscope.compat.pyprof.table import pyprof_table

__all__ = [
    "COLUMNS",
    "DEFAULT_COLUMNS",
    "Column",
    "KernelRecord",
    "Row",
    "call_of_ops",
    "captured_calls",
    "format_record",
    "pyprof_table",
    "read_records",
    "records",
    "rows",
]
