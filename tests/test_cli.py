"""The command line: usage, exit codes, where output goes, and what ``--help`` costs."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelscope import __version__
from kernelscope import cli as cli_package

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_help_names_every_command(cli: Run) -> None:
    done = cli("--help")
    assert (done.returncode, done.stderr) == (0, "")
    offered = done.stdout.split("commands:")[1]
    folder = Path(cli_package.__file__).parent
    commands = [path.stem for path in folder.glob("*.py") if "def add_parser" in path.read_text()]
    assert {"info", "schema"} <= set(commands)
    for command in commands:
        assert f"\n    {command} " in offered


def test_version(cli: Run) -> None:
    assert cli("--version").stdout == f"kernelscope {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["info", "--help"], ["--version"], ["info"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    heavy = ("polars", "rich", "numpy", "kernelscope.trace", "kernelscope.analysis", "kernelscope.report")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "kernelscope", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "kernelscope.cli.info" in imported
    assert imported.isdisjoint(heavy)


def test_import_of_the_package_leaves_polars_alone() -> None:
    code = """
import sys, kernelscope
assert "polars" not in sys.modules
assert kernelscope.read.__name__ == "read"
assert "polars" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["info"],
        ["info", "a", "--threads", "0"],
        ["info", "a", "--format", "xml"],
        ["schema", "nope"],
    ],
)
def test_usage_errors(cli: Run, arguments: list[str]) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr


def _make(kind: str, tmp_path: Path) -> Path:
    path = tmp_path / kind
    contents = {"empty": b"", "text": b"just text\n", "protobuf": b"\x0a\xa3\x01\x08\x01\x12\x9e\x01" * 20}
    if kind == "folder":
        path.mkdir()
    elif kind in contents:
        path.write_bytes(contents[kind])
    return path


@pytest.mark.parametrize("kind", ["absent", "folder", "empty", "text", "protobuf"])
def test_unusable_input_is_one_clear_sentence(cli: Run, tmp_path: Path, kind: str) -> None:
    path = _make(kind, tmp_path)
    done = cli("info", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kernelscope: {path}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable_path(cli: Run, tiny: Path) -> None:
    tiny.chmod(0)
    done = cli("info", tiny)
    assert (done.returncode, done.stdout) == (1, "")
    assert "permission" in done.stderr.lower()


def test_info_as_text(cli: Run, tiny: Path) -> None:
    done = cli("info", tiny)
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "3 of 8 (nccl)",
        "node1",
        "1 x NVIDIA H100, 80 GiB, 132 SMs",
        "1 (ProfilerStep#1)",
        "record_shapes",
        "CUDA runtime 12.9",
        "4 in the file = 4 kept + 0 dropped",
        "2025-12-31",
    ):
        assert text in done.stdout
    assert max(map(len, done.stdout.splitlines()[1:])) <= 100


def test_info_as_json(cli: Run, tiny: Path) -> None:
    document = json.loads(cli("info", tiny, "--format", "json").stdout)
    assert document["trace"]["rank"] == 3
    assert document["tables"]["gpu_ops"] == 1
    assert document["steps"][0]["name"] == "ProfilerStep#1"


def test_info_shows_what_was_lost(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "lossy.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1}, 5]}')
    assert "event_is_no_object" in cli("info", path).stdout
    strict = cli("info", path, "--strict")
    assert (strict.returncode, strict.stdout) == (1, "")
    assert f"at byte {path.read_bytes().index(b'5]')}" in strict.stderr


@pytest.mark.parametrize("command", ["info", "analyze"])
def test_terminal_without_unicode(cli: Run, tmp_path: Path, command: str) -> None:
    path = tmp_path / "naïve\udcff.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "é→", "ts": 1, "dur": 1}]}')
    done = cli(command, path, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "na?ve?.json" in done.stdout


def test_schema(cli: Run) -> None:
    assert "gpu_ops" in cli("schema").stdout
    assert "op_row" in cli("schema", "gpu_ops").stdout


def test_reader_of_the_output_may_leave(tmp_path: Path, cli: Run) -> None:
    database = tmp_path / "demo.sqlite"
    assert cli("demo", "--kind", "nsys", "--size", "1MB", "--out", database).returncode == 0
    # One writes with print, the other through Polars.
    for arguments in (["schema"], ["stats", database, "--report", "cuda_gpu_trace"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            [sys.executable, "-m", "kernelscope", *arguments],
            stdout=writing, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.usefixtures("interruptible")
def test_interrupt(large: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelscope", "info", large, "--threads", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(1)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert time.monotonic() - started < 2
    assert (process.returncode, stdout, stderr) == (130, "", "kernelscope: interrupted\n")


def test_progress_on_a_terminal_only(large: Path, cli: Run) -> None:
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelscope", "info", large, "--threads", "1"],
        stdout=subprocess.DEVNULL, stderr=other_end,
    )  # fmt: skip
    os.close(other_end)
    shown = _until_closed(terminal)
    os.close(terminal)
    assert process.wait(30) == 0
    assert b"reading" in shown
    assert cli("info", large, "--threads", "1").stderr == ""


def _until_closed(terminal: int) -> bytes:
    parts: list[bytes] = []
    # Linux says EIO once the program has closed its end.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    return b"".join(parts)
