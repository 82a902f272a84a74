"""Arguments that several subcommands share, and the types of their values."""

import argparse
from typing import TypeAlias

from kernelscope.errors import InvalidArgumentError
from kernelscope.units import parse_bytes

# argparse has no public name for what add_subparsers() returns.
Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: PGH003, SLF001  # pyright: ignore


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Adds the trace and the options of reading it."""
    parser.add_argument(
        "trace", metavar="TRACE", help="the trace: PyTorch profiler JSON, plain, gzip or zstd"
    )
    parser.add_argument("--strict", action="store_true", help="fail at the first event that would be lost")
    add_threads(parser)
    add_step_range(parser)


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds the number of threads to read with."""
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="threads to read with (default: one per core)"
    )


def add_step_range(parser: argparse.ArgumentParser) -> None:
    """Adds the name of what delimits steps."""
    parser.add_argument(
        "--step-range", metavar="NAME", help="annotation that delimits steps where there is no ProfilerStep#N"
    )


def positive(text: str) -> int:
    """A whole number from 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def seed(text: str) -> int:
    """A whole number from 0 that fits 64 bits."""
    value = int(text)
    if not 0 <= value < 2**64:
        raise argparse.ArgumentTypeError("must be 0 to 2**64 - 1")
    return value


def size(text: str) -> int:
    """A number of bytes such as ``100MB``."""
    try:
        return parse_bytes(text)
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
