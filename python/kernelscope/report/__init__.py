"""Shows the answers about a trace: as text, as JSON, or as a folder of CSV or Parquet files."""

from kernelscope.report.rendering import FORMATS, render

__all__ = ["FORMATS", "render"]
