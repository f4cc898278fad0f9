"""Incidents open and end, and are told: once to each receiver.

Theory of operation. All who watch the queue take turns: what one notes is the next
one's beginning, and a turn is stored only by the first who has come to its end. So one
of all finds that an incident opens, and writes the alerts in the same transaction.

An alert is claimed for a while by whoever sends it. If that is killed, another takes it
over, and its receiver may hear it twice, under one name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from jobpool.errors import JobpoolBug
from jobpool.store.records.alerts import (
    MOVES,
    AlertEvent,
    AlertRow,
    AlertState,
    Ending,
    Endings,
    Found,
    Incident,
    NewAlert,
    Turn,
    Watch,
)
from jobpool.store.statements.parameters import as_json
from jobpool.store.statements.rows import records
from jobpool.store.statements.session import Database, Session
from jobpool.store.statements.validation import clean_text

KEPT_MS = 90 * 86_400_000
"""How long incidents that have ended are kept, and alerts."""
ABANDONED_MS = 2 * 86_400_000
"""An alert that is older has no receiver any more, unless whoever watches has one: all
others would have given it up by now."""
ABANDONED = "no receiver of this name is configured any more; given up"
LOST = frozenset({Ending.DEAD, Ending.QUARANTINED})
ENDINGS_MAX = 100_000
FLOWS_MAX = 1000
_PRUNED = 1000
"""Most rows that one turn deletes."""


def alert_of(incident: Incident) -> NewAlert:
    """Return what is told of an incident that has opened or ended just now."""
    what = "opened" if incident.ended_at_ms is None else "ended"
    body = msgspec.json.encode(incident).decode()
    return NewAlert(name=f"{incident.id}-{what}", body=body)


def after(state: AlertState, event: AlertEvent) -> AlertState:
    """Return what follows.

    Raises:
        JobpoolBug: the event cannot happen.
    """
    following = MOVES[state][event]
    if following is None:
        raise JobpoolBug(f"an alert is {state}: {event} cannot happen")
    return following


class Alerting:
    """The part of the store that keeps incidents and alerts."""

    _database: Database

    def watch(self) -> Watch:
        """See `Store.watch`."""
        with self._database.reading() as session:
            ((turn, at_ms, notes),) = session.rows("get_watch") or [(0, 0, "")]
            now_ms = self._database.now_ms(session)
        return Watch(turn, at_ms, notes, now_ms)

    def take_turn(self, turn: Turn) -> bool:
        """See `Store.take_turn`."""
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            notes = clean_text(turn.notes)
            if not session.run(
                "take_watch", turn=turn.number, now_ms=now_ms, notes=notes
            ):
                return False
            for found in turn.opened:
                self._tell(session, turn, _opened(session, found, now_ms), now_ms)
            for incident in turn.ended:
                rows = session.rows("end_incident", id=incident, now_ms=now_ms)
                self._tell(session, turn, records(Incident, rows), now_ms)
            if turn.digest is not None:
                _add(session, turn, turn.digest, None, now_ms)
            session.run(
                "abandon_alerts",
                now_ms=now_ms,
                before_ms=now_ms - ABANDONED_MS,
                receivers=as_json(turn.receivers),
                error=ABANDONED,
            )
            old = {"before_ms": now_ms - KEPT_MS, "limit": _PRUNED}
            session.run("prune_alerts", **old)
            session.run("prune_incidents", **old)
        return True

    def _tell(
        self, session: Session, turn: Turn, incidents: Sequence[Incident], now_ms: int
    ) -> None:
        for incident in incidents:
            _add(session, turn, alert_of(incident), incident.id, now_ms)

    def incidents(self, *, ended: bool = False, limit: int = 100) -> list[Incident]:
        """See `Store.incidents`."""
        with self._database.reading() as session:
            rows = session.rows("open_incidents", limit=limit)
            if ended:
                rows += session.rows("ended_incidents", limit=limit - len(rows))
        return records(Incident, rows)

    def alerts(self, limit: int = 100) -> list[AlertRow]:
        """See `Store.alerts`."""
        with self._database.reading() as session:
            return records(AlertRow, session.rows("get_alerts", limit=limit))

    def unsent(self, receivers: Sequence[str]) -> tuple[int, int]:
        """See `Store.unsent`."""
        wanted = as_json(receivers)
        with self._database.reading() as session:
            ((unsent, since_ms),) = session.rows("count_unsent", receivers=wanted)
            now_ms = self._database.now_ms(session)
        return unsent, 0 if since_ms is None else max(0, now_ms - since_ms)

    def endings(
        self, since_ms: int, *, lost_since_ms: int, after_attempt: int | None
    ) -> Endings:
        """See `Store.endings`."""
        with self._database.reading() as session:
            last_id = session.value("last_attempt") or 0
            rows = session.rows(
                "count_endings",
                since_ms=since_ms,
                lost_since_ms=lost_since_ms,
                after_id=last_id if after_attempt is None else after_attempt,
                most=ENDINGS_MAX,
            )
        counts = {(kind, Ending(how)): count for kind, how, count, _ in rows}
        lost: Counter[str] = Counter()
        for kind, how, _, lately in rows:
            if how in LOST:
                lost[kind] += lately
        return Endings(counts, +lost, last_id)

    def stuck_flows(self, before_ms: int) -> list[tuple[int, str]]:
        """See `Store.stuck_flows`."""
        with self._database.reading() as session:
            rows = session.rows("stuck_flows", before_ms=before_ms, most=FLOWS_MAX)
        return [(flow, name) for flow, name in rows]

    def claim_alert(self, receivers: Sequence[str], for_s: float) -> AlertRow | None:
        """See `Store.claim_alert`."""
        wanted = as_json(receivers)
        with self._database.reading() as session:
            now_ms = self._database.now_ms(session)
            due = session.rows("due_alerts", now_ms=now_ms, receivers=wanted)
        if not due:
            return None
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            until_ms = now_ms + round(for_s * 1000)
            rows = session.rows(
                "claim_alert", id=due[0][0], now_ms=now_ms, until_ms=until_ms
            )
        return records(AlertRow, rows)[0] if rows else None

    def settle_alert(
        self,
        alert: AlertRow,
        event: AlertEvent,
        *,
        after_s: float = 0.0,
        error: str | None = None,
    ) -> bool:
        """See `Store.settle_alert`."""
        state = after(alert.state, event)
        with self._database.writing() as session:
            now_ms = self._database.now_ms(session)
            is_done = state is not AlertState.WAITING
            settled = session.run(
                "settle_alert",
                id=alert.id,
                tries=alert.tries,
                state=state,
                next_at_ms=None if is_done else now_ms + round(after_s * 1000),
                done_at_ms=now_ms if is_done else None,
                error=clean_text(error),
            )
        return bool(settled)


def _opened(session: Session, found: Found, now_ms: int) -> list[Incident]:
    rows = session.rows(
        "open_incident",
        rule=clean_text(found.rule),
        subject=clean_text(found.subject),
        summary=clean_text(found.summary),
        now_ms=now_ms,
    )
    return records(Incident, rows)


def _add(
    session: Session, turn: Turn, alert: NewAlert, incident: int | None, now_ms: int
) -> None:
    for receiver in turn.receivers:
        session.run(
            "add_alert",
            name=alert.name,
            receiver=clean_text(receiver),
            incident=incident,
            body=clean_text(alert.body),
            now_ms=now_ms,
        )
