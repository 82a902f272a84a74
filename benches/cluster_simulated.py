"""Measures lakes of very many simulated ranks: opening them, starting on them, and asking about them."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from inputs import DATA, MB
from processes import medians, run, run_task
from tables import Promise, Sample, Table, figures_table

MEMORY = 4_000 * MB
"""What a process may take for the answers, at most."""
_CALL_BYTES = 150
"""What it may take for each call, if that is less: a tenth of what all calls at once would."""

_COLUMNS = {
    "memory it may take": "{memory_mb:,.0f} MB",
    "peak": "{peak_mb:,.0f} MB",
    "time": "{seconds:.1f} s",
    "parts": "{parts}",
    "files between": "{files_mb:,.0f} MB",
}


class Simulated(NamedTuple):
    """What was measured, and of the answers the figures by name."""

    tables: list[Table]
    promises: list[Promise]
    answers: Sample


def measure(options: argparse.Namespace) -> Simulated:
    """Makes a lake to open and a large one, and measures both."""
    opened, simulated = options.opened, options.simulated
    with tempfile.TemporaryDirectory(dir=DATA) as place:
        run_task("simulate", place, *opened.split("x"))
        scanned = _repeated("opened", Path(place) / "lake", repeats=options.repeats)
        found = _repeated("findings", Path(place) / "lake", repeats=options.repeats)
    with tempfile.TemporaryDirectory(dir=DATA) as place:
        run_task("simulate", place, *simulated.split("x"))
        sources = _repeated("sources", Path(place) / "traces", repeats=options.repeats)
        started = medians([_start(Path(place)) for _ in range(options.repeats)])
        answers = _answers(Path(place) / "lake", simulated)
    rows = [
        (f"lake of {opened}, ks.scan", f"{scanned['seconds']:.2f} s"),
        (f"lake of {opened}, what to look at first", f"{found['seconds']:.1f} s"),
        (f"lake of {simulated}, a batch when nothing has changed", f"{started['seconds']:.1f} s"),
        (f"lake of {simulated}, of that finding the traces", f"{sources['seconds']:.1f} s"),
        (f"lake of {simulated}, peak of that batch", f"{started['peak_mb']:.0f} MB"),
    ]
    few, many = f"lake of {opened}", f"lake of {simulated}"
    return Simulated(
        [
            Table("Simulated ranks x collectives", ("Lake", "Measured"), rows),
            figures_table("Cross-rank answers in parts", "Simulated", _COLUMNS, {simulated: answers}),
        ],
        [
            Promise("ks.scan", few, scanned["seconds"], 0.5, "s"),
            Promise("what to look at first", few, found["seconds"], 5, "s"),
            Promise("a batch when nothing has changed", many, started["seconds"], 5, "s"),
            Promise("peak of cross-rank answers", many, answers["peak_mb"], answers["memory_mb"], "MB"),
        ],
        answers,
    )


def _repeated(task: str, folder: Path, *, repeats: int) -> Sample:
    return medians([run_task(task, folder) for _ in range(repeats)])


def _start(place: Path) -> Sample:
    """A whole process that finds everything done. Cross-rank answers are measured by themselves."""
    batch = [sys.executable, "-m", "kernelscope", "batch", place / "traces", "--out", place / "lake"]
    return run([*batch, "--no-summary"])


def _answers(lake: Path, job: str) -> Sample:
    """The answers in a process that may take little."""
    ranks, _, collectives = job.partition("x")
    calls = int(ranks) * int(collectives)
    memory = min(MEMORY, max(_CALL_BYTES * calls, MEMORY // 8))
    return {**run_task("answers_in_parts", lake, memory), "calls": calls, "memory_mb": memory / MB}
