"""A job that several files test with."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import files_of

from demo_jobs import write_job


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranks."""
    return write_job(tmp_path_factory.mktemp("job"), ranks=3)[0].parent


@pytest.fixture(scope="session")
def undisturbed(job: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the lake that a batch writes when nothing goes wrong."""
    import kernelscope as ks

    lake = tmp_path_factory.mktemp("undisturbed") / "lake"
    ks.batch.run(job, lake)
    return files_of(lake)
