"""Sends several statements in one round trip, and reads their answers.

Theory of operation. A cursor of psycopg works out for every statement how to write,
prepare and decode it, and takes longer for that than the server does for most of ours.
Ours are always the same few: each is converted to the server's syntax once, prepared
when it has been sent a few times, and sent directly through libpq's pipeline mode.
psycopg adapts the values and the rows.

A round trip ends with the server's message that it has answered everything. If it ends
in any other way the connection is closed: later answers would be taken for those of the
next round trip.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from jobpool.store.statements.session import Row

KEPT_MAX = 100
"""At most this many statements are prepared on a connection: the first that recur."""
COUNTED_MAX = 1000
_NAME = re.compile(r"%\((\w+)\)s|%%")

Shape = tuple[str, tuple[int, ...]]
"""A query's name and the types of its parameters, which determine its plan."""


_Prepared = tuple[Shape, bytes]
"""A statement, and the name under which it is prepared."""


class Statement(NamedTuple):
    """A statement to send."""

    text: bytes
    shape: Shape
    values: Sequence[Buffer | None]
    formats: Sequence[Format]
    may_be_kept: bool


class Answers(NamedTuple):
    """The results in order, up to the first that failed."""

    results: list[PGresult]
    error: psycopg.Error | None


class Wire:
    """Sends statements on one of our connections, and leaves it idle.

    Args:
        connection: nothing is prepared if it has no `prepare_threshold`.
        queries: by name, in psycopg's syntax.
    """

    __slots__ = (
        "_come",
        "_connection",
        "_dump",
        "_kept",
        "_load",
        "_named",
        "_queries",
    )

    def __init__(
        self, connection: psycopg.Connection[Any], queries: Mapping[str, str]
    ) -> None:
        self._connection = connection
        self._queries = queries
        self._dump = Transformer(connection)
        self._load = Transformer(connection)
        self._come: dict[Shape, int] = {}
        """How often each unprepared statement has been sent."""
        self._kept: dict[Shape, bytes] = {}
        """The names of the prepared ones."""
        self._named = 0

    def statement(
        self, name: str, given: Mapping[str, Any], *, may_be_kept: bool
    ) -> Statement:
        """Build a statement; nothing is sent.

        Raises:
            psycopg.DataError: the server cannot represent one of the values.
        """
        text, names = _written(self._queries[name])
        if not names:
            return Statement(text, (name, ()), (), (), may_be_kept)
        dump = self._dump
        values = dump.dump_sequence(
            [given[name] for name in names], [PyFormat.AUTO] * len(names)
        )
        shape = name, tuple(dump.types or ())
        return Statement(text, shape, values, tuple(dump.formats or ()), may_be_kept)

    def ask(self, statements: Sequence[Statement]) -> Answers:
        """Send statements, and wait for all answers.

        Returns:
            The answers. An error without an SQLSTATE comes from the connection, which
            is then closed: statements without an answer may have been executed.
        """
        pgconn = self._connection.pgconn
        lost: psycopg.Error | None = None
        found: list[PGresult] = []
        order: list[_Prepared | None] = []
        try:
            pgconn.enter_pipeline_mode()
            order = self._send(pgconn, statements)
            pgconn.pipeline_sync()
            self._connection.wait(_answers(pgconn, found))
            pgconn.exit_pipeline_mode()
        except psycopg.Error as error:
            self._connection.close()
            lost = error
        except BaseException:
            self._connection.close()
            raise
        return self._sorted(found, order, lost)

    def rows(self, result: PGresult) -> list[Row]:
        """Return the rows of a result; none if the statement returns no rows."""
        if not result.nfields:
            return []
        self._load.set_pgresult(result)
        return self._load.load_rows(0, result.ntuples, tuple)

    def _send(
        self, pgconn: PGconn, statements: Sequence[Statement]
    ) -> list[_Prepared | None]:
        """Pass statements to libpq.

        Returns:
            For each expected answer the statement that it reports as prepared, and its
            name; None: it answers a statement.
        """
        order: list[_Prepared | None] = []
        new: dict[Shape, bytes] = {}
        for text, shape, values, formats, may_be_kept in statements:
            kept = self._kept.get(shape) or new.get(shape) if may_be_kept else None
            if kept is None and may_be_kept and self._comes_often(shape):
                kept = new[shape] = self._new_name()
                pgconn.send_prepare(kept, text, shape[1])
                order.append((shape, kept))
            if kept is None:
                pgconn.send_query_params(text, values, shape[1], formats, Format.BINARY)
            else:
                pgconn.send_query_prepared(kept, values, formats, Format.BINARY)
            order.append(None)
        return order

    def _comes_often(self, shape: Shape) -> bool:
        threshold = self._connection.prepare_threshold
        if threshold is None or len(self._kept) >= KEPT_MAX:
            return False
        if len(self._come) >= COUNTED_MAX:
            self._come.clear()
        come = self._come.get(shape, 0)
        self._come[shape] = come + 1
        return come >= threshold

    def _new_name(self) -> bytes:
        self._named += 1
        return b"jobpool_%d" % self._named

    def _sorted(
        self,
        found: list[PGresult],
        order: list[_Prepared | None],
        lost: psycopg.Error | None,
    ) -> Answers:
        results: list[PGresult] = []
        for result, prepared in zip(found, order, strict=False):
            if result.status not in _FINE:
                return Answers(results, error_from_result(result))
            if prepared is None:
                results.append(result)
            else:
                shape, name = prepared
                self._kept[shape] = name
                self._come.pop(shape, None)
        return Answers(results, lost)


_FINE = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK})


def _answers(pgconn: PGconn, found: list[PGresult]) -> PQGen[None]:
    """Send what was passed to libpq; collect all answers.

    Raises:
        psycopg.Error: the connection was lost.
    """
    yield from send(pgconn)
    while results := (yield from fetch_many(pgconn)):
        if results[0].status == ExecStatus.PIPELINE_SYNC:
            return
        found += results
    raise psycopg.OperationalError("the connection was closed before all was answered")


@cache
def _written(query: str) -> tuple[bytes, tuple[str, ...]]:
    """Convert a query to the server's syntax; also return its parameters, in order."""
    names: dict[str, int] = {}

    def placed(found: re.Match[str]) -> str:
        name = found[1]
        return f"${names.setdefault(name, len(names) + 1)}" if name else "%"

    text = _NAME.sub(placed, query)
    # As in psycopg: without parameters a percent sign is not special.
    return (text if names else query).encode(), tuple(names)
