"""Batches of traces: one Parquet data set per table, read by one worker per core.

``run`` fills a lake, ``scan`` opens one. Tables exist only in the workers. The coordinator keeps a few lines
per trace.
"""

from kernelscope.lazy import import_lazily

# What only some need, such as readers of lakes, others do not pay for.
import_lazily(__name__)
