"""Callers' connections: what is below them, and what was begun is not left running."""

import asyncio
import sqlite3
import threading
from xml.dom.minidom import Document

import pytest
import sqlalchemy as sa

from jobpool.errors import UsageError
from jobpool.store.connections import call_async, library_of, unwrap


class Held:
    """A function that a test lets go on, and that says when it has ended."""

    def __init__(self, end=None):
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.has_ended = False
        self._end = end

    def __call__(self, connection):
        self.began.set()
        assert self.may_end.wait(10)
        self.has_ended = True
        if self._end is not None:
            raise self._end
        return connection


def cancel_and_let_go(held):
    """Cancel a call twice while it is under way, and then let it end."""

    async def play():
        call = asyncio.ensure_future(call_async(None, held))
        await asyncio.to_thread(held.began.wait, 10)
        for _ in range(2):
            call.cancel()
            await asyncio.sleep(0)
        assert not call.done(), "it would use the connection beside its owner"
        held.may_end.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await call
        return caught.value

    return asyncio.run(play())


def test_a_canceled_call_comes_to_its_end_first():
    """Only then the caller learns of it, and may roll back."""
    held = Held()
    cancel_and_let_go(held)
    assert held.has_ended


def test_a_failure_of_what_was_canceled_is_not_lost():
    """It is told beside the cancellation."""
    error = cancel_and_let_go(Held(ValueError("the table is gone")))
    assert "the table is gone" in error.__notes__[0]


def test_without_a_cancellation_it_is_the_functions_own_end():
    """Its result, or what it raised."""
    held = Held()
    held.may_end.set()
    assert asyncio.run(call_async("here", held)) == "here"
    failing = Held(ValueError("no"))
    failing.may_end.set()
    with pytest.raises(ValueError, match="no"):
        asyncio.run(call_async(None, failing))


class Wrapped(sqlite3.Connection):
    """A caller's own class."""


def test_a_connection_is_of_the_library_that_defines_it():
    """A caller's subclass is of its base's; of anything else the first name is told."""
    assert library_of(Wrapped(":memory:")) == "sqlite3"
    assert library_of(Document()) == "xml"


def test_an_engine_is_no_connection():
    """It would lend another one each time, outside of the caller's transaction."""
    engine = sa.create_engine("sqlite://")
    with pytest.raises(UsageError, match=r"sqlalchemy\.engine\.base\.Engine is no"):
        unwrap(engine)
    with engine.connect() as connection:
        assert isinstance(unwrap(connection), sqlite3.Connection)
        assert connection.in_transaction()
    engine.dispose()
