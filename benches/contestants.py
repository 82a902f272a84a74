"""What is measured side by side, and what each can be asked to read."""

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from inputs import GB, MB, ROOT
from machine import available_bytes
from processes import PEERS, run, run_task
from tables import NotMeasuredError, Sample

TIMEOUT_S = 900


@dataclass(frozen=True)
class Contestant:
    """A way to read a file: a task of tasks.py, or an example of the reader in Rust.

    ``memory`` is what it takes per byte of JSON, so that a run can tell what does not fit into the
    machine before it tries.
    """

    name: str
    title: str
    memory: float
    home: str = "peers"
    """Whose interpreter runs it: ``own`` has kernelscope, ``peers`` the others; ``rust`` is a program."""
    command: tuple[str, ...] = ()
    """The task or the example and its arguments, where it is not called as the contestant."""
    files: tuple[str, ...] = ("plain", "gzip")
    limit: tuple[float, str] = (float("inf"), "")
    """Above this size of JSON, and for this reason, it is left out."""

    def read(self, path: Path, content_bytes: int) -> Sample:
        """Measures one call on a file of ``content_bytes`` of JSON.

        Raises: NotMeasuredError: it did not read the file, or the file is too large for it.
        """
        most, reason = self.limit
        if content_bytes > most * 1.1:
            raise NotMeasuredError(f"left out: {reason}")
        need, free = self.memory * content_bytes, available_bytes()
        if need > 0.85 * free:
            raise NotMeasuredError(
                f"left out: needs about {need / GB:.0f} GB of memory, {free / GB:.0f} are free"
            )
        name, *options = self.command or (self.name,)
        if self.home == "rust":
            found = run([_example(name), *options, path], timeout_s=TIMEOUT_S)
            return json.loads(found["output"])
        python = sys.executable if self.home == "own" else PEERS
        return run_task(name, path, *options, python=python, timeout_s=TIMEOUT_S)


@cache
def _example(name: str) -> Path:
    """The release build of an example of the reader."""
    arguments = ["--quiet", "--locked", "--release", "--package", "traceparse", "--example", name]
    subprocess.run(["cargo", "build", *arguments], cwd=ROOT, check=True)
    metadata = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
    done = subprocess.run(metadata, cwd=ROOT, check=True, capture_output=True)
    return Path(json.loads(done.stdout)["target_directory"]) / "release" / "examples" / name


_GZIP = ("gzip",)
_ALL_IN_MEMORY = "the inflater of kernelscope alone, all in memory"
_MINUTES = (100 * MB, "takes minutes above 100 MB")
_32_BITS = (4 * GB, "counts bytes in 32 bits")
_SIMD_JSON = "simd-json in Rust, to its own values"

CONTESTANTS = (
    Contestant("kernelscope", "kernelscope.read", 0.5, "own"),
    Contestant("kernelscope_one_thread", "kernelscope.read(threads=1)", 0.5, "own", ("kernelscope", "1")),
    Contestant("inflate", "the inflater of kernelscope alone, nothing kept", 0, "rust", files=_GZIP),
    Contestant("inflate_kept", _ALL_IN_MEMORY, 1.1, "rust", ("inflate", "--keep"), _GZIP),
    Contestant("libdeflate", "libdeflate alone, all in memory", 1.1, files=_GZIP),
    Contestant("python_gzip", "Python's gzip alone", 0, files=_GZIP),
    Contestant("orjson_loads", "orjson.loads", 8),
    Contestant("simd_json", _SIMD_JSON, 5, "rust", ("parse_values",), ("plain",), _32_BITS),
    Contestant("json_load", "json.load", 6.5),
    Contestant("hta", "HolisticTraceAnalysis", 15, limit=_MINUTES),
    Contestant("tb_profiler", "torch_tb_profiler", 15, limit=_MINUTES),
)

_JSON_GZIP = "import gzip, json, sys; json.load(gzip.open(sys.argv[1]))"

PROGRAMS = {
    "kernelscope analyze": ("kernelscope", "analyze", "{trace}"),
    'python -c "json.load(gzip.open(...))"': ("python", "-c", _JSON_GZIP, "{trace}"),
    "kernelscope --help": ("kernelscope", "--help"),
    **{
        f'python -c "{code}"': ("python", "-c", code)
        for code in ("import kernelscope", "from kernelscope import read", "import polars", "")
    },
}
"""Commands of whole processes, interpreter start included. Their programs lie beside the interpreter."""


def run_program(name: str, trace: Path) -> Sample:
    """Measures a whole process.

    Raises: NotMeasuredError: it ended with an error.
    """
    head, *rest = PROGRAMS[name]
    arguments = (trace if argument == "{trace}" else argument for argument in rest)
    found = run([Path(sys.executable).with_name(head), *arguments], timeout_s=TIMEOUT_S)
    return {"seconds": found["seconds"], "peak_mib": found["peak_mb"] * MB / 2**20}
