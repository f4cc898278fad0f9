"""A store that is in use is migrated beside its supervisors, whatever happens to it."""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from unittest import mock

import pytest
from psycopg import sql

from jobpool import JobPool
from jobpool.errors import StoreRefused, StoreUnavailable
from jobpool.store.opening import open_store
from jobpool.store.postgres import migrate as migrating
from jobpool.store.postgres.connection.connect import BoundedConnection
from jobpool.store.postgres.connection.session import Session
from jobpool.store.postgres.connection.steps import steps_of
from support.postgres.server import query_of, server, with_query
from support.store.old_stores import layout, make_old
from support.waiting import Running, wait_until

NEWEST = len(steps_of("jobpool"))
OLD = 4
"""The last version before steps had phases."""
WAIT_S = 60
LIMIT_S = 2
"""More than what is done before a migration takes away such limits, however busy."""


@pytest.fixture
def old_url():
    url = server().fresh_url()
    make_old(url, OLD)
    yield url
    server().drop(url)


@pytest.fixture
def new_layout():
    url = server().fresh_url()
    open_store(url).close()
    yield layout(url)
    server().drop(url)


@pytest.fixture
def told():
    """Collect what the operator is told; it is called with a line."""

    class Lines(list):
        def __call__(self, line):
            self.append(line)

    return Lines()


@contextlib.contextmanager
def reading(url):
    """Hold a transaction open that has read the jobs."""
    with server().connect(url) as connection:
        connection.execute("BEGIN")
        connection.execute(in_schema(url, "SELECT count(*) FROM {}.jobs"))
        yield connection
        connection.execute("ROLLBACK")


def in_schema(url, text):
    return sql.SQL(text).format(sql.Identifier(query_of(url)["schema"]))


class Beside(threading.Thread):
    """Migrates in a thread of its own."""

    def __init__(self, url, told):
        super().__init__(daemon=True)
        self.url, self.told = url, told
        self.version = None

    def run(self):
        self.version = migrating.migrate(self.url, self.told)

    def wait(self):
        self.join(WAIT_S)
        assert self.version == NEWEST
        return self


def test_an_older_store_is_refused_with_the_command_to_run(old_url):
    """Supervisors and clients migrate nothing that others use."""
    with pytest.raises(
        StoreRefused, match=rf"version 4.*needs {NEWEST}; run `jobpool migrate`"
    ):
        open_store(old_url)
    jobs = JobPool(old_url)
    work = jobs.job("cpu", kind="work")(lambda: None)
    with pytest.raises(StoreRefused, match="`jobpool migrate`"):
        work.enqueue()
    with server().connect(old_url) as connection:
        (version,) = connection.execute(
            in_schema(
                old_url, "SELECT value FROM {}.meta WHERE name = 'schema_version'"
            )
        ).fetchone()
    assert version == OLD


def test_no_claim_waits_long_behind_a_migration_that_waits_for_a_reader(
    old_url, told, new_layout, monkeypatch
):
    """It gives up its place in the queue, names the reader, and tries again."""
    assert migrating.LOCK_MS < 1000
    monkeypatch.setattr(migrating, "LOCK_MS", 600)
    with reading(old_url) as reader:
        beside = Beside(old_url, told)
        beside.start()
        waits_s = []  # of claims that came while it tried
        with server().connect(old_url) as claims, Running() as running:
            while len(told) < 3 or len(waits_s) < 3:
                began_s = time.monotonic()
                claims.execute(
                    in_schema(old_url, "UPDATE {}.jobs SET priority = 1 WHERE id = 1")
                )
                if (waited_s := running.ran_s(began_s)) > 0.1:
                    waits_s.append(waited_s)
        # Not the longest: a machine that is busy for long is not the migration's doing.
        assert statistics.median(waits_s) < 1.0
        assert all(f"process {reader.info.backend_pid} (" in line for line in told)
    beside.wait()
    assert layout(old_url) == new_layout


@pytest.mark.timeout(600)  # It migrates a store for each statement of a migration.
def test_a_migration_goes_on_from_wherever_its_connection_was_lost(told, new_layout):
    """Before each of its statements in turn, nothing is lost or done twice."""
    lost = 0
    while True:
        url = server().fresh_url()
        make_old(url, OLD)
        with losing_connection_at(lost):
            try:
                migrating.migrate(url, told)
                is_whole = True
            except StoreUnavailable:
                is_whole = False
        assert migrating.migrate(url, told) == NEWEST
        assert layout(url) == new_layout
        server().drop(url)
        if is_whole:
            break
        lost += 1
    adds_and_notes, records = 2, 2
    assert lost == sum(
        bool(step.lock)
        + adds_and_notes
        + sum(len(part.statements) for part in step.online)
        + records
        for step in steps_of("jobpool")[OLD:]
    )


@contextlib.contextmanager
def losing_connection_at(count):
    """End the session on the server before the statement of this number, from 0."""
    left = [count]

    def cutting(call, connection_of):
        def cut(self, *args, **options):
            if not left[0]:
                with server().connect() as other:
                    pid = connection_of(self).info.backend_pid
                    other.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
            left[0] -= 1
            return call(self, *args, **options)

        return cut

    execute, run = BoundedConnection.execute, Session.run
    with (
        mock.patch.object(
            BoundedConnection, "execute", cutting(execute, lambda one: one)
        ),
        mock.patch.object(Session, "run", cutting(run, lambda one: one.connection)),
    ):
        yield


def test_an_index_whose_build_was_killed_is_built_again(old_url, told, new_layout):
    """What the build has left is invalid: it costs each write, and serves no query."""
    program = (
        "import sys; from jobpool.store.postgres.migrate import migrate; "
        "migrate(sys.argv[1], print)"
    )
    with server().connect(old_url) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")  # A snapshot, but no lock of a table.
        process = subprocess.Popen(
            [sys.executable, "-c", program, old_url], stdout=subprocess.DEVNULL
        )
        backend = wait_until(lambda: builder_of(old_url), WAIT_S, "an index is built")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with server().connect() as other:
            other.execute("SELECT pg_terminate_backend(%s, 60000)", [backend])
        assert invalid_indexes(old_url) == ["jobs_in_lane"]
        with pytest.raises(StoreRefused, match="`jobpool migrate`"):
            open_store(old_url)
        reader.execute("ROLLBACK")
    assert migrating.migrate(old_url, told) == NEWEST
    assert layout(old_url) == new_layout


def builder_of(url):
    """Return the backend that waits for a snapshot with an index half built."""
    if not invalid_indexes(url):
        return None
    with server().connect() as other:
        row = other.execute(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%%'"
            " AND query LIKE %s AND wait_event = 'virtualxid'",
            [f"%{query_of(url)['schema']}.%"],
        ).fetchone()
    return row and row[0]


def invalid_indexes(url):
    with server().connect() as other:
        found = other.execute(
            "SELECT c.relname FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid"
            " WHERE NOT indisvalid AND c.relnamespace = to_regnamespace(%s)",
            [query_of(url)["schema"]],
        ).fetchall()
    return [name for (name,) in found]


def test_two_migrations_at_once_take_turns(old_url, told, new_layout):
    """The second waits without a snapshot, for which the first would wait."""
    with server().connect(old_url) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        first = Beside(old_url, told)
        first.start()
        wait_until(lambda: builder_of(old_url), WAIT_S, "an index is built")
        second_told = type(told)()
        second = Beside(old_url, second_told)
        second.start()
        wait_until(lambda: second_told, WAIT_S, "the second waits for its turn")
        reader.execute("ROLLBACK")
    first.wait()
    second.wait()
    assert second_told == [
        "another `jobpool migrate` is at work; this one waits for it"
    ]
    assert layout(old_url) == new_layout


def test_older_code_may_start_while_an_index_is_built(old_url, told):
    """It takes its own lock, sees its own version, and waits for nothing."""
    with server().connect(old_url) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        beside = Beside(old_url, told)
        beside.start()
        wait_until(lambda: builder_of(old_url), WAIT_S, "an index is built")
        with server().connect(old_url) as older, older.transaction():
            older.execute("SET LOCAL lock_timeout = 500")
            older.execute(
                "SELECT pg_advisory_xact_lock(1785684592, hashtext(%s))",
                [query_of(old_url)["schema"]],
            )
            (version,) = older.execute(
                in_schema(
                    old_url, "SELECT value FROM {}.meta WHERE name = 'schema_version'"
                )
            ).fetchone()
        assert version == OLD
        reader.execute("ROLLBACK")
    beside.wait()


def test_no_statement_of_a_migration_is_cut_off(old_url, told):
    """Whatever limit the role or the database has."""
    limits = f"-cstatement_timeout={LIMIT_S}s -clock_timeout={LIMIT_S}s"
    hasty = with_query(old_url, options=limits)
    with server().connect(old_url) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        beside = Beside(hasty, told)
        beside.start()
        backend = wait_until(lambda: builder_of(old_url), WAIT_S, "an index is built")
        age = "SELECT now() - query_start > %s * interval '1.1 s' FROM pg_stat_activity"
        with server().connect() as other:
            wait_until(
                lambda: other.execute(
                    f"{age} WHERE pid = %s", [LIMIT_S, backend]
                ).fetchone()[0],
                WAIT_S,
                "it takes longer than the limit",
            )
        reader.execute("ROLLBACK")
    beside.wait()


def test_a_store_behind_a_pooler_is_not_migrated(old_url, told, monkeypatch):
    """A lock of a session would be held by nobody there."""
    connect = migrating.connect
    monkeypatch.setattr(migrating, "connect", lambda *given: (connect(*given)[0], True))
    before = layout(old_url)
    with pytest.raises(StoreRefused, match=r"through a pooler.*Nothing was changed"):
        migrating.migrate(old_url, told)
    assert layout(old_url) == before


def test_tables_that_stay_in_use_are_told_in_the_end(old_url, told, monkeypatch):
    """With whose they are; nothing was changed."""
    monkeypatch.setattr(migrating, "LOCK_PATIENCE_S", 0.0)
    monkeypatch.setattr(migrating, "LOCK_MS", 100)
    before = layout(old_url)
    with reading(old_url) as reader:
        reader.execute("SELECT pg_sleep(1.1)")
        pid = reader.info.backend_pid
        with pytest.raises(StoreUnavailable, match=rf"in use by process {pid} \("):
            migrating.migrate(old_url, told)
    assert layout(old_url) == before


def test_rights_that_are_missing_are_named(old_url, told):
    """A role that may not change the tables is told so; nothing was changed."""
    with server().connect() as admin:
        admin.execute("CREATE ROLE t_nobody LOGIN PASSWORD 'nobody'")
        try:
            admin.execute(in_schema(old_url, "GRANT USAGE ON SCHEMA {} TO t_nobody"))
            admin.execute(
                in_schema(old_url, "GRANT ALL ON ALL TABLES IN SCHEMA {} TO t_nobody")
            )
            authority = server().tcp_url.rpartition("@")[2]
            url = with_query(
                f"postgresql://t_nobody:nobody@{authority}", **query_of(old_url)
            )
            with pytest.raises(StoreRefused, match="privilege"):
                migrating.migrate(url, told)
        finally:
            admin.execute("DROP OWNED BY t_nobody")
            admin.execute("DROP ROLE t_nobody")
