"""One database and one connection, with the transactions on it.

Theory of operation. A `Database` owns one connection and serves one thread at a time. A
method within an open transaction runs in a savepoint, so that a method which raises has
changed nothing although the others commit.

The connection is replaced, never trusted again, after it was lost, after a wait that
timed out, when the server has become read-only (a failover), and in a forked child.

When a connection is lost during COMMIT, its outcome is unknown at first. The
transaction is never simply repeated: its number, read before the commit, is looked up
on a new connection (`pg_xact_status`). After a failover to another server such a number
means nothing (the timeline shows it); after a crash the server may give a lost number
to another transaction (the age of its statistics shows it). In these cases, and if no
server answers in time, `OutcomeUnknown` is raised.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from jobpool.core.clock import Clock, boottime_s
from jobpool.errors import (
    JobpoolError,
    OutcomeUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UsageError,
)
from jobpool.store.postgres.connection.connect import (
    connect,
    make_tables,
    require_newest,
    schema_version,
)
from jobpool.store.postgres.connection.errors import READ_ONLY, explain
from jobpool.store.postgres.connection.session import ServerLife, Session, queries_of
from jobpool.store.postgres.connection.url import Address
from jobpool.store.statements import session as protocols
from jobpool.store.statements.moment import Moment

CANCEL_S = 1.0
"""Longest wait for a query to be canceled."""
DOUBT_S = 30.0
"""How long the outcome of a commit is asked for."""
VACUUM_S_MAX = 86_400.0
_KEPT = re.compile(r"(\d+) (?:dead row versions cannot be|are dead but not yet) remov")
"""In English, as all servers say it whose messages nobody has translated."""
_ASK_EVERY_S = 0.1
_ABANDONED: list[psycopg.Connection[Any]] = []
"""The parent's connections, in a forked child, where they must not be closed."""


class Database:
    """One database and the connection to it.

    Args:
        address: the store's.
        clock: decides what is due; None: the server's own.
        patience_s: longest wait for an answer of the server.
        reader: once it is open, the server refuses to change anything through it;
            a pooler does not keep that.

    Attributes:
        is_pooled: a pooler is in between, so session state is not kept.
        store_id: the random number that identifies this queue.
    """

    def __init__(
        self,
        address: Address,
        clock: Clock | None,
        patience_s: float,
        *,
        reader: bool = False,
    ) -> None:
        self.address = address
        self._is_reader = reader
        self.is_pooled = False
        self.store_id = 0
        self._clock = clock
        self._patience_s = patience_s
        self._lock = threading.RLock()
        self._session: Session | None = None
        self._owner: int | None = None
        self._is_closed = False
        _OPEN.add(self)

    def start(self, *, create: bool) -> None:
        """Connect for the first time, and make the tables of a new store.

        Args:
            create: create jobpool's schema and tables if there are none.

        Raises:
            StoreRefused: the server or the schema cannot be used, or the schema is
                older than this jobpool.
            StoreUnavailable: it cannot be used now.
        """
        with self._lock:
            session, self.is_pooled = connect(self.address, self._patience_s)
            self._session = session
            version = schema_version(session)
            if not version and not create:
                raise StoreRefused(
                    f"the store {self.address.shown} holds no jobpool queue (schema "
                    f"{self.address.schema}); start a supervisor or run `jobpool "
                    "migrate` first, or name the right schema (?schema=…)"
                )
            if version:
                require_newest(session, version)
            else:
                make_tables(session)
            self.store_id = session.value("counter", name="store_id") or 0
            self._restrict(session)

    def _restrict(self, session: Session) -> None:
        if self._is_reader and not self.is_pooled:
            session.run("set_read_only")

    def interrupt(self) -> None:
        """End the query that another thread waits for; no transaction is ended."""
        session = self._session
        if session is None or self._owner is not None:
            return
        try:
            session.connection.cancel_safe(timeout=CANCEL_S)
        except psycopg.Error as error:
            raise explain(error, session.place) from error

    def now_ms(self, session: protocols.Session, *, fresh: bool = False) -> int:
        """Return the store's clock: the server's, as of the transaction's beginning."""
        if self._clock is not None:
            return self._clock.utc_ms()
        begun_ms = None if fresh else clock_of(session)
        if begun_ms is not None:
            return begun_ms
        now_ms: int = session.value("now")
        return now_ms

    def moment(self, session: protocols.Session) -> Moment:
        """See `statements.session.Database`."""
        clock = self._clock
        return Moment(
            self.now_ms(session), boottime_s() if clock is None else clock.boottime_s()
        )

    def known_ms(self, session: protocols.Session) -> int | None:
        """See `statements.session.Database`."""
        if self._clock is not None:
            return self._clock.utc_ms()
        known_ms: int | None = getattr(session, "known_ms", None)
        return known_ms

    @property
    def set_now_ms(self) -> int | None:
        """The time of the clock that was passed; None: the server's is used."""
        return None if self._clock is None else self._clock.utc_ms()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Use the connection for queries."""
        with self._lock:
            session = self._ready()
            try:
                yield session
            except BaseException as error:
                self._drop_if_broken(error)
                raise

    @contextmanager
    def writing(self, *, wakes: bool = False) -> Iterator[Session]:
        """Use the connection in a transaction, our own or the one that is open.

        Args:
            wakes: wake supervisors after the commit; no effect within an open one.

        Raises:
            StoreUnavailable: on leaving, the commit failed; nothing happened.
            OutcomeUnknown: it may or may not have happened.
        """
        if self._owner == threading.get_ident():
            with self._step() as session:
                yield session
            return
        with self._lock:
            session = self._ready()
            try:
                session.begin()
                self._owner = threading.get_ident()
                yield session
                self._commit(session, wakes=wakes)
            except BaseException as error:
                self._drop_if_broken(error)
                self._roll_back(session)
                raise
            finally:
                self._owner = None
                session.forget()

    def wait_for_notification(self, session: Session, timeout_s: float) -> bool:
        """Wait for a notification on a session that listens.

        Raises:
            StoreUnavailable: the connection was lost.
        """
        try:
            notifications = session.connection.notifies(timeout=timeout_s, stop_after=1)
            return any(True for _ in notifications)
        except psycopg.Error as error:
            raise explain(error, session.place) from error

    def vacuum(self, *, full: bool) -> tuple[list[str], int]:
        """Free the room of dead rows of jobs, by a statement of its own.

        Args:
            full: copy the tables; they are locked meanwhile.

        Returns:
            What the server has warned of: it skips tables of which this user may not.
            And how many dead rows it has kept, since a transaction may see them.

        Raises:
            UsageError: this thread has a transaction open.
            StoreError: it failed.
        """
        if self.is_writing:
            raise UsageError("VACUUM cannot run within a transaction; end it first")
        # A connection of its own: on ours no answer may take as long.
        session, _ = connect(self.address, VACUUM_S_MAX)
        queries = queries_of(session.schema)
        warned: list[str] = []
        kept: list[int] = []

        def hear(notice: psycopg.errors.Diagnostic) -> None:
            primary = notice.message_primary or ""
            if notice.severity_nonlocalized == "WARNING":
                warned.append(primary)
            text = f"{primary}\n{notice.message_detail or ''}"
            kept.extend(int(found[1]) for found in _KEPT.finditer(text))

        session.connection.add_notice_handler(hear)
        with session.connection:
            try:
                for name in ("set_lock_timeout", "vacuum_full" if full else "vacuum"):
                    session.connection.execute(queries[name].encode())
            except psycopg.Error as error:
                raise explain(error, session.place) from error
        return warned, sum(kept)

    @property
    def is_writing(self) -> bool:
        """Whether this thread has a transaction open."""
        return self._owner == threading.get_ident()

    @contextmanager
    def _step(self) -> Iterator[Session]:
        session = self._ready()
        session.begin_step()
        try:
            yield session
        except BaseException:
            if session is self._session and not session.connection.broken:
                session.undo_step()
            raise
        else:
            session.end_step()

    # -- the end of a transaction ----------------------------------------------------

    def _commit(self, session: Session, *, wakes: bool) -> None:
        if session is not self._session:
            raise StoreUnavailable(
                f"the transaction on {session.place} was left behind by a fork; "
                "none of it happened. Try all of it again"
            )
        try:
            session.end("commit", wakes=wakes)
        except StoreError as error:
            if not session.has_written or _has_answered(session, error):
                raise
            self._find_outcome(session.xid, session.server_life, error)

    def _find_outcome(self, xid: str, life: ServerLife, error: StoreError) -> None:
        """Return normally if the transaction was committed.

        Raises:
            StoreUnavailable: it was rolled back.
            OutcomeUnknown: it cannot be found out.
        """
        self._drop()
        self._owner = None  # The transaction is over: a new connection may be opened.
        deadline_s = time.monotonic() + DOUBT_S
        waiting = threading.Event()
        while time.monotonic() < deadline_s:
            status = self._ask_outcome(xid, life)
            if status == "committed":
                return
            if status == "aborted":
                raise error
            if status == "unknown":
                break
            waiting.wait(_ASK_EVERY_S)
        raise OutcomeUnknown(
            f"the connection to {self.address.shown} was lost during a commit, and the "
            "server that can be reached now cannot tell whether it happened; check "
            "before you do it again, or do it under an idempotency key"
        ) from error

    def _ask_outcome(self, xid: str, life: ServerLife) -> str:
        """Return committed, aborted, unknown, or "in progress": ask again."""
        try:
            status, life_now = self._ready().outcome_of(xid)
        except StoreRefused:
            return "unknown"  # Not a number that this server has given out.
        except StoreError:
            self._drop()
            return "in progress"
        (timeline, _), (timeline_now, _) = life, life_now
        if timeline != timeline_now:
            return "unknown"
        if status == "committed" and life != life_now:
            return "unknown"  # After a crash another transaction may have the number.
        return "unknown" if status is None else str(status)

    def _roll_back(self, session: Session) -> None:
        if session is not self._session or session.connection.closed:
            return
        try:
            session.end("rollback")
        except JobpoolError as error:
            self._drop()
            error.add_note("the rollback failed; the connection was closed")

    # -- the connection ----------------------------------------------------------------

    def _drop_if_broken(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            self._drop()  # Interrupted at an unknown point.
            return
        cause = error.__cause__
        if not isinstance(cause, psycopg.Error) or self._session is None:
            return
        connection = self._session.connection
        is_ours = connection.pgconn.transaction_status
        if (
            connection.closed
            or cause.sqlstate is None
            or cause.sqlstate in READ_ONLY
            or is_ours == psycopg.pq.TransactionStatus.ACTIVE
        ):
            self._drop()

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.connection.close()

    def _ready(self) -> Session:
        if self._is_closed:
            raise UsageError(
                f"the store {self.address.shown} is closed; open another one"
            )
        if self._session is not None and self._session.connection.closed:
            self._drop()
        if self._session is None:
            if self._owner is not None:
                raise StoreUnavailable(
                    f"the connection to {self.address.shown} was lost within a "
                    "transaction; none of it happened. Try all of it again"
                )
            session, self.is_pooled = connect(self.address, self._patience_s)
            self._restrict(session)
            self._session = session
        return self._session

    def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        _OPEN.discard(self)
        with self._lock:
            self._drop()

    def start_anew_after_fork(self) -> None:
        """Forget what belongs to the parent; the next use connects again."""
        if self._session is not None:
            _ABANDONED.append(self._session.connection)
        self._session = None
        self._lock = threading.RLock()
        self._owner = None


def clock_of(session: protocols.Session) -> int | None:
    """Return the clock as of the transaction's beginning, or of our savepoint in it."""
    if isinstance(session, Session):
        return session.clock_ms()
    known_ms: int | None = getattr(session, "known_ms", None)
    return known_ms


def _has_answered(session: Session, error: StoreError) -> bool:
    """Say whether the server itself has reported that the commit failed."""
    state = getattr(error.__cause__, "sqlstate", None)
    return state is not None and not session.connection.closed


_OPEN: weakref.WeakSet[Database] = weakref.WeakSet()


def _after_fork() -> None:
    for database in list(_OPEN):
        database.start_anew_after_fork()


if hasattr(os, "register_at_fork"):  # on Windows nothing forks
    os.register_at_fork(after_in_child=_after_fork)
