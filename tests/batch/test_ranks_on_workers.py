"""Questions about all ranks of a lake, answered by threads, by processes and by the workers of Dask."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from jobs import batch
from polars.testing import assert_frame_equal

import kernelscope as ks
from kernelscope import analysis
from kernelscope.analysis.ranks import parts
from kernelscope.analysis.ranks.parts import LEAST_MEMORY
from kernelscope.batch import ProcessPool
from kernelscope.cli.batch import make_text, write_page

QUESTIONS = (
    *("cluster_findings", "stragglers", "communication", "clock_offsets", "collective_instances"),
    *("collective_stragglers", "rank_calls", "rank_steps", "rank_quantiles"),
)


@contextmanager
def dask(folder: Path) -> Generator[Executor]:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", local_directory=str(folder)
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client.get_executor(pure=False)


WORKERS: dict[str, Callable[[Path], AbstractContextManager[Executor]]] = {
    "threads": lambda _: ThreadPoolExecutor(2),
    "processes": lambda _: ProcessPool(2, threads=1),
    "dask": dask,
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("who", WORKERS)
def test_who_works_changes_no_answer(
    who: str, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch(job, tmp_path / "lake")
    lake = ks.scan(tmp_path / "lake")
    alone = analysis.cluster_of(lake)
    (tmp_path / "parts").mkdir()
    monkeypatch.setattr(parts, "ROW_BYTES", LEAST_MEMORY // 2)
    with WORKERS[who](tmp_path) as executor:
        shared = analysis.cluster_of(lake, memory=LEAST_MEMORY, executor=executor, folder=tmp_path / "parts")
        assert len(shared.calls) > 1
        for name in QUESTIONS:
            question = getattr(analysis, name)
            assert_frame_equal(question(shared), question(alone), check_exact=True)
        assert analysis.run_difference(shared, alone).equals(analysis.run_difference(alone, alone))
        changes = {"communication": 0.5}
        predicted = analysis.what_if(lake, changes, executor=executor)
        assert_frame_equal(predicted, analysis.what_if(lake, changes), check_exact=True)
        path = analysis.critical_path(lake, executor=executor)
        assert_frame_equal(path, analysis.critical_path(lake), check_exact=True)
    assert predicted.height
    assert path["rank"].n_unique() > 1


def test_the_summary_and_the_page_keep_within_memory(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path / "lake")
    batch(job, tmp_path / "lake")
    text, whole, small = make_text(lake, "default", None), tmp_path / "whole.html", tmp_path / "small.html"
    write_page(lake, "default", None, str(whole))
    monkeypatch.setattr(parts, "ROW_BYTES", LEAST_MEMORY // 2)
    # A batch may get by with less than questions take in any case.
    for memory in (LEAST_MEMORY, 1):
        assert make_text(lake, "default", memory) == text
        write_page(lake, "default", memory, str(small))
        assert small.read_bytes() == whole.read_bytes()
