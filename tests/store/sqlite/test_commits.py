"""What is reported about a commit stays true, whatever the disk does meanwhile."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from jobpool.errors import OutcomeUnknown, StoreUnavailable
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from jobpool.store.sqlite.connection import commit, location
from support.crash_points import filter as crash_filter
from support.crash_points.point import points_of, run_point
from support.store.storing import new_job

needs_filter = pytest.mark.skipif(
    not crash_filter.is_available(),
    reason="this kernel or architecture cannot tell a parent of system calls "
    "(seccomp user notification)",
)


def failed_syncs():
    """Return a point for each sync of a commit that fails, beside another process."""
    return [
        point
        for point in points_of("enqueue", neighbour=True)
        if (point.call, point.error, point.forever) == ("fdatasync", errno.EIO, False)
    ]


@needs_filter
def test_a_commit_whose_sync_failed_is_never_visible():
    """Not even if every process dies before the next commit (0.3 s)."""
    points = failed_syncs()
    assert len(points) >= 3
    assert [str(p) for p in points if run_point(p).problem] == []


@needs_filter
def test_without_overwriting_the_log_a_failed_commit_becomes_visible(monkeypatch):
    """The test above can fail: this is the bug that it was written for."""
    monkeypatch.setattr(commit, "_overwrite", lambda *_given: None)
    problems = [run_point(point).problem for point in failed_syncs()]
    assert any("jobpool_jobs: missing []" in (problem or "") for problem in problems)


@needs_filter
def test_a_failed_commit_that_cannot_be_overwritten_is_unknown(store):
    """The disk fails for good: the caller must check."""
    said = []

    def act():
        with pytest.raises(OutcomeUnknown, match="may appear"):
            store.enqueue([new_job()])
        crash_filter.report(1)

    def decide(call):
        return errno.EIO if call.name == "fdatasync" else crash_filter.GO_ON

    ended = crash_filter.run(act, decide, said.append, lambda: store.count(Filter()))
    assert (ended.code, len(said)) == (0, 1), ended.said


@needs_filter
def test_a_failed_connection_is_closed_before_its_error_is_handled(store_url):
    """That is, under the writers' lock: closing may copy the log into the file."""
    opened = []

    def act():
        with pytest.raises(StoreUnavailable) as held:
            opened[0].enqueue([new_job()])
        assert held.value.__cause__.__traceback__
        names = [
            str(entry.readlink())
            for entry in Path("/proc/self/fd").iterdir()
            if entry.is_symlink()
        ]
        assert [n for n in names if n.endswith(("jobs.db", "jobs.db-wal"))] == []

    syncs = []

    def decide(call):
        if call.name != "fdatasync":
            return crash_filter.GO_ON
        syncs.append(call)
        return errno.EIO if len(syncs) == 1 else crash_filter.GO_ON

    ended = crash_filter.run(
        act, decide, syncs.append, lambda: opened.append(open_store(store_url))
    )
    assert (ended.code, ended.said) == (0, "")
    assert syncs


def test_a_commit_to_a_file_that_cannot_be_checked_has_an_unknown_outcome(
    store, monkeypatch
):
    """It was committed, but perhaps not into the file now under that path."""

    def fail(path):
        raise StoreUnavailable(f"{path} cannot be accessed")

    monkeypatch.setattr(commit, "identity_of", fail)
    with pytest.raises(OutcomeUnknown, match="was committed"):
        store.enqueue([new_job()])
    monkeypatch.undo()
    assert store.count(Filter()) == 1


def test_a_lock_that_cannot_be_released_fails_no_call(store, monkeypatch):
    """What was written under it stands, and it is released by closing its file."""
    plain = fcntl.lockf

    def fail(fd, operation):
        if operation == fcntl.LOCK_UN:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        plain(fd, operation)

    monkeypatch.setattr(fcntl, "lockf", fail)
    assert [one.id for one in store.enqueue([new_job()] * 2)] == [1, 2]
    monkeypatch.undo()
    assert [one.id for one in store.enqueue([new_job()])] == [3]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM])
def test_a_path_that_cannot_be_checked_is_store_unavailable(
    store_url, monkeypatch, number
):
    """Not a bare OSError; trying again may help."""

    def fail(path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(location, "_check_file", fail)
    with pytest.raises(StoreUnavailable, match="cannot be accessed"):
        open_store(store_url)
