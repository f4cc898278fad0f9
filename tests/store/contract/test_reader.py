"""A store that only reads, and whose queries another thread can end."""

import contextlib
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from jobpool.errors import StoreError
from jobpool.store.records.operating import Filter
from support.store.storing import new_job
from support.waiting import wait_until

ENGINES = ["sqlite", "postgres"]
ENDLESS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT count(*) FROM n",
    "postgresql": "SELECT pg_sleep(600)",
}


def test_a_reader_reads_and_changes_nothing(store, store_factory):
    """The database itself refuses, whatever is asked of it."""
    reader = store_factory(reader=True)
    (made,) = store.enqueue([new_job()])
    assert reader.get(made.id).kind == "shop.thumbnail"
    for change in (
        lambda: reader.enqueue([new_job()]),
        lambda: reader.pause(pool="cpu"),
    ):
        with pytest.raises(StoreError):
            change()
    assert [job.id for job in store.find(Filter())] == [made.id]
    assert store.pauses() == []
    assert reader.get(made.id).kind == "shop.thumbnail"


def test_a_query_is_ended_by_another_thread(store_factory):
    """It fails, and the next one goes on as usual; with none, nothing happens."""
    reader = store_factory(reader=True)
    reader.interrupt()
    assert reader.pauses() == []
    query = ENDLESS[reader.url.partition(":")[0]]

    def endless():
        with reader._database.reading() as session:
            return session.connection.execute(query).fetchall()

    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(endless)

        def is_ended():
            with contextlib.suppress(StoreError):  # a server may be busy for seconds
                reader.interrupt()
            return future.done()

        wait_until(is_ended, 30, "the query is ended")
        assert re.search("interrupt|cancel", str(future.exception()))
    assert reader.pauses() == []
