"""Facts and warnings about a PostgreSQL store, for operators."""

from __future__ import annotations

import time

from jobpool.core.units import show_duration
from jobpool.store.postgres.connection.database import Database
from jobpool.store.postgres.connection.session import Session

SNAPSHOT_PATIENCE_S = 60.0
OUTLASTED_S_MAX = 10.0
"""How long a VACUUM waits for transactions that may still see what it removes."""
_LOOK_EVERY_S = 0.05
STILL_IN_FREE_ROOM = (
    "PostgreSQL keeps deleted bytes in its tables' free room until others are written "
    "there; --rewrite copies the tables without them, and locks them meanwhile"
)
NOT_VACUUMED = (
    "this login may not VACUUM all of the tables, so their files may hold deleted "
    "bytes: let their owner do it, jobpool_owner if roles.sql was run"
)
STILL_SEEN = (
    "a transaction that began before the erasure is still open in this database, and "
    "the server keeps what it may see in the files: end it, then do this again"
)
_BLOAT_ROWS = 100_000
"""Fewer dead rows are no concern, whatever their share."""


def describe(session: Session, *, is_pooled: bool) -> dict[str, str]:
    """Return facts about the database and the session, by name."""
    ((version, database, user, commit, fsync, vacuum, connections, size),) = (
        session.rows("describe")
    )
    live, dead, table = _table(session)
    facts = {
        "database": f"{database}, schema {session.schema}",
        "user": user,
        "postgresql_version": version,
        "size": f"{size}; jobs {table}",
        "synchronous_commit": _unsafe(commit, "off", "may lose its newest commits"),
        "fsync": _unsafe(fsync, "off", "may be damaged by a power cut"),
        "autovacuum": _unsafe(vacuum, "off", "slows down as dead rows pile up"),
        "max_connections": f"{connections}; a supervisor uses 2",
        "wake_ups": (
            "warning: a pooler in transaction mode is in between, so LISTEN cannot "
            "work; supervisors poll once a second at the least"
            if is_pooled
            else "LISTEN/NOTIFY, and polling"
        ),
        "dead_rows": f"{dead:,} dead, {live:,} live",
        "schema_version": str(session.value("schema_version")),
        "stale_settlements": str(session.value("counter", name="stale_settlements")),
    }
    for number, text in enumerate(concerns(session), 1):
        facts[f"concern_{number}"] = f"warning: {text}"
    return facts


def concerns(session: Session) -> list[str]:
    """Return warnings about what slows the queue down."""
    found = [
        f"{what} {name} has been open for {show_duration(age_s)}: until it ends no "
        "dead row can be removed, and leasing gets slower and slower; end it, and set "
        "idle_in_transaction_session_timeout for its user"
        for what, name, age_s in session.rows(
            "long_snapshots", patience_s=SNAPSHOT_PATIENCE_S
        )
    ]
    live, dead, _ = _table(session)
    if dead > max(_BLOAT_ROWS, live):
        found.append(
            f"the table jobs has {dead:,} dead rows to {live:,} live ones; check "
            "whether autovacuum runs and what holds it back"
        )
    return found


def wipe(server: Database, *, rewrite: bool) -> list[str]:
    """See `Store.wipe`."""
    remarks = [] if rewrite else [STILL_IN_FREE_ROOM]
    _outlast_snapshots(server)
    warned, kept = server.vacuum(full=rewrite)
    if kept:
        remarks.append(STILL_SEEN)
    if warned:
        remarks.append(f"{NOT_VACUUMED} (the server says: {warned[0]})")
    return remarks


def _outlast_snapshots(server: Database) -> None:
    """Wait a little for transactions that are open now: they see what was deleted.

    Other users' are seen only by logins that may read all statistics.
    """
    began_s = time.monotonic()
    while (passed_s := time.monotonic() - began_s) < OUTLASTED_S_MAX:
        with server.reading() as session:
            if not session.rows("long_snapshots", patience_s=passed_s):
                return
        time.sleep(_LOOK_EVERY_S)


def _table(session: Session) -> tuple[int, int, str]:
    rows = session.rows("table_health")
    live, dead, size = rows[0] if rows else (0, 0, "unknown")
    return live, dead, size


def _unsafe(value: str, bad: str, what: str) -> str:
    return f"{value}: warning: the store {what}" if value == bad else value
