"""An account of every change of a job's state, kept by the database itself.

Theory of operation. A trigger writes one row for each job that is made, changed or
deleted, in the very transaction that does it: what was rolled back leaves no row, and
the rows' order is the order of the changes. `Auditor` reads them while they come, so
that the nemesis and the producers can see how far things are. The rows have true time
(the database's own reading of the machine's clock), whatever a supervisor believes.
"""

import contextlib
import sqlite3
import threading
import time
from collections import deque
from typing import NamedTuple

import psycopg

from support.site.witnessing import Witness

TERMINAL = frozenset(("succeeded", "dead", "quarantined", "canceled"))
AUDIT_EVERY_S = 0.1
LATE_S = 15.0
"""Longer than the nemesis keeps a transaction from its commit."""
OLD = ("state", "token", "supervisor", "attempt", "cancel_requested")
NEW = (*OLD, "outcome", "slot")
SQLITE = """
CREATE TABLE chaos_audit (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, job INTEGER NOT NULL,
  old_state TEXT, old_token INTEGER, old_supervisor TEXT, old_attempt INTEGER,
  old_cancel INTEGER, state TEXT, token INTEGER, supervisor TEXT, attempt INTEGER,
  cancel INTEGER, outcome TEXT, slot TEXT
);
"""
SQLITE_NOW = """CAST(strftime('%s', 'now') AS INTEGER) * 1000
  + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)"""
CHANGED = (
    "old.state IS NOT new.state OR old.token IS NOT new.token"
    " OR old.cancel_requested IS NOT new.cancel_requested"
)
POSTGRES = """
CREATE TABLE {schema}.chaos_audit (
  seq bigserial PRIMARY KEY, at_ms bigint NOT NULL, job bigint NOT NULL,
  old_state text, old_token bigint, old_supervisor text, old_attempt integer,
  old_cancel boolean, state text, token bigint, supervisor text, attempt integer,
  cancel boolean, outcome text, slot text
);
CREATE FUNCTION {schema}.chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    IF old.state = new.state AND old.token IS NOT DISTINCT FROM new.token
       AND old.cancel_requested = new.cancel_requested THEN
      RETURN NULL;
    END IF;
  END IF;
  INSERT INTO {schema}.chaos_audit (
    at_ms, job, old_state, old_token, old_supervisor, old_attempt, old_cancel,
    state, token, supervisor, attempt, cancel, outcome, slot
  ) VALUES (
    floor(extract(epoch FROM clock_timestamp()) * 1000), coalesce(new.id, old.id),
    old.state, old.token, old.supervisor, old.attempt, old.cancel_requested,
    new.state, new.token, new.supervisor, new.attempt, new.cancel_requested,
    new.outcome, new.slot
  );
  RETURN NULL;
END $$;
CREATE TRIGGER chaos_note AFTER INSERT OR UPDATE OR DELETE ON {schema}.jobs
FOR EACH ROW EXECUTE FUNCTION {schema}.chaos_note();
"""


class Change(NamedTuple):
    """One row: a job before and after.

    None before it was made and after it was deleted.
    """

    seq: int
    at_ms: int
    job: int
    old_state: str | None
    old_token: int | None
    old_supervisor: str | None
    old_attempt: int | None
    old_cancel: int | None
    state: str | None
    token: int | None
    supervisor: str | None
    attempt: int | None
    cancel: int | None
    outcome: str | None
    slot: str | None


def install_sqlite(connection):
    """Install the audit triggers in a SQLite store."""
    connection.executescript(SQLITE)
    for event, when in (
        ("INSERT", "true"),
        ("UPDATE", CHANGED),
        ("DELETE", "true"),
    ):
        old = [f"old.{name}" if event != "INSERT" else "NULL" for name in OLD]
        new = [f"new.{name}" if event != "DELETE" else "NULL" for name in NEW]
        row = "old" if event == "DELETE" else "new"
        connection.execute(
            f"CREATE TRIGGER chaos_{event} AFTER {event} ON jobpool_jobs "
            f"WHEN {when} BEGIN INSERT INTO chaos_audit VALUES "
            f"(NULL, {SQLITE_NOW}, {row}.id, {', '.join(old + new)}); END"
        )


class Auditor(Witness):
    """Reads the account while it grows.

    PostgreSQL numbers rows before it commits them: a transaction whose supervisor is
    stopped comes late, with a number from before. So each reading begins with what was
    new some time ago.

    Args:
        place: opens connections of an observer.
    """

    def __init__(self, place):
        super().__init__()
        self._place = place
        self.changes: list[Change] = []
        self.unfinished = 0
        """How many jobs have not ended, as of the last reading."""
        self.audited = threading.Event()
        self._seen: set[int] = set()
        self._readings = deque([(0.0, 0)])
        """When each was, and the highest number seen by then."""

    def work(self):
        while not self._ends.is_set():
            with (
                contextlib.suppress(sqlite3.OperationalError, psycopg.OperationalError),
                contextlib.closing(self._place.observe()) as connection,
            ):
                while not self._ends.wait(AUDIT_EVERY_S):
                    self.read(connection)

    def catch_up(self):
        """Read what is still missing; call it after `finish`."""
        self._readings = deque([(0.0, 0)])
        with contextlib.closing(self._place.observe()) as connection:
            self.read(connection)

    def read(self, connection):
        """Read what is new."""
        now_s, (_at_s, last) = time.monotonic(), self._readings[-1]
        while len(self._readings) > 1 and self._readings[1][0] <= now_s - LATE_S:
            self._readings.popleft()
        for row in self._place.read_audit(connection, self._readings[0][1]):
            change = Change._make(row)
            if change.seq not in self._seen:
                self._seen.add(change.seq)
                last = max(last, change.seq)
                self.changes.append(change)
                was_open = change.old_state is not None and (
                    change.old_state not in TERMINAL
                )
                is_open = change.state is not None and change.state not in TERMINAL
                self.unfinished += is_open - was_open
        self._readings.append((now_s, last))
        self.audited.set()
