"""The files that are read: made once, kept in ``benches/.data``.

Two kinds. ``demo`` files come from ``kernelscope demo`` and anybody can make them. Where the
folder ``shared`` lies next to the repository, two recorded traces are grown, too: the floors
in docs/performance.md were set on those.
"""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "benches" / ".data"
SHARED = ROOT.parent / "shared"
RECORDED = SHARED / "traces" / "kineto"
GROW = SHARED / "tools" / "scale_kineto.py"

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
        """What it is called in results."""
        return f"{self.source} {self.layout} {size_text(self.size_bytes)}{' gzip' if self.gzip else ''}"

    @property
    def path(self) -> Path:
        """Where it is kept."""
        suffix = ".json.gz" if self.gzip else ".json"
        return DATA / f"{self.source}-{self.layout}-{size_text(self.size_bytes)}{suffix}"


class MissingInputError(Exception):
    """An input cannot be made here; the message says why."""


def size_text(size_bytes: int) -> str:
    """``1 GB`` as ``1GB``; the units are decimal."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:g}{unit}"
    return f"{size_bytes}B"


def parse_size(text: str) -> int:
    """The size that ``10MB`` or ``1GB`` says.

    Raises: SystemExit: it says none.
    """
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    raise SystemExit(f"{text!r} is no size; write 10MB or 1GB")


def sources(layout: str) -> Iterator[str]:
    """Where files of ``layout`` come from."""
    yield "demo"
    if layout in GROWN:
        yield GROWN[layout]


def provide(wanted: Input) -> Path:
    """The file of an input; made if it is not there.

    Raises: MissingInputError: it cannot be made here.
    """
    if not wanted.path.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        # Renamed at the end, so that a run that is stopped leaves no half file behind.
        part = wanted.path.with_name(f"part-{wanted.path.name}")
        if wanted.gzip:
            _compress(provide(Input(wanted.source, wanted.layout, wanted.size_bytes, False)), part)
        elif wanted.source == "demo":
            _demo(wanted, part)
        else:
            _grow(wanted, part)
        part.rename(wanted.path)
    return wanted.path


def warm(path: Path) -> None:
    """Reads the file once, so that no measurement waits for the disk."""
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _demo(wanted: Input, part: Path) -> None:
    command = [
        *(sys.executable, "-m", "kernelscope", "demo"),
        *("--size", size_text(wanted.size_bytes), "--layout", wanted.layout, "--out", str(part)),
    ]
    _run(command, wanted)


def _grow(wanted: Input, part: Path) -> None:
    recorded = RECORDED / f"{wanted.source}.json.gz"
    for needed in (recorded, GROW):
        if not needed.exists():
            raise MissingInputError(f"{needed.relative_to(SHARED.parent)} is not next to the repository")
    recorded_bytes = _inflated_bytes(recorded)
    if recorded_bytes > 1.5 * wanted.size_bytes:
        raise MissingInputError(f"the recorded trace has {recorded_bytes / 10**6:.0f} MB already")
    megabytes = str(wanted.size_bytes / 10**6)
    _run([sys.executable, str(GROW), str(recorded), str(part), megabytes], wanted)


def _run(command: list[str], wanted: Input) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise MissingInputError(f"{wanted.name} cannot be made: {reason}")


def _inflated_bytes(path: Path) -> int:
    """Size of the content of a small gzip file, as its trailer says."""
    return int.from_bytes(path.read_bytes()[-4:], "little")


def _compress(plain: Path, part: Path) -> None:
    with plain.open("rb") as source, gzip.open(part, "wb", GZIP_LEVEL) as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
