"""Incidents: what a rule has found to be wrong, what to do about it, who was told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
from starlette.responses import Response

from jobpool.dashboard.asked import Asked
from jobpool.dashboard.screens.home import runbooks
from jobpool.dashboard.screens.home.needs import Way, way_of
from jobpool.monitoring.alerts.catalogue import RULES, Severity
from jobpool.store.protocol import Store
from jobpool.store.records.alerts import AlertRow, AlertState, Incident

_SEVERITIES = {Severity.PAGE: "at once", Severity.TICKET: "can wait for the day"}
_LISTED_MAX = 50
_ALERTS_MAX = 300


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """An incident, with what is known about it."""

    row: Incident
    title: str
    tone: str
    severity: str
    """How soon somebody should look; "": no rule of this version has found it."""
    way: Way | None
    """Where it can be looked into."""
    runbook: tuple[runbooks.Line, ...]
    told: tuple[AlertRow, ...]
    """To whom, the newest first."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows."""

    opened: tuple[Line, ...]
    ended: tuple[Line, ...]
    watched_ms: int
    """When somebody has looked last; 0: nobody ever has."""


async def show(asked: Asked) -> Response:
    """Answer with the page."""
    view = await asked.reading.read(view_of)
    return asked.page(
        "incidents.html", view=view, sent=AlertState.SENT, failed=AlertState.FAILED
    )


def view_of(store: Store) -> View:
    """Read what is wrong, and what was."""
    rows = store.incidents(ended=True, limit=_LISTED_MAX)
    told: defaultdict[int | None, list[AlertRow]] = defaultdict(list)
    for alert in store.alerts(_ALERTS_MAX) if rows else ():
        told[alert.incident].append(alert)
    lines = [line_of(row, told[row.id]) for row in rows]
    return View(
        opened=tuple(one for one in lines if one.row.ended_at_ms is None),
        ended=tuple(one for one in lines if one.row.ended_at_ms is not None),
        watched_ms=store.watch().at_ms,
    )


def line_of(row: Incident, told: Sequence[AlertRow]) -> Line:
    """Return an incident as it is shown."""
    rule = RULES.get(row.rule)
    is_urgent = rule is not None and rule.severity is Severity.PAGE
    return Line(
        row=row,
        title=row.rule.replace("_", " ").capitalize() if rule is None else rule.section,
        tone="bad" if is_urgent else "warn",
        severity="" if rule is None else _SEVERITIES[rule.severity],
        way=way_of(row),
        runbook=() if rule is None else runbooks.runbook_of(rule, row.subject),
        told=tuple(told),
    )
