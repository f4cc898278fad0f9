"""What is told: JSON objects, the same at each try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from jobpool.core.event_lines import iso_time
from jobpool.monitoring.alerts.catalogue import RULES
from jobpool.monitoring.alerts.receivers.receiver import NotTaken
from jobpool.store.records.alerts import AlertRow, Ending, Incident, NewAlert
from jobpool.store.records.reading import EndRow

_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Unreadable(NotTaken):
    """Another program has damaged an alert's row."""


def message(alert: AlertRow, queue: str) -> bytes:
    """Return the JSON of an alert.

    Args:
        alert: as stored.
        queue: the store's URL, without a password.

    Raises:
        Unreadable: it cannot be known.
    """
    told: dict[str, Any] = {"id": alert.name, "queue": queue}
    try:
        if alert.incident is None:
            told |= msgspec.json.decode(alert.body, type=dict[str, Any])
        else:
            told |= _of_incident(msgspec.json.decode(alert.body, type=Incident))
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise Unreadable("its row in the database cannot be read") from exc
    return msgspec.json.encode(told)


def _of_incident(incident: Incident) -> dict[str, Any]:
    is_over = incident.ended_at_ms is not None
    return {
        "event": "ended" if is_over else "opened",
        "text": f"{'over: ' if is_over else ''}{incident.summary}",
        "incident": incident.id,
        **facts_of(incident),
    }


def facts_of(incident: Incident) -> dict[str, Any]:
    """Return what programs are told of an incident, besides its number and text."""
    rule = RULES.get(incident.rule)
    return {
        "rule": incident.rule,
        "subject": incident.subject,
        "severity": None if rule is None else rule.severity,
        "opened_at": iso_time(incident.opened_at_ms),
        "ended_at": iso_time(incident.ended_at_ms),
        "runbook": None if rule is None else rule.runbook,
    }


def last_words(ends: Iterable[EndRow], rule: str, kind: str) -> str:
    """Return how the newest of the jobs has ended that an incident is about.

    Only its class of error, as the text of one may hold what nobody else should read;
    "": it is about no jobs, or that is not among *ends*.

    Args:
        ends: the last attempts that did not succeed, the latest first.
        rule: the incident's.
        kind: its subject.
    """
    for end in ends:
        if (end.state, end.kind) == (rule, kind):
            how = end.error_class or end.outcome.replace("_", " ")
            return f"; the last: {how} (jobpool show {end.job_id})"
    return ""


def trial(queue: str, at_ms: int) -> tuple[str, bytes]:
    """Return the name of a message that tests a receiver, and its JSON."""
    name = f"test-{at_ms}"
    told = {
        "id": name,
        "queue": queue,
        "event": "test",
        "text": "jobpool alerts test: nothing is wrong",
    }
    return name, msgspec.json.encode(told)


def last_digest_ms(now_ms: int, minutes: int) -> int:
    """Return when the last digest was due.

    Args:
        now_ms: the store's clock.
        minutes: the time of day, UTC.
    """
    now = _EPOCH + timedelta(milliseconds=now_ms)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    due = today + timedelta(minutes=minutes)
    if due > now:
        due -= _DAY
    return int((due - _EPOCH) / timedelta(milliseconds=1))


def digest(
    counts: Mapping[tuple[str, Ending], int], since_ms: int, due_ms: int
) -> NewAlert | None:
    """Sum up the jobs that became dead or quarantined; None: there are none.

    Args:
        counts: by kind.
        since_ms: from when on.
        due_ms: the moment of the digest: one a day has its name.
    """
    lost = {
        how: {kind: n for (kind, one), n in counts.items() if one is how}
        for how in (Ending.DEAD, Ending.QUARANTINED)
    }
    if not any(lost.values()):
        return None
    most_first = {
        how.value: [
            {"kind": kind, "jobs": n}
            for kind, n in sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
        ]
        for how, kinds in lost.items()
    }
    said = [f"{sum(kinds.values()):,} {how}" for how, kinds in lost.items() if kinds]
    body = {
        "event": "digest",
        "text": f"jobs that need a look: {', '.join(said)}",
        "since": iso_time(since_ms),
        **most_first,
        "runbook": "jobpool manual alerts#dead",
    }
    day = (_EPOCH + timedelta(milliseconds=due_ms)).date()
    return NewAlert(name=f"digest-{day}", body=msgspec.json.encode(body).decode())
