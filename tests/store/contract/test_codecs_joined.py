"""Encoded jobs in a caller's transaction, which a store in memory has not."""

import contextlib
import sqlite3

import pytest

from jobpool.core.formats import CODECS
from jobpool.errors import FeatureHeldBack
from jobpool.store.records import Filter
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
    """The first of all is stored there, and so is what it asks for."""
    begin_run(store, "old", format=1)
    with a_callers_transaction(store) as connection:
        with pytest.raises(FeatureHeldBack, match="jobpool status"):
            store.enqueue([encoded()], connection)
        store.enqueue([new_job()], connection)
        connection.execute("COMMIT")
    store.end_run("old")
    with a_callers_transaction(store) as connection:
        store.enqueue([encoded()], connection)
        connection.execute("ROLLBACK")
    assert (store.count(Filter()), store.formats().least) == (1, 1)
    with a_callers_transaction(store) as connection:
        store.enqueue([encoded(), encoded()], connection)
        connection.execute("COMMIT")
    assert (store.count(Filter()), store.formats().least) == (3, CODECS)
