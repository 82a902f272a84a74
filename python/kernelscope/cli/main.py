"""Parses the command line, runs a subcommand, and turns its failure into an exit code."""

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import cast

from kernelscope import __version__
from kernelscope.cli import analyze, batch, convert, demo, diff, info, parse, prof, roofline, schema, stats
from kernelscope.errors import InvalidArgumentError, KernelscopeError

DONE = 0
FAILED = 1
USAGE = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code: 0 done, 1 failed, 2 usage, 130 interrupted."""
    output: object = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        # A terminal may lack the characters of a name or a path; that must not cost the report.
        cast("io.TextIOWrapper", output).reconfigure(errors="replace")
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except InvalidArgumentError as error:
        return _fail(str(error), USAGE)
    except KernelscopeError as error:
        return _fail(str(error))
    except OSError as error:
        if not _is_broken_pipe(error):
            return _fail(str(error))
        # The reader of our output has seen enough. Python would fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        print("kernelscope: interrupted", file=sys.stderr)
        return INTERRUPTED
    return code


def _is_broken_pipe(error: OSError) -> bool:
    """Whether nobody reads our output any more. Polars raises a bare OSError, with the number as text."""
    return isinstance(error, BrokenPipeError) or str(error).endswith(f"(os error {errno.EPIPE})")


def _fail(message: str, code: int = FAILED) -> int:
    print(f"kernelscope: {message}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernelscope",
        description="Reads GPU profiler traces of any size and answers where the time went.",
        epilog="Exit codes: 0 done, 1 the input or the analysis failed, 2 usage, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"kernelscope {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (analyze, batch, convert, diff, info, stats, parse, prof, demo, roofline, schema):
        command.add_parser(subparsers)
    return parser
