"""Between attempts a slot's mark file holds all its marks, whatever was done to it."""

from __future__ import annotations

import os

import pytest

from jobpool.sandbox.runs.marks import MARK_BYTES, Marks, open_marks, read_marks


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mark.0"


@pytest.fixture
def fd(path):
    found = open_marks(str(path))
    yield found
    os.close(found)


def test_overwritten_marks_are_written_again(path, fd):
    """A handler may write anywhere in the file, truncate it, or let it grow."""
    marks = Marks(fd)
    marks.begin(7)
    for meddle in (
        lambda: os.pwrite(fd, b"\1" * 16, 2048),
        lambda: os.ftruncate(fd, 3),
        lambda: os.ftruncate(fd, 10 * MARK_BYTES),
    ):
        meddle()
        assert marks.renew() == ""
        assert read_marks(path) == {7}
        assert path.stat().st_size == MARK_BYTES


def test_a_mark_that_could_not_be_written_is_reported_again(path, fd):
    """It is reported between attempts for as long as it is not in the file."""
    marks = Marks(fd)
    kept, reading = os.dup(fd), os.open(path, os.O_RDONLY)
    os.dup2(reading, fd)
    marks.begin(7)
    assert marks.renew() == "Bad file descriptor"
    os.dup2(kept, fd)
    assert marks.renew() == ""
    assert read_marks(path) == {7}
    os.close(kept)
    os.close(reading)
