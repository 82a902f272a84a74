"""Shows the answers about a trace: as text, as JSON, as a folder of CSV or Parquet files, or as a page."""

from kernelscope.lazy import import_lazily

import_lazily(__name__)
