"""The report as one page that a browser shows without asking any server."""
