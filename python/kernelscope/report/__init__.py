"""Shows the answers about a trace: as text, as JSON, as a folder of CSV or Parquet files, or as a page."""

from kernelscope.report.asked import asked_tables
from kernelscope.report.conversion import convert
from kernelscope.report.rendering import FORMATS, render, views

__all__ = ["FORMATS", "asked_tables", "convert", "render", "views"]
