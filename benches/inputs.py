"""The files that are read: made once, kept in ``benches/.data``.

Two kinds. ``demo`` files come from ``kernelscope demo`` and anybody can make them. Where the
folder ``shared`` lies next to the repository, recorded traces are grown, too: the promises
in docs/performance.md were set on those.
"""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tables import NotMeasuredError

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "benches" / ".data"
SHARED = ROOT.parent / "shared"
RECORDED = SHARED / "traces" / "kineto"

MB, GB = 10**6, 10**9
# Files above this are removed once they are measured.
KEEP_BYTES = 1.1 * GB

LAYOUTS = ("native", "key-per-line", "event-per-line", "compact")
GROWN = {"native": "owlv2-h100", "compact": "sampled-rank0of128"}
"""Recorded traces by the layout they have."""

# Recorders use 9 and, newer ones, 1; the speed of inflation hardly depends on it.
GZIP_LEVEL = 6


@dataclass(frozen=True)
class Input:
    """A file of about ``size_bytes`` of JSON."""

    source: str
    layout: str
    size_bytes: int
    gzip: bool

    @property
    def name(self) -> str:
        """The name in results."""
        return f"{self.source} {self.layout} {size_text(self.size_bytes)}{' gzip' if self.gzip else ''}"

    @property
    def path(self) -> Path:
        """The place where it is kept."""
        suffix = ".json.gz" if self.gzip else ".json"
        return DATA / f"{self.source}-{self.layout}-{size_text(self.size_bytes)}{suffix}"

    @property
    def plain(self) -> "Input":
        """The same without compression."""
        return replace(self, gzip=False)


def size_text(size_bytes: int) -> str:
    """``1 GB`` as ``1GB``; the units are decimal."""
    unit, factor = ("GB", GB) if size_bytes >= GB else ("MB", MB)
    return f"{size_bytes / factor:g}{unit}"


def parse_size(text: str) -> int:
    """The size that ``10MB`` or ``1GB`` says.

    Raises: SystemExit: it says none.
    """
    for unit, factor in (("GB", GB), ("MB", MB)):
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    raise SystemExit(f"{text!r} is no size; write 10MB or 1GB")


def inputs(sizes: str, layouts: str) -> Iterator[Input]:
    """Every source in every size and layout, plain and then compressed, small ones first."""
    for size_bytes in sorted(parse_size(text) for text in sizes.split()):
        for layout in layouts.split():
            for source in ("demo", GROWN.get(layout)):
                if source is not None:
                    yield Input(source, layout, size_bytes, gzip=False)
                    yield Input(source, layout, size_bytes, gzip=True)


def provide(wanted: Input) -> Path:
    """The file of an input, made if it is not there, and read once.

    Raises: NotMeasuredError: it cannot be made here.
    """

    def make(part: Path) -> None:
        if wanted.gzip:
            with provide(wanted.plain).open("rb") as source, gzip.open(part, "wb", GZIP_LEVEL) as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
        elif wanted.source == "demo":
            size = size_text(wanted.size_bytes)
            execute("-m", "kernelscope", "demo", "--size", size, "--layout", wanted.layout, "--out", part)
        else:
            recorded = RECORDED / f"{wanted.source}.json.gz"
            if recorded.exists() and (size := _inflated_bytes(recorded)) > 1.5 * wanted.size_bytes:
                raise NotMeasuredError(f"left out: the recorded trace has {size / MB:.0f} MB already")
            grow(recorded, "scale_kineto.py", part, wanted.size_bytes / MB)

    return provide_path(wanted.path, make)


def provide_path(path: Path, make: Callable[[Path], None]) -> Path:
    """``path``, filled by ``make`` if it is not there, and read once.

    No measurement then waits for the disk. ``make`` gets another name, so that a run that is stopped leaves
    no half file behind.
    """
    if not path.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"part-{path.name}")
        shutil.rmtree(part, ignore_errors=True)
        part.unlink(missing_ok=True)
        make(part)
        part.rename(path)
    buffer = bytearray(1 << 20)
    for file in path.iterdir() if path.is_dir() else [path]:
        with file.open("rb", buffering=0) as opened:
            while opened.readinto(buffer):
                pass
    return path


def grow(recorded: Path, tool: str, out: Path, *options: object) -> None:
    """Grows a recorded trace with a tool of the folder ``shared``.

    Raises: NotMeasuredError: trace or tool are not there.
    """
    script = SHARED / "tools" / tool
    for needed in (recorded, script):
        if not needed.exists():
            raise NotMeasuredError(
                f"left out: {needed.relative_to(SHARED.parent)} is not next to the repository"
            )
    execute(script, recorded, out, *options)


def execute(*arguments: object) -> None:
    """Runs Python.

    Raises: NotMeasuredError: it ended with an error.
    """
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotMeasuredError(f"{' '.join(command[1:4])} failed: {reason}")


def _inflated_bytes(path: Path) -> int:
    """Size of the content of a small gzip file, as its trailer says."""
    return int.from_bytes(path.read_bytes()[-4:], "little")
