"""A folder for the tests that open pages."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for pages that several tests open."""
    return tmp_path_factory.mktemp("pages")
