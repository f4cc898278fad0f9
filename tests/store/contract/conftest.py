"""Where the databases of the conformance suite lie."""

import contextlib
import tempfile
from pathlib import Path

import pytest

from support.crash_points.states import work_root
from support.postgres.kept_backends import KeptBackends
from support.postgres.patient_locks import patient_locks


@pytest.fixture
def tmp_path():
    """A directory in memory: no test here is about disks, and there are thousands."""
    with tempfile.TemporaryDirectory(dir=work_root()) as directory:
        yield Path(directory)


@pytest.fixture(scope="module", autouse=True)
def _backends_are_kept():
    """Let stores take each other's backends: nothing here is about connections either.

    Most of what a test does is new to a backend that has just begun.
    """
    with contextlib.closing(KeptBackends()) as kept, kept.used(), patient_locks():
        yield
