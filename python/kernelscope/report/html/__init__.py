"""The report as one page that needs no server."""
