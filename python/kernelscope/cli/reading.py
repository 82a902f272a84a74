"""Reads the trace that a subcommand names."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kernelscope.cli.progress import Bar

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def read_trace(
    options: argparse.Namespace, *, tables: "Mapping[str, Sequence[str]] | None" = None
) -> "Trace":
    """The trace of the arguments that ``arguments.add_reading`` adds, read with a progress bar.

    ``tables`` are those that are needed, and the columns of each; all if null.
    """
    from kernelscope.trace import read

    with Bar("reading") as bar:
        return read(
            options.trace,
            strict=options.strict,
            threads=options.threads,
            step_range=options.step_range,
            tables=tables,
            progress=bar.update,
        )
