"""After an erasure the bytes are gone: from the file, and from its log."""

import sqlite3
from contextlib import closing

import msgspec
import pytest

from jobpool.core.jobs.job import JobState
from jobpool.errors import UsageError
from jobpool.store.sqlite import store as sqlite_store
from jobpool.store.sqlite.connection import database
from support.store.storing import ended, lease, new_job, succeeded
from support.store.telling import SECRET, TELLING, lived

MARK = b"secret-"
"""Stands in every secret of the crowd."""


def files(path):
    """Return the bytes of a database's file and of its log."""
    log = path.with_name(path.name + "-wal")
    return path.read_bytes(), log.read_bytes()


def crowd(store, count=400):
    """Let many jobs with long and short secrets live and end; return their ids.

    Rows move and pages are split and joined meanwhile.
    """
    for first in range(0, count, 50):
        store.enqueue(
            [
                new_job(
                    payload=b'"%s%s"' % (MARK, b"p" * (number % 7 * 900)),
                    key=f"{MARK.decode()}{number}",
                    tenant=f"{MARK.decode()}{number % 9}",
                )
                for number in range(first, first + 50)
            ]
        )
    taken = lease(store, limit=count)
    said = msgspec.structs.replace(TELLING, error=f"{MARK.decode()}e")
    for place, one in enumerate(taken):
        if place % 3:
            result = b'"%s%s"' % (MARK, b"r" * (place % 5 * 2000))
            store.settle([succeeded(one, result=result)])
        else:
            dead = msgspec.structs.replace(
                ended(one, evidence=said), state=JobState.DEAD, delay_ms=0
            )
            store.settle([dead])
    return [one.id for one in taken]


def test_nothing_is_left_in_the_file_and_its_log(store, database_path):
    """Also not where rows have stood before they moved."""
    ids = crowd(store)
    store.enqueue([new_job() for _ in range(50)])
    assert MARK in b"".join(files(database_path))
    for start in range(0, len(ids), 100):
        store.erase(ids[start : start + 100])
    assert store.wipe() == []
    whole, log = files(database_path)
    assert (whole.count(MARK), log) == (0, b"")


def test_a_rewrite_removes_what_others_have_left(store, database_path, monkeypatch):
    """A connection that overwrites nothing has deleted rows before.

    A large file is not rewritten unasked; what may be left is said.
    """
    monkeypatch.setattr(sqlite_store, "REWRITTEN_BYTES", 0)
    job_id = lived(store)
    store.wipe()
    with closing(sqlite3.connect(database_path)) as careless:
        careless.execute("PRAGMA secure_delete = OFF").fetchall()
        for table in ("payloads", "results", "attempts", "outputs"):
            careless.execute(f"DELETE FROM jobpool_{table}")  # noqa: S608 - our names
        careless.commit()
    store.erase([job_id])
    (left,) = store.wipe()
    assert "--rewrite" in left
    secret = SECRET.encode()
    assert secret in files(database_path)[0]
    assert store.wipe(rewrite=True) == []
    assert files(database_path) == (files(database_path)[0], b"")
    assert secret not in files(database_path)[0]


def test_a_log_that_somebody_reads_is_named(store, database_path, monkeypatch):
    """It cannot be emptied under them; the next wipe does it."""
    monkeypatch.setattr(database, "WIPE_TRIES", 3)
    job_id = lived(store)
    with closing(sqlite3.connect(database_path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobpool_jobs").fetchall()
        store.erase([job_id])
        (remark,) = store.wipe()
        assert "could not be emptied" in remark
        assert str(database_path) in remark
    assert store.wipe() == []
    assert SECRET.encode() not in b"".join(files(database_path))


def test_a_wipe_within_a_transaction_is_refused(store):
    """It would wait for itself."""
    with store.transaction(), pytest.raises(UsageError, match="transaction"):
        store.wipe()
