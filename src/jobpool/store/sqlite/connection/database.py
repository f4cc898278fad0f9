"""One database file, one connection, and who may use it when.

Theory of operation. A `Database` owns one connection and serves one thread at a
time. Reading takes its thread lock; writing takes the writers' lock first (see
`writers`), then the thread lock, then BEGIN IMMEDIATE. A method within an open
transaction runs in a savepoint, so that one which raises has changed nothing
although the others commit.

The connection is replaced, never trusted again, after an I/O error, in a forked
child (the parent's is kept referenced: closing it would harm the parent's log), and
when the path names another file than the one that is open: SQLite would go on
writing to a deleted file without an error, so this is looked at on both sides of a
commit. A file that vanished is not made again: that would be an empty queue.

A checkpoint keeps all writers waiting while it brings what is in the log to the disk a
second time. Of small rows little is left by then, since many have changed the same
pages; results are there in full. So `tidy` makes one after each half mebibyte of these,
in a turn of its own, or after four mebibytes if somebody waits each time, while the
usual one comes after 16, within somebody's commit.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from jobpool.core.clock import Clock
from jobpool.errors import JobpoolError, StoreRefused, StoreUnavailable, UsageError
from jobpool.store.sqlite.connection.commit import commit, identity_after_commit
from jobpool.store.sqlite.connection.connect import (
    connect,
    migrate,
    replaced,
    schema_version,
)
from jobpool.store.sqlite.connection.errors import REOPEN_AFTER, primary_code
from jobpool.store.sqlite.connection.location import Identity, identity_of
from jobpool.store.sqlite.connection.session import Session
from jobpool.store.sqlite.connection.write_lock import (
    WritersLock,
    return_lock,
    share_lock,
)
from jobpool.store.statements import session as methods
from jobpool.store.statements.moment import Moment

BULK_BYTES = 2**19
"""After so much of payloads, results and the like the log is to be emptied."""
BULK_MAX_BYTES = 2**22
"""After so much, whoever waits: the longer it is put off, the longer it takes."""
TURN_S = 0.0005
"""Whoever waits for the writers' lock takes so long to wake up and have it."""
TIDY_WAIT_S = 0.1
"""What is not urgent gives up after it."""
_ABANDONED: list[sqlite3.Connection] = []
"""Connections that must never be closed in this process."""


class Database:
    """One file and the connection to it.

    Attributes:
        path: the file, absolute and without symbolic links.
        clock: decides what is due.
        writers: this process's writers' lock of the file.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.writers: WritersLock = share_lock(path)
        self._lock = threading.RLock()
        self._session: Session | None = None
        self._identity: Identity | None = None
        self._owner: int | None = None
        self._is_closed = False
        _OPEN.add(self)

    def start(self, *, create: bool) -> None:
        """Open the file for the first time and bring its schema up to date.

        Args:
            create: make jobpool's tables in a file that has none.

        Raises:
            StoreRefused: the file must not be used, or holds no queue.
            StoreUnavailable: it cannot be used now.
        """
        with self.writers.held(), self._lock:
            session, self._identity = connect(self.path)
            self._session = session
            if not schema_version(session) and not create:
                raise StoreRefused(
                    f"the database {self.path} holds no jobpool queue; start a "
                    "supervisor or let the application enqueue there first, or name "
                    "the right file"
                )
            migrate(session)

    @property
    def identity(self) -> Identity | None:
        """Which file is open, by device and inode."""
        return self._identity

    def now_ms(self, session: methods.Session, *, fresh: bool = False) -> int:
        """Return the store's clock: this machine's, since all its users are here."""
        del session, fresh
        return self.clock.utc_ms()

    def moment(self, session: methods.Session) -> Moment:
        """See `methods.session.Database`."""
        return Moment(self.now_ms(session), self.clock.boottime_s())

    def known_ms(self, session: methods.Session) -> int:
        """See `methods.session.Database`."""
        del session
        return self.clock.utc_ms()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Use the connection for queries."""
        with self._lock:
            session = self._ready()
            try:
                self._check_place()
                yield session
            except JobpoolError as error:
                self._drop_if_broken(error)
                raise

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Use the connection in a transaction, our own or the one that is open.

        Raises:
            StoreUnavailable: on leaving, the commit failed; nothing happened.
            OutcomeUnknown: it failed such that it may or may not have happened.
        """
        if self._owner == threading.get_ident():
            with self._step() as session:
                yield session
            return
        if self._is_closed:
            raise self._closed()
        with self.writers.held(), self._lock:
            session = self._ready()
            try:
                self._check_place()
                session.run("begin")
                self._owner = threading.get_ident()
                yield session
                self._commit(session)
            except BaseException as error:
                self._roll_back(session)
                if isinstance(error, JobpoolError):
                    self._drop_if_broken(error)
                raise
            finally:
                self._owner = None

    @contextmanager
    def _step(self) -> Iterator[Session]:
        session = self._ready()
        self._require_transaction(session)
        session.run("savepoint")
        try:
            yield session
        except BaseException:
            # SQLite itself rolls everything back when the disk is full or broken.
            if session is self._session and session.connection.in_transaction:
                session.run("rollback_to")
                session.run("release")
            raise
        else:
            session.run("release")

    def _commit(self, session: Session) -> None:
        self._require_transaction(session)
        self._check_place()
        commit(session)
        self._compare(identity_after_commit(self.path))

    def _require_transaction(self, session: Session) -> None:
        if session is not self._session or not session.connection.in_transaction:
            raise StoreUnavailable(
                f"the transaction on {self.path} is over already: rolled back after "
                "an earlier error, or left behind by a fork; nothing of it happened. "
                "Try all of it again"
            )

    def _roll_back(self, session: Session) -> None:
        if session is self._session and session.connection.in_transaction:
            try:
                session.run("rollback")
            except JobpoolError as error:
                # Whatever it still holds goes with the connection.
                self._drop()
                error.add_note("the rollback failed; the connection was closed")

    def _check_place(self) -> None:
        self._compare(identity_of(self.path))

    def _compare(self, found: Identity | None) -> None:
        if found != self._identity:
            self._drop()
            raise replaced(self.path)

    def _drop_if_broken(self, error: JobpoolError) -> None:
        cause = error.__cause__
        if isinstance(cause, sqlite3.Error) and primary_code(cause) in REOPEN_AFTER:
            self._drop()

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.connection.close()

    def _ready(self) -> Session:
        if self._session is not None:
            return self._session
        if self._is_closed:
            raise self._closed()
        session, self._identity = connect(self.path)
        if not schema_version(session):
            session.connection.close()
            raise replaced(self.path)
        self._session = session
        return session

    def _closed(self) -> UsageError:
        return UsageError(f"the store on {self.path} is closed; open another one")

    def tidy(self, bulk_bytes: int) -> None:
        """Copy a log that holds so much into the file, once others have had their turn.

        If it cannot be done now, the next call or SQLite's own checkpoint does it.
        """
        if self._session is None or self._session.bulk_bytes < bulk_bytes:
            return
        time.sleep(TURN_S)
        with (
            suppress(JobpoolError),
            self.writers.held(TIDY_WAIT_S),
            self.reading() as ready,
        ):
            ready.bulk_bytes = 0
            ready.rows("checkpoint")

    def close(self) -> None:
        """Close the connection; the last one of all tidies the log up."""
        if self._is_closed:
            return
        self._is_closed = True
        _OPEN.discard(self)
        try:
            if self._session is not None:
                with self.writers.held(), self._lock:
                    self._drop()
        except StoreUnavailable:
            # Somebody keeps the writers' lock. Closing could run a checkpoint
            # beside their commit; the end of the process closes without one.
            self.abandon()
        finally:
            return_lock(self.writers, self.path)

    def abandon(self) -> None:
        """Leave the connection as it is, for ever."""
        if self._session is not None:
            _ABANDONED.append(self._session.connection)
        self._session = None

    def start_anew_after_fork(self) -> None:
        """Forget what belongs to the parent; the next use opens the file again."""
        self.abandon()
        self._lock = threading.RLock()
        self._owner = None
        self.writers = share_lock(self.path)


_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()


def _after_fork() -> None:
    for database in list(_OPEN):
        database.start_anew_after_fork()


os.register_at_fork(after_in_child=_after_fork)
