"""What the server has room for, as seen from a real one."""

import contextlib
import threading
from secrets import token_hex

import psycopg
import pytest
from psycopg import sql

from jobpool.errors import StoreUnavailable
from jobpool.store.opening import open_store
from jobpool.store.postgres import capacity
from support.postgres.server import libpq_url, query_of, server, with_query
from support.store.storing import begin_run, kind_record, new_job
from support.waiting import wait_until

ANY_BYTES = 2**60


def facts_of(store):
    return {one.name: one for one in store.capacity(ANY_BYTES)}


def test_a_quiet_server_has_nothing_wrong_but_its_figures(store):
    """All of them are there."""
    begin_run(store, "run-1", [kind_record()])
    facts = facts_of(store)
    assert list(facts) == [
        *("connections", "lock_waits", "cache_hits", "tables", "indexes", "latency"),
        "room",
    ]
    assert {name for name, one in facts.items() if one.concern} <= {"latency"}
    assert facts["tables"].figures.keys() >= {"jobs", "attempts", "runs", "outputs"}
    assert facts["indexes"].figures["jobs_dead"] > 0
    assert facts["latency"].figures["round_trip_s"] > 0
    assert facts["latency"].figures["look_s"] > 0


def test_a_server_that_can_write_no_file_is_told(store):
    """As on a full disk, where all that this looked at before was well."""
    begin_run(store, "run-1", [kind_record()])
    url = with_query(server().admin_url, schema=query_of(store.url)["schema"])
    limited = open_store(with_query(url, options="-c temp_file_limit=64kB"))
    with (
        contextlib.closing(limited),
        pytest.raises(StoreUnavailable, match=r"53400.*out of resources"),
    ):
        list(limited.capacity(ANY_BYTES))


def test_connections_are_counted_with_those_that_supervisors_need(store, monkeypatch):
    """Whoever they belong to; a supervisor needs two, if it lives."""
    with (
        psycopg.connect(libpq_url(server().url)),
        psycopg.connect(libpq_url(server().url)),
    ):
        before = facts_of(store)["connections"].figures

    def used():
        return facts_of(store)["connections"].figures["used"]

    # Not how many more they are: others, of earlier tests, may only just be ending.
    wait_until(lambda: used() <= before["used"] - 2, 60, "the two are not counted")
    for number in range(40):
        begin_run(store, f"many-{number}")
    begin_run(store, "gone", ttl_s=-60.0)
    found = facts_of(store)["connections"]
    assert found.figures["supervisors"] == before["supervisors"] + 40
    assert found.figures["left"] <= found.figures["usable"] - 80
    monkeypatch.setattr(capacity, "FREE_SHARE_MIN", 1.0)
    concern = facts_of(store)["connections"].concern
    assert concern.startswith(f"expected at least {found.figures['usable']} left")
    assert "raise max_connections" in concern


def test_a_large_table_is_named_first():
    """Tables with their large values, and each index, in a store that is really new."""
    url = server().fresh_url()
    with contextlib.closing(open_store(url)) as store:
        store.enqueue([new_job(payload=b'"%s"' % token_hex(1500).encode())] * 500)
        facts = facts_of(store)
    server().drop(url)
    assert facts["tables"].seen.startswith("jobs ")
    assert facts["tables"].figures["jobs"] > 2**18
    assert "others " in facts["indexes"].seen


def test_who_holds_a_lock_for_long_is_named(store, store_url, monkeypatch):
    """With what ends it."""
    monkeypatch.setattr(capacity, "WAIT_S_MAX", 0.0)
    table = sql.Identifier(query_of(store_url)["schema"], "pauses")
    lock = sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table)
    with psycopg.connect(libpq_url(server().url)) as holder, server().connect() as eye:
        holder.execute(lock)
        pid = holder.info.backend_pid

        def wait_in_line():
            with psycopg.connect(libpq_url(server().url)) as waiter:
                waiter.execute(lock)

        line = threading.Thread(target=wait_in_line)
        line.start()
        # Not by the facts: each time they wait for the table themselves, and briefly.
        # Nor by pg_locks: a session is in a lock's queue before it is said to wait.
        behind = (
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND %s = ANY(pg_blocking_pids(pid))"
        )
        wait_until(lambda: eye.execute(behind, [pid]).fetchone(), 60, "a waiter")
        fact = facts_of(store)["lock_waits"]
        assert fact.figures["waiting"]
        concern = fact.concern
        holder.rollback()
        line.join()
    assert "expected at most" in concern
    assert f"SELECT pg_terminate_backend({pid})" in concern
    assert facts_of(store)["lock_waits"].concern is None


@pytest.mark.parametrize(
    ("bound", "name", "remedy"),
    [
        (("ROUND_TRIP_S_MAX", 0.0), "latency", "run supervisors nearer to the server"),
        (("LOOK_S_MAX", 0.0), "latency", "see dead_rows, cache_hits and lock_waits"),
        (("HIT_SHARE_MIN", 1.1), "cache_hits", "raise shared_buffers"),
    ],
)
def test_what_is_over_its_bound_says_what_to_do(
    store, monkeypatch, bound, name, remedy
):
    """With what was expected."""
    for quiet in ("ROUND_TRIP_S_MAX", "LOOK_S_MAX"):
        monkeypatch.setattr(capacity, quiet, 3600.0)
    monkeypatch.setattr(capacity, "BLOCKS_MIN", 0)
    monkeypatch.setattr(capacity, *bound)
    concern = facts_of(store)[name].concern
    assert concern.startswith("expected at ")
    assert remedy in concern
