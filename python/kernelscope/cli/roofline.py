"""``kernelscope roofline``: compares achieved and attainable performance."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import say
from kernelscope.cli.reading import read_trace
from kernelscope.cli.writing import write_tables
from kernelscope.errors import InvalidArgumentError

_FORMATS = ("text", "json", "csv", "parquet", "html")
_FILES = ("parquet", "html")
_CONVENTIONS = ("kernelscope", "torch", "tracelens", "pyprof")
_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "roofline",
        help="show achieved and attainable performance, and the time that could be saved",
        description=(
            "Counts the FLOPs and bytes of every operator, and compares the time of its kernels with the "
            "limits of the GPU. Shows the share of GPU time with known costs."
        ),
    )
    arguments.add_reading(parser)
    parser.add_argument(
        "--by",
        default="name",
        metavar="COLUMN[,COLUMN...]",
        help=(
            "one row per name, kernel, model, module, step, phase, input_dims, device ... (default: "
            "name); run gives a single row"
        ),
    )
    parser.add_argument(
        "--gpu", metavar="NAME", help="the GPU, if the trace does not name it or names it wrongly"
    )
    parser.add_argument(
        "--peak",
        action="append",
        default=[],
        metavar="TYPE=RATE",
        help="a measured peak: bf16=700T (FLOP/s), bandwidth=3.1T (bytes/s); may be repeated",
    )
    parser.add_argument(
        "--convention",
        choices=_CONVENTIONS,
        default="kernelscope",
        help="counting rules to apply (default: kernelscope)",
    )
    parser.add_argument(
        "--tokens",
        type=arguments.positive,
        metavar="N",
        help="tokens that a step of this rank processes (default: from its annotation or its batch)",
    )
    parser.add_argument(
        "--costs",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="Python file with your own cost models. It is executed, so pass only files that you trust",
    )
    parser.add_argument(
        "--format", choices=_FORMATS, default="text", help="parquet and html need --out (default: text)"
    )
    parser.add_argument("--out", type=Path, metavar="PATH", help="file to write to")
    parser.add_argument(
        "--top",
        type=arguments.positive,
        default=15,
        metavar="N",
        help="rows of each table of the text (default: 15)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Reads the trace and writes the report."""
    if options.format in _FILES and options.out is None:
        raise InvalidArgumentError(f"--format {options.format} writes a file: name it with --out")
    if options.format == "html":
        from kernelscope.report.html.libraries import check_libraries

        check_libraries()
    from kernelscope.report.files import check_file

    check_file(options.out)
    peak = dict(_peak(text) for text in options.peak)
    failures = _load(options.costs)
    trace = read_trace(options)

    from kernelscope.report.roofline.answers import answer, to_csv, to_json, to_parquet

    by = () if options.by == "run" else tuple(options.by.split(","))
    answers = answer(
        trace,
        by,
        gpu=options.gpu,
        peak=peak,
        convention=options.convention,
        tokens=options.tokens,
        failures=failures,
    )
    if options.format == "parquet":
        to_parquet(answers, options.out)
        return 0
    if options.format == "html":
        from kernelscope.report.html.page import write_views
        from kernelscope.report.parts import View
        from kernelscope.report.views.roofline import PAGE, roofline_parts

        view = View(*PAGE, roofline_parts(trace, answers))
        write_views([view], options.out, title=Path(trace.meta.path).name)
        return 0
    from kernelscope.report.roofline.text import PLAIN_WIDTH, parts

    json, csv = partial(to_json, trace, answers), partial(to_csv, answers)
    write_tables(options, partial(parts, trace, answers), json, csv, plain_width=PLAIN_WIDTH)
    return 0


def _peak(text: str) -> tuple[str, float]:
    """``bf16=700T`` as a key and a number."""
    key, _, value = text.partition("=")
    unit = value[-1:] if value[-1:] in _UNITS else ""
    try:
        return key, float(value.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        raise InvalidArgumentError(f"--peak {text}: write for example bf16=700T or bandwidth=3.1T") from None


def _load(files: Sequence[Path]) -> list[str]:
    """Runs the user's cost files; gives what was wrong with those that fail."""
    from kernelscope.costs import load_models

    failures: list[str] = []
    for file in files:
        if not file.is_file():
            raise InvalidArgumentError(f"there is no file {file}")
        try:
            load_models(str(file))
        except InvalidArgumentError as error:
            failures.append(str(error))
            say(str(error))
    return failures
