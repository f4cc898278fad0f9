"""Runs named queries on a PostgreSQL connection, with jobpool's errors.

Theory of operation. A round trip takes longer than most queries, and planning a query
longer than executing it. So the beginning of a transaction (BEGIN, its settings, a
savepoint) is not sent by itself but ahead of the next query, in one round trip; and
queries that do not depend on each other are sent together. Plans are kept for the few
statements with only one possible plan, so that a plan from when the table was small is
right for a large one; all others are planned each time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.pq.abc import PGresult

from jobpool.errors import JobpoolBug
from jobpool.store.postgres.connection.errors import explain
from jobpool.store.postgres.connection.pipeline import Wire
from jobpool.store.postgres.connection.url import DEFAULT_SCHEMA
from jobpool.store.statements.named_sql import load_migrations, load_queries
from jobpool.store.statements.session import Query, Row

ServerLife = tuple[str, str]
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_BEGIN, _BEGUN, _SAVEPOINT = "begin", "begun", "savepoint"
_BEGINNING = (_BEGIN, _BEGUN)
_COMMITTED = b"COMMIT"
_CLAIM_READS = frozenset(
    {
        *(
            "lanes_look",
            "lanes_of_jobs",
            "find_stragglers",
            "last_of_priority",
            "open_lanes",
        ),
        *("lock_buckets", "try_buckets", "permits_in_use", "lock_lanes"),
        *("lane_heads", "contested_buckets", "wanted_buckets"),
        "freed_buckets",
        *("lock_fair_pools", "share_notes_look", "fair_lanes", "next_of_lanes"),
    }
)
"""What leasing from lanes reads and locks."""
_CLAIM_WRITES = frozenset(
    {
        *("take_lane_notes", "join_lanes", "take_bucket_notes", "free_lanes"),
        *("insert_permits", "leave_lanes", "change_buckets", "open_due_lanes"),
        *("free_permits", "note_refunds"),
        *("take_share_notes", "join_shares", "spend_shares", "set_clocks"),
        "leave_shares",
    }
)
_FOLD = frozenset(
    {
        *("flow_noted", "flow_overdue", "lock_flows", "delete_flow_notes"),
        *("flow_heads", "flow_steps", "steps_before", "edges_out", "flows_left"),
        *("set_steps", "open_members"),
    }
)
"""What folding a flow reads and writes while nothing of it fails."""
_KEPT = (
    _CLAIM_READS
    | _CLAIM_WRITES
    | _FOLD
    | {
        *("insert_job", "lease_status", "lease_candidates", "lease_jobs", "room_left"),
    }
)
"""Their plans are kept. Once a transaction runs any other query with parameters, it
plans all of them each time."""
_READS = _CLAIM_READS | {
    *("lease_status", "lease_candidates", "count_runnable", "room_left", "rollback"),
}
"""They change nothing: a transaction of these only is rolled back, since a commit waits
for the disk, and is in doubt if its answer is lost. An idle supervisor does no more."""
_TIMELINE = slice(0, 8)
"""The timeline's part of a WAL file's name."""
_QUALIFIER = re.compile(rf"\b{DEFAULT_SCHEMA}(?=\.|$)")
"""The schema before one of our names, or at the end of a statement."""


@cache
def queries_of(schema: str) -> Mapping[str, str]:
    """Return the named queries for a queue in *schema*, a checked plain name."""
    return MappingProxyType(
        {
            name: _QUALIFIER.sub(schema, text)
            for name, text in load_queries("postgres").items()
        }
    )


@cache
def migrations_of(schema: str) -> tuple[str, ...]:
    """Return the migrations for a queue in *schema*, a checked plain name."""
    return tuple(_QUALIFIER.sub(schema, text) for text in load_migrations("postgres"))


class Session:
    """Runs named queries on one of our connections.

    A transaction begins with its first query; BEGIN, settings and savepoints are sent
    along with that.

    Attributes:
        connection: what it runs on.
        has_written: the open transaction may have changed something.
        schema: where the queue's tables are.
        known_ms: the store's clock when the open transaction began; None: it has not.
        xid: the open transaction's number.
        server_life: the timeline, and when the statistics began: while both are the
            same, the server gives no number out twice.
    """

    __slots__ = (
        "_ahead",
        "_place",
        "_plans_anew",
        "_wire",
        "connection",
        "has_written",
        "known_ms",
        "schema",
        "server_life",
        "xid",
    )

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str, place: str
    ) -> None:
        self.connection = connection
        self.schema = schema
        self.known_ms: int | None = None
        self.xid = ""
        self.server_life: ServerLife = ("", "")
        self._ahead: list[str] = []
        self.has_written = False
        self._plans_anew = False
        self._place = place
        self._wire = Wire(connection, queries_of(schema))

    @property
    def place(self) -> str:
        """See `statements.session.Session`."""
        return self._place

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a query and fetch all of its rows.

        Raises:
            StoreError: it failed; the transaction, if one is open, has failed too.
        """
        return self._wire.rows(self._execute((name, parameters))[0])

    def run(self, name: str, /, **parameters: Any) -> int:
        """Run a statement; return how many rows it changed.

        Raises:
            StoreError: as `rows`.
        """
        return self._execute((name, parameters))[0].command_tuples or 0

    def value(self, name: str, /, **parameters: Any) -> Any:
        """Run a query; return the first column of its first row, or None."""
        rows = self.rows(name, **parameters)
        return rows[0][0] if rows else None

    def outcome_of(self, xid: str) -> tuple[str | None, ServerLife]:
        """Return a transaction's status, and the server's life now.

        Raises:
            StoreRefused: this server has not given out such a number.
            StoreError: the server cannot be asked.
        """
        ((status, file, since),) = self.rows("outcome_of", xid=xid)
        return status, (file[_TIMELINE], since)

    def ask(self, *queries: Query) -> list[list[Row]]:
        """See `statements.session.OwnSession`.

        Raises:
            StoreError: as `rows`.
        """
        return [self._wire.rows(result) for result in self._execute(*queries)]

    def begin(self) -> None:
        """Begin a transaction, with its timeouts, along with the next query."""
        self.forget()
        self._ahead += _BEGINNING

    def clock_ms(self) -> int | None:
        """Return the store's clock when the transaction began; None: none is open.

        Raises:
            StoreUnavailable: it could not be begun.
        """
        if _BEGIN in self._ahead:
            self._execute()
        return self.known_ms

    def begin_step(self) -> None:
        """Set a savepoint, along with the next query."""
        self._ahead.append(_SAVEPOINT)

    def end_step(self) -> None:
        """Release the savepoint."""
        self._ahead.append("release")

    def undo_step(self) -> None:
        """Roll back to the savepoint.

        Raises:
            StoreError: it failed; the transaction has failed too.
        """
        if self._ahead and self._ahead[-1] == _SAVEPOINT:
            self._ahead.pop()
        elif self.known_ms is not None:
            self._plans_anew = False  # The setting is rolled back as well.
            self.run("rollback_to")
            self.run("release")

    def end(self, name: str, *, wakes: bool = False) -> None:
        """Commit or roll back; nothing is sent if no query was.

        Args:
            name: of the query.
            wakes: wake supervisors as well, if something is committed.

        Raises:
            StoreError: it failed.
            JobpoolBug: a statement of the transaction had failed unnoticed; it was
                rolled back.
        """
        has_begun = _BEGIN not in self._ahead
        self._ahead.clear()
        if has_begun and wakes and self.has_written:
            self._end_and_wake(name)
        elif has_begun:
            name = name if self.has_written else "rollback"
            self._require_committed(name, self._execute((name, _NOTHING))[0])

    def forget(self) -> None:
        """Reset the state of the transaction, which has ended."""
        self._ahead.clear()
        self.has_written = False
        self._plans_anew = False
        self.known_ms = None
        self.xid = ""

    def _execute(self, *queries: Query) -> list[PGresult]:
        """Run the statements that were put off, and queries, in one round trip."""
        ahead = self._ahead
        is_ours = bool(ahead) or self.known_ms is not None
        plans_anew = (
            is_ours
            and not self._plans_anew
            and any(given and name not in _KEPT for name, given in queries)
        )
        if plans_anew:
            ahead = [*ahead, "plan_anew"]
        wire = self._wire
        try:
            # Nothing is prepared outside of our transactions, where no setting keeps
            # the planner from caching a plan that only suits a small table.
            sent = [
                wire.statement(name, given, may_be_kept=is_ours)
                for name, given in (*((name, _NOTHING) for name in ahead), *queries)
            ]
            # Nothing was sent before this point, so `_ahead` had to be kept.
            self._ahead = []
            self._plans_anew |= plans_anew
            self.has_written |= any(name not in _READS for name, _ in queries)
            results, error = wire.ask(sent)
        except psycopg.Error as failed:
            raise explain(failed, self._place) from failed
        if _BEGUN in ahead[: len(results)]:
            self._note_begun(results[ahead.index(_BEGUN)])
        if error is not None:
            raise explain(error, self._place) from error
        return results[len(ahead) :]

    def _end_and_wake(self, name: str) -> None:
        """Commit, and wake supervisors in the same round trip after the transaction.

        The wake-up is a hint: once the commit is known it may fail; supervisors poll.
        """
        statement = self._wire.statement
        sent = [statement(one, _NOTHING, may_be_kept=True) for one in (name, "wake")]
        try:
            results, error = self._wire.ask(sent)
        except psycopg.Error as failed:
            raise explain(failed, self._place) from failed
        if error is not None and not results:
            raise explain(error, self._place) from error
        self._require_committed(name, results[0])

    def _require_committed(self, name: str, result: PGresult) -> None:
        """Refuse a COMMIT that the server has answered with ROLLBACK.

        It does so, without an error, if a statement of the transaction had failed.
        """
        if name == "commit" and result.command_status != _COMMITTED:
            raise JobpoolBug(
                f"a transaction on {self._place} was committed after one of its "
                "statements had failed; the server has rolled it back: none of it is "
                "stored. Please report this"
            )

    def _note_begun(self, result: PGresult) -> None:
        """Store the facts that the server has returned about the new transaction."""
        ((self.known_ms, self.xid, file, since, _),) = self._wire.rows(result)
        self.server_life = (file[_TIMELINE], since)
