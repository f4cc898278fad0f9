"""One database file and one connection, with the locks and transactions around it.

Theory of operation. A `Database` owns one connection and serves one thread at a time.
Reading takes its thread lock; writing takes the writers' lock first (see `write_lock`),
then the thread lock, then BEGIN IMMEDIATE. A method within an open transaction runs in
a savepoint, so that a method which raises has changed nothing although the others
commit.

The connection is replaced, never trusted again, after an I/O error, in a forked child
(the parent's is kept referenced: closing it would damage the parent's log), and when
the path names another file than the open one. SQLite would write on to a deleted file
without an error, so this is checked before and after each commit. A file that vanished
is not created again: that would be an empty queue.

A checkpoint blocks all writers while it writes the log's pages to the disk a second
time. Small rows add little, since many changes share the same pages; results are there
in full. So `tidy` runs one after each half mebibyte of results and the like, in a turn
of its own, or after four mebibytes if others always wait. SQLite's own checkpoint runs
after 16, within a commit.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from jobpool.core.clock import Clock
from jobpool.errors import (
    JobpoolError,
    StoreRefused,
    StoreUnavailable,
    StoreWentBack,
    UsageError,
)
from jobpool.store.sqlite.connection.commit import commit, identity_after_commit
from jobpool.store.sqlite.connection.connect import (
    connect,
    migrate,
    replaced,
    schema_version,
)
from jobpool.store.sqlite.connection.errors import REOPEN_AFTER, primary_code
from jobpool.store.sqlite.connection.location import (
    Header,
    Identity,
    header_of,
    identity_of,
)
from jobpool.store.sqlite.connection.session import Session
from jobpool.store.sqlite.connection.write_lock import (
    WritersLock,
    return_lock,
    share_lock,
)
from jobpool.store.statements import session as protocols
from jobpool.store.statements.moment import Moment

BULK_BYTES = 2**19
"""Bytes of payloads, results and the like after which the log is checkpointed."""
BULK_MAX_BYTES = 2**22
"""The same even if others wait: the longer it is deferred, the longer it takes."""
TURN_S = 0.0005
"""How long another waiter needs to wake up and take the writers' lock."""
WIPE_TRIES = 50
"""How often emptying the log is tried, 0.1 s each, while others read from it."""
TIDY_WAIT_S = 0.1
"""How long a checkpoint, which is not urgent, waits for the lock."""
_ABANDONED: list[sqlite3.Connection] = []
"""Connections that must never be closed in this process."""


class Database:
    """One file and the connection to it.

    Attributes:
        path: the file, absolute and without symbolic links.
        clock: decides what is due.
        writers: this process's writers' lock of the file.

    Args:
        path: the file.
        clock: decides what is due.
        reader: once it is open, SQLite refuses to change anything through it.
    """

    def __init__(self, path: str, clock: Clock, *, reader: bool = False) -> None:
        self.path = path
        self._is_reader = reader
        self.clock = clock
        self.writers: WritersLock = share_lock(path)
        self._lock = threading.RLock()
        self._session: Session | None = None
        self._identity: Identity | None = None
        self._log_path = f"{path}-wal"
        self._log_identity: Identity | None = None
        """None: it is not known yet."""
        self._is_overwritten = False
        self._header: Header | None = None
        self._owner: int | None = None
        self._is_closed = False
        _OPEN.add(self)

    def start(self, *, create: bool) -> None:
        """Open the file for the first time and bring its schema up to date.

        Args:
            create: create jobpool's tables in a file that has none.

        Raises:
            StoreRefused: the file cannot be used, or holds no queue.
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
            self._restrict(session)

    def _restrict(self, session: Session) -> None:
        if self._is_reader:
            session.rows("set_query_only")

    def interrupt(self) -> None:
        """End the query that another thread waits for; no transaction is ended."""
        session = self._session
        if session is not None and self._owner is None:
            session.connection.interrupt()

    @property
    def identity(self) -> Identity | None:
        """Which file is open, by device and inode."""
        return self._identity

    @property
    def is_writing(self) -> bool:
        """Whether this thread has a transaction open."""
        return self._owner == threading.get_ident()

    def now_ms(self, session: protocols.Session, *, fresh: bool = False) -> int:
        """Return the store's clock: this machine's, since all its users are here."""
        del session, fresh
        return self.clock.utc_ms()

    def moment(self, session: protocols.Session) -> Moment:
        """See `statements.session.Database`."""
        return Moment(self.now_ms(session), self.clock.boottime_s())

    def known_ms(self, session: protocols.Session) -> int:
        """See `statements.session.Database`."""
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
                self._compare(identity_of(self.path), self._log_identity)
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
        self._compare(
            identity_after_commit(self.path), identity_after_commit(self._log_path)
        )

    def _require_transaction(self, session: Session) -> None:
        if session is not self._session or not session.connection.in_transaction:
            raise StoreUnavailable(
                f"the transaction on {self.path} is already over: rolled back after an "
                "earlier error, or left behind by a fork; none of it happened. Try "
                "all of it again"
            )

    def _roll_back(self, session: Session) -> None:
        if session is self._session and session.connection.in_transaction:
            try:
                session.run("rollback")
            except JobpoolError as error:
                # Closing the connection releases whatever it still holds.
                self._drop()
                error.add_note("the rollback failed; the connection was closed")

    def _check_place(self) -> None:
        self._compare(identity_of(self.path), identity_of(self._log_path))

    def _compare(self, found: Identity | None, log: Identity | None) -> None:
        if found != self._identity:
            self._drop()
            raise replaced(self.path)
        if self._has_lost(log):
            self.abandon()
            raise self._overwritten()

    def _has_lost(self, log: Identity | None) -> bool:
        """Say whether the write-ahead log was removed, or replaced by this one.

        SQLite keeps it while a connection is open. It was removed for a backup to be
        written over the file. Closing this connection would copy the former content
        over that; and another one in this process would use this one's index of the
        log. So this process is done with the file.
        """
        if self._log_identity is None:
            self._log_identity = log
        self._is_overwritten = log != self._log_identity
        return self._is_overwritten

    def _overwritten(self) -> StoreWentBack:
        return StoreWentBack(
            f"the write-ahead log of the database file {self.path} was removed while "
            "it was in use, so the file was or is being replaced; the operation did "
            "not happen. Stop everything that uses it; if a backup was put there, run "
            "`jobpool restored`; then start again (see: jobpool manual backup)"
        )

    def has_older_header(self) -> bool:
        """Say whether the file's first page is older than it was at the last call.

        If so, another file was copied over it, while SQLite's log still belongs to the
        former content.
        """
        with self._lock:
            before, found = self._header, header_of(self._identity)
            if found is None:
                return False
            self._header = found
        return before is not None and any(
            now < then for now, then in zip(found, before, strict=True)
        )

    def _drop_if_broken(self, error: JobpoolError) -> None:
        cause = error.__cause__
        if isinstance(cause, sqlite3.Error) and primary_code(cause) in REOPEN_AFTER:
            self._drop()

    def _drop(self) -> None:
        session, self._session = self._session, None
        self._log_identity = None
        if session is not None:
            session.connection.close()

    def _ready(self) -> Session:
        if self._session is not None:
            return self._session
        if self._is_closed:
            raise self._closed()
        if self._is_overwritten:
            raise self._overwritten()
        session, self._identity = connect(self.path)
        if not schema_version(session):
            session.connection.close()
            raise replaced(self.path)
        self._restrict(session)
        self._session = session
        return session

    def _closed(self) -> UsageError:
        return UsageError(f"the store on {self.path} is closed; open another one")

    def tidy(self, bulk_bytes: int) -> None:
        """Checkpoint a log with this many bulk bytes, after others had their turn.

        If it is not possible now, the next call or SQLite's own checkpoint does it.
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

    def wipe(self, *, rewrite: bool) -> bool:
        """Empty the log, after a turn for others between two tries.

        Args:
            rewrite: copy all tables first.

        Returns:
            Whether the log is empty.

        Raises:
            UsageError: this thread has a transaction open.
        """
        if self._owner == threading.get_ident():
            raise UsageError(
                "the log cannot be emptied within a transaction; end it first"
            )
        if rewrite:
            with self.writers.held(), self.reading() as session:
                session.run("vacuum")
        for _ in range(WIPE_TRIES):
            with self.writers.held(), self.reading() as session:
                ((is_held, *_rest),) = session.rows("truncate_log")
            if not is_held:
                return True
            time.sleep(TURN_S)
        return False

    def close(self) -> None:
        """Close the connection; SQLite removes the log with the last one."""
        if self._is_closed:
            return
        self._is_closed = True
        _OPEN.discard(self)
        try:
            if self._session is not None:
                with self.writers.held(), self._lock:
                    if self._has_lost(identity_of(self._log_path)):
                        self.abandon()
                    self._drop()
        except StoreUnavailable:
            # The writers' lock is taken. Closing could run a checkpoint during the
            # holder's commit; the end of the process closes without a checkpoint.
            self.abandon()
        finally:
            return_lock(self.writers, self.path)

    def abandon(self) -> None:
        """Drop the connection without ever closing it, not even at the end."""
        if self._session is not None:
            _ABANDONED.append(self._session.connection)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._session.connection))
        self._session = None
        self._log_identity = None

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


if hasattr(os, "register_at_fork"):  # on Windows nothing forks
    os.register_at_fork(after_in_child=_after_fork)
