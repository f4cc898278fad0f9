"""Stores on PostgreSQL that are emptied and used again.

Theory of operation. To make the tables of a store costs the server ten times as much as
to empty them, and most tests want a store without caring who made it. A store that
comes back is emptied, its sequences restarted, and its counters and random numbers set
as in a new one. One whose tables, rules, rights or functions are no longer those that
it was made with is dropped: what they are is read from the catalogue's rows, whose
transaction ids tell of every change.
"""

import secrets
import threading
from collections.abc import Callable
from typing import NamedTuple

import psycopg
from psycopg import sql

CATALOGUE = """
WITH mine AS (
  SELECT
    oid,
    concat_ws(
      ' ', relname, relkind, relowner, relacl, reloptions, relchecks,
      relrowsecurity, relreplident, relpersistence, reltablespace
    ) AS facts
  FROM pg_class
  WHERE relnamespace = %(schema)s::regnamespace
)
SELECT sum(hashtextextended(fact, 0)::numeric)::text
FROM (
  SELECT facts AS fact FROM mine
  UNION ALL
  SELECT concat_ws(' ', 'n', xmin, oid) FROM pg_namespace
  WHERE oid = %(schema)s::regnamespace
  UNION ALL
  SELECT concat_ws(' ', 'a', xmin, attrelid, attnum) FROM pg_attribute
  WHERE attrelid IN (SELECT oid FROM mine)
  UNION ALL
  SELECT concat_ws(' ', 'd', xmin, oid) FROM pg_attrdef
  WHERE adrelid IN (SELECT oid FROM mine)
  UNION ALL
  SELECT concat_ws(' ', 'i', xmin, indexrelid) FROM pg_index
  WHERE indrelid IN (SELECT oid FROM mine)
  UNION ALL
  SELECT concat_ws(' ', 'c', xmin, oid) FROM pg_constraint
  WHERE connamespace = %(schema)s::regnamespace
  UNION ALL
  SELECT concat_ws(' ', 't', xmin, oid) FROM pg_trigger
  WHERE tgrelid IN (SELECT oid FROM mine)
  UNION ALL
  SELECT concat_ws(' ', 'r', xmin, oid) FROM pg_rewrite
  WHERE ev_class IN (SELECT oid FROM mine)
  UNION ALL
  SELECT concat_ws(' ', 's', xmin, seqrelid) FROM pg_sequence
  WHERE seqrelid IN (SELECT oid FROM mine)
  UNION ALL
  SELECT concat_ws(' ', 'p', xmin, oid) FROM pg_proc
  WHERE pronamespace = %(schema)s::regnamespace
)
"""
USED_TABLES = """
SELECT relname FROM pg_class
WHERE relnamespace = %(schema)s::regnamespace AND relkind = 'r'
  AND (pg_relation_size(oid) > 0 OR relname = 'flow_notes')
"""
RESTART = """
SELECT setval(seqrelid, seqstart, false) FROM pg_sequence
WHERE seqrelid IN (
  SELECT oid FROM pg_class WHERE relnamespace = %(schema)s::regnamespace
)
"""
RANDOM = frozenset({"store_id", "ref_key_high", "ref_key_low"})
"""Counters that differ from store to store."""


class _Made(NamedTuple):
    catalogue: str
    counters: dict[str, int]


class Recycler:
    """Stores of one server, for one test after the other, or several at once.

    Args:
        connect: opens a connection of a role that may do everything.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection | None = None
        self._made: dict[str, _Made] = {}
        self._idle: list[str] = []
        self._turn = threading.Lock()

    def take(self) -> str | None:
        """Return the schema of a store that is as new, if there is one."""
        with self._turn:
            return self._idle.pop() if self._idle else None

    def learn(self, schema: str) -> None:
        """Remember what a store is like that has just been made."""
        with self._turn:
            rows = self._rows(sql.SQL("SELECT name, value FROM {}.meta"), schema)
            self._made[schema] = _Made(self._catalogue(schema), dict(rows))

    def give_back(self, schema: str) -> bool:
        """Empty a store; return False if it must be dropped.

        Raises:
            psycopg.errors.LockNotAvailable: a transaction in it was forgotten.
        """
        with self._turn:
            made = self._made.get(schema)
            if made is None:
                return False
            if self._catalogue(schema) != made.catalogue:
                del self._made[schema]
                return False
            self._empty(schema, made)
            self._idle.append(schema)
            return True

    def disconnect(self) -> None:
        """Let the server stop."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _empty(self, schema: str, made: _Made) -> None:
        # Not TRUNCATE: it makes and unlinks the files of all their indexes.
        names = [name for (name,) in self._rows(USED_TABLES, schema)]
        # Jobs first: members of flows that are deleted leave notes.
        names.sort(key="jobs".__ne__)
        tables = [sql.Identifier(schema, name) for name in names]
        counters = made.counters | {name: secrets.randbits(59) for name in RANDOM}
        connection = self._open()
        with connection.transaction():
            # No trigger writes into a table that is empty already.
            connection.execute("SET LOCAL session_replication_role = replica")
            for table in tables:
                connection.execute(sql.SQL("DELETE FROM {}").format(table))
            connection.execute(RESTART, {"schema": schema})
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} SELECT * FROM unnest(%s::text[], %s::bigint[])"
                ).format(sql.Identifier(schema, "meta")),
                [list(counters), list(counters.values())],
            )
        vacuum = sql.SQL("VACUUM {}").format(sql.SQL(", ").join(tables))
        connection.execute(vacuum)

    def _catalogue(self, schema: str) -> str:
        ((catalogue,),) = self._rows(CATALOGUE, schema)
        return catalogue

    def _rows(self, query: sql.SQL | str, schema: str) -> list[tuple]:
        if isinstance(query, sql.SQL):
            query = query.format(sql.Identifier(schema))
        return self._open().execute(query, {"schema": schema}).fetchall()

    def _open(self) -> psycopg.Connection:
        if self._connection is None:
            self._connection = self._connect()
            self._connection.execute("SET client_min_messages = error")
            # A forgotten transaction should be named, not waited for.
            self._connection.execute("SET lock_timeout = '30s'")
        return self._connection
