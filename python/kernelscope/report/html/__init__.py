"""The report as one page that a browser shows without asking any server."""

from kernelscope.report.html.page import begin_page, write_page

__all__ = ["begin_page", "write_page"]
