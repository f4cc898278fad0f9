"""Tables that move row by row as they are: what each column may hold.

Not among them is what is derived from jobs and quotas again (lanes, buckets, permits),
and what belongs to one run (quotas as it has published them).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from jobpool.store.statements import integrity
from jobpool.store.statements.session import Row

_TEXT, _NUMBER, _REAL = str | None, int | None, float | None


class LaterTable(NamedTuple):
    """A table that moves as it is."""

    columns: Mapping[str, Any]
    flags: tuple[str, ...] = ()
    """Those that are numbers in SQLite, and booleans in PostgreSQL."""
    conflict: str = ""
    """What is done where the target has such a row; "": the move is refused."""
    is_numbered: bool = False
    """Others name its rows by their id, which stays."""

    def portable(self, row: Row) -> Row:
        """Return a row with PostgreSQL's types."""
        return tuple(
            bool(value) if name in self.flags else value
            for name, value in zip(self.columns, row, strict=True)
        )


_KEPT = "ON CONFLICT DO NOTHING"
_ADDED = """
ON CONFLICT (kind, pool, measure, week, bucket) DO UPDATE
SET attempts = sketches.attempts + excluded.attempts,
  censored = sketches.censored + excluded.censored
"""
LATER_TABLES: Mapping[str, LaterTable] = {
    "audit": LaterTable(
        {
            "at_ms": int,
            **dict.fromkeys(("who", "role", "origin", "action", "target"), str),
            "jobs": int,
            **dict.fromkeys(("changed", "note"), _TEXT),
        }
    ),
    "sketches": LaterTable(
        {
            **dict.fromkeys(("kind", "pool"), str),
            "measure": Literal["memory", "duration"],
            **dict.fromkeys(("week", "bucket", "attempts", "censored"), int),
        },
        conflict=_ADDED,
    ),
    "tenants": LaterTable(
        {
            "name": str,
            "concurrency": _NUMBER,
            **dict.fromkeys(("rate", "weight"), _REAL),
            "options": _TEXT,
            "updated_at_ms": int,
        },
        conflict=_KEPT,
    ),
    "quotas": LaterTable(
        {
            "name": str,
            "run_id": Literal[""],
            "per": _TEXT,
            "concurrency": _NUMBER,
            "rate": _REAL,
            "burst": _NUMBER,
            "options": _TEXT,
            "until_ms": _NUMBER,
            "updated_at_ms": int,
        },
        conflict=_KEPT,
    ),
    "schedules": LaterTable(
        {
            "id": int,
            "name": str,
            **dict.fromkeys(("application", "app_version"), _TEXT),
            **dict.fromkeys(("kind", "pool"), str),
            "payload": bytes,
            **dict.fromkeys(("codec", "tenant"), _TEXT),
            "priority": int,
            **dict.fromkeys(("rule", "options"), str),
            **dict.fromkeys(("next_at_ms", "last_at_ms"), _NUMBER),
            **dict.fromkeys(("retired_at_ms", "paused_until_ms"), _NUMBER),
            "note": _TEXT,
            "updated_at_ms": int,
        },
        is_numbered=True,
    ),
    "ticks": LaterTable(
        {
            **dict.fromkeys(("id", "schedule", "nominal_at_ms", "stored_at_ms"), int),
            "state": str,
            "job_id": _NUMBER,
            "backfilled": int,
        },
        flags=("backfilled",),
        is_numbered=True,
    ),
    "flows": LaterTable(
        {
            "id": int,
            "name": str,
            **dict.fromkeys(("key", "tenant"), _TEXT),
            **dict.fromkeys(("state", "failure"), str),
            **dict.fromkeys(("generation", "created_at_ms"), int),
            "finished_at_ms": _NUMBER,
        },
        is_numbered=True,
    ),
    "steps": LaterTable(
        {
            **dict.fromkeys(("id", "flow"), int),
            **dict.fromkeys(("name", "state"), str),
            "failed": int,
            "until_ms": _NUMBER,
        },
        flags=("failed",),
        is_numbered=True,
    ),
    "edges": LaterTable(
        {**dict.fromkeys(("flow", "from_step", "to_step"), int), "when_ended": str}
    ),
    "flow_notes": LaterTable(
        dict.fromkeys(("id", "flow", "step"), int), is_numbered=True
    ),
}
JOB_LATER: Mapping[str, Any] = {
    "step": _NUMBER,
    "generation": integrity.Count | None,
    "tick": _NUMBER,
    "trace": _TEXT,
    **dict.fromkeys(("replays", "replaced_by"), _NUMBER),
    "solo": Literal[0, 1] | None,
}
"""Columns that few jobs use: written to those only, after they were published."""
RUN_LATER: Mapping[str, Any] = {
    "format": _NUMBER,
    **dict.fromkeys(("application", "app_version"), _TEXT),
}
