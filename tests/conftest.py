"""Fixtures that several test files share."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import draws
from events import Events
from kernelscope.cli import main

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SHARED = Path(__file__).resolve().parents[2] / "shared"

# The same cases every time; those of a long run follow from --hypothesis-seed.
settings.register_profile("test", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("quick", settings.get_profile("test"), max_examples=10)
settings.register_profile("long", max_examples=1_000, deadline=None, print_blob=True)

# Folders of tests, and fixtures, that take seconds.
_SLOW = ("batch", "oracles", "twin", "shared", "large", "browser", "process")
# What programs need to run: where they and their libraries are, and how tests are run.
_ENVIRONMENT = tuple(
    "CARGO CI LANG LC_ LD_LIBRARY_PATH PATH POLARS_MAX_THREADS PYTEST PYTHONPATH RUST TMPDIR".split()
)

Completed = subprocess.CompletedProcess[str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="draw thousands of cases from --hypothesis-seed")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hides the environment, and chooses how much is drawn and from which seed, before all else."""
    config.add_cleanup(_hide_environment())
    option = config.option
    draws.is_long = option.long
    if draws.is_long:
        option.hypothesis_seed = draws.seed = int(option.hypothesis_seed or 0)
    option.hypothesis_profile = option.hypothesis_profile or ("long" if draws.is_long else "test")


def _hide_environment() -> Callable[[], None]:
    """Leaves what programs need to run, and an empty home; gives what removes that."""
    home = Path.home()
    toolchain = {"CARGO_HOME": str(home / ".cargo"), "RUSTUP_HOME": str(home / ".rustup")}
    kept = {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}
    empty = TemporaryDirectory(prefix="kernelscope-home-", ignore_cleanup_errors=True)
    os.environ.clear()
    os.environ.update({**toolchain, **kept, "HOME": empty.name})
    return empty.cleanup


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as slow what needs real or large traces, a browser, the workers of a batch or another process.

    Files with slow tests come first, so that no worker is left with one while the others are done. In a file
    the tests of one trace follow one another, so that it is read once.
    """
    for item in items:
        names = {*item.path.parts, *getattr(item, "fixturenames", ())}
        if _path_of(item) or not names.isdisjoint(_SLOW):
            item.add_marker(pytest.mark.slow)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    place = {path: at for at, path in enumerate(dict.fromkeys(item.path for item in items))}
    items.sort(key=lambda item: (item.path not in slow, place[item.path], _path_of(item)))


def _path_of(item: pytest.Item) -> str:
    """The trace that a test is given; empty for tests that are given none."""
    return str(item.callspec.params.get("path", "")) if hasattr(item, "callspec") else ""


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces and of what other tools answer on them."""
    if not SHARED.is_dir():
        pytest.skip("the real traces of ../shared are not here")
    return SHARED


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Chromium without a window."""
    pytest.importorskip("playwright", reason="playwright, which drives the browser, is not installed")
    from browsing import chromium, started

    path = chromium()
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium-headless-shell")
    with started(path) as found:
        yield found


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A trace small enough to know by heart: one op that launches one kernel on an H100."""
    events = Events({"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 80 * 2**30, "numSms": 132})
    launch = {"External id": 1, "correlation": 9}
    mm = {"External id": 1, "Input Dims": [[2, 3], [3, 4]], "user key": "kept"}
    kernel = {**launch, "device": 0, "stream": 20, "grid": [1, 1, 1]}
    events.add("user_annotation", "ProfilerStep#1", 0, 100)
    events.add("cpu_op", "aten::mm", 10.001, 20, args=mm)
    events.add("cuda_runtime", "cudaLaunchKernel", 15, 5, args=launch)
    events.add("kernel", "gemm[bold]", 40, 30.5, args=kernel, pid=0, tid=20)
    return events.write(
        tmp_path / "tiny.json",
        cupti_version=28,
        cuda_runtime_version=12090,
        record_shapes=1,
        host_name="node1",
        trace_id="AB",
        distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
        baseTimeNanoseconds=1_767_189_312_000_000_000,
    )


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that takes more than a second to read with one thread: instants, which nothing links."""
    event = b'{"ph": "i", "s": "t", "name": "mark", "pid": 1, "tid": 1, "ts": 5, "args": {"step": 12}},\n'
    path = tmp_path_factory.mktemp("large") / "large.json"
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [\n')
        for _ in range(1_000):
            file.write(event * 10_000)
        file.write(event.rstrip(b",\n") + b"]}")
    return path


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Interrupts reach this process and those that it starts.

    They are ignored in what a script starts in the background, and event loops take them for themselves.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Completed]:
    """Runs ``kernelscope`` in a process of its own, in an empty folder, with nothing on a terminal."""

    def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Completed:
        return subprocess.run(
            [sys.executable, "-m", "kernelscope", *map(str, arguments)],
            capture_output=True,
            check=False,
            cwd=tmp_path,
            encoding="utf-8",
            env={**os.environ, "COLUMNS": "100", **(env or {})},
            stdin=subprocess.DEVNULL,
        )

    return run


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Completed]:
    """The same in this process, which has imported everything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str | Path) -> Completed:
        command = [*map(str, arguments)]
        output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        with redirect_stdout(output), redirect_stderr(errors):
            try:
                code = main(command)
            except SystemExit as ended:
                code = ended.code
        shown = (stream.buffer.getvalue().decode() for stream in (output, errors))
        return subprocess.CompletedProcess(command, code, *shown)

    return run
