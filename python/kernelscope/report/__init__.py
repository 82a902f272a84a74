"""Shows the answers about a trace: as text, as JSON, as a folder of CSV or Parquet files, or as a page."""

from kernelscope.report.conversion import convert
from kernelscope.report.rendering import FORMATS, render, views

__all__ = ["FORMATS", "convert", "render", "views"]
