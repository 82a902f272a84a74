"""Shows the answers about a trace: as text, as JSON, as a folder of CSV or Parquet files, or as a page."""

from kernelscope.report.rendering import FORMATS, render, views

__all__ = ["FORMATS", "render", "views"]
