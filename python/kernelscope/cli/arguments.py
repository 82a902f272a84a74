"""Arguments shared by several subcommands, and the types of their values."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from kernelscope.errors import InvalidArgumentError, did_you_mean
from kernelscope.units import parse_bytes

# argparse has no public name for what add_subparsers() returns.
Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"  # noqa: PGH003, SLF001  # pyright: ignore


class Parser(argparse.ArgumentParser):
    """A parser that accepts only complete option names, and fails with one sentence."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - argparse overloads it by namespaces
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Also rejects unknown arguments, which argparse leaves to the parser of all commands."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            first = unknown[0]
            if not first.startswith("-"):
                self.error(f"unexpected argument {first}")
            name = first.partition("=")[0]
            self.error(f"there is no option {name}{did_you_mean(name, self._option_string_actions)}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known: Iterable[str] = action.choices
            raise argparse.ArgumentError(
                action, f"there is no {value}; there are {', '.join(known)}{did_you_mean(value, known)}"
            )

    def error(self, message: str) -> NoReturn:
        """Prints the error and a reference to the help instead of all options."""
        stop = "" if message.endswith("?") else ";"
        self.exit(2, f"kernelscope: {message}{stop} see {self.prog} --help\n")


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Adds the trace and the options of reading it."""
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help=(
            "the trace: JSON of the PyTorch profiler (plain, gzip or zstd), or an nsys or nvprof "
            "database; - is standard input"
        ),
    )
    add_loss(parser)
    add_threads(parser)
    add_rank(parser)
    add_step_range(parser)
    add_capture(parser)


def add_loss(parser: argparse.ArgumentParser) -> None:
    """Adds the handling of files with lost data."""
    parser.add_argument("--strict", action="store_true", help="fail at the first event that would be lost")
    parser.add_argument(
        "--allow-loss", action="store_true", help="exit with code 0 even if rows of a database are lost"
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Adds the number of reader threads."""
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="number of reader threads (default: one per core)"
    )


def add_rank(parser: argparse.ArgumentParser) -> None:
    """Adds the choice of one rank of a file of several."""
    parser.add_argument(
        "--rank", type=_whole, metavar="N", help="rank to read, if the file contains several merged ranks"
    )


def add_step_range(parser: argparse.ArgumentParser) -> None:
    """Adds the name of the annotation that delimits steps."""
    parser.add_argument(
        "--step-range",
        metavar="NAME",
        help=(
            "annotation or range that delimits steps, instead of ProfilerStep#N and those of serving "
            "engines. * matches any text, ? any character, /.../ is a regular expression, and found uses "
            "the periods of the launches"
        ),
    )


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Adds the filters of events."""
    filters = parser.add_argument_group("filters", "selects the events that are linked and analysed")
    filters.add_argument(
        "--filter-time",
        metavar="[START]/[END]",
        help=(
            "events that overlap this time on the clock of the trace, in ns or with a unit, for example 1s/2s"
        ),
    )
    filters.add_argument(
        "--filter-nvtx",
        metavar="RANGE[@DOMAIN][/INDEX]",
        help=(
            "activity of one thread inside an NVTX range or annotation, and the GPU operations that it "
            "launched. INDEX selects one of several with the same name, from 0 (default: 0)"
        ),
    )
    filters.add_argument(
        "--process",
        type=_whole,
        action="append",
        metavar="PID",
        help="events of this process; may be repeated",
    )
    filters.add_argument(
        "--device", type=_whole, action="append", metavar="N", help="operations of this GPU; may be repeated"
    )


def filters_of(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of ``kernelscope.read`` that :func:`add_filters` added."""
    return {name: getattr(options, name) for name in ("filter_time", "filter_nvtx", "process", "device")}


def add_table_output(parser: argparse.ArgumentParser) -> None:
    """Adds the format of a table, its file, and the number of rows of the text."""
    parser.add_argument("--format", choices=("text", "json", "csv"), default="text", help="default: text")
    parser.add_argument("--out", type=Path, metavar="PATH", help="file to write to")
    parser.add_argument(
        "--top", type=positive, default=15, metavar="N", help="rows of each table of the text (default: 15)"
    )


def add_capture(parser: argparse.ArgumentParser, option: str = "--capture", *, of: str = "the trace") -> None:
    """Adds the traces with graph captures."""
    parser.add_argument(
        option,
        action="append",
        metavar="PATH",
        help=(
            f"trace, or folder of traces, with the captures of the CUDA or HIP graphs that {of} replays; "
            "may be repeated (default: the trace itself, and capture_traces next to it)"
        ),
    )


def positive(text: str) -> int:
    """Parses a whole number of at least 1."""
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def seed(text: str) -> int:
    """Parses a whole number of at least 0 that fits 64 bits."""
    value = _whole(text)
    if not 0 <= value < 2**64:
        raise argparse.ArgumentTypeError("must be 0 to 2**64 - 1")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number") from None


def size(text: str) -> int:
    """Parses a number of bytes such as ``100MB``."""
    try:
        return parse_bytes(text)
    except InvalidArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
