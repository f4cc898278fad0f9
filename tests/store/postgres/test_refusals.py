"""What PostgreSQL refuses, each with the remedy; nothing is half done."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from psycopg import sql

from jobpool.core.formats import FORMAT
from jobpool.errors import ConfigError, StoreRefused, StoreUnavailable, UsageError
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.postgres.server import query_of, server, with_query
from support.store.storing import begin_run, lease, lease_one, new_job, succeeded
from support.waiting import wait_until

ROLE = "jobpool_tests_guest"
WORD = "correct horse"


@pytest.fixture
def admin():
    with server().connect() as connection:
        yield connection


@pytest.fixture
def guest(admin):
    """A role that may only connect; its URL over TCP, and its name."""
    if not server().is_ours:
        pytest.skip("JOBPOOL_TEST_POSTGRES is somebody's: no roles are made there")
    admin.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{WORD}'")
    authority = server().tcp_url.rpartition("@")[2]
    yield f"postgresql://{ROLE}:{WORD.replace(' ', '%20')}@{authority}"
    admin.execute(f"DROP OWNED BY {ROLE}")
    admin.execute(f"DROP ROLE {ROLE}")


@pytest.fixture
def empty_url():
    """A URL whose schema does not exist yet."""
    url = server().fresh_url()
    yield url
    server().drop(url)


@pytest.fixture
def wait_briefly(store_url):
    """Begin a transaction that takes a statement's locks until told to end."""
    schema = query_of(store_url)["schema"]
    with server().connect() as connection:

        def hold(query):
            connection.execute("BEGIN")
            connection.execute(sql.SQL(query).format(sql.Identifier(schema)))
            return connection

        yield hold
        connection.execute("ROLLBACK")


def test_a_wrong_password_is_refused_without_showing_it(guest):
    """The error names the password setting, and shows no password."""
    url = guest.replace("correct", "wrong")
    with pytest.raises(StoreRefused, match="password") as refused:
        open_store(with_query(url, schema="t_none"))
    assert "horse" not in str(refused.value)


@pytest.mark.parametrize("part", ["role", "database"])
def test_a_missing_role_or_database_is_refused(part):
    """Trying again would not help: it is refused, with what is missing."""
    authority = server().tcp_url.partition("//")[2]
    login, _, place = authority.partition("@")
    if part == "role":
        login = login.replace("jobpool_owner", "jobpool_nobody")
    else:
        place = place.replace("jobpool_tests", "jobpool_nothing")
    with pytest.raises(StoreRefused, match=r"login|password|database"):
        open_store(f"postgresql://{login}@{place}")


def test_missing_rights_to_make_the_schema_are_named(guest):
    """The remedy is a privilege, and no schema is left behind."""
    url = server().fresh_url(guest)
    with pytest.raises(StoreRefused, match="privilege"):
        open_store(url)
    with server().connect() as connection:
        found = connection.execute(
            "SELECT to_regnamespace(%s)", [query_of(url)["schema"]]
        ).fetchone()
    assert found == (None,)


def test_missing_rights_on_the_tables_are_named(store, store_url, guest):
    """A role without read access gets that error, not one about missing tables."""
    url = with_query(guest, schema=query_of(store_url)["schema"])
    with pytest.raises(StoreRefused, match=r"right|roles\.sql"):
        open_store(url).count(Filter())


def test_too_many_connections_is_unavailable(guest, admin, store, store_url):
    """It may be better soon: unavailable, and the remedy is named."""
    schema = sql.Identifier(query_of(store_url)["schema"])
    for grant in ("USAGE ON SCHEMA {}", "ALL ON ALL TABLES IN SCHEMA {}"):
        admin.execute(sql.SQL(f"GRANT {grant} TO {ROLE}").format(schema))
    admin.execute(f"ALTER ROLE {ROLE} CONNECTION LIMIT 1")
    url = with_query(guest, schema=query_of(store_url)["schema"])
    with (
        server().connect(url),
        pytest.raises(StoreUnavailable, match="connection"),
    ):
        open_store(url)


def test_a_locked_table_is_waited_for_briefly(store, wait_briefly):
    """It waits for seconds, not forever; afterwards everything works."""
    holder = wait_briefly("LOCK TABLE {}.jobs IN ACCESS EXCLUSIVE MODE")
    with pytest.raises(StoreUnavailable, match="lock"):
        store.enqueue([new_job()])
    holder.execute("ROLLBACK")
    assert store.enqueue([new_job()])[0].created
    assert store.count(Filter()) == 1


def test_a_locked_job_is_skipped(store, wait_briefly):
    """A forgotten transaction on one job delays only that job."""
    first, second = store.enqueue([new_job(), new_job()])
    holder = wait_briefly(f"SELECT FROM {{}}.jobs WHERE id = {first.id} FOR UPDATE")
    assert [one.id for one in lease(store)] == [second.id]
    holder.execute("ROLLBACK")
    assert [one.id for one in lease(store)] == [first.id]


def test_a_canceled_statement_is_unavailable(store, store_url):
    """As statement_timeout does: unavailable, nothing happened."""
    schema = query_of(store_url)["schema"]
    with server().connect(store_url) as owner:
        owner.execute(
            sql.SQL(
                "CREATE FUNCTION {0}.stop() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE query_canceled; END $$; "
                "CREATE TRIGGER stop BEFORE INSERT ON {0}.jobs "
                "FOR EACH ROW EXECUTE FUNCTION {0}.stop()"
            ).format(sql.Identifier(schema))
        )
        with pytest.raises(StoreUnavailable, match="too long"):
            store.enqueue([new_job()])
        owner.execute(
            sql.SQL("DROP TRIGGER stop ON {}.jobs").format(sql.Identifier(schema))
        )
    assert store.enqueue([new_job()])[0].created


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("40001", StoreUnavailable),
        ("40P01", StoreUnavailable),
        ("53300", StoreUnavailable),
        ("53100", StoreUnavailable),
        ("55P03", StoreUnavailable),
        ("57014", StoreUnavailable),
        ("XX001", StoreUnavailable),
        ("42501", StoreRefused),
        ("22003", StoreRefused),
    ],
)
def test_every_sort_of_trouble_is_a_store_error(store, store_url, state, error):
    """None becomes a job's failure or jobpool's bug, and everything is undone."""
    schema = sql.Identifier(query_of(store_url)["schema"])
    with server().connect(store_url) as owner:
        owner.execute(
            sql.SQL(
                "CREATE FUNCTION {0}.fail() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION USING ERRCODE = {1}; END $$; "
                "CREATE TRIGGER fail BEFORE UPDATE ON {0}.jobs "
                "FOR EACH ROW EXECUTE FUNCTION {0}.fail()"
            ).format(schema, sql.Literal(state))
        )
        store.enqueue([new_job()])
        with pytest.raises(error):
            lease(store)
        owner.execute(sql.SQL("DROP TRIGGER fail ON {}.jobs").format(schema))
    granted = lease_one(store)
    assert granted.attempt == 1
    assert all(store.settle([succeeded(granted)]))


def test_a_newer_schema_is_used_on_postgresql(store, store_url):
    """It can be used, unless it may hold what this jobpool cannot honour."""
    with server().connect(store_url) as owner:
        schema = sql.Identifier(query_of(store_url)["schema"])
        change = sql.SQL("UPDATE {}.meta SET value = 99 WHERE name = {}")
        owner.execute(change.format(schema, "schema_version"))
        with contextlib.closing(open_store(store_url)) as newer:
            begin_run(newer, "run-2")
            newer.enqueue([new_job()])
            assert lease_one(newer, "run-2").attempt == 1
        owner.execute(change.format(schema, "min_format"))
    told = rf"format 99, schema version 99.*formats up to {FORMAT}; upgrade"
    with pytest.raises(StoreRefused, match=told):
        open_store(store_url)


def test_another_applications_schema_is_refused(empty_url):
    """A foreign table named meta: nothing is made beside it."""
    schema = sql.Identifier(query_of(empty_url)["schema"])
    with server().connect(empty_url) as owner:
        owner.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        owner.execute(sql.SQL("CREATE TABLE {}.meta (colour text)").format(schema))
        with pytest.raises(StoreRefused):
            open_store(empty_url)
        tables = owner.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = %s",
            [query_of(empty_url)["schema"]],
        ).fetchone()
    assert tables == (1,)


def test_a_database_in_another_encoding_is_refused(admin):
    """Its texts could not be stored.

    Refused, with the command that makes a right one.
    """
    if not server().is_ours:
        pytest.skip("JOBPOOL_TEST_POSTGRES is somebody's: no database is made there")
    admin.execute(
        "CREATE DATABASE jobpool_latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
    )
    try:
        with pytest.raises(StoreRefused, match=r"LATIN1.*createdb"):
            open_store(server().admin_url.replace("/jobpool_tests", "/jobpool_latin"))
    finally:
        # A session ends later than its connection; DROP waits for one for 5 s only.
        of_it = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'jobpool_latin'"
        wait_until(lambda: admin.execute(of_it).fetchone() == (0,), 60, "nobody is in")
        admin.execute("DROP DATABASE jobpool_latin")


@pytest.mark.timeout(300)  # Eight interpreters start at the same time.
def test_eight_processes_can_migrate_at_once(empty_url):
    """All of them start, on one schema of one version."""
    program = (
        "import sys; from jobpool.store.opening import open_store; sys.stdin.read(1); "
        "store = open_store(sys.argv[1]); store.enqueue([]); store.close()"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty_url],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(8)
    ]
    for process in started:
        process.stdin.write(b"x")
        process.stdin.flush()
    said = [process.communicate(timeout=240)[1] for process in started]
    assert [(p.returncode, err) for p, err in zip(started, said, strict=True)] == [
        (0, b"")
    ] * 8


def test_a_process_killed_while_migrating_leaves_nothing_half_made(empty_url):
    """The next process makes it, and no lock is left."""
    program = (
        "import sys; from jobpool.store.postgres.connection import connect; "
        "connect._run_script = lambda *_: (print(flush=True), sys.stdin.read()); "
        "from jobpool.store.opening import open_store; open_store(sys.argv[1])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, empty_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
    store = open_store(empty_url)
    begin_run(store)
    assert store.enqueue([new_job()])[0].created
    store.close()


@pytest.mark.parametrize(
    "new",
    [
        {"key": "a\0b"},
        {"unique": "a\0b"},
        {"tenant": "\ud800"},
        {"key": "\udfff"},
        {"priority": 2**31},
        {"run_at_ms": 2**63},
        {"max_attempts": 2**64},
        {"memory_bytes": 2**63},
    ],
    ids=str,
)
def test_values_that_postgresql_cannot_store_are_refused(store, new):
    """The error says why; the job before it in the same call is not stored either."""
    with pytest.raises(UsageError):
        store.enqueue([new_job(), new_job(**new)])
    assert store.count(Filter()) == 0
    assert store.enqueue([new_job()])[0].created


@pytest.mark.parametrize(
    "payload", [b"", b"\0", b"\xff\xfe", b'"\\u0000"', b"x" * 2**20]
)
def test_bytes_are_stored_unchanged(store, payload):
    """NULs, invalid UTF-8, nothing at all: they come back as they went in."""
    (made,) = store.enqueue([new_job(payload=payload)])
    granted = lease_one(store)
    assert (granted.payload, store.payload(made.id)) == (payload, payload)
    assert all(store.settle([succeeded(granted, payload)]))
    assert store.get(made.id).result == payload


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "\x1b[31m"])
def test_evidence_is_stored_whatever_it_says(store, text):
    """A child's last message cannot prevent its end from being written."""
    from jobpool.core.jobs.outcome import Outcome
    from support.store.storing import ended

    store.enqueue([new_job()])
    granted = lease_one(store)
    settlement = ended(granted, Outcome.FAILED, now_ms=store_now(store))
    evidence = type(settlement.evidence)(reason=text, error=text, output=text)
    fields = {name: getattr(settlement, name) for name in settlement.__struct_fields__}
    assert all(store.settle([type(settlement)(**fields | {"evidence": evidence})]))
    (attempt,) = store.attempts(granted.id)
    assert attempt.reason


def store_now(store):
    return store.open_runs()[0].started_at_ms


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host:notaport/db",
        "postgresql://h/db?schema=Robert'); DROP TABLE",
        "postgresql://h/db?schema=pg_catalog",
        "postgresql://h/db?nonsense=1",
        "postgresql://h/d\0b",
        "postgresql://[::1/db",
    ],
)
def test_a_wrong_url_is_refused_at_once(url):
    """Before anything is opened, without the password."""
    with pytest.raises(ConfigError):
        open_store(url)


def test_a_missing_server_is_unavailable():
    """Unavailable, within seconds."""
    with pytest.raises(StoreUnavailable):
        open_store("postgresql://me:hunter2@127.0.0.1:1/db")
