"""Starts processes of kernelscope."""

import sys


def command_of(module: str) -> list[str]:
    """Returns the command that runs ``main`` of a module of this package in a new Python process.

    The process has the import path of this one. ``python -m`` would look first into the working directory,
    which may contain traces, and import a ``polars.py`` from there.
    """
    paths = [path for path in sys.path if path]
    code = f"import sys; sys.path[:] = {paths!r}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-c", code]
