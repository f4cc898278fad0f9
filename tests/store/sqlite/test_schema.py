"""Schema: versions, foreign tables, invariants as CHECKs, views, indexes for plans."""

import contextlib
import sqlite3
import threading

import pytest

from jobpool.core.formats import FORMAT
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import FeatureHeldBack, StoreRefused
from jobpool.store.opening import open_store
from jobpool.store.sqlite.connection import connect
from jobpool.store.statements.named_sql import load_migrations
from support.store.quotas import publish, quota, stamped
from support.store.storing import begin_run, ended, lease, lease_one, new_job

NEWEST = len(load_migrations("sqlite"))


def test_a_fresh_database_has_the_newest_schema(store, by_hand):
    """And its header says whose it is."""
    assert store.describe()["schema_version"] == str(NEWEST)
    (application_id,) = by_hand.execute("PRAGMA application_id").fetchone()
    assert application_id.to_bytes(4, "big") == b"jobp"


def test_every_schema_object_has_our_prefix(store, by_hand):
    """Users may have their own tables in the same file."""
    names = by_hand.execute("SELECT name FROM sqlite_master").fetchall()
    assert all(name.startswith(("jobpool_", "sqlite_")) for (name,) in names)


def test_a_newer_schema_is_used_and_kept(store_factory, by_hand):
    """What newer code has added is in nobody's way."""
    store_factory()
    change = "UPDATE jobpool_meta SET value = ? WHERE name = ?"
    by_hand.execute(change, (NEWEST + 1, "schema_version"))
    store = store_factory()
    begin_run(store)
    store.enqueue([new_job()])
    assert lease_one(store).attempt == 1
    assert store.describe()["schema_version"] == str(NEWEST + 1)


def test_a_store_that_may_hold_what_this_code_cannot_honour_is_refused(
    store_factory, by_hand
):
    """Both formats are named, and the remedy; nothing is changed."""
    store_factory()
    change = "UPDATE jobpool_meta SET value = ? WHERE name = ?"
    by_hand.execute(change, (NEWEST + 1, "schema_version"))
    by_hand.execute(change, (FORMAT + 1, "min_format"))
    told = (
        rf"\(format {FORMAT + 1}, schema version {NEWEST + 1}\), this jobpool knows "
        rf"formats up to {FORMAT}; upgrade"
    )
    with pytest.raises(StoreRefused, match=told):
        store_factory()


def test_a_run_of_old_is_refused_by_the_table_itself(store_factory, by_hand):
    """Code from before formats has opened the store, and enters without asking."""
    store = store_factory()
    enter = (
        "INSERT INTO jobpool_runs (id, host, boot_id, pid, pid_namespace, version, "
        "pools, started_at_ms, heartbeat_at_ms, lease_until_ms) "
        "VALUES (?, 'a', 'boot', 17, 1, '0.1.0', '{}', 0, 0, 0)"
    )
    by_hand.execute(enter, ("early",))
    with pytest.raises(FeatureHeldBack, match=r"jobpool 0\.1\.0 on host a, pid 17"):
        store.require(FORMAT)
    store.end_run("early")
    store.require(FORMAT)
    with pytest.raises(sqlite3.IntegrityError, match="upgrade jobpool"):
        by_hand.execute(enter, ("late",))
    assert store.open_runs() == []


def test_foreign_tables_under_our_names_are_refused(database_path, by_hand):
    """And left as they are."""
    by_hand.execute("CREATE TABLE jobpool_jobs (mine TEXT)")
    with pytest.raises(StoreRefused, match="are not jobpool's"):
        open_store(f"sqlite:///{database_path}")
    by_hand.execute("CREATE TABLE jobpool_meta (mine TEXT)")
    with pytest.raises(StoreRefused, match="are not jobpool's"):
        open_store(f"sqlite:///{database_path}")
    tables = by_hand.execute("SELECT count(*) FROM sqlite_master").fetchone()
    assert tables == (2,)


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    """Each step is one transaction; what came before it stays."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    open_store(url).close()
    broken = "CREATE TABLE jobpool_more (id);\nCREATE TABLE jobpool_more (id);\n"
    steps = (*load_migrations("sqlite"), broken)
    with monkeypatch.context() as patch:
        patch.setattr(connect, "load_migrations", lambda database: steps)
        with pytest.raises(Exception, match="already exists"):
            open_store(url)
    store = open_store(url)
    assert store.describe()["schema_version"] == str(NEWEST)
    store.enqueue([new_job()])
    store.close()


def test_sqlite_in_defensive_mode_is_refused_and_nothing_changes(tmp_path, monkeypatch):
    """There PRAGMA writable_schema does nothing, without an error."""
    path = tmp_path / "jobs.db"
    steps, edits = load_migrations("sqlite"), "writable_schema = ON"
    before_it = next(n for n, step in enumerate(steps) if edits in step)
    monkeypatch.setattr(connect, "load_migrations", lambda database: steps[:before_it])
    open_store(f"sqlite:///{path}").close()
    before = dumped(path)
    defensive = [step.replace(edits, "table_list") for step in steps]
    monkeypatch.setattr(connect, "load_migrations", lambda database: defensive)
    with pytest.raises(StoreRefused, match="defensive mode"):
        open_store(f"sqlite:///{path}")
    assert dumped(path) == before


def dumped(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_an_older_schema_is_migrated(tmp_path, monkeypatch):
    """Its jobs are still there."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    old = open_store(url)
    (answer,) = old.enqueue([new_job()])
    old.close()
    steps = (*load_migrations("sqlite"), "CREATE TABLE jobpool_more (id);\n")
    monkeypatch.setattr(connect, "load_migrations", lambda database: steps)
    store = open_store(url)
    assert store.describe()["schema_version"] == str(NEWEST + 1)
    assert store.payload(answer.id) == b"{}"
    store.close()


def test_many_processes_may_make_the_same_new_store(tmp_path):
    """The first one makes it, the others find it made."""
    errors = []

    def make():
        try:
            store = open_store(f"sqlite:///{tmp_path}/jobs.db")
            store.enqueue([new_job()])
            store.close()
        except Exception as error:  # noqa: BLE001 - any error fails the test below
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


INSERT = """
INSERT INTO jobpool_jobs (kind, pool, state, created_at_ms, run_at_ms, {columns})
VALUES ('k', 'cpu', {state}, 0, 0, {values})
"""


@pytest.mark.parametrize(
    ("state", "values"),
    [
        ("'blocked'", {}),
        ("'waiting'", {"finished_at_ms": 1}),
        ("'waiting'", {"token": 1}),
        ("'runnable'", {"token": 1}),
        ("'runnable'", {"finished_at_ms": 1}),
        ("'runnable'", {"cancel_requested": 1}),
        ("'runnable'", {"priority": "'high'"}),
        ("'runnable'", {"priority": 40000}),
        ("'runnable'", {"attempt": -1}),
        ("'runnable'", {"attempt": "'many'"}),
        ("'runnable'", {"failures": 1.5}),
        ("'runnable'", {"key": "x'00'"}),
        ("'runnable'", {"outcome": "'exploded'"}),
        ("'runnable'", {"timeout_s": "'soon'"}),
        ("'runnable'", {"expires_at_ms": "'never'"}),
        ("'leased'", {"attempt": 1, "token": 1, "supervisor": "'a'"}),
        ("'leased'", {"attempt": 1, "token": 1, "leased_at_ms": 1}),
        ("'leased'", {"token": 1, "supervisor": "'a'", "leased_at_ms": 1}),
        ("'succeeded'", {"attempt": 1, "outcome": "'succeeded'"}),
        ("'succeeded'", {"attempt": 1, "finished_at_ms": 1}),
        ("'succeeded'", {"finished_at_ms": 1, "outcome": "'succeeded'"}),
        ("'quarantined'", {"attempt": 1, "finished_at_ms": 1}),
        ("'dead'", {"attempt": 1}),
    ],
    ids=str,
)
def test_a_state_that_no_transition_leads_to_cannot_be_written_by_hand(
    store, by_hand, state, values
):
    """The state machine's invariants are constraints."""
    columns = ", ".join(["tenant", *values])
    given = ", ".join(["NULL", *map(str, values.values())])
    statement = INSERT.format(state=state, columns=columns, values=given)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
        by_hand.execute(statement)


def test_a_valid_row_can_be_written_by_hand(store, by_hand):
    """The constraints above do not simply refuse everything."""
    by_hand.execute(INSERT.format(state="'runnable'", columns="priority", values=5))
    by_hand.execute("INSERT INTO jobpool_payloads VALUES (1, CAST('{}' AS BLOB))")
    granted = store.lease("run-1", {"cpu": 1}, {"cpu": ["k"]}).leases
    assert [one.payload for one in granted] == [b"{}"]


@pytest.mark.parametrize(
    "view",
    [
        "jobpool_stats",
        "jobpool_oldest_runnable",
        "jobpool_dead_letters",
        "jobpool_leases",
        "jobpool_figures",
        "jobpool_job_records",
        "jobpool_newest_kinds",
        "jobpool_scaling",
    ],
)
def test_views_work_in_the_shell(store, by_hand, view):
    """They need none of our functions."""
    assert by_hand.execute(f"SELECT * FROM {view}").fetchall() == []  # noqa: S608 - our own names


def test_views_show_dead_letters_leases_and_waiting_jobs(store, by_hand, clock):
    """Dead letters with their reasons, leases with their ends, waiting jobs."""
    store.enqueue([new_job()] * 3)
    store.settle([ended(lease_one(store), Outcome.CRASHED, give_up=True)])
    lease_one(store)
    dead = by_hand.execute(
        "SELECT id, state, outcome, reason FROM jobpool_dead_letters"
    )
    assert dead.fetchall() == [(1, "dead", "crashed", "the handler gave up")]
    leases = by_hand.execute("SELECT id, supervisor, lease_until FROM jobpool_leases")
    assert leases.fetchall() == [(2, "run-1", "2027-01-15 08:01:00")]
    waiting = by_hand.execute("SELECT pool, kind, jobs FROM jobpool_oldest_runnable")
    assert waiting.fetchall() == [("cpu", "shop.thumbnail", 1)]


def test_views_tell_what_waits_for_a_quota(store, by_hand):
    """Its age is not that of what could run."""
    publish(store, quota(concurrency=1, per="tenant"))
    store.enqueue([stamped(tenant="a")] * 3)
    lease(store)
    view = (
        "SELECT jobs, blocked, oldest_open_age_s IS NULL FROM jobpool_oldest_runnable"
    )
    assert by_hand.execute(view).fetchall() == [(2, 2, 1)]
    store.enqueue([stamped(tenant="b")] * 2)
    assert by_hand.execute(view).fetchall() == [(4, 2, 0)]


def test_reopening_needs_no_migration_lock(store_factory, by_hand):
    """A second store opens while a run is active."""
    first = store_factory()
    begin_run(first)
    second = store_factory()
    assert [run.id for run in second.open_runs()] == ["run-1"]
