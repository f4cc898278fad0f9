"""Facts and warnings about a PostgreSQL store, for operators."""

from __future__ import annotations

from jobpool.core.units import show_duration
from jobpool.store.postgres.connection.session import Session

SNAPSHOT_PATIENCE_S = 60.0
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


def _table(session: Session) -> tuple[int, int, str]:
    rows = session.rows("table_health")
    live, dead, size = rows[0] if rows else (0, 0, "unknown")
    return live, dead, size


def _unsafe(value: str, bad: str, what: str) -> str:
    return f"{value}: warning: the store {what}" if value == bad else value
