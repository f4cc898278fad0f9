"""The audit trail: who did what to jobs, from where, when and why."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from jobpool.core.clock import SystemClock
from jobpool.dashboard.asked import Asked
from jobpool.operations.operate import LEAST_ROLE, REFUSED
from jobpool.operations.trail.entries import entries, target_of
from jobpool.store.protocol import Store
from jobpool.store.records.operating import AuditFilter, AuditRow
from jobpool.words.moments import since_ms
from jobpool.words.trail import changes_words, target_words

PAGE = 100
FIELDS = ("who", "action", "since", "job")
"""What the list can be narrowed down by, as in its URL."""
ACTIONS = tuple(sorted({*(one.name for one in LEAST_ROLE), REFUSED}))


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """An entry."""

    row: AuditRow
    target: str
    changes: str
    """Which arguments were changed; "": that is not what was done."""
    is_certain: bool
    """False: it may have been about the job that is asked for."""


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    chosen = {name: asked.query[name] for name in FIELDS if asked.query.get(name)}
    before = asked.query.get("before", "")

    def read(store: Store) -> list[Line]:
        return lines_of(store, chosen, before, SystemClock().utc_ms())

    return asked.page(
        "audit.html",
        listed=await asked.reading.read(read),
        chosen=chosen,
        actions=ACTIONS,
        is_first=not before,
        page=PAGE,
    )


def lines_of(
    store: Store, chosen: Mapping[str, str], before: str, now_ms: int
) -> list[Line]:
    """Read a page of the trail, newest first, and one more.

    Args:
        store: where it is.
        chosen: values of `FIELDS`; a job is named by its ref.
        before: the number of the last entry of the page before; "": the first page.
        now_ms: for spans.

    Raises:
        ConfigError: ``since`` is no time.
    """
    since = chosen.get("since")
    which = AuditFilter(
        since_ms=None if since is None else since_ms(since, now_ms, "since"),
        who=chosen.get("who"),
        action=chosen.get("action"),
    )
    ref, job_id = chosen.get("job"), None
    if ref is not None:
        job_id = store.id_of(ref)
        if job_id is None:
            return []
        found = entries(store, which, job_id, PAGE)
        return [_line(one.row, is_certain=one.is_certain) for one in found]
    before_id = int(before[:18]) if before.isascii() and before.isdigit() else None
    rows = store.audits(which, PAGE + 1, before_id)
    return [_line(row, is_certain=True) for row in rows]


def _line(row: AuditRow, *, is_certain: bool) -> Line:
    return Line(
        row=row,
        target=target_words(target_of(row)),
        changes=changes_words(row),
        is_certain=is_certain,
    )
