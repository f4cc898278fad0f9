"""Callers' connections: what they wrap, and that no call is left running."""

import asyncio
import contextlib
import sqlite3
import threading
from xml.dom.minidom import Document

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from jobpool.errors import UsageError
from jobpool.store.callers.async_bridge import call_async
from jobpool.store.callers.unwrap import (
    has_transaction,
    is_async,
    library_of,
    unwrap,
)


class Held:
    """A function that a test releases, and that reports when it has ended."""

    def __init__(self, end=None):
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.has_ended = False
        self._end = end

    def __call__(self, connection):
        self.began.set()
        assert self.may_end.wait(30)
        self.has_ended = True
        if self._end is not None:
            raise self._end
        return connection


def cancel_and_let_go(held):
    """Cancel a call twice while it runs, then let it end."""

    async def play():
        call = asyncio.ensure_future(call_async(None, held))
        await asyncio.to_thread(held.began.wait, 30)
        for _ in range(2):
            call.cancel()
            await asyncio.sleep(0)
        assert not call.done(), "it would use the connection beside its owner"
        held.may_end.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await call
        return caught.value

    return asyncio.run(play())


def test_a_canceled_call_is_completed_first():
    """Only then does the caller see the cancellation, and may roll back."""
    held = Held()
    cancel_and_let_go(held)
    assert held.has_ended


def test_a_failure_of_a_canceled_call_is_not_lost():
    """It is reported together with the cancellation."""
    error = cancel_and_let_go(Held(ValueError("the table is gone")))
    assert "the table is gone" in error.__notes__[0]


def test_without_a_cancellation_the_functions_own_end_is_returned():
    """Its result, or its exception."""
    held = Held()
    held.may_end.set()
    assert asyncio.run(call_async("here", held)) == "here"
    failing = Held(ValueError("no"))
    failing.may_end.set()
    with pytest.raises(ValueError, match="no"):
        asyncio.run(call_async(None, failing))


class Wrapped(sqlite3.Connection):
    """A caller's own class."""


def test_a_connection_belongs_to_the_library_that_defines_it():
    """A caller's subclass belongs to its base's library; other objects to their own."""
    with contextlib.closing(Wrapped(":memory:")) as wrapped:
        assert library_of(wrapped) == "sqlite3"
    assert library_of(Document()) == "xml"
    for base in (sa.Connection, orm.Session, psycopg.Connection, psycopg.AsyncCursor):
        mine = type("Mine", (base,), {})
        assert library_of(mine.__new__(mine)) == base.__module__.partition(".")[0]


def test_an_engine_is_not_a_connection():
    """It would lend another one each time, outside the caller's transaction."""
    engine = sa.create_engine("sqlite://")
    with pytest.raises(UsageError, match=r"sqlalchemy\.engine\.base\.Engine is no"):
        unwrap(engine)
    with engine.connect() as connection:
        assert isinstance(unwrap(connection), sqlite3.Connection)
        assert connection.in_transaction()
    engine.dispose()


class AsyncConnection:
    """SQLAlchemy's, as far as it is used: what it wraps is below it."""

    __module__ = "sqlalchemy.ext.asyncio.engine"

    def __init__(self, below):
        self.below = below

    async def run_sync(self, function):
        assert callable(function)
        return self.below


def test_an_asynchronous_connection_to_a_file_is_refused():
    """Those of psycopg and aiosqlite can be shared; the remedy is the engine's URL."""
    with (
        contextlib.closing(sqlite3.connect(":memory:")) as below,
        pytest.raises(UsageError, match=r"driver sqlite3 there; .*and aiosqlite"),
    ):
        asyncio.run(call_async(AsyncConnection(below), id))


def test_a_connection_that_must_be_awaited_is_refused_in_a_plain_call():
    """If the caller does not await it."""
    with pytest.raises(UsageError, match=r"AsyncConnection is asynchronous; use"):
        unwrap(AsyncConnection(None))
    with contextlib.closing(sqlite3.connect(":memory:")) as plain:
        assert not is_async(plain)
    assert not is_async(type("AsyncConnection", (), {})())


def test_a_session_lends_the_connection_of_its_transaction():
    """One that would begin with its first statement is begun."""
    engine = sa.create_engine("sqlite://")
    with orm.Session(engine) as session:
        raw = unwrap(session)
        assert isinstance(raw, sqlite3.Connection)
        assert session.connection().in_transaction()
        assert unwrap(session) is raw
    engine.dispose()


def test_the_driver_says_whether_a_transaction_is_open():
    """A connection that reports nothing has none."""
    connection = sqlite3.connect(":memory:")
    assert not has_transaction(connection)
    connection.execute("BEGIN")
    assert has_transaction(connection)
    connection.close()
    assert not has_transaction(Document())
