"""Migrates a store beside its supervisors and clients: expand, then build, then record.

Theory of operation. Each step first adds what is new, in one transaction that reads no
table. That needs all of the tables for itself for some milliseconds, and whoever comes
while it waits for them waits behind it. So it waits for `LOCK_MS` at most, then lets
everybody pass and tries again. Its commit is noted in meta (``expanded``).

Then indexes are built and constraints validated, one statement at a time outside of any
transaction, while everybody works on. What is left of that is not noted, but read from
the catalog: an index that is not valid was left by a build that was interrupted, and is
dropped and built again. So whoever is killed anywhere is followed by whoever is called
next. Last, the schema's version is raised; until then older code may still start, and
newer code is refused, which can therefore rely on every index.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg

from jobpool.errors import StoreError, StoreRefused, StoreUnavailable
from jobpool.store.postgres.connection.connect import (
    connect,
    make_tables,
    schema_version,
)
from jobpool.store.postgres.connection.errors import explain
from jobpool.store.postgres.connection.session import Session, migrations_of
from jobpool.store.postgres.connection.steps import OnlinePart, Step, steps_of
from jobpool.store.postgres.connection.url import Address, read_address
from jobpool.store.statements.migration import Tell

LOCK_MS = 800
"""How long the expanding part may hold others up: no claim is a second late."""
LOCK_PATIENCE_S = 600.0
"""How long it is tried again."""
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Between tries, so that what has queued up is worked off."""
_TURN_S = 0.2
_ANSWER_S = 7 * 86_400.0
"""An index of a large table takes as long as it takes."""
_VALIDITY = {"index": "index_is_valid", "constraint": "constraint_is_valid"}
_IN_USE = frozenset({"55P03", "57014", "40P01"})
"""Lock not available, statement timeout, deadlock."""


def migrate(url: str, tell: Tell) -> int:
    """Create a store, or bring its schema up to date.

    Args:
        url: of the store.
        tell: receives lines about what is done and waited for.

    Returns:
        The schema's version.

    Raises:
        StoreRefused: it cannot be used, or a pooler is in between.
        StoreUnavailable: its tables are in use, or the connection was lost. What was
            done stays; calling this again goes on from there.
    """
    address = read_address(url)
    session, is_pooled = connect(address, _ANSWER_S)
    try:
        if not schema_version(session):
            make_tables(session)
        newest = len(migrations_of(session.schema))
        if schema_version(session) < newest:
            if is_pooled:
                raise _no_pooler(address)
            _upgrade(session, tell)
        return schema_version(session)
    finally:
        session.connection.close()


def _no_pooler(address: Address) -> StoreRefused:
    return StoreRefused(
        f"the store {address.shown} is reached through a pooler, which gives another "
        "session to each statement: no lock could keep a second migration away. Name "
        "the server itself in the URL, for `jobpool migrate` only. Nothing was changed"
    )


def _upgrade(session: Session, tell: Tell) -> None:
    session.rows("migration_session")
    _take_turn(session, tell)
    for step in steps_of(session.schema)[schema_version(session) :]:
        if session.value("counter", name="expanded") != step.version:
            _expand_patiently(session, step, tell)
        for part in step.online:
            _build(session, part, tell)
        try:
            with session.connection.transaction():
                session.run("set_counter", name="schema_version", value=step.version)
                session.run("forget_expanded")
        except psycopg.Error as error:
            raise explain(error, session.place) from error
        tell(f"schema version {step.version}")


def _take_turn(session: Session, tell: Tell) -> None:
    """Wait until nobody else migrates."""
    is_told = False
    while not session.value("migration_turn", schema=session.schema):
        if not is_told:
            tell("another `jobpool migrate` is at work; this one waits for it")
        is_told = True
        time.sleep(_TURN_S)


def _expand_patiently(session: Session, step: Step, tell: Tell) -> None:
    """Try to expand until no lock is in the way.

    Raises:
        StoreUnavailable: the tables have been in use for ten minutes.
    """
    deadline_s = time.monotonic() + LOCK_PATIENCE_S
    pauses = iter(_PAUSES_S)
    pause_s = 0.0
    while True:
        try:
            _expand(session, step)
        except (psycopg.Error, StoreError) as error:
            cause = error if isinstance(error, psycopg.Error) else error.__cause__
            if not isinstance(cause, psycopg.Error):
                raise
            if cause.sqlstate not in _IN_USE:
                raise explain(cause, session.place) from error
            users = ", ".join(_users(session)) or "short transactions, many at a time"
            if time.monotonic() > deadline_s:
                raise StoreUnavailable(
                    f"the tables of {session.place} are in use by {users}: for "
                    f"{LOCK_PATIENCE_S:.0f} s they could not be had for the moment "
                    "that the migration needs. Nothing of this step was changed; end "
                    "that, then run `jobpool migrate` again"
                ) from error
            pause_s = next(pauses, pause_s)
            tell(f"the tables are in use by {users}; next try in {pause_s:g} s")
            time.sleep(pause_s)
        else:
            tell(f"step {step.version}: columns and tables are added")
            return


def _expand(session: Session, step: Step) -> None:
    connection = session.connection
    with connection.transaction():
        if step.lock:
            # One limit for all of the locks; lock_timeout is one for each.
            session.rows("migration_limit", statement_ms=str(LOCK_MS), lock_ms="0")
            connection.execute(step.lock.encode())
        session.rows("migration_limit", statement_ms="0", lock_ms=str(LOCK_MS))
        connection.execute(step.expand.encode())
        session.run("set_counter", name="expanded", value=step.version)


def _users(session: Session) -> Iterator[str]:
    """Describe the sessions that have long used our tables."""
    for pid, application, state, age_s in session.rows(
        "users_of_tables", schema=session.schema
    ):
        yield f"process {pid} ({application or 'no name'}, {state}, {age_s:.0f} s)"


def _build(session: Session, part: OnlinePart, tell: Tell) -> None:
    if is_built(session, part):
        return
    tell(f"{part.what} {part.name}: at work")
    began_s = time.monotonic()
    for statement in part.statements:
        try:
            session.connection.execute(statement.encode())
        except psycopg.Error as error:
            raise explain(error, session.place) from error
    tell(f"{part.what} {part.name}: done in {time.monotonic() - began_s:.1f} s")


def is_built(session: Session, part: OnlinePart) -> bool:
    """Say whether an index or constraint is there and valid."""
    query = _VALIDITY[part.what]
    return bool(session.value(query, schema=session.schema, name=part.name))
