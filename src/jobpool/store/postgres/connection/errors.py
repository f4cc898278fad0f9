"""Translates PostgreSQL's errors to jobpool's: what was seen, and what to do."""

from __future__ import annotations

import psycopg

from jobpool.errors import (
    JobpoolBug,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from jobpool.store.statements.integrity import RowRefused

_Known = tuple[type[StoreError], str]
_AGAIN = "nothing was changed; try again"
_RIGHTS = (
    "this user lacks a privilege there; grant the role that it needs (see "
    "conf/postgres/roles.sql), or let the owner run `jobpool migrate` "
    "(see: jobpool manual postgresql)"
)
_DATA = (
    "a value violates the table's own rules; another program has written it. Correct "
    "it, or restore a backup"
)
_VALUE = "a value is beyond what PostgreSQL can hold; nothing was changed"
READ_ONLY = frozenset({"25006", "55000"})
"""A server that accepts no writes: set to read-only; in recovery."""
_NO_WRITES = (
    "it accepts no writes: a standby, or set to read-only; name the primary in the "
    "URL, or several hosts with target_session_attrs=read-write"
)
_STATES: dict[str, _Known] = {
    "53100": (StoreFull, "there is no room on its disk; make room, then try again"),
    "53300": (
        StoreUnavailable,
        (
            "it has no connection left; raise max_connections, close others, or put a "
            "pooler in front of it"
        ),
    ),
    "28P01": (StoreRefused, "the password was refused; correct it in the URL"),
    "28000": (
        StoreRefused,
        "the login was refused; check the user's name and pg_hba.conf",
    ),
    "3D000": (StoreRefused, "that database does not exist; create it with `createdb`"),
    "42501": (StoreRefused, _RIGHTS),
    "42P01": (
        StoreRefused,
        (
            "a table of jobpool's is missing: the schema was dropped or is another's; "
            "name the right schema in the URL (?schema=…), or run `jobpool migrate`"
        ),
    ),
    "42703": (
        StoreRefused,
        "a table there is not as jobpool made it; name another schema (?schema=…)",
    ),
    "3F000": (
        StoreRefused,
        "the schema is missing; run `jobpool migrate`, or name another in the URL",
    ),
    "25006": (StoreUnavailable, _NO_WRITES),
    "55000": (StoreUnavailable, _NO_WRITES),
    "55P03": (
        StoreUnavailable,
        (
            "a lock could not be taken in 3 s; find its holder in pg_stat_activity. "
            "Nothing was changed"
        ),
    ),
    "57014": (
        StoreUnavailable,
        f"the statement was canceled or took too long; {_AGAIN}",
    ),
    "25P02": (
        StoreUnavailable,
        "the transaction had failed before; roll it back, then do all of it again",
    ),
    "23505": (StoreUnavailable, f"another transaction was quicker; {_AGAIN}"),
    "22021": (StoreRefused, f"{_VALUE}: it is not text in the database's encoding"),
}
_CLASSES: dict[str, _Known] = {
    "08": (StoreUnavailable, f"the connection was lost; {_AGAIN}"),
    "22": (RowRefused, _VALUE),
    "23": (RowRefused, _DATA),
    "25": (StoreUnavailable, f"the transaction was ended; {_AGAIN}"),
    "28": (StoreRefused, "the login was refused"),
    "40": (StoreUnavailable, f"another transaction was in the way; {_AGAIN}"),
    "53": (StoreUnavailable, "it is out of resources; give it more, then try again"),
    "55": (StoreUnavailable, f"something is in use; {_AGAIN}"),
    "57": (StoreUnavailable, f"it is going down, or coming up; {_AGAIN}"),
    "58": (StoreUnavailable, "its system reported an error; check the server's log"),
    "XX": (
        StoreUnavailable,
        "it has an internal error; check the server's log and its disks",
    ),
}
_LOST = "it does not answer; check that the server runs and can be reached from here"
_REFUSES = "it answers, and takes no connection; what it has said stands before this"
_TEXTS: tuple[tuple[str, str, str], ...] = (
    ("password authentication failed", "", "28P01"),
    ("no password supplied", "", "28P01"),
    ("fe_sendauth", "", "28P01"),
    ("pg_hba.conf", "", "28000"),
    ("role ", "does not exist", "28000"),
    ("database ", "does not exist", "3D000"),
    ("remaining connection slots", "", "53300"),
    ("too many clients", "", "53300"),
    ("too many connections", "", "53300"),
    ("no more connections allowed", "", "53300"),  # PgBouncer
    ("starting up", "", "57P03"),
    ("shutting down", "", "57P03"),
    ("recovery mode", "", "57P03"),
)
"""What servers say to a connection that they do not take, with its SQLSTATE."""
_NOT_REACHED = (
    (
        "failed to resolve host",
        "no address is known for that host; check its name in the URL, and the DNS",
    ),
    (
        "certificate",
        (
            "its certificate, or the one here, is refused; check sslrootcert, the "
            "host's name and that none has expired"
        ),
    ),
    (
        "SSL",
        (
            "no encrypted connection came about; check sslmode in the URL, and `ssl` "
            "and pg_hba.conf on the server"
        ),
    ),
)


def explain(error: psycopg.Error, place: str) -> StoreError | JobpoolBug:
    """Return the error to raise instead of *error*; the caller chains it.

    Args:
        error: as psycopg raised it.
        place: the store's URL without a password.
    """
    state = error.sqlstate
    if state is None:
        if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
            return StoreUnavailable(
                f"the store {place} could not be used ({_line(error)}): {_LOST}"
            )
        if isinstance(error, psycopg.DataError):
            return StoreRefused(f"the store {place} could not be used: {_VALUE}")
        return JobpoolBug(
            f"psycopg refused one of jobpool's own statements on {place} "
            f"({type(error).__name__}: {_line(error)}); please report this"
        )
    known = _STATES.get(state) or _CLASSES.get(state[:2])
    if known is None:
        return JobpoolBug(
            f"PostgreSQL refused one of jobpool's own statements on {place} "
            f"({state}: {_line(error)}); please report this"
        )
    kind, remedy = known
    return kind(f"the store {place} could not be used ({state}): {remedy}")


def explain_connect(error: psycopg.Error, place: str) -> StoreError | JobpoolBug:
    """Return the error to raise when there is no connection.

    libpq reports what the server has said as text only, without its SQLSTATE.

    Args:
        error: as psycopg raised it.
        place: the store's URL without a password.
    """
    text = str(error)
    if error.sqlstate is not None:
        return explain(error, place)
    if has_answered := "FATAL" in text or "fe_sendauth" in text:
        for words, more, state in _TEXTS:
            if words in text and more in text:
                return explain(psycopg.errors.lookup(state)(text), place)
    remedy = _REFUSES if has_answered else _LOST
    for words, found in _NOT_REACHED:
        if words in text:
            remedy = found
            break
    return StoreUnavailable(
        f"the store {place} could not be used ({_line(error)}): {remedy}"
    )


def _line(error: psycopg.Error) -> str:
    """Return the first line of an error's text: the rest may contain values."""
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
