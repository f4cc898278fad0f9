"""Runs named queries on a SQLite connection, with jobpool's errors."""

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
"""SQLite waits this long by itself before it is checked what blocks a statement."""
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
"""Statements that store data of any size: the parameter's name by the statement's."""
_TABLE = re.compile(r"\bjobpool_(?!step\b)\w+")


class Session:
    """Runs named queries on a connection, ours or a caller's.

    Attributes:
        connection: what it runs on.
        path: the database's file, for messages.
        bulk_bytes: bytes of payloads, results and the like that it has written.

    Args:
        connection: what it runs on.
        path: the database's file.
        patience_s: longest wait for others' transactions, in seconds; a caller's
            connection only has its own timeout.
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
        """See `statements.session.Session`."""
        return self.path

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a query and fetch all of its rows.

        Always all of them: a statement with RETURNING is not finished until its last
        row has been fetched, and its transaction cannot commit before that.

        Raises:
            StoreError: it failed; nothing was changed.
        """
        return self._execute(name, parameters)[0]

    def run(self, name: str, /, **parameters: Any) -> int:
        """Run a statement; return how many rows it changed.

        Raises:
            StoreError: it failed; nothing was changed.
        """
        return self._execute(name, parameters)[1]

    def value(self, name: str, /, **parameters: Any) -> Any:
        """Run a query; return the first column of its first row, or None."""
        rows = self.rows(name, **parameters)
        return rows[0][0] if rows else None

    def ask(self, *queries: tuple[str, Mapping[str, Any]]) -> list[list[Row]]:
        """See `statements.session.OwnSession`: there are no round trips here."""
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
        # Not sqlite3.Cursor(): the connection would remember each for ever. The
        # caller's own cursor() and row_factory are bypassed.
        cursor = sqlite3.Connection.cursor(self.connection, sqlite3.Cursor)
        cursor.row_factory = None
        try:
            cursor.execute(_QUERIES[name], parameters)
            # Fetching continues the execution: it can fail as well.
            rows = cursor.fetchall()
        except sqlite3.Error:
            # The traceback would keep the statement alive, and with it a connection
            # that was closed, until long after the writers' lock is released.
            cursor.close()
            raise
        return rows, cursor.rowcount

    def _again(
        self, name: str, parameters: Mapping[str, Any], error: Exception
    ) -> tuple[list[Row], int]:
        """Retry a statement that met another transaction until that has ended."""
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
    """Return the first of jobpool's tables that a statement names."""
    found = _TABLE.search(statement)
    return found[0] if found else ""
