"""A batch on a lake that has everything already looks at little of the manifest, and does nothing twice."""

from __future__ import annotations

import json
import pickle
import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jobs import batch, files_of
from test_foreign_files import InThisThread, write_rank

import kernelscope as ks
from kernelscope.batch import coordinator, manifest_file
from kernelscope.batch.lazy_json import LazyJson, read_object
from kernelscope.batch.manifest import LOG, MANIFEST, Entry


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    for rank in range(4):
        path = folder / f"node{rank // 2}/rank{rank}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_rank(path, rank)
    return folder


@pytest.fixture
def lake(traces: Path, tmp_path: Path) -> Path:
    batch(traces, tmp_path / "lake", executor=InThisThread())
    return tmp_path / "lake"


def test_what_nobody_looks_into_is_not_parsed(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def noted(text: str) -> Any:
        parsed.append(text)
        return read_object(text)

    monkeypatch.setattr(manifest_file, "read_object", noted)
    monkeypatch.setattr(manifest_file, "read_files", noted)
    first, *_ = manifest_file.read_manifest(lake).entries
    assert parsed == []
    assert first.meta["format"] == "kineto"
    assert len(parsed) == 1


def test_an_entry_is_the_same_however_it_was_read(lake: Path) -> None:
    lines = [path.read_text() for path in sorted(lake.glob("run=*/rank=*/window=0/_entry.json"))]
    listed = manifest_file.read_manifest(lake).entries
    assert [entry.own_line() for entry in listed] == lines
    for entry in listed:
        fields = json.loads(entry.to_line())
        copy: Entry = pickle.loads(pickle.dumps(entry))
        assert copy == entry
        assert (copy.meta, copy.options) == (fields["meta"], fields["options"])
        assert {name: list(size) for name, size in copy.files.items()} == fields["files"]


@pytest.mark.parametrize("column", ["meta", "files", "options"])
@pytest.mark.parametrize("text", ["[1]", "{", "null", '{"../../etc": [1, 2]}', None])
def test_text_that_makes_no_sense(
    lake: Path, traces: Path, column: str, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None and text.startswith('{"..') and column != "files":
        text = "{]"
    frame = pl.read_parquet(lake / MANIFEST)
    frame = frame.with_columns(
        pl.when(pl.col("rank") == 1).then(pl.lit(text, pl.String)).otherwise(column).alias(column)
    )
    content = BytesIO()
    frame.write_parquet(content, metadata={"kernelscope:schema_version": "2"})
    (lake / MANIFEST).write_bytes(content.getvalue())
    # The log names another content: nobody knows who wrote the file, and its rows are looked into.
    assert [entry.rank for entry in manifest_file.read_manifest(lake).entries] == [0, 2, 3]
    before = ks.scan(lake).ops.collect()["rank"].to_list()
    assert 1 not in before
    batch(traces, lake, executor=InThisThread())
    assert ks.scan(lake).ops.collect()["rank"].unique().sort().to_list() == [0, 1, 2, 3]
    # Somebody has made the log name it.
    (lake / MANIFEST).write_bytes(content.getvalue())
    monkeypatch.setattr(manifest_file, "_name", lambda _: manifest_file.log_head(head, lake).follows)  # type: ignore[union-attr]
    head = (lake / LOG).read_bytes().splitlines()[0]
    with pytest.raises(ks.errors.InvalidArgumentError, match=r"which no batch writes there. Remove "):
        _ = [(len(e.meta), len(e.files), len(e.options)) for e in manifest_file.read_manifest(lake).entries]


def test_what_is_settled_is_not_arranged_again(
    traces: Path, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    arrange = coordinator.arrange

    def noted(entries: Any, *args: Any, **options: Any) -> Any:
        calls.append(len(entries))
        return arrange(entries, *args, **options)

    monkeypatch.setattr(coordinator, "arrange", noted)
    before = files_of(lake)

    def again(**options: object) -> list[int]:
        calls.clear()
        batch(traces, lake, executor=InThisThread(), **options)
        return list(calls)

    assert again() == []
    assert files_of(lake) == before
    ks.batch.compact(lake)
    assert again() == []
    # One that is changed, one more, one that is gone and taken out.
    write_rank(traces / "node0/rank1.json", 1, ops=9)
    assert again() == [4]
    assert again() == []
    write_rank(traces / "node0/rank9.json", 9)
    assert again() == [5]
    (traces / "node0/rank9.json").unlink()
    assert again() == []
    assert again(prune=True) == [4]
    assert again() == []
    # What another run is called decides, too.
    write_rank(tmp_path / "other.json", 0)
    batch(tmp_path / "other.json", lake, executor=InThisThread(), run="other")
    assert again() == [4]
    assert again() == []


def test_a_rank_that_went_behind_the_batchs_back(traces: Path, lake: Path) -> None:
    (traces / "node1/rank3.json").unlink()
    shutil.rmtree(lake / "run=default/rank=3")
    batch(traces, lake, executor=InThisThread())
    listed = manifest_file.read_manifest(lake)
    assert [entry.rank for entry in listed.entries] == [0, 1, 2]
    found, _ = batch(traces, lake, executor=InThisThread())
    assert set(found.values()) == {"unchanged"}


def test_a_lazy_object_is_like_a_dict() -> None:
    lazy = LazyJson('{"a": [1], "b": null}', read_object)
    assert (dict(lazy), len(lazy), list(lazy)) == ({"a": [1], "b": None}, 2, ["a", "b"])
    assert lazy == {"a": [1], "b": None} == lazy
    assert lazy == LazyJson('{"b": null, "a": [1]}', read_object)
    assert lazy != {"a": [1]}
    assert lazy != LazyJson("{}", read_object)
    assert lazy != 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(lazy)
