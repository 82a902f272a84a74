"""Renders the answers about a trace as text, JSON, a folder of CSV or Parquet files, or a page."""

from kernelscope.lazy import import_lazily
from kernelscope.trace import about_a_trace

import_lazily(__name__, entry=about_a_trace)
