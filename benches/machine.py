"""What the figures were taken on."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

from inputs import ROOT
from processes import PEERS

_PEER_PACKAGES = ("orjson", "HolisticTraceAnalysis", "torch_tb_profiler", "pandas")


def describe() -> dict[str, str]:
    """Processor, memory, versions."""
    packages = {name: importlib.metadata.version(name) for name in ("kernelscope", "polars")}
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{_meminfo('MemTotal') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        **packages,
        **_peers(),
        "commit": _output(["git", "rev-parse", "--short", "HEAD"]) or "unknown",
    }


def busy() -> str | None:
    """A warning if something else keeps the machine busy.

    A reader that uses every core then loses more than one that uses one, so that ratios between
    the two are too low.
    """
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load < 0.3 * cores:
        return None
    return f"the machine is busy (load {load:.1f} on {cores} cores): the figures will be too low"


def stolen_seconds() -> float:
    """Processor time, all cores together, that the host of a virtual machine has given to others so far."""
    steal = Path("/proc/stat").read_text().split(maxsplit=9)[8]
    return int(steal) / os.sysconf("SC_CLK_TCK")


def available_bytes() -> int:
    """Memory that a new process can take without swapping."""
    return _meminfo("MemAvailable")


def _meminfo(field: str) -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _peers() -> dict[str, str]:
    if not PEERS.exists():
        return {}
    code = "import importlib.metadata as m, sys\nfor n in sys.argv[1:]: print(m.version(n))"
    versions = _output([str(PEERS), "-c", code, *_PEER_PACKAGES]).split()
    return dict(zip(_PEER_PACKAGES, versions, strict=False))


def _output(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if sys.platform != "linux":
    raise SystemExit("the benchmarks read /proc and run on Linux only")
