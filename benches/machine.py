"""The machine that figures are taken on."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from inputs import ROOT
from processes import PEERS

_PEER_PACKAGES = ("orjson", "HolisticTraceAnalysis", "torch_tb_profiler", "pandas")


def describe() -> str:
    """Processor, memory, versions."""
    versions = {name: importlib.metadata.version(name) for name in ("kernelscope", "polars")}
    if PEERS.exists():
        code = "import importlib.metadata as m, sys\nfor n in sys.argv[1:]: print(m.version(n))"
        found = _output([str(PEERS), "-c", code, *_PEER_PACKAGES]).split()
        versions |= dict(zip(_PEER_PACKAGES, found, strict=False))
    parts = [
        f"{_field('/proc/cpuinfo', 'model name') or platform.machine()}, {os.cpu_count()} cores",
        f"{_memory_bytes('MemTotal') / 2**30:.0f} GiB",
        f"{platform.system()} {platform.release()}",
        f"load at the start {os.getloadavg()[0]:.1f}",
        f"python {platform.python_version()}",
        *(f"{name} {version}" for name, version in versions.items()),
        f"commit {_output(['git', 'rev-parse', '--short', 'HEAD']) or 'unknown'}",
    ]
    return ", ".join(parts)


def warn_if_busy() -> None:
    """Warns if something else keeps the machine busy.

    A reader that uses every core then loses more than one that uses one, so that ratios between
    the two are too low.
    """
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load >= 0.3 * cores:
        busy = f"the machine is busy (load {load:.1f} on {cores} cores)"
        print(f"warning: {busy}: the figures will be too low", file=sys.stderr)


def available_bytes() -> int:
    """Memory that a new process can take without swapping."""
    return _memory_bytes("MemAvailable")


def chromium() -> str | None:
    """The program of a Chromium that is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def _memory_bytes(field: str) -> int:
    return int((_field("/proc/meminfo", field) or "0 kB").split()[0]) * 1024


def _field(path: str, name: str) -> str | None:
    pairs = (line.partition(":") for line in Path(path).read_text().splitlines())
    return next((value.strip() for key, _, value in pairs if key.strip() == name), None)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if sys.platform != "linux":
    raise SystemExit("the benchmarks read /proc and run on Linux only")
