"""Erasing, proved on every column of every table that a database has.

The store in memory has no columns: an erased row is made anew from what stays.
"""

import sqlite3
from contextlib import closing

import pytest

from support.postgres.server import query_of, server
from support.store.quotas import KIND, enqueue, publish, quota
from support.store.storing import lease, succeeded
from support.store.telling import SECRET, lived

ENGINES = ["sqlite", "postgres"]
NOT_A_JOBS = {
    "meta": "counters",
    "runs": "supervisors",
    "reports": "supervisors' figures",
    "waits": "figures of a kind",
    "kinds": "what applications publish",
    "breakers": "kinds and runs",
    "pauses": "what operators name",
    "audit": "what operators say: its notes are erased by the action",
    "sketches": "figures of a kind",
    "misfits": "digests of schemas",
    "suspects": "times",
    "result_drafts": "numbers",
    "schedules": "what is to be enqueued, until the schedule is removed",
    "ticks": "numbers",
    "flows": "names that applications give; keys and tenants: see flows/test_people.py",
    "steps": "what applications name",
    "edges": "numbers",
    "flow_notes": "numbers",
    "lane_notes": "numbers",
    "permits": "numbers, and a run",
    "lanes": "what jobs that wait have in common; see below",
    "buckets": "what jobs are counted by; see below",
    "bucket_notes": "numbers",
    "fair_pools": "numbers",
    "shares": "whose turn it is; they go with buckets",
    "share_notes": "whose lane has opened, until the next claim",
    "quotas": "what operators set",
    "incidents": "names of rules, kinds, pools, quotas and schedules, and counts",
    "alerts": "likewise: no text of a job is told",
    "watch": "figures",
    "tenants": "what operators set, until it is removed",
}
"""Tables whose texts are no job's, and whose they are."""
STAYS = {
    "jobs": {"kind", "pool", "state", "outcome", "supervisor", "slot"},
    "attempts": {"outcome"},
}
"""Columns that a hand cannot fill with a secret, or that name no person."""


class Hand:
    """A direct connection to a store's database."""

    def __init__(self, store):
        self.is_file = store.url.startswith("sqlite")
        if self.is_file:
            path = store.url.removeprefix("sqlite:///")
            self.connection = sqlite3.connect(path, isolation_level=None)
            self.prefix = "jobpool_"
        else:
            self.connection = server().connect(store.url)
            self.schema = query_of(store.url)["schema"]
            self.prefix = f"{self.schema}."

    def rows(self, statement, *values):
        if not self.is_file:
            statement = statement.replace("?", "%s")
        return self.connection.execute(statement, values).fetchall()

    def change(self, statement, *values):
        if not self.is_file:
            statement = statement.replace("?", "%s")
        return self.connection.execute(statement, values).rowcount

    def tables(self):
        """Return the columns of each table: name to type, and those without NULL."""
        if self.is_file:
            names = self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
            return {
                name.removeprefix("jobpool_"): {
                    column: kind.lower()
                    for _, column, kind, *_ in self.rows(f"PRAGMA table_info({name})")
                }
                for (name,) in names
                if name.startswith("jobpool_")
            }
        found = {}
        for table, column, kind in self.rows(
            "SELECT c.table_name, c.column_name, c.data_type "
            "FROM information_schema.columns AS c "
            "JOIN information_schema.tables AS t USING (table_schema, table_name) "
            "WHERE c.table_schema = ? AND t.table_type = 'BASE TABLE'",
            self.schema,
        ):
            found.setdefault(table, {})[column] = kind
        return found

    def add_row(self, table, columns, job_id):
        """Insert a row of a job: numbers are 1, flags set."""
        values = {
            name: job_id if name == "job_id" else self._value(kind)
            for name, kind in columns.items()
        }
        marks = ", ".join("?" * len(values))
        self.change(
            f"INSERT INTO {self.prefix}{table} ({', '.join(values)}) VALUES ({marks})",  # noqa: S608 - our names
            *values.values(),
        )

    def _value(self, kind):
        if kind in TEXTS:
            return SECRET
        if kind == "boolean":
            return True
        return SECRET.encode() if kind in BLOBS else 1

    def telling(self):
        """Return the columns in which the secret stands."""
        found = set()
        for table, columns in self.tables().items():
            for name, kind in columns.items():
                if kind not in TEXTS | BLOBS:
                    continue
                values = self.rows(f"SELECT {name} FROM {self.prefix}{table}")  # noqa: S608 - our names
                if any(SECRET in _as_text(value) for (value,) in values):
                    found.add((table, name))
        return found


TEXTS, BLOBS = {"text", "jsonb", "character varying"}, {"blob", "bytea"}


def _as_text(value):
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


@pytest.fixture
def hand(store):
    hand = Hand(store)
    with closing(hand.connection):
        yield hand


def test_no_column_of_any_table_keeps_a_secret(store, hand):
    """Every text and blob that belongs to a job is filled, and is empty afterwards.

    A column that is added to such a table is filled as well. A new table must have a
    `job_id`, or say above whose its texts are.
    """
    job_id = lived(store)
    filled = set()
    for table, columns in hand.tables().items():
        if table in NOT_A_JOBS:
            continue
        owner = "id" if table == "jobs" else "job_id"
        assert owner in columns, f"{table}: whose are its texts?"
        secrets = {
            name
            for name, kind in columns.items()
            if kind in TEXTS | BLOBS and name not in STAYS.get(table, ())
        }
        own = f"FROM {hand.prefix}{table} WHERE {owner} = ?"
        if not hand.rows(f"SELECT 1 {own}", job_id):
            hand.add_row(table, columns, job_id)
        for name in secrets:
            value = SECRET.encode() if columns[name] in BLOBS else SECRET
            changed = hand.change(
                f"UPDATE {hand.prefix}{table} SET {name} = ? WHERE {owner} = ?",  # noqa: S608 - our names
                *(value, job_id),
            )
            assert changed, (table, name)
        filled |= {(table, name) for name in secrets}
    assert {("attempts", "traceback"), ("jobs", "key"), ("outputs", "output")} <= filled
    assert hand.telling() == filled
    assert store.erase([job_id]) == 1
    assert hand.telling() == set()


def test_what_an_erased_job_was_counted_by_is_gone(store, hand):
    """Its lane and its buckets too, unless another job waits there."""
    needs = {KIND: ["stripe"]}
    publish(store, quota(concurrency=2, per="args.vendor"), needs=needs)
    first, second = (
        enqueue(store, 1, values={"vendor": value})[0] for value in (SECRET, "other")
    )
    store.settle([succeeded(one) for one in lease(store)])
    enqueue(store, 1, values={"vendor": "other"})
    lease(store, limit=0)
    assert store.erase([first, second]) == 2
    assert hand.telling() == set()
    assert [row.value for row in store.buckets("stripe")] == ["other"]
