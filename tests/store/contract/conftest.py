"""Where the databases of the conformance suite lie."""

import tempfile
from pathlib import Path

import pytest

from support.crash_points.states import work_root


@pytest.fixture
def tmp_path():
    """A directory in memory: no test here is about disks, and there are thousands."""
    with tempfile.TemporaryDirectory(dir=work_root()) as directory:
        yield Path(directory)
