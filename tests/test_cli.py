"""The command line: usage, exit codes, where output goes, what ``--help`` costs, and each report."""

from __future__ import annotations

import base64
import contextlib
import csv
import gzip
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from events import V100, Events
from kernelscope import __version__
from kernelscope import cli as cli_package
from kernelscope.cli.main import _parser
from nsys_database import Database, write_training_steps
from process_tree import bytes_read_in_all, wait_until_open

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_help_names_every_command(cli: Run) -> None:
    done = cli("--help")
    assert (done.returncode, done.stderr) == (0, "")
    offered = done.stdout.split("commands:")[1]
    folder = Path(cli_package.__file__).parent
    commands = [
        path.stem.replace("_", "-") for path in folder.glob("*.py") if "def add_parser" in path.read_text()
    ]
    assert {"info", "schema"} <= set(commands)
    for command in commands:
        assert re.search(rf"\n    {command}\s", offered)


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


USAGE = """
nonsense
--nonsense
-x
info TRACE extra
diff - -
convert TRACE --to perfetto --step 7
convert TRACE --to perfetto --out x.json.zst
analyze TRACE --format json --out .
batch - --out lake
batch TRACE --out lake --html .
analyze TRACE --threads many
demo --out demo.json.zst
prof TRACE --c idx
info
info TRACE --threads 0
info TRACE --format xml
schema nope
analyze TRACE --format csv
analyze TRACE --format parquet
analyze TRACE --format html
analyze TRACE --top 0
diff TRACE TRACE --fail-on step
diff TRACE TRACE --fail-on op:nowhere>5%
diff TRACE TRACE --fail-on __import__('os').system('id')>1%
roofline TRACE --format html
roofline TRACE --format parquet
roofline TRACE --gpu Mystery-9000
roofline TRACE --peak bf16
roofline TRACE --peak bf16=fast
roofline TRACE --peak bf16=-3
roofline TRACE --by nonsense
roofline TRACE --by=
roofline TRACE --costs missing.py
roofline TRACE --convention mine
roofline TRACE --top 0
critical-path TRACE --step 99
critical-path TRACE --by nonsense
critical-path TRACE --format html
what-if TRACE
what-if TRACE launch
what-if TRACE launch=fast
what-if TRACE gpu=nonsense
what-if TRACE launch=-1
what-if TRACE launhc=0
what-if TRACE kernel:nowhere*=0
"""


@pytest.mark.parametrize("line", ["", *USAGE.split("\n")[1:-1]])
def test_usage_errors(cli: Run, tiny: Path, line: str) -> None:
    done = cli(*line.replace("TRACE", str(tiny)).split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(("kernelscope: ", "usage: "))


@pytest.mark.parametrize(
    "content", [None, b"", b"just text\n", b"\x0a\xa3\x01\x08\x01\x12\x9e\x01" * 20], ids=repr
)
def test_unusable_input_is_one_clear_sentence(cli: Run, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "absent"
    for unusable in (path, tmp_path):
        if content is not None:
            path.write_bytes(content)
        done = cli("info", unusable)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"kernelscope: {unusable}: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_unreadable_path(cli: Run, tiny: Path) -> None:
    tiny.chmod(0)
    done = cli("info", tiny)
    assert (done.returncode, done.stdout) == (1, "")
    assert "permission" in done.stderr.lower()


def test_a_trace_in_place_of_a_command_is_analyzed(cli: Run, tiny: Path) -> None:
    assert cli(tiny, "--top", "1").stdout == cli("analyze", tiny, "--top", "1").stdout
    missing = cli("no/such/trace")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == "kernelscope: no/such/trace: No such file or directory\n"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("anlyze TRACE", "analyze"),
        ("--versoin", "--version"),
        ("info TRACE --formt json", "--format"),
        ("analyze TRACE --to 3", "--top"),
        ("analyze TRACE --also modles", "modules"),
        ("analyze TRACE --format jsn", "json"),
        ("stats TRACE --report cuda_gpu_kern_sm", "cuda_gpu_kern_sum"),
        ("schema gpu_op", "gpu_ops"),
        ("convert TRACE --to perfeto", "perfetto"),
        ("prof TRACE -c kernl", "kernel"),
    ],
)
def test_what_was_meant(cli: Run, tiny: Path, line: str, meant: str) -> None:
    done = cli(*line.replace("TRACE", str(tiny)).split())
    assert (done.returncode, done.stdout) == (2, "")
    assert f"did you mean {meant}?" in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_option_can_be_shortened() -> None:
    parsers = [_parser()]
    for parser in parsers:
        assert not parser.allow_abbrev
        choices = [action.choices for action in parser._actions if action.choices]
        parsers += [each for found in choices if isinstance(found, dict) for each in found.values()]
    assert len(parsers) > 10


@pytest.mark.slow
def test_every_reader_takes_standard_input(tiny: Path, tmp_path: Path) -> None:
    database = write_training_steps(tmp_path / "steps.sqlite")
    trace = tiny.read_bytes()
    lines = [
        ("-", gzip.compress(trace)),
        ("analyze - --format json", trace),
        ("info -", trace),
        ("roofline - --format json --gpu h100-sxm5", trace),
        (f"diff - {tiny}", trace),
        (f"diff {tiny} -", trace),
        ("convert - --to perfetto", trace),
        ("info -", database.read_bytes()),
        ("stats - -r cuda_gpu_kern_sum", database.read_bytes()),
        ("parse -", database.read_bytes()),
        ("prof -", database.read_bytes()),
    ]
    for line, content in lines:
        done = subprocess.run(
            [sys.executable, "-m", "kernelscope", *line.split()],
            input=content, capture_output=True, check=False, cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b""), line
        assert done.stdout
        assert b"kernelscope-" not in done.stdout, "the name of a file that is gone"
    assert not list(tmp_path.glob("kernelscope-*"))
    assert (tmp_path / "stdin.perfetto.json").exists()


@pytest.mark.slow
def test_standard_input_without_a_trace() -> None:
    for content, message in (
        (b"", "is empty"),
        (b"text", "is not a trace"),
        (b"{'a': 1}", "kernelscope prof"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "kernelscope", "info", "-"],
            input=content, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.startswith(b"kernelscope: standard input: ")
        assert message in done.stderr.decode()
    closed = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m kernelscope info - <&-"], capture_output=True, check=False
    )
    assert (closed.returncode, b"closed" in closed.stderr) == (2, True)


@pytest.mark.parametrize("packed", ["", ".gz"])
def test_json_is_no_database(cli: Run, tiny: Path, packed: str) -> None:
    path = tiny
    if packed:
        path = tiny.with_name("tiny.json.gz")
        path.write_bytes(gzip.compress(tiny.read_bytes()))
    done = cli("stats", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kernelscope: {path}: is JSON, not a database: use kernelscope analyze\n"


@pytest.mark.parametrize(
    "command", ["analyze", "info", "roofline", "stats", "parse", "prof", "convert --to arrow"]
)
def test_what_reads_a_file_that_is_no_trace(cli: Run, tmp_path: Path, command: str) -> None:
    lake, plain, archive = tmp_path / "lake", tmp_path / "plain", tmp_path / "ranks.tar"
    for folder in (lake, plain):
        folder.mkdir()
    (lake / "manifest.jsonl").touch()
    with tarfile.open(archive, "w") as tar:
        tar.add(plain, "plain")
    table = tmp_path / "ops.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(table)
    expected = {lake: "kernelscope.scan", plain: "kernelscope batch"}
    if command != "prof":
        expected |= {archive: "kernelscope batch", table: "Polars"}
    for path, message in expected.items():
        done = cli(*command.split(), path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"kernelscope: {path}: is ")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_name_that_ends_in_gz_is_compressed(cli: Run, tiny: Path, tmp_path: Path) -> None:
    for line in (
        "convert TRACE --to perfetto --out out.gz",
        "analyze TRACE --format json --out out.gz",
        "roofline TRACE --gpu h100-sxm5 --format json --out out.gz",
        "diff TRACE TRACE --format json --out out.gz",
    ):
        assert cli(*line.replace("TRACE", str(tiny)).split()).returncode == 0
        first = (tmp_path / "out.gz").read_bytes()
        assert json.loads(gzip.decompress(first))
        assert cli(*line.replace("TRACE", str(tiny)).split()).returncode == 0
        assert (tmp_path / "out.gz").read_bytes() == first
    assert cli("convert", tiny, "--to", "perfetto", "--out", "again.json.gz").returncode == 0
    assert "gzip" in cli("info", "again.json.gz").stdout
    assert not list(tmp_path.glob(".*"))


def test_a_place_that_cannot_be_written_is_told_before_the_trace_is_read(cli: Run, tmp_path: Path) -> None:
    for line in ("analyze nope.json --format json", "roofline nope.json", "diff nope.json nope.json"):
        done = cli(*line.split(), "--out", "absent/out.json")
        assert done.returncode == 1
        absent = tmp_path / "absent"
        assert done.stderr == (
            f"kernelscope: absent/out.json: cannot be written: the folder {absent} does not exist\n"
        )


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
def test_terminal_without_unicode(process: Run, tmp_path: Path, command: str) -> None:
    path = tmp_path / "naïve\udcff.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "é→", "ts": 1, "dur": 1}]}')
    done = process(command, path, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "na?ve?.json" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", ["info", "analyze", "roofline --gpu h100-sxm5", "--help"])
def test_no_color_is_no_escape_sequence(tiny: Path, command: str) -> None:
    shown = {}
    for no_color in ("", "1"):
        terminal, other_end = pty.openpty()
        arguments = [*command.split(), *([] if command == "--help" else [tiny])]
        env = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm-256color"}
        process = subprocess.Popen(
            [sys.executable, "-m", "kernelscope", *arguments], stdout=other_end, stderr=other_end, env=env
        )
        os.close(other_end)
        shown[no_color] = _until_closed(terminal)
        os.close(terminal)
        assert process.wait() == 0
    assert b"\x1b" not in shown["1"]
    assert command == "--help" or b"\x1b" in shown[""]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["--help", "info TRACE", "analyze TRACE"])
def test_output_that_is_closed(tiny: Path, command: str) -> None:
    line = f"{sys.executable} -m kernelscope {command.replace('TRACE', str(tiny))}"
    for end in (">&-", "| true"):
        done = subprocess.run(
            ["bash", "-c", f"{line} {end}; exit ${{PIPESTATUS[0]}}"], capture_output=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    full = subprocess.run(["sh", "-c", f"{line} >/dev/full"], capture_output=True, check=False)
    assert full.stderr.count(b"\n") == full.returncode
    assert command == "--help" or full.returncode == 1


def test_schema(cli: Run) -> None:
    assert "gpu_ops" in cli("schema").stdout
    assert "op_row" in cli("schema", "gpu_ops").stdout


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_reader_of_the_output_may_leave(tmp_path: Path, cli: Run, unbuffered: str) -> None:
    database = tmp_path / "demo.sqlite"
    assert cli("demo", "--kind", "nsys", "--size", "1MB", "--out", database).returncode == 0
    # One writes with print, the other through Polars.
    for arguments in (["schema"], ["stats", database, "--report", "cuda_gpu_trace"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            [sys.executable, "-m", "kernelscope", *arguments],
            stdout=writing, stderr=subprocess.PIPE, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
        os.close(writing)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.usefixtures("interruptible")
def test_interrupt(large: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelscope", "info", large, "--threads", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    wait_until_open(process, large.name)
    process.send_signal(signal.SIGINT)
    assert bytes_read_in_all(process) < large.stat().st_size
    stdout, stderr = process.communicate()
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
    assert process.wait() == 0
    assert b"reading" in shown
    assert cli("info", large, "--threads", "1").stderr == ""


def _until_closed(terminal: int) -> bytes:
    parts: list[bytes] = []
    # Linux says EIO once the program has closed its end.
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 65536):
            parts.append(part)
    return b"".join(parts)


def test_text_goes_to_stdout(cli: Run, tiny: Path) -> None:
    done = cli("analyze", tiny)
    assert (done.returncode, done.stderr) == (0, "")
    assert "aten::mm" in done.stdout
    assert "gemm[bold]" in done.stdout
    assert "\x1b" not in done.stdout, "no colours where nobody looks"


def test_json_is_one_object_on_stdout_or_in_a_file(cli: Run, tiny: Path, tmp_path: Path) -> None:
    document = json.loads(cli("analyze", tiny, "--format", "json").stdout)
    assert {"schema_version", "trace", "steps", "breakdown", "ops", "kernels", "diagnostics"} <= set(document)
    done = cli("analyze", tiny, "--format", "json", "--out", "report.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((tmp_path / "report.json").read_text())["schema_version"]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_folders_of_files(cli: Run, tiny: Path, tmp_path: Path, form: str) -> None:
    assert cli("analyze", tiny, "--format", form, "--out", "report").returncode == 0
    read = pl.read_csv if form == "csv" else pl.read_parquet
    assert read(tmp_path / "report" / f"kernels.{form}")["name"].to_list() == ["gemm[bold]"]


def test_html_is_one_page(cli: Run, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("itables", reason="itables, which ships the tables of the page, is not installed")
    done = cli("analyze", tiny, "--format", "html", "--out", "report.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_named_annotation_makes_steps(cli: Run, tmp_path: Path) -> None:
    events = Events()
    for at in (0, 100, 200):
        events.annotation("train", at, 90)
    path = events.write(tmp_path / "named.json")
    document = json.loads(cli("analyze", path, "--format", "json", "--step-range", "train").stdout)
    assert [step["total_ns"] for step in document["steps"]] == [90_000] * 3


@pytest.mark.parametrize(
    "command", [["analyze"], ["info"], ["roofline"], ["convert", "--to", "folded"], ["diff"]]
)
def test_a_step_range_that_is_not_there_is_refused(cli: Run, tmp_path: Path, command: list[str]) -> None:
    events = Events()
    for at in (0, 100, 200):
        events.annotation("train", at, 90)
        events.annotation("forward", at, 40)
    path = events.write(tmp_path / "named.json")
    files = [path, path] if command == ["diff"] else [path]
    done = cli(command[0], *files, *command[1:], "--step-range", "trian")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(
        "named.json: no annotation or range has the name 'trian'; there are 'forward', 'train';"
        " did you mean train?\n"
    )


def test_a_step_range_that_is_not_there_is_refused_for_databases(cli: Run, tmp_path: Path) -> None:
    database = Database(tmp_path / "report.sqlite")
    # A mark has no duration, and can be no step.
    database.range("nosuch", 5, None, eventType=34)
    path = database.close()
    done = cli("analyze", path, "--step-range", "nosuch")
    assert done.returncode == 2
    assert "no annotation or range has the name 'nosuch'; there are none" in done.stderr


def test_place_that_cannot_be_written(cli: Run, tiny: Path) -> None:
    done = cli("analyze", tiny, "--format", "json", "--out", tiny / "report.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


HOSTILE = "<script>1</script>|a`b\n# x\u202e[link](x:y) *y*\x1b[31m"


def _steps(path: Path, kernel: float, name: str = "gemm") -> Path:
    """Three steps of one kernel each."""
    events = Events()
    for step in range(3):
        at = 1000 * step
        events.annotation(f"ProfilerStep#{step}", at, 500)
        events.op(name, at, 20)
        events.call(at + 5, 5, step + 1)
        events.kernel(name, at + 400, kernel + step, step + 1)
    return events.write(path)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """The kernel that ends a step takes 200 us, and then 260 us."""
    return _steps(tmp_path / "a.json", 200), _steps(tmp_path / "b.json", 260)


def test_nothing_changed(cli: Run, pair: tuple[Path, Path]) -> None:
    done = cli("diff", pair[0], pair[0], "--fail-on", "step>0%")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing changed" in done.stdout
    assert "kept" in done.stdout


def test_a_broken_bound_fails(cli: Run, pair: tuple[Path, Path]) -> None:
    done = cli("diff", *pair, "--fail-on", "step>5%", "--fail-on", "kernel:gemm>1ms")
    assert done.returncode == 1
    assert done.stderr == "kernelscope: bound broken: 'step>5%'\n"
    assert "601.0 us -> 661.0 us, +60.00 us (+10.0 %), mean of 3 steps" in done.stdout
    assert "BROKEN  step>5%" in done.stdout
    assert "kept    kernel:gemm>1ms" in done.stdout


def test_diff_fits_80_columns_when_piped(process: Run, tmp_path: Path) -> None:
    name = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_256x128_32x3_nn_align8>(Params)"
    before, after = _steps(tmp_path / "a.json", 200, name), _steps(tmp_path / f"{'b' * 90}.json", 260, name)
    text = process("diff", before, after, "--fail-on", f"kernel:{name}>1%").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "cutlass" in text
    assert "+60.00 us" in text
    assert "bbb.json" in text
    # A file has the whole.
    assert process("diff", before, after, "--out", "whole.txt").returncode == 0
    assert max(map(len, (tmp_path / "whole.txt").read_text().splitlines())) > 80


def test_bounds_of_significance(cli: Run, tmp_path: Path) -> None:
    before, after = _steps(tmp_path / "a.json", 200), _steps(tmp_path / "b.json", 201)
    assert cli("diff", before, after, "--fail-on", "step>0.1%").returncode == 1
    assert cli("diff", before, after, "--fail-on", "step>0.1%", "--significant").returncode == 0


def test_diff_as_json(cli: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "diff.json"
    assert cli("diff", *pair, "--format", "json", "--out", out, "--fail-on", "step>5%").returncode == 1
    document = json.loads(out.read_text())
    assert document["step"] == {"before_ns": 601e3, "after_ns": 661e3, "delta_ns": 60e3, "steps": 3}
    assert sum(row["delta_ns"] for row in document["changes"]) == pytest.approx(60e3)
    assert [bound["is_broken"] for bound in document["bounds"]] == [True]
    assert {"operators", "kernels", "modules", "parts", "before", "after"} <= set(document)


def test_names_stay_text(cli: Run, tmp_path: Path) -> None:
    before, after = _steps(tmp_path / "a.json", 200, HOSTILE), _steps(tmp_path / "b.json", 260, HOSTILE)
    markdown = cli("diff", before, after, "--format", "markdown").stdout
    table = [line for line in markdown.splitlines() if "script" in line]
    assert table
    for line in table:
        assert "<script>" not in line
        assert "\x1b" not in line
        assert "\u202e" not in line
        assert "\\|a" in line
        assert "\\[link\\]" in line
    text = cli("diff", before, after).stdout
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_trace_with_nothing_in_it(cli: Run, pair: tuple[Path, Path], tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": []}')
    done = cli("diff", pair[0], empty)
    assert done.returncode == 1
    assert "nothing to compare" in done.stderr


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """A product and an operator of one's own, each with a kernel, on a GPU of the table."""
    events = Events(V100 | {"name": "Tesla V100-SXM2-32GB"})
    types = ["c10::Half", "c10::Half"]
    for start, name, dims in (
        (100, "aten::mm", [[1024, 1024], [1024, 1024]]),
        (200, "mylib::twice", [[4096], [1]]),
    ):
        events.op(name, start, 50, Input_Dims=dims, Input_type=types)
        events.call(start + 5, 5, start)
        events.kernel("<script>alert('kernel')</script>", start + 20, 40, start)
    return events.write(tmp_path / "traced.json")


def test_text(cli: Run, traced: Path) -> None:
    done = cli("roofline", traced)
    assert (done.returncode, done.stderr) == (0, "")
    for part in ("v100-sxm2", "known for 50.00 %", "aten::mm", "compute", "42.9", "mylib::twice", "no model"):
        assert part in done.stdout
    assert "\x1b" not in done.stdout


def test_every_report_calls_a_gpu_by_the_name_of_the_trace(cli: Run, tmp_path: Path) -> None:
    events = Events(V100 | {"name": "NVIDIA H800 PCIe", "totalGlobalMem": 80 * 2**30, "numSms": 114})
    for device in (0, 1):
        events.kernel("gemm", 10, 5, 0, device=device)
    path = events.write(tmp_path / "t.json")
    # Only one of the two is described: the GPUs of a machine are alike.
    found = "2 x NVIDIA H800 PCIe"
    assert found in cli("analyze", path).stdout
    roofline = cli("roofline", path).stdout
    assert found in roofline
    assert "GPU 0, 1: NVIDIA H800 PCIe (h800-pcie): " in roofline
    unknown = Events(V100 | {"name": "Mystery"})
    unknown.kernel("gemm", 10, 5, 0)
    roofline = cli("roofline", unknown.write(tmp_path / "u.json")).stdout
    assert "1 x Mystery" in roofline
    assert "'Mystery' is not in the table of GPUs" in roofline


def test_roofline_as_json(cli: Run, traced: Path) -> None:
    document = json.loads(cli("roofline", traced, "--format", "json").stdout)
    assert document["gpus"][0]["gpu"] == "v100-sxm2"
    assert document["roofline"][0]["flops"] == 2 * 1024**3
    assert document["coverage"][0]["status"] == "exact"
    assert document["findings"][0]["code"] == "cost_unknown_op"
    assert document["efficiency"][0]["peak_flops_per_s"] == 125e12


def test_tables(cli: Run, traced: Path, tmp_path: Path) -> None:
    done = cli("roofline", traced, "--format", "csv", "--by", "kernel,name")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["name"] for row in rows] == ["aten::mm", "mylib::twice"]
    assert rows[1]["flops"] == ""
    assert cli("roofline", traced, "--format", "parquet", "--out", "table.parquet").returncode == 0
    assert pl.read_parquet(tmp_path / "table.parquet")["name"].to_list() == ["aten::mm", "mylib::twice"]


def test_roofline_as_a_page(cli: Run, traced: Path, tmp_path: Path) -> None:
    pytest.importorskip("itables", reason="itables, which ships the tables of the page, is not installed")
    done = cli("roofline", traced, "--format", "html", "--by", "kernel,name", "--out", "page.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    packed = re.search(r'id="view-roofline">([^<]+)<', (tmp_path / "page.html").read_text())
    assert packed is not None
    parts = json.loads(gzip.decompress(base64.b64decode(packed[1])))["parts"]
    figure = next(part for part in parts if part["kind"] == "figure")
    markers = [trace for trace in figure["traces"] if trace["mode"] == "markers"]
    assert [len(trace["x"]) for trace in markers] == [1]
    assert "&lt;script&gt;" in markers[0]["text"][0]
    roofs = [text for t in figure["traces"] if t["mode"] != "markers" for text in t["text"] if text]
    assert roofs == ["v100-sxm2: memory, 900 GB/s", "v100-sxm2: fp16, 125 TFLOP/s"]
    table = next(part for part in parts if part["kind"] == "table")
    assert [column["key"] for column in table["columns"]][:2] == ["kernel", "name"]


def test_measured_peaks_and_another_gpu(cli: Run, traced: Path) -> None:
    arguments = "--format json --gpu h100-sxm5 --peak fp16=700T --peak bandwidth=2.5e12"
    document = json.loads(cli("roofline", traced, *arguments.split()).stdout)
    assert document["gpus"][0]["gpu"] == "h100-sxm5"
    assert document["gpus"][0]["measured"] == {"fp16": 700e12, "bandwidth": 2.5e12}
    assert document["roofline"][0]["attainable_ns"] == round(2 * 1024**3 / 700e12 * 1e9)


def test_other_conventions(cli: Run, traced: Path) -> None:
    document = json.loads(cli("roofline", traced, "--format", "json", "--convention", "torch").stdout)
    assert document["convention"] == "torch"
    assert {row["name"]: row["bytes_read"] for row in document["roofline"]}["aten::mm"] is None


MODELS = """
from kernelscope.costs import Call, Cost, operator

@operator("mylib::twice")
def twice(call: Call) -> Cost:
    x = call.tensor(0)
    return Cost(x.numel, x.read, x.nbytes, x.dtype)
"""


def test_models_of_ones_own(process: Run, traced: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MODELS)
    document = json.loads(process("roofline", traced, "--format", "json", "--costs", "mine.py").stdout)
    assert {row["name"]: row["flops"] for row in document["roofline"]}["mylib::twice"] == 4096
    assert document["findings"] == []


def test_a_failing_file_of_models_costs_only_its_models(process: Run, traced: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no such thing')")
    done = process("roofline", traced, "--format", "json", "--costs", "broken.py")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert "no such thing" in done.stderr
    finding = document["findings"][0]
    assert (finding["code"], finding["severity"], finding["count"]) == ("cost_file_failed", "lost", 1)
    assert document["roofline"][0]["flops"] == 2 * 1024**3


@pytest.mark.parametrize(
    ("failure", "code"), [("raise KeyError('x')", "cost_missing_shape"), ("return 7", "cost_model_failed")]
)
def test_a_model_that_fails_costs_only_its_row(
    process: Run, traced: Path, tmp_path: Path, failure: str, code: str
) -> None:
    (tmp_path / "broken.py").write_text(MODELS.replace("x = call.tensor(0)", failure))
    done = process("roofline", traced, "--format", "json", "--costs", "broken.py")
    assert done.returncode == 0
    document = json.loads(done.stdout)
    finding = document["findings"][0]
    assert (finding["code"], finding["name"], finding["count"]) == (code, "mylib::twice", 1)
    assert {row["name"]: row["flops"] for row in document["roofline"]} == {
        "aten::mm": 2 * 1024**3,
        "mylib::twice": None,
    }


def test_a_trace_without_gpu_work(cli: Run, tmp_path: Path) -> None:
    events = Events()
    events.op("aten::mm", 1, 5, Input_Dims=[[8, 64], [64, 32]], Input_type=["float", "float"])
    done = cli("roofline", events.write(tmp_path / "host.json"))
    assert done.returncode == 0
    assert "no GPU operations" in done.stdout
