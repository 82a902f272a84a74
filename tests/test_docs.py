"""The commands and programs of every page are run on small traces, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import pytest

from demo_jobs import write_job
from kernelscope import _traceparse
from kernelscope.batch import run
from kernelscope.cli import main
from kernelscope.report.parts.glossary import terms
from nsys_database import write_training_steps

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "CHANGELOG.md"
}
# Commands that need a network, a GPU, a cluster or a build of the project.
ELSEWHERE = re.compile(r"pip |make |nsys |nvprof |cargo |python -m kernelscope.capture |.* --scheduler ")
OPTIONAL = ("dask_jobqueue", "duckdb", "nvtx", "pandas", "pyspark", "ray", "torch")
# What the programs of a page leave to the reader.
PRELUDES = {
    "docs/capture.md": "import nvtx\nimport torch\nfrom kernelscope import capture\n"
    "batch = torch.ones(2, 4)\n"
    "model = lambda batch: torch.nn.Linear(4, 1)(batch).sum()\nstep, batches = model, [batch] * 4\n"
    "class runner:\n    batch_size = 8\n    capture_model = staticmethod(lambda: None)\n"
}
# What the output of a page shows somewhere.
SHOWN = {"README.md": ("Look first at", "slow_rank")}


def _examples(text: str) -> list[tuple[str, str]]:
    """The commands and programs of a page, in order, each with its language."""
    found = []
    for language, block in re.findall(r"^```(console|python)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if language == "python":
            found.append((language, block))
        else:
            found += [(language, line) for line in re.findall(r"^\$ (.*)", block, re.MULTILINE)]
    return found


WITH_EXAMPLES = {page: examples for page, text in PAGES.items() if (examples := _examples(text))}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the traces that the pages name, and ``kernelscope`` in ``bin``."""
    folder = tmp_path_factory.mktemp("docs")
    layout = _traceparse.demo_layouts()[0]
    for out, ranks, gzip in ((folder / "traces", 8, False), (folder / "one", 1, True)):
        write_job(out, size_bytes=300_000, ranks=ranks, seed=0, layout=layout, gzip=gzip)
    (packed,) = (folder / "one").iterdir()
    for name in ("rank0.pt.trace.json.gz", "before.json.gz", "after.json.gz"):
        shutil.copy(packed, folder / name)
    for name in ("trace.json", "after.json"):
        shutil.copy(folder / "traces" / "rank0.pt.trace.json", folder / name)
    write_training_steps(folder / "report.sqlite")
    command = folder / "bin" / "kernelscope"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kernelscope "$@"\n')
    command.chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_examples(inputs: Path, tmp_path: Path, page: str) -> None:
    place = shutil.copytree(inputs, tmp_path / "place")
    if not any(example.startswith("kernelscope batch") for _, example in WITH_EXAMPLES[page]):
        for lake in {*re.findall(r'scan\("([\w-]+)"\)', PAGES[page])}:
            run(place / "traces", place / lake)
    env = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "COLUMNS": "100"}
    shown, absent = "", []
    for language, example in WITH_EXAMPLES[page]:
        program = PRELUDES.get(page, "") + example if language == "python" else example
        # As many as one slow rank is seen among.
        program = program.replace("--ranks 64", "--ranks 16")
        named = [name for name in OPTIONAL if re.search(rf"^(?:import|from) {name}\b", program, re.MULTILINE)]
        missing = [name for name in named if find_spec(name) is None]
        if missing or ELSEWHERE.match(example):
            absent += missing
            continue
        if example.startswith("kernelscope view "):
            _look(example, place, env)
            continue
        command = [sys.executable if language == "python" else "sh", "-c", program]
        done = subprocess.run(command, capture_output=True, check=False, cwd=place, env=env, text=True)
        assert done.returncode == 0, f"{example}\n{done.stderr}"
        if language == "console" and "--out" not in example and ">" not in example:
            assert done.stdout.strip(), example
        shown += done.stdout + done.stderr
    assert all(words in shown for words in SHOWN.get(page, ()))
    if absent:
        pytest.skip(f"a program needs {', '.join({*absent})}; everything else was run")


def _look(example: str, place: Path, env: dict[str, str]) -> None:
    """Runs a viewer until it has said its address, and interrupts it as a reader would."""
    command = ["sh", "-c", f"exec {example}"]
    # Without a screen no browser opens.
    plain = {name: value for name, value in env.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=place, env=plain, text=True) as viewer:
        assert viewer.stdout is not None
        assert viewer.stdout.readline().startswith("http://127.0.0.1:"), example
        viewer.send_signal(signal.SIGINT)
        assert viewer.wait(60) == 130


def test_every_page_with_commands_is_run() -> None:
    marked = re.compile(r"^(?:\$ )?(?:kernelscope|python|nsys) ", re.MULTILINE)
    for page, text in PAGES.items():
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            assert language in ("console", "python") or not marked.search(block), page
    pages = ("docs/cluster.md", "docs/schedulers.md")
    readers = "\n".join(program for page in pages for _, program in WITH_EXAMPLES[page])
    assert all(name in readers for name in ("ks.scan", "duckdb.sql", "pd.read_parquet", "ThreadPoolExecutor"))


def test_every_name_exists() -> None:
    named = set(re.findall(r"\b(?:ks|kernelscope)((?:\.[A-Za-z_]\w*)+)", "".join(PAGES.values())))
    names = {f"kernelscope{name}" for name in named if not name.endswith((".sqlite", ".com"))}
    assert len(names) > 40
    table = PAGES["docs/analyses.md"].split("| `kernelscope.compat.hta` | HTA |\n")[1].split("\n\n")[0]
    ours = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()))
    assert len(ours) > 10
    names |= {f"kernelscope.compat.hta.{name}" for name in ours}
    for name in names:
        resolve_name(name)


def test_readme_is_short_about_clusters() -> None:
    section = PAGES["README.md"].split("## A whole cluster\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```\w+\n(.*?)```", section, flags=re.DOTALL)
    assert len([line for block in blocks for line in block.splitlines() if line]) == 5


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_titles(page: str) -> None:
    for link, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]*))?\)", PAGES[page]):
        target = (ROOT / page).parent / link if link else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target.read_text()), f"{link}#{anchor}"


def test_the_glossary_has_every_figure() -> None:
    rows = [f'| <a id="{t.key}"></a>{t.title} | `{t.key}` | {t.unit} | {t.what} |' for t in terms()]
    table = "\n".join(["| figure | column | unit | meaning |", "|---|---|---|---|", *rows])
    assert f"compares -->\n{table}\n<!--" in PAGES["docs/glossary.md"]


def test_the_report_of_the_readme_is_that_of_its_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shown,) = re.findall(r"^```text\n(.*?)^```", PAGES["README.md"], re.DOTALL | re.MULTILINE)
    assert main(["demo", "--size", "2MB", "--out", str(tmp_path)]) == 0
    assert main(["analyze", str(tmp_path / "rank0.pt.trace.json")]) == 0
    report = capsys.readouterr().out
    for part in shown.split("\n\n"):
        assert part.strip() in report
