"""What the documentation shows about lakes is run: kernelscope, DuckDB and pandas read them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import batch

Run = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/cluster.md").read_text(), flags=re.DOTALL)
README = (ROOT / "README.md").read_text().split("## A whole cluster\n")[1].split("\n## ")[0]


@pytest.fixture
def place(job: Path, tmp_path: Path) -> Path:
    """A folder with the traces and the lake of the examples."""
    (tmp_path / "traces").symlink_to(job)
    batch(tmp_path / "traces", tmp_path / "lake")
    return tmp_path


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda text: re.findall(r"import (\w+)", text)[-1])
def test_program(place: Path, program: str) -> None:
    for library in ("duckdb", "pandas", "pyarrow"):
        if f"import {library}" in program or (library == "pyarrow" and "pandas" in program):
            pytest.importorskip(library)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=place, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_programs_for_every_reader() -> None:
    text = "\n".join(PROGRAMS)
    assert all(name in text for name in ("ks.scan", "duckdb.sql", "pd.read_parquet", "ThreadPoolExecutor"))


def test_all_readers_see_the_same(place: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    import kernelscope as ks

    lake = ks.scan(place / "lake")
    for name in ("gpu_ops", "collectives", "ops"):
        ours = lake.tables[name].group_by("rank").len().sort("rank").collect().rows()
        pattern = f"{place}/lake/*/*/{name}.parquet"
        query = f"SELECT rank, count(*) FROM read_parquet('{pattern}', hive_partitioning = true)"
        assert duckdb.sql(f"{query} GROUP BY rank ORDER BY rank").fetchall() == ours
        paths = sorted(map(str, place.glob(f"lake/*/*/{name}.parquet")))
        theirs = pandas.read_parquet(paths, partitioning="hive").groupby("rank", observed=True).size()
        assert [(int(rank), count) for rank, count in theirs.items()] == ours


def commands() -> list[list[str]]:
    lines = re.findall(r"^\$ (kernelscope .*?)(?: +#.*)?$", README, flags=re.MULTILINE)
    return [shlex.split(line)[1:] for line in lines]


def test_readme_shows_the_road_in_five_lines() -> None:
    blocks = re.findall(r"```\w+\n(.*?)```", README, flags=re.DOTALL)
    assert len([line for block in blocks for line in block.splitlines() if line]) == 5
    assert [arguments[0] for arguments in commands()] == ["demo", "batch"]


def test_the_road_of_the_readme(cli: Run, tmp_path: Path) -> None:
    for arguments in commands():
        done = cli(*arguments)
        assert done.returncode == 0, done.stderr
    assert "Look first at" in done.stderr
    (program,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, cwd=tmp_path, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert "slow_rank" in shown.stdout
