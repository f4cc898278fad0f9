"""Opens a connection to a usable server, and makes the tables of a new store."""

from __future__ import annotations

import logging
from typing import Any, NoReturn

import psycopg
from psycopg.abc import RV, PQGen

from jobpool.errors import StoreRefused, StoreUnavailable
from jobpool.store.postgres.connection.errors import explain, explain_connect
from jobpool.store.postgres.connection.session import Session, migrations_of
from jobpool.store.postgres.connection.steps import at_once
from jobpool.store.postgres.connection.url import Address
from jobpool.store.statements.formats import refuse_too_new

OLDEST = 140_000
"""PostgreSQL 14: server_version_num."""
_CONNECT_TIMEOUT_S = 5
_DEFAULTS = {
    "application_name": "jobpool",
    "client_encoding": "UTF8",
    "connect_timeout": _CONNECT_TIMEOUT_S,
    # A peer that vanished silently is noticed in about ten seconds.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# psycopg warns about every connection that is lost within a pipeline. We raise an error
# for that, which says what it means; without configured logging the warning is noise.
logging.getLogger("psycopg").addHandler(logging.NullHandler())


class BoundedConnection(psycopg.Connection[Any]):
    """A connection on which every wait is bounded.

    A server behind a network black hole acknowledges nothing and refuses nothing, and
    keepalives do not reach through a proxy. After `patience_s` the wait ends with an
    error, and the connection cannot be used any more.
    """

    patience_s: float = 30.0

    def wait(
        self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None
    ) -> RV:
        """Wait for the server, at most `patience_s`."""
        limit_s = self.patience_s if timeout is None else timeout
        return super().wait(gen, interval, limit_s)


def connect(address: Address, patience_s: float) -> tuple[Session, bool]:
    """Connect, and check that the server can be used.

    Args:
        address: the store's.
        patience_s: longest wait for any answer.

    Returns:
        A session on an autocommit connection, and whether a pooler is in between.

    Raises:
        StoreRefused: it is too old, has another encoding, or refused the login.
        StoreUnavailable: it cannot be reached, or accepts no writes.
    """
    connection = _open(address, patience_s)
    session = Session(connection, address.schema, address.shown)
    try:
        ((version, standby, read_only, encoding, backend, is_plain, _),) = session.rows(
            "about", schema=address.schema, backend=connection.info.backend_pid
        )
        _check(address, version, encoding, is_plain=is_plain)
        if standby or read_only:
            what = "a standby" if standby else "set to read-only"
            _refuse_reader(address.shown, what)
    except BaseException:
        connection.close()
        raise
    is_pooled = backend != connection.info.backend_pid
    if is_pooled:
        # Prepared statements belong to a server connection, and the pooler changes it.
        connection.prepare_threshold = None
    return session, is_pooled


def _open(address: Address, patience_s: float) -> BoundedConnection:
    given = psycopg.conninfo.conninfo_to_dict(address.conninfo)
    options = {name: value for name, value in _DEFAULTS.items() if name not in given}
    options["connect_timeout"] = max(1, min(_CONNECT_TIMEOUT_S, int(patience_s)))
    try:
        connection = BoundedConnection.connect(
            address.conninfo, autocommit=True, **{**options, **_timeout_of(given)}
        )
    except psycopg.Error as error:
        raise explain_connect(error, address.shown) from error
    except OSError as error:  # from this host's kernel, passed on by psycopg
        raise StoreUnavailable(
            f"the store {address.shown} could not be used ({error.strerror}): this "
            "host has no resources left for a connection; raise its limits, or wait"
        ) from error
    connection.patience_s = patience_s
    return connection


def _timeout_of(given: dict[str, Any]) -> dict[str, Any]:
    asked = given.get("connect_timeout")
    return {} if asked is None else {"connect_timeout": asked}


def _refuse_reader(shown: str, what: str) -> NoReturn:
    raise StoreUnavailable(
        f"the store {shown} is {what} and accepts no writes; name the primary in the "
        "URL, or several hosts with target_session_attrs=read-write"
    )


def _check(address: Address, version: int, encoding: str, *, is_plain: bool) -> None:
    shown = address.shown
    if version < OLDEST:
        raise StoreRefused(
            f"the store {shown} is PostgreSQL {version // 10000}; jobpool needs 14 or "
            "newer: upgrade the server"
        )
    if encoding != "UTF8":
        raise StoreRefused(
            f"the database of {shown} has the encoding {encoding}; jobpool needs UTF8: "
            "create one with `createdb --encoding=UTF8 --template=template0`"
        )
    if not is_plain:
        raise StoreRefused(
            f"the store {shown} names the schema {address.schema}, which is a reserved "
            "word of SQL; choose another name (?schema=…)"
        )


def schema_version(session: Session) -> int:
    """Return the schema's version, 0 if jobpool's tables do not exist.

    A newer one is fine: what newer code has added is not in the way.

    Raises:
        StoreRefused: the tables are not jobpool's, or this code cannot honour them.
    """
    _, has_meta = _presence(session)
    if not has_meta:
        return 0
    version = session.value("schema_version")
    if not isinstance(version, int):
        raise StoreRefused(
            f"the schema {session.schema} of {session.place} has a table 'meta' that "
            "is not jobpool's; name another schema in the URL (?schema=…)"
        )
    refuse_too_new(session, version)
    return version


def make_tables(session: Session) -> None:
    """Create the schema and its tables, all in one transaction.

    Many processes may call this at once: an advisory lock makes them take turns, and
    each checks again whether they exist.

    Raises:
        StoreRefused: as `schema_version`, or this user lacks the rights.
        StoreUnavailable: it failed; nothing was made.
    """
    session.begin()
    try:
        session.rows("migration_lock", schema=session.schema)
        if schema_version(session):
            session.end("rollback")
            return
        has_schema, _ = _presence(session)
        if not has_schema:
            session.run("create_schema")
        steps = migrations_of(session.schema)
        for script in steps:
            _run_script(session, at_once(script))
        session.run("set_counter", name="schema_version", value=len(steps))
        session.end("commit")
    except BaseException as error:
        _abandon(session, error)
        raise
    finally:
        session.forget()


def require_newest(session: Session, version: int) -> None:
    """Refuse a store whose schema is older than this jobpool.

    Raises:
        StoreRefused: it is.
    """
    newest = len(migrations_of(session.schema))
    if version < newest:
        raise StoreRefused(
            f"the store {session.place} has schema version {version}, this jobpool "
            f"needs {newest}; run `jobpool migrate` once: what runs on the store goes "
            "on meanwhile, so do that before you deploy (see: jobpool manual upgrading)"
        )


def _abandon(session: Session, error: BaseException) -> None:
    """Roll the open transaction back because of *error*."""
    try:
        if not session.connection.closed:
            session.connection.rollback()
    except psycopg.Error as other:
        error.add_note(f"the rollback failed as well: {type(other).__name__}")
        session.connection.close()


def _presence(session: Session) -> tuple[bool, bool]:
    ((has_schema, has_meta),) = session.rows(
        "has_schema", schema=session.schema, table="meta"
    )
    return has_schema, has_meta


def _run_script(session: Session, script: str) -> None:
    try:
        session.connection.execute(script.encode())
    except psycopg.Error as error:
        raise explain(error, session.place) from error
