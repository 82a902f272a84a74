"""What a batch did not write: it stays, whatever its name, and stands in no one's way."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from subprocess import CompletedProcess

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jobs import batch, files_of

import draws
import kernelscope as ks
from events import Events
from kernelscope.batch import manifest_file
from kernelscope.errors import InvalidArgumentError

Run = Callable[..., CompletedProcess[str]]


class InThisThread(Executor):
    """Runs what is submitted at once."""

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future[object]:
        future: Future[object] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        return future


def write_rank(path: Path, rank: object, *, world_size: object = 8, ops: int = 1, at: float = 0) -> Path:
    """A trace of one rank."""
    events = Events()
    for number in range(ops):
        events.op("aten::add", at + 10 * number, 5)
    job = {"backend": "nccl", "rank": rank, "world_size": world_size}
    return events.write(path, distributedInfo=job)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    for rank in range(3):
        write_rank(tmp_path / f"traces/rank{rank}.json", rank)
    return tmp_path / "traces"


@pytest.fixture
def lake(traces: Path, tmp_path: Path) -> Path:
    batch(traces, tmp_path / "lake", executor=InThisThread())
    return tmp_path / "lake"


def ranks_of(lake: Path) -> list[int]:
    return ks.scan(lake).ops.collect()["rank"].unique().sort().to_list()


@pytest.mark.parametrize(
    "name",
    [
        "run=exp1/rank=3/data.parquet",
        "notes.txt",
        "manifest.jsonl",
        ".batch/rank-0123456789abcdef0123456789abcdef/x",
        ".batch/lock",
    ],
)
def test_a_folder_of_something_else_is_refused(traces: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "ds"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text('{"audio": "a.wav"}\n')
    before = files_of(tmp_path)
    with pytest.raises(InvalidArgumentError, match="is not a lake"):
        batch(traces, out)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("out", ["traces", "traces/lake", "traces/../traces/deep/lake", "link/lake"])
def test_out_may_not_be_in_an_input(traces: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "link").symlink_to(traces)
    before = files_of(tmp_path)
    with pytest.raises(InvalidArgumentError, match="is the input"):
        batch(traces, tmp_path / out)
    assert files_of(tmp_path) == before


def test_a_folder_with_a_foreign_manifest_is_an_input(traces: Path, tmp_path: Path) -> None:
    (traces / "manifest.jsonl").write_text('{"audio": "a.wav"}\n')
    assert batch(traces, tmp_path / "lake", executor=InThisThread())[1].done == 3


@pytest.mark.parametrize("stray", [".DS_Store", ".nfs000000000000001", "notes/mine.txt", "gpu_ops.parquet"])
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_stray_file_costs_no_rank(lake: Path, traces: Path, stray: str, is_gone: bool) -> None:
    path = lake / "run=default/rank=1/window=0" / stray
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"stray")
    if is_gone:
        (traces / "rank1.json").unlink()
    _, report = batch(traces, lake, executor=InThisThread())
    assert report.done == 0
    assert any(f"run=default/rank=1/window=0/{stray.split('/')[0]}" in note for note in report.notes)
    assert ranks_of(lake) == [0, 1, 2]
    # A rank that is read anew takes its place among them.
    write_rank(traces / "rank1.json", 1, ops=4)
    found, _ = batch(traces, lake, executor=InThisThread())
    assert found["rank1"] == "done"
    assert path.read_bytes() == b"stray"
    assert ks.scan(lake, ranks=[1]).ops.collect().height == 4
    assert batch(traces, lake, executor=InThisThread())[1].unchanged == 3


def test_a_stray_file_in_the_way_costs_its_rank_alone(lake: Path, traces: Path) -> None:
    (lake / "run=late/rank=1/window=0").mkdir(parents=True)
    stray = lake / "run=late/rank=1/window=0/ops.parquet"
    stray.write_bytes(b"mine")
    (lake / "run=late/rank=2").write_bytes(b"a file")
    found, report = batch(traces, lake, run="late", executor=InThisThread())
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "failed"}
    assert {entry.error_kind for entry in report.failures} == {"RankTakenError"}
    assert all("by a batch: move it elsewhere" in (entry.error or "") for entry in report.failures)
    assert stray.read_bytes() == b"mine"
    assert (lake / "run=late/rank=2").read_bytes() == b"a file"
    shutil.rmtree(stray.parent)
    (lake / "run=late/rank=2").unlink()
    assert batch(traces, lake, run="late", executor=InThisThread())[1].done == 2


def test_a_rank_stays_when_its_trace_breaks(lake: Path, traces: Path, cli: Run) -> None:
    (traces / "rank1.json").write_text("no trace")
    done = cli("batch", traces, "--out", lake, "--no-summary")
    assert done.returncode == 1
    assert "cannot be read now: 1" in " ".join(done.stderr.split())
    assert ranks_of(lake) == [0, 1, 2]
    assert ks.scan(lake).manifest.filter(rank=1)["error_kind"].to_list() == ["NotATraceError"]
    write_rank(traces / "rank1.json", 1)
    batch(traces, lake, executor=InThisThread())
    assert ks.scan(lake).manifest["error"].null_count() == 3


def test_a_damaged_rank_without_its_source_is_left_and_told(lake: Path, traces: Path) -> None:
    place = lake / "run=default/rank=1/window=0"
    (place / "ops.parquet").write_bytes(b"")
    (traces / "rank1.json").unlink()
    kept = files_of(place)
    _, report = batch(traces, lake, executor=InThisThread())
    assert [entry.error_kind for entry in report.failures] == ["LakeDamagedError"]
    assert files_of(place) == kept
    assert ranks_of(lake) == [0, 2]
    write_rank(traces / "rank1.json", 1)
    assert batch(traces, lake, executor=InThisThread())[1].done == 1
    assert ranks_of(lake) == [0, 1, 2]


def test_an_entry_is_repaired_from_the_manifest(lake: Path, traces: Path) -> None:
    before = files_of(lake)
    (lake / "run=default/rank=1/window=0/_entry.json").write_bytes(b"\0" * 10)
    (traces / "rank1.json").rename(traces.parent / "away")
    batch(traces, lake, executor=InThisThread())
    assert files_of(lake) == before


def test_a_folder_that_was_copied_is_left(lake: Path, traces: Path) -> None:
    copy = shutil.copytree(lake / "run=default/rank=1/window=0", lake / "run=default/rank=9/window=0")
    before = files_of(copy)
    _, report = batch(traces, lake, executor=InThisThread())
    assert any("rank=9" in note for note in report.notes)
    assert files_of(copy) == before
    assert ranks_of(lake) == [0, 1, 2]


LAKES = [
    "exp[1]/lake",
    "exp*/lake",
    "what?/lake",
    "job=7/lake",
    "run=x/rank=9/lake",
    "dur_ns=1/la ke",
    "a%20b/ü",
]


@pytest.mark.parametrize("name", LAKES)
def test_paths_are_literal(traces: Path, tmp_path: Path, name: str) -> None:
    write_rank(tmp_path / "other/rank5.json", 5)
    for decoy in ("exp1/lake", "exptra/lake", "whats/lake"):
        batch(tmp_path / "other", tmp_path / decoy, executor=InThisThread())
    batch(traces, tmp_path / name, executor=InThisThread())
    lake = ks.scan(tmp_path / name)
    assert ranks_of(tmp_path / name) == [0, 1, 2]
    frame = lake.ops.filter(pl.col("rank") == 1).collect()
    assert frame.height == 1
    assert frame.schema == {**ks.scan(tmp_path / "exp1/lake").ops.collect_schema()}
    assert frame["run"].to_list() == ["default"]
    assert ks.analysis.cluster_of(lake).ranks.height == 3
    assert batch(traces, tmp_path / name, executor=InThisThread())[1].unchanged == 3


def test_names_that_are_no_utf8(traces: Path, tmp_path: Path, cli: Run) -> None:
    folder = Path(os.fsdecode(os.fsencode(traces) + b"/\xff\xfe"))
    folder.mkdir()
    shutil.move(traces / "rank1.json", folder / "rank1.json")
    done = cli("batch", traces, "--out", tmp_path / "lake")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    assert ks.scan(tmp_path / "lake").manifest["source"][1].endswith("/??/rank1.json")
    assert batch(traces, tmp_path / "lake", executor=InThisThread())[1].unchanged == 3
    refused = cli("batch", traces, "--out", os.fsencode(tmp_path).decode() + os.fsdecode(b"/la\xffke"))
    assert refused.returncode == 2
    assert "UTF-8" in refused.stderr


@pytest.mark.parametrize("value", [10**11, 2**63, 2**64, -(2**70), 10**30, "9" * 25, 1.5, None, [1]])
def test_ranks_and_world_sizes_out_of_bounds(tmp_path: Path, value: object) -> None:
    write_rank(tmp_path / "traces/rank0.json", 0, world_size=value)
    write_rank(tmp_path / "traces/rank1.json", value)
    write_rank(tmp_path / "traces/rank99999999999.json", value)
    _, report = batch(tmp_path / "traces", tmp_path / "lake", executor=InThisThread())
    assert (report.done, report.failed) == (3, 0)
    # The rank that no name tells is the smallest that is free.
    known = ks.scan(tmp_path / "lake").manifest.sort("rank").select("rank", "world_size", "rank_from").rows()
    assert known == [(0, None, "metadata"), (1, 8, "name"), (2, 8, "order")]
    assert ranks_of(tmp_path / "lake") == [0, 1, 2]


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\n",
        b"[]\n",
        b"null\n",
        b'{"source": "x"}\n',
        b'{"source": "x", "outcome": "done", "run": "../../etc", "rank": 1, "files": {}, "steps": []}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_damaged_line_is_skipped_told_and_repaired(lake: Path, traces: Path, line: bytes) -> None:
    before = files_of(lake)
    # Of the three ranks, one has been read since the manifest was written.
    first, *_, last = manifest_file.read_manifest(lake).entries
    manifest_file.rewrite(lake, [first], {})
    with (lake / "manifest.jsonl").open("ab") as log:
        log.write(line + last.to_line().encode())
    with pytest.warns(UserWarning, match="damaged lines of the manifest, .*: 2"):
        opened = ks.scan(lake)
    assert opened.ops.collect()["rank"].sort().to_list() == [0, 1, 2]
    _, report = batch(traces, lake, executor=InThisThread())
    assert any("damaged" in note for note in report.notes)
    assert (report.unchanged, files_of(lake)) == (3, before)


def test_versions_of_the_schema(lake: Path, traces: Path) -> None:
    assert (
        pl.read_parquet_metadata(lake / "run=default/rank=0/window=0/ops.parquet")[
            "kernelscope:schema_version"
        ]
        == "2"
    )
    path, log = lake / "manifest.parquet", lake / "manifest.jsonl"
    frame = pl.read_parquet(path)
    assert frame["schema_version"].to_list() == [2, 2, 2]
    follows = log.read_bytes()
    # A field more does no harm; what a later version of the schema means is not known.
    log.unlink()
    frame.with_columns(shape=3).write_parquet(path, metadata={"kernelscope:schema_version": "2"})
    assert ranks_of(lake) == [0, 1, 2]
    assert batch(traces, lake, executor=InThisThread())[1].unchanged == 3
    entry = manifest_file.read_manifest(lake).entries[0]
    later = json.dumps({**json.loads(entry.to_line()), "schema_version": 3}).encode() + b"\n"
    for damage in (
        lambda: log.write_bytes(follows.replace(b'"schema_version": 2', b'"schema_version": 3')),
        lambda: log.write_bytes(log.read_bytes() + later),
        lambda: frame.write_parquet(path, metadata={"kernelscope:schema_version": "3"}),
    ):
        kept = files_of(lake)
        damage()
        before = files_of(lake)
        for act in (lambda: ks.scan(lake), lambda: batch(traces, lake, executor=InThisThread())):
            with pytest.raises(InvalidArgumentError, match="later version"):
                act()
        assert files_of(lake) == before
        for name, content in kept.items():
            (lake / name).write_bytes(content)


NAMES = st.sampled_from(
    (
        ".DS_Store .nfs0001 notes.txt data.parquet gpu_ops.parquet ops.parquet manifest.jsonl _entry.json tmp"
        " rank=1 rank=7 rank=01 run=exp1 run=default run=default~ .batch lock manifest.bak rank0.json x.tar"
        " window=0 window=1 aside-0123456789abcdef0123456789abcdef manifest.parquet _entries.jsonl"
        " gathered-2-0123456789abcdef0123456789abcdef"
    ).split()
)
STRAYS = st.lists(
    st.tuples(st.integers(0, 10**6), st.lists(NAMES, min_size=1, max_size=3), st.binary(max_size=20)),
    max_size=12,
)
ACTS = st.lists(
    st.sampled_from(
        [
            "again",
            "edit",
            "break",
            "lose",
            "other run",
            "scan",
            "strict",
            "prune",
            "window",
            "prune other",
            "compact",
        ]
    ),
    max_size=5,
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with traces and their lake."""
    folder = tmp_path_factory.mktemp("template")
    for rank in range(3):
        write_rank(folder / f"traces/rank{rank}.json", rank)
    batch(folder / "traces", folder / "lake", executor=InThisThread())
    return folder


def scatter(folder: Path, strays: list[tuple[int, list[str], bytes]]) -> dict[Path, bytes]:
    """Puts files wherever there is nothing yet; gives those that no batch wrote."""
    written: dict[Path, bytes] = {}
    for where, names, content in strays:
        folders = sorted(path for path in [folder, *folder.rglob("*")] if path.is_dir())
        path = folders[where % len(folders)].joinpath(*names)
        if any(part.is_file() for part in [path, *path.parents]) or path.is_dir():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        written[path] = content
    return written


def act(name: str, traces: Path, lake: Path) -> None:
    trace = traces / "rank1.json"
    if name == "edit":
        write_rank(trace, 1, ops=3)
    elif name == "break":
        trace.write_bytes(b"broken")
    elif name == "lose":
        trace.unlink(missing_ok=True)
    elif name == "window":
        # Recorded before the one that the lake has, which must make room.
        write_rank(traces / "rank1-earlier.json", 1, at=-1_000)
    elif name == "scan":
        ks.scan(lake).ops.collect()
        return
    elif name == "compact":
        ks.batch.compact(lake)
        return
    options: dict[str, object] = {"prune": name.startswith("prune")}
    options |= {"run": "exp1"} if name.endswith("other") or name == "other run" else {}
    options |= {"strict": True} if name == "strict" else {}
    batch(traces, lake, executor=InThisThread(), **options)


@settings(max_examples=draws.count(25, 500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(strays=STRAYS, acts=ACTS)
@example(strays=[(1, [".batch", f"aside-{16 * '0f'}"], b"")], acts=[])
@example(
    strays=[(1, [".batch", f"aside-{16 * '0f'}", name], b"") for name in ("data.parquet", "_entry.json")],
    acts=[],
)
def test_foreign_files_stay(
    strays: list[tuple[int, list[str], bytes]], acts: list[str], template: Path, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path)
    shutil.copytree(template, tmp_path)
    foreign = scatter(tmp_path, strays)
    for name in ["again", *acts]:
        try:
            act(name, tmp_path / "traces", tmp_path / "lake")
        finally:
            there = {path: path.read_bytes() for path in foreign if path.is_file()}
            edited = {tmp_path / f"traces/rank{rank}.json" for rank in (0, 1, 2, "1-earlier")}
            assert {p: c for p, c in there.items() if p not in edited} == {
                p: c for p, c in foreign.items() if p not in edited
            }
