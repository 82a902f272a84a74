"""Output of the command line: results on standard output, everything else on standard error."""

import sys
import textwrap
from collections.abc import Iterable
from itertools import islice

from kernelscope.escaping import for_terminal


def show(line: str) -> None:
    """Prints a line of a result, with names made safe."""
    sys.stdout.write(for_terminal(line) + "\n")


def show_all(lines: Iterable[str]) -> None:
    """Prints many lines of a result, with names made safe."""
    taken = iter(lines)
    while part := list(islice(taken, _PART_LINES)):
        # Nearly every part is printable, which is sooner looked for in all of it.
        if "".join(part).isprintable():
            sys.stdout.write("\n".join(part) + "\n")
        else:
            for line in part:
                show(line)


_PART_LINES = 1 << 12


def say(message: str, *, width: int | None = None) -> None:
    """Prints a message to standard error, in one line or in lines of up to ``width`` characters."""
    line = f"kernelscope: {for_terminal(message)}"
    if width is not None:
        # Paths stay whole, so that they can be copied.
        line = textwrap.fill(
            line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    sys.stderr.write(f"{line}\n")
