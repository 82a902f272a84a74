"""How processes of our own are started."""

import sys


def command_of(module: str) -> list[str]:
    """The command that runs ``main`` of a module of this package in a Python of its own.

    The process imports from where this one does. ``python -m`` would look into the folder that it is started
    in first, which may be one of traces, and import a ``polars.py`` that lies there.
    """
    paths = [path for path in sys.path if path]
    code = f"import sys; sys.path[:] = {paths!r}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-c", code]
