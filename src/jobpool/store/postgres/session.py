"""Named queries on one PostgreSQL connection, with errors in jobpool's words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from jobpool.store.methods.session import Row
from jobpool.store.postgres.address import DEFAULT_SCHEMA
from jobpool.store.postgres.faults import explain
from jobpool.store.queries import load_migrations, load_queries

ServerLife = tuple[str, str]
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

    Attributes:
        connection: what it runs on.
        schema: where the queue's tables are.
        begun_ms: the store's clock when the open transaction began.
        xid: its number.
        server_life: timeline, and when the statistics began: while both are the same,
            the server gives no number out twice.
    """

    __slots__ = (
        "_place",
        "_queries",
        "begun_ms",
        "connection",
        "schema",
        "server_life",
        "xid",
    )

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str, place: str
    ) -> None:
        self.connection = connection
        self.schema = schema
        self.begun_ms: int | None = None
        self.xid = ""
        self.server_life: ServerLife = ("", "")
        self._place = place
        self._queries = queries_of(schema)

    @property
    def place(self) -> str:
        """See `methods.session.Session`."""
        return self._place

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a query and fetch all of its rows.

        Raises:
            StoreError: it failed; the transaction, if one is open, has failed too.
        """
        return self._execute(name, parameters)[0]

    def run(self, name: str, /, **parameters: Any) -> int:
        """Run a statement; return how many rows it changed.

        Raises:
            StoreError: as `rows`.
        """
        return self._execute(name, parameters)[1]

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

    def begin(self) -> None:
        """Begin a transaction, within bounds, and read the store's clock.

        Raises:
            StoreUnavailable: it could not be begun.
        """
        try:
            with self.connection.cursor(row_factory=tuple_row) as cursor:
                # Several statements at once cannot be prepared.
                cursor.execute(self._queries["begin"].encode(), prepare=False)
                while cursor.nextset():
                    pass
                (row,) = cursor.fetchall()
                self.begun_ms, self.xid, file, since = row[:4]
                self.server_life = (file[_TIMELINE], since)
        except psycopg.Error as error:
            raise explain(error, self._place) from error

    def _execute(
        self, name: str, parameters: Mapping[str, Any]
    ) -> tuple[list[Row], int]:
        try:
            with self.connection.cursor(row_factory=tuple_row) as cursor:
                cursor.execute(
                    self._queries[name].encode(),
                    parameters or None,
                    # Outside of a transaction of ours nothing keeps the planner from
                    # plans that suit a small table for ever: it is asked each time.
                    prepare=None if self.begun_ms is not None else False,
                    binary=True,
                )
                rows = cursor.fetchall() if cursor.description else []
                return rows, cursor.rowcount
        except psycopg.Error as error:
            raise explain(error, self._place) from error
