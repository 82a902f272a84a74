"""What docs/lake.md promises: of lakes that are written now, and of one that an earlier version left."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from jobs import batch, files_of

import kernelscope as ks
from demo_jobs import write_job
from kernelscope.analysis.ranks.collective_calls import CALL_SCHEMA, COMMUNICATION
from kernelscope.batch.manifest import SCHEMA_VERSION

KEPT = Path(__file__).parent / "lakes"
PAGE = (Path(__file__).parents[2] / "docs/lake.md").read_text()

# What the batch that wrote the lake found in the job: rows of each table and rank.
ROWS = {
    "ops": 451,
    "launches": 116,
    "gpu_ops": 90,
    "python": 299,
    "memory": 114,
    "collectives": 6,
    "flows": 286,
    "threads": 29,
    "steps": 1,
    "ranges": 0,
}


GPU_NS = {"schema-1": 13_297_328, "schema-2": 13_459_552}
"""Demo jobs were not the same."""


@pytest.fixture(params=range(1, SCHEMA_VERSION + 1))
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a lake of each schema, of two ranks and a trace that failed; of schema 2 one compacted."""
    return shutil.copytree(KEPT / f"schema-{request.param}", tmp_path / f"schema-{request.param}")


def test_there_is_a_lake_of_every_version() -> None:
    assert {path.name for path in KEPT.iterdir()} == {f"schema-{n}" for n in range(1, SCHEMA_VERSION + 1)}


def test_an_earlier_lake_is_read(kept: Path) -> None:
    lake = ks.scan(kept)
    assert lake.manifest.select("run", "rank", "window", "outcome", "error_kind").rows() == [
        ("default", 0, 0, "done", None),
        ("default", 1, 0, "done", None),
        ("default", None, 0, "failed", "NotATraceError"),
    ]
    for name, rows in ROWS.items():
        counted = lake.tables[name].group_by("rank").len().sort("rank").collect()
        assert counted["len"].to_list() == ([rows, rows] if rows else []), name
    assert lake.gpu_ops.select(pl.col("dur_ns").sum()).collect().item() == GPU_NS[kept.name]
    assert lake.steps.collect()["step"].to_list() == [10, 10]
    cluster = ks.analysis.cluster_of(lake)
    assert ks.analysis.rank_calls(cluster).height == 6
    assert ks.analysis.communication(cluster)["collectives"].sum() == 3


def test_an_earlier_lake_is_gone_on_with(kept: Path, tmp_path: Path) -> None:
    before = {name: content for name, content in files_of(kept).items() if name.startswith("run=")}
    traces = tmp_path / "traces"
    write_job(traces, ranks=3, size_bytes=40_000)
    for rank in (0, 1):
        (traces / f"rank{rank}.pt.trace.json").unlink()
    found, report = batch(traces, kept)
    assert found == {"rank2": "done"}
    assert any("no longer exist, left unchanged; --prune removes them: 0, 1" in note for note in report.notes)
    after = files_of(kept)
    assert {name: after[name] for name in before} == before
    assert len(ks.scan(kept).entries) == 4
    assert json.loads(after["manifest.jsonl"])["schema_version"] == SCHEMA_VERSION
    assert "manifest.parquet" in after
    tables = {name: ks.scan(kept).tables[name].collect() for name in ROWS}
    # What other versions wrote stays apart.
    assert ks.batch.compact(kept).gathered >= 2
    for name, frame in tables.items():
        assert ks.scan(kept).tables[name].collect().equals(frame.sort("rank", maintain_order=True)), name


def columns_of(table: str) -> set[str]:
    return {column.name for column in ks.schema.table(table).columns}


def test_a_lake_is_what_the_page_says(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    schema = {name: re.compile(rf"^\| `{name}` \| {dtype} \|", re.MULTILINE) for name, dtype in (
        ("run", "string"), ("rank", "int64"), ("window", "int64")
    )}  # fmt: skip
    assert all(pattern.search(PAGE) for pattern in schema.values())
    for path in (tmp_path / "lake").glob("run=*/**/*.parquet"):
        columns = pl.read_parquet_schema(path)
        assert list(columns.items())[-3:] == [("run", pl.String), ("rank", pl.Int64), ("window", pl.Int64)]
        place = pl.read_parquet(path, hive_partitioning=False, glob=False).select("run", "rank", "window")
        assert place.unique().rows() == [("default", int(path.parts[-3].removeprefix("rank=")), 0)]
        named = set(CALL_SCHEMA) if path.stem == COMMUNICATION else columns_of(path.stem)
        named -= {"rank"}
        assert named <= columns.keys() <= named | {"run", "rank", "window", "group_rank"}
        assert pl.read_parquet_metadata(path)["kernelscope:schema_version"] == str(SCHEMA_VERSION)
    rows = PAGE.split("| column | type | meaning |")[2].split("\n\n")[0]
    names = {
        name for row in rows.splitlines() for name in re.findall(r"`(\w+)`", "".join(row.split("|")[1:2]))
    }
    told = set(re.findall(r"`(\w+)`", rows))
    manifest = pl.read_parquet(tmp_path / "lake/manifest.parquet")
    metas = [json.loads(text) for text in manifest["meta"]]
    untold = {*manifest.columns, *(name for meta in metas for name in meta)}
    # Those that say when a trace must be read again.
    reading = {
        "asked_run",
        "bytes",
        "mtime_ns",
        "ctime_ns",
        "fingerprint",
        "gathered",
        "options",
        "version",
        "settled",
    }
    of_meta = {"backend", "compression", "content_bytes", "default_group", "dropped", "groups", "kept"}
    of_meta |= {"processes", "seen", "told_rank", "told_run"}
    assert untold - told == reading | of_meta
    assert names <= {*manifest.columns}
