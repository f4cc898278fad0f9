"""Named queries on one SQLite connection, with errors in jobpool's words."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Mapping
from typing import Any

from jobpool.store.sqlite.connection import contention
from jobpool.store.sqlite.connection.errors import explain, is_busy
from jobpool.store.statements.named_sql import load_queries

BUSY_CHECK_S = 0.1
"""After so long it is looked who keeps a statement waiting; SQLite waits meanwhile."""
Row = tuple[Any, ...]
_QUERIES = load_queries("sqlite")
_BULKY = {
    "insert_payloads": "blobs",
    "insert_results": "blobs",
    "record_beats": "blobs",
    "store_result": "result",
    "store_part": "part",
    "store_last_part": "result",
}
"""Statements that store bytes of others, as many as there may be: the parameter's name
by the statement's."""
_TABLE = re.compile(r"\bjobpool_(?!step\b)\w+")


class Session:
    """Runs named queries on a connection, ours or a caller's.

    Attributes:
        connection: what it runs on.
        path: the database's file, for messages.
        bulk_bytes: payloads, results and the like that were written by it.

    Args:
        connection: what it runs on.
        path: the database's file.
        patience_s: longest wait for others' transactions, in seconds; on a caller's
            connection its own timeout counts alone.
    """

    __slots__ = ("bulk_bytes", "connection", "path", "patience_s")

    def __init__(
        self, connection: sqlite3.Connection, path: str, patience_s: float = 0.0
    ) -> None:
        self.connection = connection
        self.path = path
        self.patience_s = patience_s
        self.bulk_bytes = 0

    @property
    def place(self) -> str:
        """See `methods.session.Session`."""
        return self.path

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a query and fetch all of its rows.

        All of them, always: with RETURNING, a statement is not over until its last
        row has been fetched, and its transaction cannot commit before.

        Raises:
            StoreError: it failed and has changed nothing.
        """
        return self._execute(name, parameters)[0]

    def run(self, name: str, /, **parameters: Any) -> int:
        """Run a statement; return how many rows it changed.

        Raises:
            StoreError: it failed and has changed nothing.
        """
        return self._execute(name, parameters)[1]

    def value(self, name: str, /, **parameters: Any) -> Any:
        """Run a query; return the first column of its first row, or None."""
        rows = self.rows(name, **parameters)
        return rows[0][0] if rows else None

    def ask(self, *queries: tuple[str, Mapping[str, Any]]) -> list[list[Row]]:
        """See `methods.session.OwnSession`: nothing here is far away."""
        return [self.rows(name, **parameters) for name, parameters in queries]

    def _execute(
        self, name: str, parameters: Mapping[str, Any]
    ) -> tuple[list[Row], int]:
        try:
            rows, count = self._once(name, parameters)
        except (sqlite3.Error, OverflowError) as error:
            if not self.patience_s or not is_busy(error):
                raise self._explained(error, name) from error
            rows, count = self._again(name, parameters, error)
        if bulk := _BULKY.get(name):
            self.bulk_bytes += len(parameters[bulk])
        return rows, count

    def _once(self, name: str, parameters: Mapping[str, Any]) -> tuple[list[Row], int]:
        # Not sqlite3.Cursor(): the connection would note each for ever. A cursor()
        # of the caller's own, and the caller's row_factory, are passed by.
        cursor = sqlite3.Connection.cursor(self.connection, sqlite3.Cursor)
        cursor.row_factory = None
        try:
            cursor.execute(_QUERIES[name], parameters)
            # Fetching goes on executing: it can fail as well.
            rows = cursor.fetchall()
        except sqlite3.Error:
            # The traceback would keep the statement, and that keeps a connection
            # open which was closed, until nobody holds the writers' lock.
            cursor.close()
            raise
        return rows, cursor.rowcount

    def _again(
        self, name: str, parameters: Mapping[str, Any], error: Exception
    ) -> tuple[list[Row], int]:
        """Run a statement that met another's transaction until that is over."""
        deadline_s = time.monotonic() + self.patience_s - BUSY_CHECK_S
        while is_busy(error):
            contention.refuse_deadlock(self.path)
            if time.monotonic() >= deadline_s:
                known = contention.held_here(self.path, self.patience_s)
                raise known or self._explained(error, name) from error
            try:
                return self._once(name, parameters)
            except sqlite3.Error as latest:
                error = latest
        raise self._explained(error, name) from error

    def _explained(self, error: Exception, name: str) -> Exception:
        return explain(error, self.path, _table_of(_QUERIES[name]))


def _table_of(statement: str) -> str:
    """Return the first table of jobpool's that a statement names: its subject."""
    found = _TABLE.search(statement)
    return found[0] if found else ""
