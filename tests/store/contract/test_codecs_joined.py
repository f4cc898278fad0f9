"""Encoded jobs in a caller's transaction, which a store in memory has not."""

import contextlib
import sqlite3

import pytest

from jobpool.core.formats import CODECS
from jobpool.errors import FeatureHeldBack, StoreRefused
from jobpool.store.records.operating import Filter
from support.postgres.server import server
from support.store.storing import begin_run, new_job

ENGINES = ["sqlite", "postgres"]


def encoded():
    return new_job(payload=b'"encoded:AAEC/w=="', codec="fernet")


@contextlib.contextmanager
def a_callers_transaction(store):
    if store.url.startswith("sqlite"):
        path = store.url.removeprefix("sqlite:///")
        opened = sqlite3.connect(path, isolation_level=None)
    else:
        opened = server().connect(store.url)
    with contextlib.closing(opened) as connection:
        connection.execute("BEGIN")
        yield connection


def test_encoded_jobs_in_a_callers_transaction_wait_as_well(store):
    """Of a feature that is not in use yet; plain jobs do not wait."""
    begin_run(store, "old", format=1)
    with a_callers_transaction(store) as connection:
        with pytest.raises(FeatureHeldBack, match="codecs wait for"):
            store.enqueue([encoded()], connection)
        store.enqueue([new_job()], connection)
        connection.execute("COMMIT")
    store.end_run("old")
    with a_callers_transaction(store) as connection:
        store.enqueue([encoded(), encoded()], connection)
        connection.execute("COMMIT")
    assert (store.count(Filter()), store.formats().least) == (3, CODECS)


def test_what_a_callers_transaction_asked_for_is_asked_again_after_a_rollback(store):
    """Where it could be asked in that transaction alone: an older run may begin."""
    with a_callers_transaction(store) as connection:
        store.enqueue([encoded()], connection)
        store.enqueue([encoded()], connection)
        connection.execute("ROLLBACK")
    if store.formats().least == CODECS:  # it was asked beside the transaction
        with pytest.raises(StoreRefused):
            begin_run(store, "old", format=1)
        return
    begin_run(store, "old", format=1)
    with pytest.raises(FeatureHeldBack):
        store.enqueue([encoded()])
