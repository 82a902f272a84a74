"""Where traces come from: folders, tar archives, URLs; and what is known of them before they are read."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path

import polars as pl
import pytest
import zstandard
from jobs import batch

import kernelscope as ks
from kernelscope.batch import sizing
from kernelscope.batch.sources import Source, find, rank_from_name
from nsys_database import Database


def tables_of(lake: Path) -> dict[str, pl.DataFrame]:
    opened = ks.scan(lake)
    return {
        name: opened.tables[name].sort("rank", maintain_order=True).collect() for name in ("ops", "gpu_ops")
    }


@pytest.fixture(scope="module")
def expected(job: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, pl.DataFrame]:
    lake = tmp_path_factory.mktemp("expected") / "lake"
    batch(job, lake)
    return tables_of(lake)


def assert_equal(lake: Path, expected: dict[str, pl.DataFrame]) -> None:
    for name, frame in tables_of(lake).items():
        assert frame.equals(expected[name]), name


def test_a_folder_tree(job: Path, expected: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    for rank in range(3):
        folder = tmp_path / f"traces/node{rank}/deep"
        folder.mkdir(parents=True)
        shutil.copy(job / f"rank{rank}.pt.trace.json", folder)
    (tmp_path / "traces/.hidden.json").write_text("{}")
    (tmp_path / "traces/rank0.truth.json").write_text("{}")
    (tmp_path / "traces/notes.txt").write_text("read me")
    (tmp_path / "traces/loop").symlink_to(tmp_path / "traces")
    # The lake may lie among the traces.
    assert batch(tmp_path / "traces", tmp_path / "traces/lake")[1].done == 3
    assert batch(tmp_path / "traces", tmp_path / "traces/lake")[1].unchanged == 3
    assert_equal(tmp_path / "traces/lake", expected)


def test_an_input_named_twice_is_read_once(job: Path, tmp_path: Path) -> None:
    _, report = batch([job, job / "rank1.pt.trace.json", str(job)], tmp_path / "lake")
    assert (report.total, report.done) == (3, 3)


@pytest.mark.parametrize("name", ["traces.tar", "traces.tar.gz", "traces.tgz"])
def test_an_archive(job: Path, expected: dict[str, pl.DataFrame], tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / name, "w" if name.endswith(".tar") else "w:gz") as archive:
        for path in sorted(job.iterdir()):
            packed = gzip.compress(path.read_bytes(), 1)
            member = tarfile.TarInfo(f"job/{path.name}.gz")
            member.size = len(packed)
            archive.addfile(member, io.BytesIO(packed))
        archive.add(__file__, "job/notes.txt")
    _, report = batch(tmp_path / name, tmp_path / "lake")
    assert (report.total, report.done) == (3, 3)
    assert_equal(tmp_path / "lake", expected)
    assert ks.scan(tmp_path / "lake").manifest["source"][0].endswith(f"{name}::job/rank0.pt.trace.json.gz")
    assert batch(tmp_path / name, tmp_path / "lake")[1].unchanged == 3
    # Nothing unpacked is left.
    assert [path.name for path in (tmp_path / "lake/.batch").iterdir()] == ["lock"]


@pytest.mark.parametrize("name", ["broken.tar", "broken.tar.gz"])
def test_an_archive_that_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no archive at all" * 100)
    with pytest.raises(ks.errors.InvalidArgumentError, match="broken"):
        batch(tmp_path / name, tmp_path / "lake")


def test_urls(job: Path, expected: dict[str, pl.DataFrame], tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    for url in (f"file://{job}", f"file://{job}/rank*.json"):
        lake = tmp_path / f"lake{len(url)}"
        assert batch(url, lake)[1].done == 3
        assert_equal(lake, expected)
        assert batch(url, lake)[1].unchanged == 3
    single = f"file://{job}/rank1.pt.trace.json"
    assert batch(single, tmp_path / "single")[0] == {"rank1": "done"}
    assert ks.scan(tmp_path / "single").manifest["source"].to_list() == [single]


def test_urls_that_lead_nowhere(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with pytest.raises(ks.errors.TraceNotFoundError):
        batch(f"file://{tmp_path}/nothing", tmp_path / "lake")
    with pytest.raises(ks.errors.InvalidArgumentError, match="nosuch"):
        batch("nosuch://bucket/traces", tmp_path / "lake")


def test_both_formats_in_one_call(job: Path, tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    shutil.copy(job / "rank0.pt.trace.json", traces)
    database = Database(traces / "report.1.sqlite")
    database.call(100, 200, correlation=1)
    database.kernel(300, 400, correlation=1)
    database.close()
    batch(traces, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    ranks = lake.ranks.collect().sort("rank")
    assert ranks["rank"].to_list() == [0, 1]
    assert ranks["format"].to_list() == ["kineto", "nsys"]
    assert lake.gpu_ops.filter(pl.col("rank") == 1).collect()["dur_ns"].to_list() == [100]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank12.pt.trace.json.gz", 12),
        ("trace_rank-3.json", 3),
        ("Rank_07.json", 7),
        ("worker4.1700000000000.pt.trace.json", 4),
        ("node2_rank5.json", 5),
        ("report.7.sqlite", 7),
        ("report-11.nsys-rep.sqlite", 11),
        ("host_12345.1700000000000.pt.trace.json", None),
        ("report_3.sqlite", 3),
        ("report.2021.sqlite", 2021),
        ("7.json", 7),
        ("h100-2gpu-emit-nvtx-2026.2.sqlite", None),
        ("cuda-graphs-2025.5.2.sqlite", None),
        ("v100-ns-2024.json.gz", None),
        ("trace-2024-05-01.json", None),
        ("node_rank2.json", None),
        ("local_rank2.json", None),
        ("trace.json", None),
    ],
)
def test_rank_from_name(name: str, rank: int | None) -> None:
    assert rank_from_name(name) == rank


def source_of(path: Path) -> Source:
    (source,) = find([path], path.parent / "lake")
    return source


def test_expected_peak_knows_what_is_inside(tmp_path: Path) -> None:
    content = b'{"traceEvents": []}'.ljust(3_000_000)
    (tmp_path / "a.json").write_bytes(content)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(content))
    (tmp_path / "c.json.zst").write_bytes(zstandard.compress(content))
    peaks = {sizing.expected_peak(source) for source in find([tmp_path], tmp_path / "lake")}
    assert peaks == {sizing.WORKER_BYTES + 1_500_000}


def test_expected_peak_of_frames_that_do_not_say(tmp_path: Path) -> None:
    (tmp_path / "a.json.zst").write_bytes(
        zstandard.ZstdCompressor(write_content_size=False).compress(b" " * 3_000_000)
    )
    packed = (tmp_path / "a.json.zst").stat().st_size
    assert sizing.expected_peak(source_of(tmp_path / "a.json.zst")) == sizing.WORKER_BYTES + packed * 6


def test_expected_peak_is_not_exceeded(job: Path, tmp_path: Path) -> None:
    found: list[tuple[int, int]] = []
    big = tmp_path / "rank0.json"
    big.write_bytes((job / "rank0.pt.trace.json").read_bytes())
    ks.batch.run(big, tmp_path / "lake", on_rank=lambda rank, _: found.append((rank.peak_bytes or 0, 0)))
    (peak, _), *_ = found
    assert 0 < peak <= sizing.expected_peak(source_of(big))
