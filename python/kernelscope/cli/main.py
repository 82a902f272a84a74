"""Parses the command line, runs a subcommand, and converts failures to exit codes."""

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import cast

from kernelscope import __version__
from kernelscope.cli import (
    analyze,
    batch,
    compact,
    convert,
    critical_path,
    demo,
    diff,
    info,
    parse,
    prof,
    roofline,
    schema,
    sequences,
    sql,
    stats,
    view,
    what_if,
)
from kernelscope.cli.arguments import Parser
from kernelscope.cli.console import say
from kernelscope.cli.inputs import STDIN
from kernelscope.cli.reading import LOST
from kernelscope.errors import InvalidArgumentError, KernelscopeError, did_you_mean

DONE = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130

COMMANDS = {
    command.__name__.rpartition(".")[2].replace("_", "-"): command
    for command in (
        analyze,
        view,
        sql,
        batch,
        compact,
        convert,
        diff,
        critical_path,
        what_if,
        sequences,
        info,
        stats,
        parse,
        prof,
        demo,
        roofline,
        schema,
    )
}
_OWN_OPTIONS = ("-h", "--help", "--version")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code.

    0 done, 1 failed, 2 usage, 3 batch stopped, 130 interrupted.
    """
    _open_streams()
    try:
        options = _parse(sys.argv[1:] if arguments is None else arguments)
        code: int = options.run(options) or (FAILED if vars(options).get(LOST) else DONE)
    except SystemExit as ended:
        # Of the parser: it has printed the help, or what is wrong.
        code = cast("int", ended.code)
    except InvalidArgumentError as error:
        code = _fail(str(error), USAGE)
    except KernelscopeError as error:
        code = _fail(str(error))
    except OSError as error:
        code = DONE if _is_broken_pipe(error) else _fail(_text(error))
    except KeyboardInterrupt:
        code = _fail("interrupted", INTERRUPTED)
    return _flushed(code)


def _open_streams() -> None:
    """Makes standard output and errors usable, whatever they lead to."""
    for name in ("stdout", "stderr"):
        stream: object = getattr(sys, name)
        if stream is None:
            # It was closed: what is printed goes nowhere, and not into the next file that is opened.
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the end
        elif name == "stdout" and isinstance(stream, io.TextIOWrapper):
            # A terminal may lack the characters of a name or a path; that must not cost the report.
            cast("io.TextIOWrapper", stream).reconfigure(errors="replace")


def _flushed(code: int) -> int:
    """Puts out what is left to print; Python would fail to at exit, with an exit code of its own."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # The reader of our output may have seen enough; anything else costs a part of it.
        code = code if _is_broken_pipe(error) else _fail(_text(error))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _is_broken_pipe(error: OSError) -> bool:
    """Whether nobody reads our output any more. Polars raises a bare OSError, with the number as text."""
    # In front where an object of Python failed, else behind; in between may stand a path.
    text = str(error)
    by_number = text.startswith(f"[Errno {errno.EPIPE}]") or text.endswith(f"(os error {errno.EPIPE})")
    return isinstance(error, BrokenPipeError) or by_number


def _text(error: OSError) -> str:
    """What is wrong, with the file in front as in other messages."""
    if error.strerror is None or error.filename is None:
        return error.strerror or str(error)
    return f"{os.fsdecode(error.filename)}: {error.strerror}"


def _fail(message: str, code: int = FAILED) -> int:
    say(message)
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of the command that is named, which is ``analyze`` where a file stands in its place."""
    parser = _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        raise SystemExit(USAGE)
    first = arguments[0]
    if first in COMMANDS or first in _OWN_OPTIONS:
        return parser.parse_args(arguments)
    if first != STDIN and first.startswith("-"):
        parser.error(f"there is no option {first} before a command{did_you_mean(first, _OWN_OPTIONS)}")
    if first.isidentifier() and not os.path.lexists(first):
        meant = did_you_mean(first, COMMANDS) or f"; the commands are {', '.join(COMMANDS)}"
        parser.error(f"there is no command and no file {first}{meant}")
    return parser.parse_args(["analyze", *arguments])


def _parser() -> Parser:
    parser = Parser(
        prog="kernelscope",
        usage="kernelscope [-h] [--version] COMMAND ...\n       kernelscope TRACE ...",
        description=(
            "Reads GPU profiler traces of any size and shows where the time went. A trace instead of a "
            "command is analysed."
        ),
        epilog="Exit codes: 0 done, 1 the input or the analysis failed, 2 usage, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"kernelscope {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", prog="kernelscope", required=True)
    for command in COMMANDS.values():
        command.add_parser(subparsers)
    return parser
