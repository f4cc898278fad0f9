"""Tables that move row by row as they are: what each column may hold.

A table or column that nothing writes yet is not moved: tests/store/move names them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from jobpool.core.rules.schedules.schedule import TickState
from jobpool.store.statements.session import Row

_TEXT, _NUMBER = str | None, int | None


class LaterTable(NamedTuple):
    """A table that moves as it is."""

    columns: Mapping[str, Any]
    flags: tuple[str, ...] = ()
    """Those that are numbers in SQLite, and booleans in PostgreSQL."""
    is_numbered: bool = False
    """Others name its rows by their id, which stays."""

    def portable(self, row: Row) -> Row:
        """Return a row with PostgreSQL's types."""
        return tuple(
            bool(value) if name in self.flags else value
            for name, value in zip(self.columns, row, strict=True)
        )


LATER_TABLES: Mapping[str, LaterTable] = {
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
            **dict.fromkeys(("updated_at_ms", "since_ms"), int),
            **dict.fromkeys(("last_at_ms", "last_end_ms", "next_at_ms"), _NUMBER),
            "planned_at_ms": int,
            "waits": Literal[0, 1, 2, 3],
            "missed": int,
            "retired_at_ms": _NUMBER,
            **dict.fromkeys(("paused_at_ms", "paused_until_ms"), _NUMBER),
            **dict.fromkeys(("paused_by", "note"), _TEXT),
        },
        is_numbered=True,
    ),
    "ticks": LaterTable(
        {
            **dict.fromkeys(("id", "schedule", "nominal_at_ms", "stored_at_ms"), int),
            "state": TickState,
            "job_id": _NUMBER,
            "job_state": _TEXT,
            "backfilled": int,
            "ended_at_ms": _NUMBER,
        },
        flags=("backfilled",),
        is_numbered=True,
    ),
}
JOB_LATER: Mapping[str, Any] = {
    "tick": _NUMBER,
    **dict.fromkeys(("codec", "trace"), _TEXT),
    **dict.fromkeys(("replays", "replaced_by"), _NUMBER),
    "solo": Literal[0, 1] | None,
}
"""Columns that few jobs use: written to those only, after they were published."""
RUN_LATER: Mapping[str, Any] = {
    "format": _NUMBER,
    **dict.fromkeys(("application", "app_version"), _TEXT),
}
