"""``python -m kernelscope.capture script.py args``: runs an unmodified script with annotations."""

import argparse
import contextlib
import os
import runpy
import sys
from collections.abc import Sequence

from kernelscope.capture.annotation import annotate
from kernelscope.capture.profiling import profile
from kernelscope.errors import KernelscopeError
from kernelscope.escaping import for_terminal


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code, or 2 if it could not be started."""
    parser = argparse.ArgumentParser(
        prog="python -m kernelscope.capture",
        description=(
            "Runs a PyTorch script and records operators, shapes, modules and source lines on its timeline."
        ),
        epilog="For nsys: nsys profile -o report python -m kernelscope.capture script.py",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="record with the PyTorch profiler into this folder, instead of NVTX ranges",
    )
    parser.add_argument(
        "--stack", type=int, default=1, metavar="N", help="lines of the program per call (default: 1)"
    )
    parser.add_argument(
        "-m", action="store_true", dest="module", help="treat the script as the name of a module"
    )
    parser.add_argument("script", help="the script to run")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args(arguments)
    sys.argv = [options.script, *options.args]
    try:
        with _recording(options):
            if options.module:
                runpy.run_module(options.script, run_name="__main__", alter_sys=True)
            else:
                script = os.path.abspath(options.script)
                sys.path[0] = os.path.dirname(script)
                runpy.run_path(script, run_name="__main__")
    except KernelscopeError as error:
        sys.stderr.write(f"kernelscope: {for_terminal(str(error))}\n")
        return 2
    return 0


def _recording(options: argparse.Namespace) -> contextlib.AbstractContextManager[object]:
    if options.out is not None:
        return profile(options.out, annotate=True)
    return annotate(stack=options.stack)


if __name__ == "__main__":
    sys.exit(main())
