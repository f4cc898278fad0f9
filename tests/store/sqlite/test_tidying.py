"""The log is emptied after large results, by the store that wrote them only."""

import sqlite3
import threading
import time

import pytest

from jobpool.core.jobs.job import JobState, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.opening import open_store
from jobpool.store.sqlite.connection import database
from jobpool.store.sqlite.connection.database import BULK_BYTES, BULK_MAX_BYTES
from support.store.storing import begin_run, lease, new_job

NAP_S = 0.2


def settle(store, result):
    """Let one job end with a result."""
    store.enqueue([new_job()])
    (one,) = lease(store)
    store.settle(
        [
            Settlement(
                id=one.id,
                token=one.token,
                state=JobState.SUCCEEDED,
                outcome=Outcome.SUCCEEDED,
                result=result,
            )
        ]
    )


def frames_in_log(path):
    """Return how many pages the log holds that the file may lack."""
    with open(f"{path}-shm", "rb") as file:  # noqa: PTH123
        header = file.read(136)
    last = int.from_bytes(header[16:20], "little")
    copied = int.from_bytes(header[96:100], "little")
    return last - copied


@pytest.fixture
def path(tmp_path):
    return tmp_path / "jobs.db"


@pytest.fixture
def store(path):
    store = open_store(f"sqlite:///{path}")
    begin_run(store)
    yield store
    store.close()


LARGE = b'"' + b"x" * (BULK_BYTES - 2) + b'"'


def test_a_large_result_leaves_nothing_in_the_log(store, path):
    """Its commit does not copy it; `tidy` does."""
    settle(store, LARGE)
    assert frames_in_log(path) * 4096 > BULK_BYTES
    store.tidy()
    assert frames_in_log(path) == 0
    with sqlite3.connect(path) as reader:
        assert reader.execute("SELECT result FROM jobpool_results").fetchall() == [
            (LARGE,)
        ]


def test_small_commits_are_left_to_sqlites_own_checkpoints(store, path):
    """Their pages change again and again: copying them each time is a waste."""
    settle(store, LARGE[: BULK_BYTES // 2])
    store.tidy()
    assert frames_in_log(path) * 4096 > BULK_BYTES // 2
    settle(store, LARGE[: BULK_BYTES // 2 + 1])
    store.tidy()
    assert frames_in_log(path) == 0


def test_while_a_request_waits_only_a_large_log_is_copied(store, path):
    """Copying it now takes less time than copying a larger log later."""
    for _ in range(BULK_MAX_BYTES // BULK_BYTES - 1):
        settle(store, LARGE)
        store.tidy(waited_for=True)
    assert frames_in_log(path) * 4096 > BULK_MAX_BYTES - BULK_BYTES
    settle(store, LARGE)
    store.tidy(waited_for=True)
    assert frames_in_log(path) == 0


def test_pages_are_not_copied_twice(store, path):
    """Copied pages do not count again."""
    settle(store, LARGE)
    store.tidy()
    settle(store, b"1")
    store.tidy()
    assert frames_in_log(path) > 0


def test_tidying_waits_for_the_lock_but_not_for_long(store, path, monkeypatch):
    """Never beside a writer (the WAL-reset bug); the next call does it."""
    monkeypatch.setattr(database, "TIDY_WAIT_S", NAP_S)
    settle(store, LARGE)
    other = open_store(f"sqlite:///{path}")
    with other.transaction():
        other.enqueue([new_job()])
        began_s = time.monotonic()
        tidier = threading.Thread(target=store.tidy)  # its own thread may not wait
        tidier.start()
        tidier.join()
        assert time.monotonic() - began_s >= NAP_S
        assert frames_in_log(path) > 0
    other.close()
    store.tidy()
    assert frames_in_log(path) == 0


def test_a_replaced_file_is_no_error_of_tidying(store, path):
    """What was committed was committed; the next writer gets the error."""
    settle(store, LARGE)
    path.rename(path.with_suffix(".old"))
    store.tidy()
    store.tidy()
