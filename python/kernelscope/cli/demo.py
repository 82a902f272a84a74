"""``kernelscope demo``: writes realistic traces."""

import argparse
import tempfile
from pathlib import Path

from kernelscope import _traceparse
from kernelscope.cli import arguments
from kernelscope.cli.arguments import Subparsers
from kernelscope.cli.console import show
from kernelscope.cli.reading import Bar
from kernelscope.errors import InvalidArgumentError
from kernelscope.units import format_bytes

_MB = 10**6
_SERVING_STEPS = 40
_TRAINING_STEPS, _TRAINING_LAYERS = 3, 4
_PARALLEL = "tp=2,pp=2,dp=2"
_JOB_TRUTH = "cluster.truth.json"
# Kinds of databases, and how their names end.
_DATABASES = {"nsys": ".sqlite", "nvprof": ".sql"}


def add_parser(subparsers: Subparsers) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "demo",
        help="write a realistic trace of any size",
        description="Writes a realistic synthetic trace of a transformer in training, one file per rank.",
    )
    add = parser.add_argument
    add(
        "--kind",
        choices=("kineto", *_DATABASES, "serving", "training"),
        default="kineto",
        help=(
            "kineto: JSON of the PyTorch profiler. nsys: one database of all ranks. nvprof: a database. "
            "serving: an engine that replays graphs, as recorded by the PyTorch profiler on CUDA and "
            "ROCm, and by nsys. training: a job with several dimensions of parallelism, one file per rank "
            "(default: kineto)"
        ),
    )
    size_help = "size of each file before compression, 1MB to 10GB (default: 100MB)"
    add("--size", type=arguments.size, default=100 * _MB, metavar="SIZE", help=size_help)
    add("--ranks", type=arguments.positive, default=1, metavar="N", help="ranks of the job (default: 1)")
    layout_help = "byte layout of the JSON (default: native)"
    add("--layout", choices=_traceparse.demo_layouts(), default="native", help=layout_help)
    add("--gzip", action="store_true", help="compress; implied if --out ends in .gz")
    seed_help = "the same seed gives the same bytes (default: 0)"
    add("--seed", type=arguments.seed, default=0, metavar="N", help=seed_help)
    parallel_help = (
        "of --kind training: ranks of tensor (tp), pipeline (pp), data (dp), sharded data (fsdp) and expert "
        f"(ep) parallelism (default: {_PARALLEL})"
    )
    add("--parallel", metavar="DIMENSIONS", help=parallel_help)
    recompute_help = "of --kind training: what the backward pass computes again (default: none)"
    add("--recompute", choices=_traceparse.demo_recomputes(), help=recompute_help)
    add(
        "--cause",
        choices=[*_traceparse.demo_causes(), *_traceparse.demo_training_causes()],
        help=(
            "what makes the steps longer: a data loader that sleeps, synchronisation, slow launches, "
            "all-reduces that are not overlapped, or a slow rank or link; everything else is equal with each "
            "cause, and with none (default: as usual, and several causes from 8 ranks). Of --kind training: "
            "a slow stage, late all-gathers, a hot expert, exposed tensor parallelism, or needless "
            "recomputation"
        ),
    )
    truth_help = "also write the correct answers as JSON next to each trace"
    add("--truth", action="store_true", help=truth_help)
    add(
        "--out",
        type=Path,
        default=Path("kernelscope-demo"),
        metavar="PATH",
        help=(
            "a folder, or a database, or for one rank a file that ends in .json or .json.gz (default: "
            "kernelscope-demo)"
        ),
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Writes the traces and prints the paths of the files."""
    out: Path = options.out
    if out.suffix in (".zst", ".bz2", ".xz"):
        raise InvalidArgumentError(
            f"{out}: only gzip is supported for compressed traces; name it {out.stem}.gz"
        )
    if options.kind == "training":
        _write_training(options)
        return 0
    if options.parallel or options.recompute:
        raise InvalidArgumentError("--parallel and --recompute apply only to --kind training")
    if options.kind == "serving":
        _write_serving(options)
        return 0
    if options.kind != "kineto":
        _write_database(options)
        return 0
    if not out.name.endswith((".json", ".json.gz")) or out.is_dir():
        _write(options, out, gzip=options.gzip)
        return 0
    if options.ranks > 1:
        raise InvalidArgumentError(
            f"{options.ranks} ranks need {options.ranks} files: --out must be a folder"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    # Written beside its place and moved there, so that a file of this name is always complete.
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        _write(options, Path(folder), gzip=options.gzip or out.suffix == ".gz", file=out)
    return 0


def _write_serving(options: argparse.Namespace) -> None:
    folder: Path = options.out
    if options.gzip or options.layout != "native" or options.ranks > 1 or options.cause or folder.suffix:
        raise InvalidArgumentError(
            "--kind serving writes three small traces of one rank into a folder: omit --gzip, "
            "--layout, --ranks and --cause, and pass a folder with --out"
        )
    written = _traceparse.write_demo_serving(folder, steps=_SERVING_STEPS, seed=options.seed, marks=True)
    for path, truth in written:
        show(str(path))
        if options.truth:
            _truth_of(path).write_text(truth, encoding="utf-8")
            show(str(_truth_of(path)))


def _write_training(options: argparse.Namespace) -> None:
    folder: Path = options.out
    if options.gzip or options.layout != "native" or options.ranks > 1 or folder.suffix:
        raise InvalidArgumentError(
            "--kind training writes one trace per rank into a folder: omit --gzip and --layout, pass the "
            "ranks with --parallel, and a folder with --out"
        )
    with Bar("writing") as bar:
        written, job = _traceparse.write_demo_training(
            folder,
            parallel=options.parallel or _PARALLEL,
            recompute=options.recompute or "none",
            seed=options.seed,
            steps=_TRAINING_STEPS,
            layers=_TRAINING_LAYERS,
            cause=None if options.cause == "none" else options.cause,
            progress=bar.update,
        )
    for path, truth in written:
        show(f"{path}  {format_bytes(path.stat().st_size)} of JSON, {_TRAINING_STEPS} steps")
        if options.truth:
            _truth_of(path).write_text(truth, encoding="utf-8")
            show(str(_truth_of(path)))
    if options.truth:
        (folder / _JOB_TRUTH).write_text(job, encoding="utf-8")
        show(str(folder / _JOB_TRUTH))


def _write_database(options: argparse.Namespace) -> None:
    suffix = _DATABASES[options.kind]
    path: Path = options.out
    if options.gzip or options.layout != "native":
        raise InvalidArgumentError("--gzip and --layout apply only to JSON, not to databases")
    if path.suffix not in _DATABASES.values() or path.is_dir():
        path /= f"{options.kind}-demo{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Bar("writing") as bar:
        size, steps, truth = _traceparse.write_demo_database(
            path,
            kind=options.kind,
            size_bytes=options.size,
            ranks=options.ranks,
            seed=options.seed,
            cause=options.cause,
            progress=bar.update,
        )
    show(f"{path}  {format_bytes(size)}, {options.ranks} processes of {steps} steps")
    if options.truth:
        _truth_of(path).write_text(truth, encoding="utf-8")
        show(str(_truth_of(path)))


def _write(options: argparse.Namespace, folder: Path, *, gzip: bool, file: Path | None = None) -> None:
    with Bar("writing") as bar:
        written = _traceparse.write_demo(
            folder,
            size_bytes=options.size,
            ranks=options.ranks,
            seed=options.seed,
            layout=options.layout,
            gzip=gzip,
            truth=options.truth,
            cause=options.cause,
            progress=bar.update,
        )
    for trace, truth, size, steps in written:
        shown = trace if file is None else trace.replace(file)
        show(f"{shown}  {format_bytes(size)} of JSON, {steps} steps")
        if truth is not None:
            show(str(truth if file is None else truth.replace(_truth_of(file))))


def _truth_of(path: Path) -> Path:
    return path.with_name(f"{path.name.split('.')[0]}.truth.json")
