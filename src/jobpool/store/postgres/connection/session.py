"""Named queries on one PostgreSQL connection, with errors in jobpool's words.

Theory of operation. The way to the server and back takes longer than most queries, and
to plan a query longer than to execute it. So what a transaction begins with (BEGIN, its
settings, a savepoint) is not sent by itself: it goes ahead of the next query, in one
round trip; and queries that do not depend on each other are asked together. Plans are
kept for the few statements that can go but one way, so that a plan from when the table
was small is right for a large one; every other one is planned each time.
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
_KEPT = frozenset(
    {"insert_job", "lease_status", "lease_candidates", "lease_jobs", "room_left"}
)
"""Their plans are kept. A transaction with any other query that is given something
plans all such queries anew from there on."""
_READS = frozenset(
    {"lease_status", "lease_candidates", "count_runnable", "room_left", "rollback"}
)
"""They change nothing: what looked only is rolled back, since a commit waits for the
disk, and is in doubt when its answer is lost. An idle supervisor does nothing else."""
_TIMELINE = slice(0, 8)
"""Of a WAL file's name."""
_QUALIFIER = re.compile(rf"\b{DEFAULT_SCHEMA}(?=\.|$)")
"""Before a name of ours, or the schema itself at the end of a statement."""


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
    """Runs named queries on a connection of ours.

    A transaction begins with the first query in it, and what goes before that (BEGIN,
    settings, savepoints) is sent along: the way there and back takes longer than they.

    Attributes:
        connection: what it runs on.
        has_written: the open transaction may have changed something.
        schema: where the queue's tables are.
        known_ms: the store's clock when the open transaction began; None: it has not.
        xid: its number.
        server_life: timeline, and when the statistics began: while both are the same,
            the server gives no number out twice.
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
        """Return what became of a transaction, and the server's life now.

        Raises:
            StoreRefused: this server has not given out such a number.
            StoreError: it cannot be asked.
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
        """Begin a transaction, within bounds, with the next query."""
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
        """Set a savepoint, with the next query."""
        self._ahead.append(_SAVEPOINT)

    def end_step(self) -> None:
        """Keep what was done since the savepoint."""
        self._ahead.append("release")

    def undo_step(self) -> None:
        """Undo what was done since the savepoint.

        Raises:
            StoreError: it failed; the transaction has failed too.
        """
        if self._ahead and self._ahead[-1] == _SAVEPOINT:
            self._ahead.pop()
        elif self.known_ms is not None:
            self._plans_anew = False  # A setting is undone as well.
            self.run("rollback_to")
            self.run("release")

    def end(self, name: str, *, wakes: bool = False) -> None:
        """Commit, or roll back, what has begun; there may be nothing to commit.

        Args:
            name: of the query.
            wakes: wake supervisors as well, if something is committed.

        Raises:
            StoreError: it failed.
            JobpoolBug: a statement of the transaction had failed, and nobody had
                noticed; it was rolled back.
        """
        has_begun = _BEGIN not in self._ahead
        self._ahead.clear()
        if has_begun and wakes and self.has_written:
            self._end_and_wake(name)
        elif has_begun:
            name = name if self.has_written else "rollback"
            self._require_committed(name, self._execute((name, _NOTHING))[0])

    def forget(self) -> None:
        """No transaction is open any more."""
        self._ahead.clear()
        self.has_written = False
        self._plans_anew = False
        self.known_ms = None
        self.xid = ""

    def _execute(self, *queries: Query) -> list[PGresult]:
        """Run what goes ahead, and queries, in one round trip."""
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
            # Outside of a transaction of ours nothing keeps the planner from plans that
            # suit a small table for ever: there nothing is prepared.
            sent = [
                wire.statement(name, given, may_be_kept=is_ours)
                for name, given in (*((name, _NOTHING) for name in ahead), *queries)
            ]
            # Up to here nothing was sent, so what goes ahead has still to go.
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
        """Commit; and ring, in the same trip but after the transaction.

        The ring is a hint: once the commit is known it may fail, supervisors poll.
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
        """Believe no COMMIT that the server has answered with ROLLBACK.

        It does so, and calls it a success, when a statement of the transaction failed.
        """
        if name == "commit" and result.command_status != _COMMITTED:
            raise JobpoolBug(
                f"a transaction on {self._place} was committed after a statement of it "
                "had failed; the server has rolled it back: nothing of it is stored. "
                "Please report this"
            )

    def _note_begun(self, result: PGresult) -> None:
        """Take what was said of the new transaction."""
        ((self.known_ms, self.xid, file, since, _),) = self._wire.rows(result)
        self.server_life = (file[_TIMELINE], since)
