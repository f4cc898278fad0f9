"""The tables reject states that no transition leads to, in every database.

Each state's row is written as it must be, and then with one or two columns changed: the
table accepts it exactly if the state machine's invariants hold.
"""

import itertools
import sqlite3

import psycopg
import pytest

from jobpool.core.jobs.job import FINISHED, JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.opening import open_store
from support.postgres.server import query_of, server

ENGINES = ["sqlite", "postgres"]
S = JobState
END_MS = 253_402_300_799_000  # of year 9999
REFUSED = (sqlite3.IntegrityError, psycopg.IntegrityError, psycopg.DataError)

PLAIN = {
    "attempt": 0,
    "token": None,
    "supervisor": None,
    "leased_at_ms": None,
    "cancel_requested": False,
    "finished_at_ms": None,
    "outcome": None,
}
OTHERWISE = {
    "attempt": (0, 1, -1),
    "token": (None, 7),
    "supervisor": (None, "run-1"),
    "leased_at_ms": (None, 7),
    "cancel_requested": (False, True),
    "finished_at_ms": (None, 7),
    "outcome": (None, "succeeded", "failed"),
}
ENDED = {"attempt": 1, "finished_at_ms": 7}
USUAL = {
    S.PENDING: {},
    S.WAITING: {},
    S.RUNNABLE: {},
    S.LEASED: {"attempt": 1, "token": 7, "supervisor": "run-1", "leased_at_ms": 7},
    S.SUCCEEDED: {**ENDED, "outcome": "succeeded"},
    S.DEAD: ENDED,
    S.QUARANTINED: {**ENDED, "outcome": "crashed"},
    S.CANCELED: {"finished_at_ms": 7},
}


def is_right(state, row):
    """Return what the lifecycle says about a row."""
    is_leased = state is S.LEASED
    lease = (row["token"], row["supervisor"], row["leased_at_ms"])
    return (
        all((one is not None) == is_leased for one in lease)
        and (is_leased or not row["cancel_requested"])
        and (state in FINISHED) == (row["finished_at_ms"] is not None)
        and row["attempt"] >= (state in {S.LEASED, S.SUCCEEDED, S.QUARANTINED})
        and (state is not S.SUCCEEDED or row["outcome"] == "succeeded")
        and (state is not S.QUARANTINED or row["outcome"] is not None)
    )


class Hand:
    """A direct connection that writes any rows."""

    def __init__(self, url):
        open_store(url).close()
        self.is_file = url.startswith("sqlite")
        if self.is_file:
            self.connection = sqlite3.connect(url.removeprefix("sqlite:///"))
            self.connection.isolation_level = None
        else:
            self.connection = server().connect(url)
            self.schema = query_of(url)["schema"]

    def insert(self, table, row):
        """Write a row; return whether the table accepted it."""
        columns = ", ".join(row)
        if self.is_file:
            name, values = f"jobpool_{table}", ", ".join("?" * len(row))
        else:
            name, values = f"{self.schema}.{table}", ", ".join(["%s"] * len(row))
        statement = f"INSERT INTO {name} ({columns}) VALUES ({values})"  # noqa: S608 - our own
        try:
            self.connection.execute(statement, tuple(row.values()))
        except REFUSED:
            return False
        return True

    def columns(self, table):
        """Return the columns of a SQLite table, each with its declared type."""
        rows = self.connection.execute(f"PRAGMA table_info(jobpool_{table})")
        return [(name, kind) for _, name, kind, *_ in rows]

    def job(self, state=S.RUNNABLE, **columns):
        """Write a job; return whether it was accepted."""
        row = {"kind": "k", "pool": "cpu", "state": state, "created_at_ms": 0}
        if not self.is_file:
            row["payload"] = b"{}"
        return self.insert("jobs", {**row, "run_at_ms": 0, **columns})

    def attempt(self, outcome):
        row = {"job_id": 1, "attempt": 1, "token": 1, "outcome": outcome}
        return self.insert("attempts", {**row, "started_at_ms": 0, "finished_at_ms": 0})


@pytest.fixture
def hand(new_store_url):
    hand = Hand(new_store_url())
    yield hand
    hand.connection.close()


@pytest.mark.parametrize("state", S)
def test_a_row_is_accepted_exactly_if_the_lifecycle_allows_it(hand, state):
    """With any values in any two of its columns."""
    usual = {**PLAIN, **USUAL[state]}
    assert is_right(state, usual)
    for names in itertools.combinations(OTHERWISE, 2):
        for values in itertools.product(*(OTHERWISE[name] for name in names)):
            row = usual | dict(zip(names, values, strict=True))
            assert hand.job(state, **row) == is_right(state, row), row


def test_states_and_outcomes_match_the_code(hand):
    """All of them and no other; a success is not a failed attempt."""
    usual = {**PLAIN, **USUAL[S.DEAD]}
    for outcome in Outcome:
        assert hand.job(S.DEAD, **{**usual, "outcome": outcome})
        assert hand.attempt(outcome) == (outcome is not Outcome.SUCCEEDED)
    assert not hand.job(S.DEAD, **{**usual, "outcome": "exploded"})
    assert not hand.attempt("exploded")
    assert not hand.job("blocked")
    assert not hand.job("blocked", finished_at_ms=7)


WRONG = {
    "INTEGER": ["many", "12 pence", "", 1.5, 1e300, -1e300, float("inf"), b"", b"12"],
    "TEXT": [b"", b"k", b"\xff"],
    "REAL": ["long", "1.5 s", "", b"", b"1.5"],
    "BLOB": ["", "text", 0, 1.5],
}
RIGHT = {"INTEGER": 7, "TEXT": "text", "REAL": 1.5, "BLOB": b"blob"}
NEEDS = {
    "token": S.LEASED,
    "supervisor": S.LEASED,
    "leased_at_ms": S.LEASED,
    "finished_at_ms": S.DEAD,
}
CHOICES = {"state", "outcome", "cancel_requested", "solo"}
NO_TYPES = {"id", "job_id"}
"""SQLite itself lets nothing but an integer be a key of rows."""


def test_sqlite_columns_take_one_type_only(tmp_path):
    """As in PostgreSQL: by default SQLite would store text among numbers."""
    hand = Hand(f"sqlite:///{tmp_path}/jobs.db")
    for name, kind in hand.columns("jobs"):
        if name in CHOICES | NO_TYPES:
            continue
        state = NEEDS.get(name, S.RUNNABLE)
        usual = {**PLAIN, **USUAL[state]}
        assert hand.job(state, **{**usual, name: RIGHT[kind]}), name
        for wrong in WRONG[kind]:
            assert not hand.job(state, **{**usual, name: wrong}), (name, wrong)
    for table, column in [("payloads", "payload"), ("results", "result")]:
        assert hand.insert(table, {"job_id": 1, column: b"{}"})
        for wrong in WRONG["BLOB"]:
            assert not hand.insert(table, {"job_id": 2, column: wrong}), table
    for table, row, column in [
        ("meta", {"name": "mine"}, "value"),
        ("suspects", {"job_id": 2}, "since_ms"),
        ("misfits", {"job_id": 2, "schema_digest": "a", "until_ms": 1}, "since_ms"),
        ("misfits", {"job_id": 3, "schema_digest": "a", "since_ms": 1}, "until_ms"),
        ("running", {"job_id": 2, "token": 1}, "updated_at_ms"),
    ]:
        for wrong in WRONG["INTEGER"]:
            assert not hand.insert(table, {**row, column: wrong}), (table, wrong)
        assert hand.insert(table, {**row, column: 7})
    hand.connection.close()


LATER = [
    *("audit", "outputs", "sketches", "quotas", "tenants", "lanes", "buckets"),
    *(
        "lane_notes",
        "bucket_notes",
        "permits",
        "schedules",
        "ticks",
        "flows",
        "steps",
        "edges",
    ),
    "flow_notes",
]
ONE_OF = {
    "measure": "memory",
    "waits": 1,
    "contested": 1,
    "backfilled": 1,
    "failed": 1,
    ("flows", "state"): "failed",
    ("steps", "state"): "skipping",
    "failure": "continue",
    "ending": "cancel",
    "hook": "finish",
    "is_external": 1,
    "is_erased": 1,
    ("ticks", "state"): "done",
    "job_state": "dead",
    "when_ended": "failed",
}


@pytest.mark.parametrize("table", LATER)
def test_sqlite_columns_of_later_tables_take_one_type_only(tmp_path, table):
    """And a choice takes nothing but what is among it."""
    hand = Hand(f"sqlite:///{tmp_path}/jobs.db")
    columns = dict(hand.columns(table))
    row = {
        name: ONE_OF.get((table, name), ONE_OF.get(name, RIGHT[kind]))
        for name, kind in columns.items()
    }
    assert hand.insert(table, row)
    hand.connection.execute(f"DELETE FROM jobpool_{table}")  # noqa: S608 - our own
    for name, kind in columns.items():
        for wrong in WRONG[kind]:
            assert not hand.insert(table, {**row, name: wrong}), (name, wrong)
        if row[name] != RIGHT[kind]:
            assert not hand.insert(table, {**row, name: RIGHT[kind]}), name
    hand.connection.close()


COUNTERS = ["attempt", "reset_attempt", "failures", "crashes", "snoozes"]


@pytest.mark.parametrize(
    ("column", "good", "bad"),
    [
        *(
            (name, [0, 1, 2**31 - 1], [-1, None])
            for name in [*COUNTERS, "interruptions", "recoveries"]
        ),
        ("priority", [-32768, 0, 32767], [-32769, 32768, None]),
        ("run_at_ms", [0, END_MS], [END_MS + 1, None]),
        ("kind", ["k"], [None]),
        ("pool", ["p"], [None]),
        ("created_at_ms", [0], [None]),
    ],
)
def test_columns_are_bounded(hand, column, good, bad):
    """Counters from 0, priorities in 16 bits, times within the calendar."""
    assert all(hand.job(**{column: value}) for value in good)
    assert not any(hand.job(**{column: value}) for value in bad)


INTEGERS = [
    *("max_attempts", "memory_bytes", "expires_at_ms", "started_at_ms"),
    *("last_heartbeat_at_ms", "peak_rss_bytes"),
]
REALS = ["timeout_s", "duration_s", "cpu_s"]
TEXTS = [
    *("key", "unique_text", "tenant", "slot", "reason", "error_class", "error"),
]
BLOBS = ["progress", "checkpoint"]


def test_columns_accept_only_their_type(hand):
    """A word is not a number and bytes are not text; NULL is none of them."""
    good = {"INTEGERS": 7, "REALS": 0.5, "TEXTS": "x", "BLOBS": b"x"}
    for names, value in zip(
        (INTEGERS, REALS, TEXTS, BLOBS), good.values(), strict=True
    ):
        for name in names:
            assert hand.job(**{name: value}), name
            assert hand.job(**{name: None}), name
    if not hand.is_file:
        return  # PostgreSQL's columns have types
    wrong = {
        **dict.fromkeys([*INTEGERS, *COUNTERS, "recoveries", "priority"], "x"),
        **dict.fromkeys(["run_at_ms", "created_at_ms", *REALS], "x"),
        **dict.fromkeys([*TEXTS, "kind", "pool"], b"x"),
        **dict.fromkeys(BLOBS, "x"),
        "cancel_requested": 2,
        "solo": 2,
    }
    for name, value in wrong.items():
        assert not hand.job(**{name: value}), name
    for name in ("failures", "attempt", "priority", "memory_bytes"):
        assert not hand.job(**{name: 1.5}), name
    lease = {**PLAIN, **USUAL[S.LEASED]}
    for name, value in {"token": "x", "supervisor": b"x", "leased_at_ms": "x"}.items():
        assert not hand.job(S.LEASED, **{**lease, name: value}), name
    assert not hand.job(S.DEAD, attempt=1, finished_at_ms="x")
    for table, column in (("payloads", "payload"), ("results", "result")):
        assert hand.insert(table, {"job_id": 1, column: b"x"})
        assert not hand.insert(table, {"job_id": 2, column: "x"})
        assert not hand.insert(table, {"job_id": 2, column: None})
    assert not hand.insert("meta", {"name": "a", "value": "x"})


def test_a_key_is_unique_in_its_kind_and_a_unique_text_among_unfinished_jobs(hand):
    """Two jobs that have ended may have had the same unique text."""
    assert hand.job(key="k")
    assert not hand.job(key="k")
    assert not hand.job(S.CANCELED, key="k", finished_at_ms=7)
    assert hand.job(key="k", kind="other")
    assert hand.job(unique_text="u")
    assert not hand.job(unique_text="u")
    assert not hand.job(S.PENDING, unique_text="u")
    assert hand.job(unique_text="u", kind="other")
    for _ in range(2):
        assert hand.job(S.CANCELED, unique_text="u", finished_at_ms=7)
        assert hand.job()


def test_a_pause_names_what_can_be_paused(hand):
    """Once each."""
    for what in ("pool", "kind", "tenant", "quota", "store"):
        assert hand.insert("pauses", {"what": what, "name": "a"})
        assert not hand.insert("pauses", {"what": what, "name": "a"})
    assert not hand.insert("pauses", {"what": "job", "name": "a"})


def test_a_stored_breaker_is_in_a_resting_state(hand):
    """And has counted a crash; a running trial is never stored."""
    row = {"kind": "a", "last_job": 1, "next_at_ms": 0, "changed_at_ms": 0}
    for state in ("closed", "slowed", "open"):
        assert hand.insert("breakers", {**row, "state": state, "crashes": 1})
        row["kind"] += "a"
    assert not hand.insert("breakers", {**row, "state": "trying", "crashes": 1})
    for crashes in (0, -1):
        assert not hand.insert("breakers", {**row, "state": "open", "crashes": crashes})
