"""Traces and lakes on object storage: a server of S3 on loopback that also fails."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jobs import batch, files_of
from storage_server import StorageServer
from test_batch_stops import start, write_jobs

import draws
import kernelscope as ks
from events import Events
from kernelscope import remote
from kernelscope.batch import gathering
from kernelscope.cli.main import main
from nsys_database import Database
from waiting import wait_for

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
pytest.importorskip("s3fs", reason="s3fs is not installed")
pytest.importorskip("moto", reason="moto is not installed")

# What the packages of the server and its client do among themselves.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning")

Run = Callable[..., subprocess.CompletedProcess[str]]
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    # Or the machine's own credentials are looked for, in files and on the network.
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    # The file system tries again by itself; each of its tries else is several, later and later.
    "AWS_MAX_ATTEMPTS": "1",
}


@pytest.fixture
def retrying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try of the file system is several, as outside of tests."""
    monkeypatch.setitem(ENVIRONMENT, "AWS_MAX_ATTEMPTS", "5")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageServer]:
    """A new server with the bucket ``traces``, to which the environment leads."""
    server = StorageServer()
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": server.url}.items():
        monkeypatch.setenv(name, value)
    # Clients are kept by their options, and those of an earlier server lead nowhere.
    s3 = fsspec.filesystem("s3").__class__
    s3.clear_instance_cache()
    storage().mkdir("traces")
    yield server
    server.close()
    s3.clear_instance_cache()


def storage() -> Any:
    return fsspec.filesystem("s3")


@pytest.fixture
def uploaded(server: StorageServer, job: Path) -> str:
    """The URL of the job of three ranks."""
    for path in job.iterdir():
        storage().put_file(str(path), f"traces/job/{path.name}")
    return "s3://traces/job"


def tables(lake: Path) -> dict[str, bytes]:
    return only_tables(files_of(lake))


def only_tables(files: dict[str, bytes]) -> dict[str, bytes]:
    return {n: content for n, content in files.items() if n.startswith("run=") and n.endswith(".parquet")}


def test_a_trace_is_read_from_its_url(uploaded: str, job: Path) -> None:
    url = f"{uploaded}/rank1.pt.trace.json"
    trace = ks.read(url)
    assert trace.meta.path == url
    assert trace.gpu_ops.equals(ks.read(job / "rank1.pt.trace.json").gpu_ops)


def test_every_command_that_reads_a_trace_takes_urls(
    uploaded: str, job: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    url = f"{uploaded}/rank1.pt.trace.json"
    database = Database(tmp_path / "report.sqlite")
    database.call(100, 200, correlation=1)
    database.kernel(300, 400, correlation=1)
    database.close()
    storage().put_file(str(tmp_path / "report.sqlite"), "traces/report.sqlite")
    for arguments in (
        ["analyze", url],
        [url],
        ["info", url],
        ["roofline", url],
        ["diff", url, f"{uploaded}/rank2.pt.trace.json"],
        ["convert", url, "--to", "folded", "--out", str(tmp_path / "stacks")],
        ["stats", "s3://traces/report.sqlite", "--report", "cuda_gpu_kern_sum"],
        ["parse", "s3://traces/report.sqlite"],
        ["prof", "s3://traces/report.sqlite"],
    ):
        assert main(arguments) == 0, arguments
        assert capsys.readouterr().out or arguments[0] == "convert"
    assert main(["info", url]) == 0
    out = capsys.readouterr().out
    assert main(["info", str(job / "rank1.pt.trace.json")]) == 0
    assert out == capsys.readouterr().out.replace(str(job), uploaded)


def test_a_batch_reads_a_folder_a_pattern_and_a_file(
    uploaded: str, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    expected = only_tables(undisturbed)
    for number, url in enumerate((uploaded, f"{uploaded}/", f"{uploaded}/rank*.json")):
        lake = tmp_path / f"lake{number}"
        assert batch(url, lake)[1].done == 3
        assert tables(lake) == expected
        assert batch(url, lake)[1].unchanged == 3
    source = f"{uploaded}/rank1.pt.trace.json"
    assert batch(source, tmp_path / "one")[0] == {"rank1": "done"}
    assert ks.scan(tmp_path / "one").manifest["source"].to_list() == [source]


def test_a_replaced_trace_is_read_again(uploaded: str, job: Path, tmp_path: Path) -> None:
    batch(uploaded, tmp_path / "lake")
    content = (job / "rank1.pt.trace.json").read_bytes()
    middle = len(content) // 2
    at = content.index(b'"dur": ', middle) + len(b'"dur": ')
    digit = b"1" if content[at : at + 1] != b"1" else b"2"
    # In another process, as it would be: nothing that was listed before may be kept.
    storage().pipe_file("traces/job/rank1.pt.trace.json", content[:at] + digit + content[at + 1 :])
    assert batch(uploaded, tmp_path / "lake")[0] == {
        "rank0": "unchanged",
        "rank1": "done",
        "rank2": "unchanged",
    }
    storage().put_file(str(job / "rank2.pt.trace.json"), "traces/job/rank3.pt.trace.json")
    storage().rm_file("traces/job/rank0.pt.trace.json")
    found, _ = batch(uploaded, tmp_path / "lake")
    # The new one is a copy of what the lake has.
    assert found == {"rank1": "unchanged", "rank2": "unchanged", "rank3": "failed"}


def test_names_are_literal(server: StorageServer, tiny: Path, tmp_path: Path) -> None:
    for key in ("traces/exp[1]/rank0 a%20b.json", "traces/exp1/rank1.json"):
        storage().put_file(str(tiny), key)
    assert ks.read("s3://traces/exp[1]/rank0 a%20b.json").ops.height == 2
    _, report = batch("s3://traces/exp[1]", tmp_path / "lake")
    assert [entry.source for entry in report.entries.values()] == ["s3://traces/exp[1]/rank0 a%20b.json"]


@pytest.mark.parametrize("protocol", ["s3", "s3a"])
def test_a_storage_of_two_names_is_one(server: StorageServer, tmp_path: Path, protocol: str) -> None:
    events = Events()
    events.op("aten::mm", 0, 10)
    storage().put_file(str(events.write(tmp_path / "trace.json")), "traces/named/host1_rank3/trace.json")
    _, report = batch(f"{protocol}://traces/named", tmp_path / "lake")
    (entry,) = report.entries.values()
    found = (entry.source, entry.rank, entry.rank_from)
    assert found == ("s3://traces/named/host1_rank3/trace.json", 3, "folder")


def test_what_is_not_there(uploaded: str, tmp_path: Path) -> None:
    for url in (f"{uploaded}/rank9.json", f"{uploaded}/x*.json", "s3://nobucket/rank0.json"):
        with pytest.raises(ks.errors.TraceNotFoundError, match=r"^s3://"):
            batch(url, tmp_path / "lake")
    with pytest.raises(ks.errors.TraceNotFoundError, match=r"rank9.json: no such file$"):
        ks.read(f"{uploaded}/rank9.json")


def test_errors_about_the_content_name_the_url(
    server: StorageServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    storage().pipe_file("traces/rank0.json", b"no trace")
    with pytest.raises(ks.errors.NotATraceError, match=r"^s3://traces/rank0.json: ") as caught:
        ks.read("s3://traces/rank0.json")
    assert caught.value.path == "s3://traces/rank0.json"
    assert main(["info", "s3://traces/rank0.json"]) == 1
    assert "kernelscope: s3://traces/rank0.json: " in capsys.readouterr().err
    _, report = batch("s3://traces/rank0.json", tmp_path / "lake")
    assert (report.failures[0].error or "").startswith("s3://traces/rank0.json: ")


def one_sentence(stderr: str) -> str:
    (line,) = stderr.splitlines()
    return line


def test_without_credentials(
    uploaded: str, monkeypatch: pytest.MonkeyPatch, process: Run, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for arguments in (["info", f"{uploaded}/rank0.pt.trace.json"], ["batch", uploaded, "--out", "lake"]):
        done = process(*arguments)
        assert done.returncode == 1
        assert "credentials come from the environment" in one_sentence(done.stderr)


def test_an_endpoint_that_is_away(uploaded: str, server: StorageServer, process: Run) -> None:
    server.close()
    for arguments in (["info", f"{uploaded}/rank0.pt.trace.json"], ["batch", uploaded, "--out", "lake"]):
        done = process(*arguments)
        assert done.returncode == 1
        assert uploaded in one_sentence(done.stderr)


def test_an_endpoint_that_never_answers(
    uploaded: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(remote, "PATIENCE_S", 2.0)
        storage().clear_instance_cache()
        with pytest.raises(ks.errors.StorageError, match="has not answered for 2 s"):
            ks.read(f"{uploaded}/rank0.pt.trace.json")


@pytest.mark.usefixtures("retrying")
def test_a_storage_that_is_busy_is_asked_again(
    uploaded: str, server: StorageServer, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    server.fail(2, lambda request: request.startswith("GET"))
    assert batch(uploaded, tmp_path / "lake")[1].done == 3
    assert tables(tmp_path / "lake") == only_tables(undisturbed)
    server.fail(1, lambda request: request.endswith("rank0.pt.trace.json"))
    assert ks.read(f"{uploaded}/rank0.pt.trace.json").gpu_ops.height


def test_half_a_file_is_no_trace(uploaded: str, server: StorageServer, tmp_path: Path) -> None:
    server.halved = "rank1.pt.trace.json"
    found, report = batch(uploaded, tmp_path / "lake")
    assert found == {"rank0": "done", "rank1": "failed", "rank2": "done"}
    assert report.failures[0].error_kind == "StorageError"
    server.halved = ""
    assert batch(uploaded, tmp_path / "lake")[1].failed == 0


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *text: object) -> None:
        pass

    def copyfile(self, source: Any, outputfile: Any) -> None:
        # Who wants to know what a file begins with hangs up.
        with contextlib.suppress(ConnectionError):
            super().copyfile(source, outputfile)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A web server that gives files as a whole only, with neither ETag nor sizes in its listing."""
    folder = tmp_path / "web"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()


def test_a_web_server(web: tuple[str, Path], job: Path, tmp_path: Path) -> None:
    url, folder = web
    for path in job.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    found, report = batch(f"{url}/", tmp_path / "lake")
    assert (found, report.failed) == (dict.fromkeys(("rank0", "rank1", "rank2"), "done"), 0)
    sizes = {Path(entry.source).name: entry.bytes for entry in report.entries.values()}
    assert sizes == {path.name: path.stat().st_size for path in job.iterdir()}
    assert batch(f"{url}/", tmp_path / "lake")[1].unchanged == 3
    # As long as before, and changed at another time.
    changed = folder / "rank1.pt.trace.json"
    os.utime(changed, (1, 1))
    assert batch(f"{url}/", tmp_path / "lake")[0]["rank1"] == "done"


@pytest.mark.parametrize(
    ("status", "expected", "text"),
    [
        (401, ks.errors.TracePermissionError, "the storage refused access .*401"),
        (403, ks.errors.TracePermissionError, "the storage refused access .*403"),
        (404, ks.errors.TraceNotFoundError, "no such file$"),
        (410, ks.errors.TraceNotFoundError, "no such file$"),
        (503, ks.errors.StorageError, "the storage failed .*503"),
    ],
)
def test_what_a_web_server_answers(
    web: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    expected: type[ks.KernelscopeError],
    text: str,
) -> None:
    monkeypatch.setattr(_Quiet, "send_head", lambda self: self.send_error(status))
    with pytest.raises(expected, match=f"^{web[0]}/rank0.json: {text}"):
        ks.read(f"{web[0]}/rank0.json")


def test_a_web_server_that_is_away(cli: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/rank0.json"
    done = cli("info", url)
    assert done.returncode == 1
    assert one_sentence(done.stderr).startswith(f"kernelscope: {url}: the storage failed (")


def upload(lake: Path, url: str) -> None:
    for name, content in files_of(lake).items():
        storage().pipe_file(f"{url}/{name}", content)


def test_a_lake_is_scanned_where_it_is(server: StorageServer, job: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    batch(job, lake)
    # Names are literal, also those that look like patterns and escapes.
    url = "s3://traces/exp[1]/my lake%20"
    upload(lake, url)
    upload(lake, "s3://traces/exp1/my lake ")
    there, here = ks.scan(url, ranks=[0, 2]), ks.scan(lake, ranks=[0, 2])
    assert there.path == url
    assert there.manifest.equals(here.manifest)
    for name in ("gpu_ops", "collectives", "ranks", "metadata"):
        assert there.tables[name].collect().equals(here.tables[name].collect()), name
    server.requests.clear()
    assert there.gpu_ops.filter(rank=2).collect()["rank"].unique().to_list() == [2]
    assert not any("rank=0" in request or "rank%3D0" in request for request in server.requests)
    found = ks.analysis.cluster_findings(ks.analysis.cluster_of(there))
    assert found.equals(ks.analysis.cluster_findings(ks.analysis.cluster_of(here)))


@pytest.mark.usefixtures("retrying")
def test_a_storage_that_is_busy_while_a_lake_is_read(
    server: StorageServer, job: Path, tmp_path: Path
) -> None:
    batch(job, tmp_path / "lake")
    upload(tmp_path / "lake", "s3://traces/lake")
    server.fail(1, lambda request: request.endswith((".parquet", ".jsonl")))
    rows = ks.scan("s3://traces/lake/").gpu_ops.collect().height
    assert rows == ks.scan(tmp_path / "lake").gpu_ops.collect().height


def test_no_lake_there(server: StorageServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for url in ("s3://traces/lake", f"file://{tmp_path}/lake"):
        with pytest.raises(ks.errors.TraceNotFoundError, match="is not a lake"):
            ks.scan(url)
    with pytest.raises(ks.errors.InvalidArgumentError, match=r"memory://lake: lakes are read from s3://"):
        ks.scan("memory://lake")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    storage().clear_instance_cache()
    with pytest.raises(ks.errors.TracePermissionError, match="credentials"):
        ks.scan("s3://traces/lake")


def test_a_lake_by_its_file_url(job: Path, tmp_path: Path) -> None:
    batch(job, tmp_path / "lake")
    assert ks.scan(f"file://{tmp_path}/lake").gpu_ops.collect().height
    assert ks.read(f"file://{job}/rank0.pt.trace.json").gpu_ops.height


def lake_there(url: str) -> dict[str, bytes]:
    """Every file of a lake in the storage."""
    root = url.removeprefix("s3://")
    storage().invalidate_cache()
    return {name[len(root) + 1 :]: storage().cat_file(name) for name in storage().find(root)}


def without_lock(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in files.items() if not name.startswith(".batch/")}


@pytest.fixture
def expected(uploaded: str, tmp_path: Path) -> dict[str, bytes]:
    """The files of a lake of the job that is a folder."""
    batch(uploaded, tmp_path / "expected")
    return without_lock(files_of(tmp_path / "expected"))


def test_a_lake_is_written_and_gone_on_with(
    uploaded: str, expected: dict[str, bytes], job: Path, server: StorageServer
) -> None:
    url = "s3://traces/my [1] lake"
    found, report = batch(f"{uploaded}/rank[01]*", url)
    assert (found, report.lake) == ({"rank0": "done", "rank1": "done"}, url)
    server.requests.clear()
    assert batch(uploaded, url)[0] == {"rank0": "unchanged", "rank1": "unchanged", "rank2": "done"}
    assert not any(r.startswith("PUT") and "rank=0" in r for r in server.requests)
    assert lake_there(url) == expected
    assert ks.scan(url).ranks.collect()["rank"].to_list() == [0, 1, 2]

    # A rank that is replaced, and files that no batch wrote.
    storage().pipe_file("traces/my [1] lake/run=default/rank=1/window=0/notes.txt", b"mine")
    storage().pipe_file("traces/my [1] lake/notes.txt", b"mine")
    storage().put_file(str(job / "rank1.pt.trace.json"), "traces/job/rank1.pt.trace.json")
    storage().pipe_file("traces/job/rank0.pt.trace.json", b"no trace")
    found, _ = batch(uploaded, url)
    assert found == {"rank0": "failed", "rank1": "done", "rank2": "unchanged"}
    there = lake_there(url)
    for name in ("run=default/rank=1/window=0/notes.txt", "notes.txt"):
        assert there[name] == b"mine"
    assert {n: c for n, c in there.items() if "rank=1/" in n and n.endswith(".parquet")} == {
        n: c for n, c in expected.items() if "rank=1/" in n and n.endswith(".parquet")
    }


def test_the_command_writes_a_lake(
    uploaded: str, cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    done = cli("batch", uploaded, "--out", "s3://traces/lake", "--html", "page.html")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3)
    assert "the lake is s3://traces/lake" in " ".join(done.stderr.split())
    assert "aligned on collectives" in done.stderr
    assert (tmp_path / "page.html").stat().st_size > 1_000_000
    assert not list(tmp_path.glob("temporary/*"))


def test_a_batch_that_was_killed_goes_on(
    uploaded: str,
    expected: dict[str, bytes],
    server: StorageServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    command = [
        sys.executable,
        "-m",
        "kernelscope",
        "batch",
        uploaded,
        "--no-summary",
        "--out",
        "s3://traces/lake",
    ]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # After so many files were sent: between two ranks, and in the middle of one.
    for sent in draws.some((2, 5, 9, 14, 23, 31), 2):
        server.requests.clear()
        with subprocess.Popen([*command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            wait_until_sent(running, server, sent)
            running.kill()
    last = subprocess.run(command, capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert lake_there("s3://traces/lake") == expected


def wait_until_sent(process: subprocess.Popen[bytes], server: StorageServer, files: int) -> None:
    """Waits until a process has begun to send so many files."""
    wait_for(process, lambda: sum(request.startswith("PUT") for request in server.requests) >= files)


def test_a_batch_that_was_killed_while_it_moved_windows_goes_on(
    server: StorageServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    traces = write_jobs(tmp_path / "traces")
    batch(traces, tmp_path / "undisturbed")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for stop, sent in ((signal.SIGKILL, 4), (signal.SIGTERM, 12), (signal.SIGKILL, 30)):
        server.requests.clear()
        running = start(traces, "s3://traces/lake")
        wait_until_sent(running, server, sent)
        running.send_signal(stop)
        running.communicate()
    assert batch(traces, "s3://traces/lake")[1].failed == 0
    assert lake_there("s3://traces/lake") == without_lock(files_of(tmp_path / "undisturbed"))


def content_of(lake: Path | str) -> dict[str, pl.DataFrame]:
    """Every table of a lake, its windows of ranks in order."""
    opened = ks.scan(lake)
    tables = {name: opened.tables[name].collect() for name in opened.tables}
    return {name: frame.sort("run", "rank", "window", maintain_order=True) for name, frame in tables.items()}


def test_ranks_are_gathered_in_a_storage(
    uploaded: str, server: StorageServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = "s3://traces/my [1] lake"
    with pytest.raises(ks.errors.TraceNotFoundError, match="is not a lake"):
        ks.batch.compact(url)
    monkeypatch.setattr(gathering, "MOST_RANKS", 2)
    batch(uploaded, url)
    assert len({name.split("/")[1] for name in lake_there(url) if "/gathered-2-" in name}) == 1
    monkeypatch.setattr(gathering, "MOST_RANKS", 1024)
    batch(uploaded, tmp_path / "lake")
    expected = content_of(tmp_path / "lake")
    assert equal(content_of(url), expected)
    # Stopped before each change of the storage, it goes on.
    monkeypatch.setattr(storage().__class__, "retries", 1)
    done, limit = False, 0
    while not done:
        server.requests.clear()
        limit += draws.count(9, 3)
        server.fail(1000, lambda request, most=limit: changes(server, request) > most)
        try:
            ks.batch.compact(url)
            done = True
        except ks.errors.KernelscopeError:
            server.fail(0, str.isspace)
        assert equal(content_of(url), expected)
        storage().invalidate_cache()
        if storage().exists("traces/my [1] lake/.batch/lock"):
            storage().rm_file("traces/my [1] lake/.batch/lock")
    assert limit > 9
    there = lake_there(url)
    assert not any("/rank=" in name for name in there)
    assert len({name.split("/")[1] for name in there if name.startswith("run=")}) == 1
    assert batch(uploaded, url)[1].unchanged == 3
    assert lake_there(url) == there


def test_a_compaction_that_was_killed_goes_on(
    uploaded: str, server: StorageServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = "s3://traces/lake"
    batch(uploaded, url)
    expected = content_of(url)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-m", "kernelscope", "compact", url]
    # After so many changes of the storage.
    for sent in draws.some((4, 1, 9, 16, 25), 1):
        server.requests.clear()
        with subprocess.Popen([*command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
            wait_for(running, lambda sent=sent: changes(server, "PUT") >= sent)
            running.kill()
        assert equal(content_of(url), expected)
    last = subprocess.run(command, capture_output=True, text=True)
    assert (last.returncode, last.stderr) == (0, "")
    assert equal(content_of(url), expected)
    there = lake_there(url)
    assert not any("/rank=" in name for name in there)
    assert batch(uploaded, url)[1].unchanged == 3


def equal(found: dict[str, pl.DataFrame], expected: dict[str, pl.DataFrame]) -> bool:
    return all(found[name].equals(frame) for name, frame in expected.items())


def changes(server: StorageServer, request: str) -> int:
    """How many files were written or removed, if that is what is asked for."""
    if not request.startswith(("PUT", "DELETE", "POST")) or ".batch" in request:
        return 0
    return sum(known.startswith(("PUT", "DELETE", "POST")) for known in server.requests)


def test_half_a_rank_is_not_there(uploaded: str, expected: dict[str, bytes]) -> None:
    url = "s3://traces/lake"
    batch(uploaded, url)
    # Killed while a rank was replaced: its entry is removed first, and comes last.
    storage().rm_file("traces/lake/run=default/rank=1/window=0/_entry.json")
    storage().pipe_file("traces/lake/run=default/rank=1/window=0/ops.parquet", b"half")
    # Or somebody else has cut a table.
    storage().pipe_file("traces/lake/run=default/rank=2/window=0/ops.parquet", b"half")
    assert batch(uploaded, url)[0] == {"rank0": "unchanged", "rank1": "done", "rank2": "done"}
    assert lake_there(url) == expected


@pytest.mark.usefixtures("retrying")
def test_a_storage_that_fails_while_a_lake_is_written(
    uploaded: str,
    expected: dict[str, bytes],
    server: StorageServer,
    monkeypatch: pytest.MonkeyPatch,
    cli: Run,
) -> None:
    server.fail(2, lambda request: request.startswith("PUT"))
    assert batch(f"{uploaded}/rank0*", "s3://traces/lake")[1].done == 1
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    server.fail(1000, lambda request: request.startswith("PUT") and "rank=2" in request)
    done = cli("batch", uploaded, "--out", "s3://traces/lake")
    assert done.returncode == 1
    assert "the storage failed" in done.stderr.splitlines()[-1]
    server.fail(0, str.isspace)
    assert batch(uploaded, "s3://traces/lake")[1].failed == 0
    assert lake_there("s3://traces/lake") == expected


def test_where_no_lake_can_be_written(
    uploaded: str, server: StorageServer, monkeypatch: pytest.MonkeyPatch, process: Run
) -> None:
    with pytest.raises(ks.errors.InvalidArgumentError, match=r"is not a lake\. Choose a new location"):
        batch(uploaded, uploaded)
    with pytest.raises(ks.errors.StorageError, match="bucket does not exist"):
        batch(uploaded, "s3://nobucket/lake")
    storage().pipe_file("traces/held/.batch/lock", b"process 1 on elsewhere")
    with pytest.raises(ks.errors.LakeBusyError, match=r"process 1 on elsewhere .* remove s3://traces/held/"):
        batch(uploaded, "s3://traces/held")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    done = process("batch", "rank0.json", "--out", "s3://traces/lake")
    assert done.returncode == 1
    assert "s3://traces/lake" in one_sentence(done.stderr)
