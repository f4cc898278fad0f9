"""After an erasure: what a rewrite of the tables removes from the server's files."""

from contextlib import closing

import pytest

from jobpool.core.jobs.job import Debounce, OnConflict
from jobpool.errors import StoreUnavailable, UsageError
from jobpool.store.opening import open_store
from jobpool.store.postgres import health
from support.postgres.server import query_of, server
from support.store.fairness import begin, enqueue_for, publish_pool
from support.store.quotas import KIND, quota
from support.store.storing import new_job, succeeded
from support.store.telling import SECRET, lived
from support.waiting import wait_until


def telling(url):
    """Return the tables and indexes of a store whose files hold the secret."""
    own = server()
    own_schema = query_of(url)["schema"]
    with own.connect() as connection:
        connection.execute("CHECKPOINT")
        found = connection.execute(
            "SELECT c.oid::regclass::text, pg_relation_filepath(c.oid) "
            "FROM pg_class AS c "
            "JOIN pg_namespace AS n ON n.oid = c.relnamespace "
            "LEFT JOIN pg_class AS owner ON owner.reltoastrelid = c.oid "
            "LEFT JOIN pg_namespace AS o ON o.oid = owner.relnamespace "
            "WHERE (n.nspname = %s OR o.nspname = %s) AND c.relkind IN ('r', 't', 'i')",
            (own_schema, own_schema),
        ).fetchall()
    return [
        name
        for name, path in found
        if SECRET.encode() in (own.data / path).read_bytes()
    ]


def wiped_whole(store, *, rewrite=True):
    """Wipe, again while others' transactions are open in this database.

    Such as those of earlier tests, and the server's own: autovacuum's ANALYZE. Also
    while one of these holds a table's lock: a wipe waits for that for two seconds.
    """
    found = []

    def is_whole():
        try:
            found[:] = store.wipe(rewrite=rewrite)
        except StoreUnavailable:
            return False
        return not any("is still open" in remark for remark in found)

    wait_until(is_whole, 60, "a wipe that keeps no dead row")
    return found


@pytest.mark.skipif(
    "not server().is_ours", reason="the files of a given server cannot be read"
)
def test_a_rewrite_leaves_nothing_in_the_tables_files(store, store_url):
    """VACUUM alone frees the room without overwriting it; it says so."""
    job_id = lived(store)
    assert telling(store_url)
    store.erase([job_id])
    (remark,) = wiped_whole(store, rewrite=False)
    assert "--rewrite" in remark
    assert wiped_whole(store) == []
    assert telling(store_url) == []


@pytest.mark.skipif(
    "not server().is_ours", reason="the files of a given server cannot be read"
)
def test_what_an_open_transaction_still_sees_is_not_called_wiped(
    store, store_url, monkeypatch
):
    """VACUUM keeps what any transaction of the database may see: that is said."""
    job_id = lived(store)
    monkeypatch.setattr(health, "OUTLASTED_S_MAX", 0.2)
    with server().connect() as reader:
        reader.autocommit = False
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        store.erase([job_id])
        assert any("is still open" in remark for remark in store.wipe(rewrite=True))
        assert telling(store_url)
    assert wiped_whole(store) == []
    assert telling(store_url) == []


@pytest.mark.skipif(
    "not server().is_ours", reason="the files of a given server cannot be read"
)
def test_a_rewrite_leaves_nothing_of_what_jobs_were_counted_by():
    """Their lanes, buckets, shares and shared texts, in a store that was never used."""
    url = server().fresh_url()
    with closing(open_store(url)) as store:
        per_tenant = quota(concurrency=1, per="tenant")
        publish_pool(store, per_tenant, needs={KIND: ["stripe"]})
        ids = enqueue_for(store, SECRET, 3)
        replacing = {"unique": SECRET, "debounce": Debounce(OnConflict.REPLACE)}
        ids += [store.enqueue([new_job(KIND, **replacing)])[0].id for _ in range(2)]
        held = begin(store, 2)
        ids.append(store.enqueue([new_job(KIND, **replacing)])[0].id)
        while held:
            store.settle([succeeded(one) for one in held])
            held = begin(store, 9)
        found = {name.partition(".")[2].split("_")[0] for name in telling(url)}
        assert {"jobs", "lanes", "buckets", "shares", "debounced"} <= found
        assert store.erase(ids) == len(set(ids))
        assert wiped_whole(store) == []
        assert telling(url) == []
    server().drop(url)


def test_a_wipe_within_a_transaction_is_refused(store):
    """VACUUM cannot run there."""
    with store.transaction(), pytest.raises(UsageError, match="transaction"):
        store.wipe()
