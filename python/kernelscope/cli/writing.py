"""Writes the tables of a subcommand as text, JSON or CSV."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelscope.report.text.cells import Parts


def write_tables(
    options: argparse.Namespace,
    parts: "Parts",
    json: Callable[[], str],
    csv: Callable[[], str],
    *,
    plain_width: int,
) -> None:
    """Prints the tables in the format that was asked for, or writes them to a file.

    ``plain_width`` is the width of the text without a terminal, in characters.
    """
    if options.format == "text":
        from kernelscope.report.text.cells import write_parts

        write_parts(parts, options.out, top=options.top, plain_width=plain_width)
        return
    from kernelscope.report.files import print_or_write

    print_or_write((json if options.format == "json" else csv)(), options.out)
