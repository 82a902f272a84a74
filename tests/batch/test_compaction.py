"""Ranks that are gathered into few files: the lake stays what it was, wherever that is stopped."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobs import batch, files_of
from polars.exceptions import PanicException, PolarsError
from polars.testing import assert_frame_equal
from test_foreign_files import InThisThread, write_rank

import draws
import kernelscope as ks
from kernelscope import _traceparse
from kernelscope.batch import gathering
from kernelscope.cli.main import main

PLACE = ("run", "rank", "window")


def content(lake: Path) -> dict[str, pl.DataFrame]:
    """Every table, the windows of ranks in order, the rows of each as they come; and the manifest."""
    opened = ks.scan(lake)
    tables = {name: opened.tables[name].collect() for name in opened.tables}
    assert all(name not in frame or not frame.is_empty() for name, frame in tables.items())
    return {
        **{name: frame.sort(PLACE, maintain_order=True) for name, frame in tables.items()},
        "manifest": opened.manifest.sort(*PLACE, "source"),
    }


def assert_same_content(lake: Path, expected: dict[str, pl.DataFrame]) -> None:
    found = content(lake)
    for name, frame in expected.items():
        assert_frame_equal(found[name], frame)


def gathered(lake: Path) -> list[str]:
    return sorted(path.name for path in lake.glob("run=*/gathered-*"))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ranks fill a folder."""
    monkeypatch.setattr(gathering, "MOST_RANKS", 3)


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets nothing be gathered from then on."""

    def stop() -> None:
        monkeypatch.setattr(gathering, "MOST_RANKS", 10**9)

    return stop


def write_traces(folder: Path, ranks: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        write_rank(folder / f"rank{rank}.json", rank, ops=1 + 7 * rank % 5)
    return folder


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    return write_traces(tmp_path / "traces", 5)


def test_compacting_changes_no_row(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    before = content(tmp_path / "lake")
    done = ks.batch.compact(tmp_path / "lake")
    assert (done.ranks, done.gathered, done.folders, done.notes) == (3, 3, 1, [])
    assert not list((tmp_path / "lake").glob("run=*/rank=*"))
    assert_same_content(tmp_path / "lake", before)
    files = files_of(tmp_path / "lake")
    ks.batch.compact(tmp_path / "lake")
    assert files_of(tmp_path / "lake") == files
    assert batch(job, tmp_path / "lake")[1].unchanged == 3
    assert files_of(tmp_path / "lake") == files


def test_one_rank_is_one_row_group(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    expected = ks.scan(tmp_path / "lake", ranks=[2]).ops.collect()
    ks.batch.compact(tmp_path / "lake")
    (path,) = (tmp_path / "lake").glob("run=default/gathered-*/ops.parquet")
    bytes_ = bytearray(path.read_bytes())
    # Whoever reads what the first rank has finds this.
    bytes_[4 : len(bytes_) // 4] = bytes(len(bytes_) // 4 - 4)
    path.write_bytes(bytes_)
    assert_frame_equal(ks.scan(tmp_path / "lake", ranks=[2]).ops.collect(), expected)
    plain = pl.scan_parquet(path, hive_partitioning=False).filter(rank=2).select("name").collect()
    assert plain["name"].to_list() == expected["name"].to_list()
    with pytest.raises((PolarsError, PanicException, OSError), match=r"."):
        ks.scan(tmp_path / "lake", ranks=[0]).ops.collect()


@pytest.mark.usefixtures("few")
def test_a_batch_gathers_as_ranks_come(traces: Path, tmp_path: Path, never: Callable[[], None]) -> None:
    write_traces(traces, 8)
    batch(traces, tmp_path / "lake", executor=InThisThread())
    assert [name.split("-")[1] for name in gathered(tmp_path / "lake")] == ["3", "3"]
    assert len(list((tmp_path / "lake").glob("run=*/rank=*"))) == 2
    assert ks.batch.compact(tmp_path / "lake") == (8, 8, 3, [])
    never()
    batch(traces, tmp_path / "loose", executor=InThisThread())
    assert_same_content(tmp_path / "lake", content(tmp_path / "loose"))


def test_a_folder_is_full_at_its_size(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batch(traces, tmp_path / "lake", executor=InThisThread())
    sizes = [max(size for _, size in entry.files.values()) for entry in ks.scan(tmp_path / "lake").entries]
    monkeypatch.setattr(gathering, "TARGET_BYTES", 2 * max(sizes))
    before = content(tmp_path / "lake")
    assert ks.batch.compact(tmp_path / "lake").folders == 3 - len(sizes) % 2
    assert_same_content(tmp_path / "lake", before)
    monkeypatch.setattr(gathering, "TARGET_BYTES", 2 * max(sizes) - 2)
    batch(traces, tmp_path / "other", executor=InThisThread())
    # What is large already stays as it is.
    assert ks.batch.compact(tmp_path / "other").gathered < 5


def test_ranks_of_other_columns_are_gathered_apart(traces: Path, tmp_path: Path) -> None:
    batch(traces, tmp_path / "lake", executor=InThisThread())
    before = content(tmp_path / "lake")
    path = tmp_path / "lake/run=default/rank=3/window=0"
    (entry,) = (entry for entry in ks.scan(tmp_path / "lake").entries if entry.rank == 3)
    frame = pl.read_parquet(path / "ops.parquet", hive_partitioning=False).drop("sequence")
    frame.write_parquet(path / "ops.parquet", row_group_size=2**18)
    size = (path / "ops.parquet").stat().st_size
    line = (path / "_entry.json").read_text()
    (path / "_entry.json").write_text(
        line.replace(
            f'"ops": [{entry.files["ops"][0]}, {entry.files["ops"][1]}]',
            f'"ops": [{entry.files["ops"][0]}, {size}]',
        )
    )
    batch(traces, tmp_path / "lake", executor=InThisThread())
    assert ks.batch.compact(tmp_path / "lake").folders == 3
    before["ops"] = before["ops"].with_columns(
        pl.when(pl.col("rank") != 3).then("sequence").alias("sequence")
    )
    assert_same_content(tmp_path / "lake", before)


class Steps:
    """Calls ``then`` before each change of a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
        self.count, self._is_busy = 0, False
        for owner, name in (
            *((pathlib.Path, name) for name in ("rename", "replace", "unlink", "rmdir", "write_text")),
            (pathlib.Path, "write_bytes"),
            (_traceparse, "gather_row_groups"),
        ):
            monkeypatch.setattr(owner, name, self._watched(getattr(owner, name), then))

    def _watched(self, call: Any, then: Callable[[], None]) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if not self._is_busy:
                self._is_busy = True
                try:
                    self.count += 1
                    then()
                finally:
                    self._is_busy = False
            return call(*args, **kwargs)

        return watched


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("again", ["batch", "compact"])
@pytest.mark.parametrize("first", ["loose", "dirty"])
def test_stopped_at_every_step(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str, first: str
) -> None:
    lake = tmp_path / "lake"
    if first == "loose":
        monkeypatch.setattr(gathering, "MOST_RANKS", 100)
    batch(traces, lake, executor=InThisThread())
    if first == "dirty":
        some = next(entry.rank for entry in ks.scan(lake).entries if entry.gathered is not None)
        write_rank(traces / f"rank{some}.json", some, ops=9)
        monkeypatch.setattr(gathering, "swept_shares", lambda _: [])
        batch(traces, lake, executor=InThisThread())
        monkeypatch.undo()
        monkeypatch.setattr(gathering, "MOST_RANKS", 3)
    expected = content(lake)

    def look() -> None:
        assert_same_content(lake, expected)
        shutil.copytree(lake, tmp_path / f"copies/{steps.count}")

    with monkeypatch.context() as patch:
        steps = Steps(patch, look)
        ks.batch.compact(lake)
    assert steps.count > 12
    assert_same_content(lake, expected)
    for copy in (tmp_path / "copies").iterdir():
        if again == "batch":
            assert batch(traces, copy, executor=InThisThread())[1].unchanged == 5
        ks.batch.compact(copy)
        assert_same_content(copy, expected)
        assert not list(copy.glob("run=*/rank=*/window=*"))
        assert len(gathered(copy)) == len(gathered(lake))
        # Whoever does not go by the manifest finds each rank once, now that nobody writes.
        plain = pl.scan_parquet(list(copy.glob("run=*/**/ops.parquet")), hive_partitioning=False)
        assert plain.collect().height == expected["ops"].height


@pytest.mark.usefixtures("few")
def test_a_replaced_rank_leaves_its_folder_at_every_step(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    batch(traces, lake, executor=InThisThread())
    ks.batch.compact(lake)
    before = content(lake)["ops"]
    write_rank(traces / "rank1.json", 1, ops=9)
    (traces / "rank4.json").unlink()

    def look() -> None:
        found = content(lake)["ops"]
        for rank, now in ((0, 1), (1, 9), (2, 5), (3, 2), (4, 0)):
            there = found.filter(rank=rank).height
            assert there in (now, before.filter(rank=rank).height), rank
        shutil.copytree(lake, tmp_path / f"copies/{steps.count}")

    with monkeypatch.context() as patch:
        steps = Steps(patch, look)
        batch(traces, lake, executor=InThisThread(), prune=True)
    expected = content(lake)
    assert expected["ops"].group_by("rank").len().sort("rank")["len"].to_list() == [1, 9, 5, 2]
    for copy in (tmp_path / "copies").iterdir():
        batch(traces, copy, executor=InThisThread(), prune=True)
        assert_same_content(copy, expected)


@pytest.mark.usefixtures("few")
def test_a_damaged_folder_costs_its_ranks(traces: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    batch(traces, lake, executor=InThisThread())
    ks.batch.compact(lake)
    expected = content(lake)
    (path,) = lake.glob("run=default/gathered-3-*/ops.parquet")
    path.write_bytes(b"")
    first, *others = (Path(e.source) for e in ks.scan(lake).entries if e.gathered == path.parent.name)
    first.rename(tmp_path / "away.json")
    _, report = batch(traces, lake, executor=InThisThread())
    assert (report.done, report.unchanged) == (len(others), 2)
    assert [entry.error_kind for entry in report.failures] == ["LakeDamagedError"]
    assert path.exists()
    (tmp_path / "away.json").rename(first)
    assert batch(traces, lake, executor=InThisThread())[1].done == 1
    assert not path.exists()
    assert_same_content(lake, expected)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("damage", [b"", b"PAR1", b"PAR1" * 1000])
def test_a_damaged_manifest_is_written_anew(traces: Path, tmp_path: Path, damage: bytes) -> None:
    lake = tmp_path / "lake"
    batch(traces, lake, executor=InThisThread())
    expected = content(lake)
    (lake / "manifest.parquet").write_bytes(damage)
    with pytest.warns(UserWarning, match="the manifest is damaged"):
        assert_same_content(lake, expected)
    _, report = batch(traces, lake, executor=InThisThread())
    assert report.unchanged == 5
    assert any("the manifest is damaged" in note for note in report.notes)
    assert_same_content(lake, expected)


def test_a_foreign_manifest_is_not_written_over(traces: Path, tmp_path: Path) -> None:
    kept = shutil.copytree(Path(__file__).parent / "lakes/schema-1", tmp_path / "lake")
    pl.DataFrame({"a": [1]}).write_parquet(kept / "manifest.parquet")
    before = files_of(kept)
    for act in (lambda: batch(traces, kept, executor=InThisThread()), lambda: ks.batch.compact(kept)):
        with pytest.raises(ks.errors.InvalidArgumentError, match=r"manifest\.parquet was not written"):
            act()
    assert {name: file for name, file in files_of(kept).items() if name != ".batch/lock"} == before


def test_a_compacted_lake_knows_what_changed(traces: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    batch(traces, lake, executor=InThisThread())
    ks.batch.compact(lake)
    # Written within the tick in which they were read: only the content says that nothing changed.
    assert all(entry.ctime_ns is None for entry in ks.scan(lake).entries)
    content_ = (traces / "rank1.json").read_bytes()
    status = (traces / "rank1.json").stat()
    (traces / "rank1.json").write_bytes(content_.replace(b"5", b"6"))
    pathlib.os.utime(traces / "rank1.json", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert batch(traces, lake, executor=InThisThread())[0]["rank1"] == "done"


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 6), st.integers(1, 4)),
        st.tuples(st.just("lose"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("window"), st.integers(0, 6), st.integers(1, 4)),
        st.tuples(st.just("compact"), st.just(0), st.just(0)),
        st.tuples(st.just("batch"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("other"), st.just(0), st.just(0)),
    ),
    max_size=12,
)


def perform(act: tuple[str, int, int], traces: Path, lake: Path, *, gathers: bool) -> None:
    what, rank, number = act
    path = traces / f"rank{rank}.json"
    if what == "write":
        write_rank(path, rank, ops=number)
    elif what == "window":
        write_rank(traces / f"rank{rank}-earlier.json", rank, ops=number, at=-1_000_000)
    elif what == "lose":
        path.unlink(missing_ok=True)
    elif what == "compact" and gathers:
        ks.batch.compact(lake)
    elif what in ("batch", "other"):
        run = "default" if what == "batch" else "exp"
        batch(traces, lake, executor=InThisThread(), prune=bool(number), run=run)


@settings(max_examples=draws.count(15, 300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=ACTS, most=st.integers(2, 5))
def test_a_compacted_lake_is_as_one_that_is_not(
    acts: list[tuple[str, int, int]], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(tmp_path)
    traces = write_traces(tmp_path / "traces", 3)
    for act in [("batch", 0, 0), *acts, ("batch", 0, 1)]:
        # What was written is read by both at the same time, so that what is known of it is the same.
        for name, count in (("lake", most), ("loose", 10**9)):
            monkeypatch.setattr(gathering, "MOST_RANKS", count)
            if name == "lake" or act[0] in ("batch", "other"):
                perform(act, traces, tmp_path / name, gathers=name == "lake")
        assert_same_content(tmp_path / "lake", content(tmp_path / "loose"))


def test_the_command(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch(traces, tmp_path / "lake", executor=InThisThread())
    assert main(["compact", str(tmp_path / "lake")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'lake'}: merged 5 of 5 ranks into 1 folder\n"
    assert main(["compact", str(traces)]) == 1
    assert "is not a lake" in capsys.readouterr().err
