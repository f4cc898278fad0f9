"""Tables and columns that came later: a move takes along whatever is written."""

import contextlib
import sqlite3

import pytest

from jobpool.errors import StoreError, StoreRefused
from jobpool.store.move import move
from jobpool.store.move.portable_rows import JOB, JOB_LATER, RUN_LATER
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from jobpool.store.statements import flows, integrity
from support.postgres.server import query_of, server
from support.store.old_stores import STATES, make_old, old_versions

MOVED_OTHERWISE = {
    *("jobs", "payloads", "results", "result_parts", "result_drafts", "attempts"),
    *("runs", "kinds", "pauses", "suspects", "misfits", "breakers", "outputs", "meta"),
    "debounced",
}
NOT_MOVED = {
    "running": "of leases, and none is held",
    "lanes": "of jobs, which are stamped anew",
    "lane_notes": "of lanes",
    "buckets": "what was used of a rate, or blocked for a while",
    "permits": "of leases, and none is held",
    "bucket_notes": "of buckets",
    "fair_pools": "of those that lease there",
    "shares": "of lanes",
    "share_notes": "of lanes",
    "reports": "of runs that live",
    "flow_notes": "of steps, each of which is looked at",
    "incidents": "what is still wrong is found anew",
    "alerts": "of incidents",
    "watch": "of those who watch there",
    "waits": "what jobs have waited for there in the last hour",
}
OF_A_LEASE = {"token", "supervisor", "leased_at_ms", "cancel_requested"}
MADE_ANEW_OF_JOBS = {"lane"}
VALUES = {
    "quotas": [("stripe", 10.0, 1.0, 20, 8, 99, "ann", "slow", 5)],
    "tenants": [("acme", 5, 1.0, 60.0, 2, 0.5, "ann", 6)],
    "audit": [(9, "ann", "operator", "cli", "retry", "jobs 1", 1, None, "why not")] * 2,
    "sketches": [("k", "cpu", "memory", 2900, 300, 5, 1)],
    "schedules": [
        (
            *(4, "nightly", "shop", "v1", "k", "cpu", b"{}", None, "acme", 1),
            *('{"cron":"0 3 * * *"}', "{}", 9, 8, 90, 95, 99, 91, 2, 5, None, 7, 2**40),
            *("ann", "ä"),
        )
    ],
    "ticks": [
        (7, 4, 90, 91, "done", 1, "dead", 1, 95),
        (8, 4, 99, 100, "buffered", None, None, 0, None),
    ],
    "flows": [
        (3, "order", "k", "acme", "failed", "fail", "fail", 2, None, 80, 81, 99, 0),
        (4, "order", None, None, "open", "continue", None, 1, None, 80, None, None, 1),
    ],
    "steps": [
        (5, 4, 0, "charge", "ready", 0, None, 0, None, None),
        (6, 4, 1, "approve", "closed", 1, None, 1, 7000, None),
        (7, 4, 2, "tell", "skipped", 0, "failure", 0, None, 90),
    ],
    "edges": [(4, 5, 6, "succeeded")],
}
JOB_VALUES = (1, 7, "00-ab-cd-01", 2, None, '{"vendor":"a"}', "[3,1]", 5, 2, 3, 1)


@pytest.fixture
def source_url(tmp_path):
    url = f"sqlite:///{tmp_path}/jobs.db"
    open_store(url).close()
    return url


@pytest.fixture
def target_url():
    url = server().store_url()
    yield url
    server().drop(url)


@contextlib.contextmanager
def hand(url):
    path = url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        yield connection
        connection.commit()


def columns_of(connection, table):
    """Return the columns of a table; rows of the trail get new numbers."""
    told = connection.execute(f"PRAGMA table_info(jobpool_{table})")
    return [name for _, name, *_ in told if (table, name) != ("audit", "id")]


def furnish(url):
    """Put rows into these tables, and something into every later column."""
    with hand(url) as connection:
        for name, rows in VALUES.items():
            columns = ", ".join(columns_of(connection, name))
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(
                f"INSERT INTO jobpool_{name} ({columns}) VALUES ({marks})",  # noqa: S608 - our own
                rows,
            )
        connection.executescript("""
INSERT INTO jobpool_jobs (
  id, kind, pool, state, created_at_ms, run_at_ms, tick, codec, trace, replays, solo,
  lane, quota_values, throttled, step, generation, added_by
)
VALUES (
  1, 'k', 'cpu', 'waiting', 1, 1, 7, 'rot13', '00-ab-cd-01', 2, 1, 9, '{"vendor":"a"}',
  '[3,1]', 5, 2, 3
);
INSERT INTO jobpool_jobs (
  id, kind, pool, state, created_at_ms, run_at_ms, attempt, finished_at_ms
)
VALUES (2, 'k', 'cpu', 'dead', 1, 1, 1, 9);
INSERT INTO jobpool_payloads VALUES (1, x'7b7d'), (2, x'7b7d');
INSERT INTO jobpool_attempts (
  job_id, attempt, token, outcome, started_at_ms, finished_at_ms, app_version,
  memory_trail
)
VALUES (2, 1, 7, 'failed', 8, 9, 'v1', '[[0,1]]');
INSERT INTO jobpool_runs (
  id, host, boot_id, pid, pid_namespace, version, pools, started_at_ms,
  heartbeat_at_ms, lease_until_ms, ended_at_ms, format, application, app_version,
  app_since_ms
)
VALUES ('run-1', 'h', 'b', 1, 1, '0', '{}', 1, 1, 1, 9, 2, 'shop', 'v1', 5);
""")


def rows_of(url, table, columns):
    text = f"SELECT {', '.join(columns)} FROM {query_of(url)['schema']}.{table}"  # noqa: S608 - our own
    with server().connect(url) as connection:
        return sorted(map(tuple, connection.execute(text)), key=str)


def test_every_row_of_a_later_table_is_moved(source_url, target_url):
    """With the numbers by which they name each other."""
    furnish(source_url)
    move.move(source_url, target_url)
    for name, rows in VALUES.items():
        with hand(source_url) as connection:
            columns = columns_of(connection, name)
        assert rows_of(target_url, name, columns) == sorted(rows, key=str)
    assert rows_of(target_url, "jobs", ["id", *JOB_LATER])[0] == JOB_VALUES
    assert rows_of(target_url, "jobs", ["lane"]) == [(None,), (None,)]
    assert rows_of(target_url, "jobs", ["codec"]) == [("rot13",), (None,)]
    assert rows_of(target_url, "attempts", ["app_version", "memory_trail"]) == [
        ("v1", "[[0,1]]")
    ]
    assert rows_of(target_url, "runs", RUN_LATER) == [(2, "shop", "v1", 5)]
    with contextlib.closing(open_store(target_url)) as target:
        assert target.get(1).state == "waiting"


def test_numbers_that_were_moved_are_not_given_out_again(source_url, target_url):
    """A new schedule or tick comes after them."""
    furnish(source_url)
    move.move(source_url, target_url)
    schema = query_of(target_url)["schema"]
    with server().connect(target_url) as connection:
        (number,) = connection.execute(
            f"INSERT INTO {schema}.ticks"  # noqa: S608 - our own
            " (schedule, nominal_at_ms, stored_at_ms, state)"
            " VALUES (4, 200, 200, 'buffered') RETURNING id"
        ).fetchone()
    assert number == 9


def test_a_target_with_schedules_of_its_own_is_refused(source_url, target_url):
    """Nothing is moved; sketches can be merged."""
    furnish(source_url)
    open_store(target_url).close()
    schema = query_of(target_url)["schema"]
    with server().connect(target_url) as connection:
        connection.execute(
            f"INSERT INTO {schema}.sketches VALUES"  # noqa: S608 - our own
            " ('k', 'cpu', 'memory', 2900, 300, 2, 0);"
            f"INSERT INTO {schema}.schedules (name, kind, pool, payload, rule, options,"
            " updated_at_ms, since_ms, planned_at_ms)"
            " VALUES ('other', 'k', 'cpu', '', '', '', 1, 1, 1)"
        )
        with pytest.raises(StoreRefused, match="already has schedules"):
            move.move(source_url, target_url)
        with contextlib.closing(open_store(target_url)) as target:
            assert target.count(Filter()) == 0
        connection.execute(f"DELETE FROM {schema}.schedules")  # noqa: S608 - our own
    move.move(source_url, target_url)
    assert rows_of(target_url, "sketches", ["attempts", "censored"]) == [(7, 1)]


@pytest.mark.parametrize(
    ("table", "column", "wrong"),
    [
        ("audit", "note", "a\0b"),
        ("schedules", "name", "\ud800"),
        ("ticks", "id", 2**40),
        ("ticks", "state", "open"),  # but it has an end
    ],
)
def test_what_postgresql_cannot_hold_stays_behind_alone(
    source_url, target_url, table, column, wrong
):
    """As with damaged rows of other tables; numbers of any size are fine."""
    furnish(source_url)
    with hand(source_url) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        given = (
            wrong.encode("utf-8", "surrogatepass") if isinstance(wrong, str) else wrong
        )
        connection.execute(
            f"UPDATE jobpool_{table} SET {column} = CAST(? AS {kind_of(wrong)})"  # noqa: S608 - our own
            f" WHERE rowid = (SELECT min(rowid) FROM jobpool_{table})",
            [given],
        )
    move.move(source_url, target_url)
    found = rows_of(target_url, table, [column])
    kept = len(VALUES[table]) - isinstance(wrong, str)
    assert len(found) == kept


def kind_of(value):
    return "TEXT" if isinstance(value, str) else "INTEGER"


def test_every_table_and_column_is_moved_or_named_here(source_url):
    """A table or column that is added is not forgotten."""
    moved = {
        "quotas": set(integrity.QUOTA),
        "tenants": set(integrity.TENANT),
        "audit": set(integrity.AUDIT),
        "sketches": set(integrity.SKETCH),
        "schedules": set(integrity.SCHEDULE),
        "ticks": set(integrity.TICK),
        "flows": set(flows.FLOW),
        "steps": set(flows.STEP),
        "edges": set(flows.EDGE),
    }
    with hand(source_url) as connection:
        names = {
            name.removeprefix("jobpool_")
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
                " AND name LIKE 'jobpool_%'"
            )
        }
        assert names == {*moved, *MOVED_OTHERWISE, *NOT_MOVED}
        for name, columns in moved.items():
            assert set(columns_of(connection, name)) == columns
        left = {*columns_of(connection, "jobs")} - {*JOB} - {*JOB_LATER}
        assert left == OF_A_LEASE | MADE_ANEW_OF_JOBS


@pytest.mark.parametrize("version", old_versions("sqlite"))
def test_a_file_of_any_older_version_is_moved(tmp_path, target_url, version):
    """It is brought up to date first."""
    url = f"sqlite:///{tmp_path}/old.db"
    make_old(url, version)
    with hand(url) as connection:
        # No supervisor holds it; of the newest version a lease needs none either.
        connection.execute("DELETE FROM jobpool_jobs WHERE state = 'leased'")
    moved = move.move(url, target_url)
    assert moved.jobs == len(STATES) - 1
    assert moved.spoilt == {}


def test_a_table_that_cannot_be_read_is_an_error_of_the_store(source_url, target_url):
    """The move says so, without a traceback of the database's library."""
    path = source_url[10:]
    with contextlib.closing(sqlite3.connect(path)) as hand:
        ((page, page_bytes),) = hand.execute(
            "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size "
            "WHERE name = 'jobpool_audit'"
        )
        hand.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(path, "r+b") as file:  # noqa: PTH123 - one page of it
        file.seek((page - 1) * page_bytes)
        file.write(b"\xff" * page_bytes)
    with pytest.raises(StoreError, match=r"damaged|malformed"):
        move.move(source_url, target_url)
