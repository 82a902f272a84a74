"""Reads the trace that a subcommand names."""

import argparse
from typing import TYPE_CHECKING

from kernelscope.cli.progress import Bar

if TYPE_CHECKING:
    from kernelscope.trace import Trace


def read_trace(options: argparse.Namespace) -> "Trace":
    """The trace of the arguments that ``arguments.add_reading`` adds, read with a progress bar."""
    from kernelscope.trace import read

    with Bar("reading") as bar:
        return read(
            options.trace,
            strict=options.strict,
            threads=options.threads,
            step_range=options.step_range,
            progress=bar.update,
        )
