"""The report as one page that a browser shows without asking any server."""

from kernelscope.report.html.page import write_page

__all__ = ["write_page"]
