"""Incidents and alerts: see `store.operations.operators.alerting`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.jobs.flow import FlowState, StepState
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.memory.database import MemoryDatabase, Session
from jobpool.store.operations.operators.alerting import (
    ABANDONED,
    ABANDONED_MS,
    KEPT_MS,
    LOST,
    after,
    alert_of,
)
from jobpool.store.records.alerts import (
    AlertEvent,
    AlertRow,
    AlertState,
    Ending,
    Endings,
    Incident,
    NewAlert,
    Turn,
    Watch,
)

_replace = msgspec.structs.replace
_ENDS = frozenset({JobState.SUCCEEDED, JobState.DEAD, JobState.QUARANTINED})
_NOBODYS = frozenset({Outcome.INTERRUPTED, Outcome.CANCELED, Outcome.LOST})
"""Not the job's doing."""
_id_of = attrgetter("id")
_WATCH = ""
"""The key of the one row of its table."""


class Alerting:
    """The part of the store that keeps incidents and alerts."""

    _database: MemoryDatabase
    _session: Session
    _clock: Clock

    def watch(self) -> Watch:
        """See `Store.watch`."""
        with self._session.reading:
            turn, at_ms, notes = self._database.watch.get(_WATCH, (0, 0, ""))
            return Watch(turn, at_ms, notes, self._clock.utc_ms())

    def take_turn(self, turn: Turn) -> bool:
        """See `Store.take_turn`."""
        with self._session.writing:
            data, now_ms = self._database, self._clock.utc_ms()
            if data.watch.get(_WATCH, (0, 0, ""))[0] != turn.number:
                return False
            data.put(data.watch, _WATCH, (turn.number + 1, now_ms, turn.notes))
            known = {(one.rule, one.subject) for one in self._open()}
            for found in turn.opened:
                if (found.rule, found.subject) in known:
                    continue
                known.add((found.rule, found.subject))
                incident = Incident(
                    id=data.take_incident_id(),
                    rule=found.rule,
                    subject=found.subject,
                    summary=found.summary,
                    opened_at_ms=now_ms,
                )
                self._change(turn, incident, now_ms)
            for number in turn.ended:
                open_one = data.incidents.get(number)
                if open_one is not None and open_one.ended_at_ms is None:
                    ended = _replace(open_one, ended_at_ms=now_ms)
                    self._change(turn, ended, now_ms)
            if turn.digest is not None:
                self._add_alert(turn, turn.digest, None, now_ms)
            self._abandon_alerts(turn.receivers, now_ms)
            self._prune_alerts(now_ms - KEPT_MS)
        return True

    def _change(self, turn: Turn, incident: Incident, now_ms: int) -> None:
        self._database.put(self._database.incidents, incident.id, incident)
        self._add_alert(turn, alert_of(incident), incident.id, now_ms)

    def _add_alert(
        self, turn: Turn, alert: NewAlert, incident: int | None, now_ms: int
    ) -> None:
        told = {(one.name, one.receiver) for one in self._database.alerts.values()}
        for receiver in turn.receivers:
            if (alert.name, receiver) not in told:
                row = AlertRow(
                    id=self._database.take_alert_id(),
                    name=alert.name,
                    receiver=receiver,
                    incident=incident,
                    body=alert.body,
                    state=AlertState.WAITING,
                    tries=0,
                    made_at_ms=now_ms,
                    next_at_ms=now_ms,
                    done_at_ms=None,
                    error=None,
                )
                self._database.put(self._database.alerts, row.id, row)

    def _abandon_alerts(self, receivers: Sequence[str], now_ms: int) -> None:
        for one in [*self._database.alerts.values()]:
            is_old = one.made_at_ms < now_ms - ABANDONED_MS
            if one.done_at_ms is None and is_old and one.receiver not in receivers:
                given_up = _replace(
                    one,
                    state=after(one.state, AlertEvent.GIVE_UP),
                    next_at_ms=None,
                    done_at_ms=now_ms,
                    error=ABANDONED,
                )
                self._database.put(self._database.alerts, one.id, given_up)

    def _prune_alerts(self, before_ms: int) -> None:
        alerts, incidents = self._database.alerts, self._database.incidents
        for alert in [*alerts.values()]:
            if alert.done_at_ms is not None and alert.done_at_ms < before_ms:
                self._database.put(alerts, alert.id, None)
        for incident in [*incidents.values()]:
            if incident.ended_at_ms is not None and incident.ended_at_ms < before_ms:
                self._database.put(incidents, incident.id, None)

    def incidents(self, *, ended: bool = False, limit: int = 100) -> list[Incident]:
        """See `Store.incidents`."""
        with self._session.reading:
            found = self._open()
            if ended:
                over = [
                    (one.ended_at_ms, one.id, one)
                    for one in self._database.incidents.values()
                    if one.ended_at_ms is not None
                ]
                found += [one for *_, one in sorted(over, reverse=True)]
            return found[:limit]

    def _open(self) -> list[Incident]:
        known = self._database.incidents
        return [
            known[one]
            for one in sorted(known, reverse=True)
            if known[one].ended_at_ms is None
        ]

    def alerts(self, limit: int = 100) -> list[AlertRow]:
        """See `Store.alerts`."""
        with self._session.reading:
            known = self._database.alerts
            return [known[one] for one in sorted(known, reverse=True)[:limit]]

    def unsent(self, receivers: Sequence[str]) -> tuple[int, int]:
        """See `Store.unsent`."""
        with self._session.reading:
            made = [
                one.made_at_ms
                for one in self._database.alerts.values()
                if one.done_at_ms is None and one.receiver in receivers
            ]
            now_ms = self._clock.utc_ms()
        return len(made), max(0, now_ms - min(made)) if made else 0

    def endings(
        self, since_ms: int, *, lost_since_ms: int, after_attempt: int | None
    ) -> Endings:
        """See `Store.endings`."""
        counts: Counter[tuple[str, Ending]] = Counter()
        lost: Counter[str] = Counter()
        with self._session.reading:
            now_ms = self._clock.utc_ms()
            after_ms = now_ms if after_attempt is None else after_attempt
            for row in self._database.jobs.newest_first():
                ended_ms, state = row.finished_at_ms, row.state
                from_ms = since_ms if state is JobState.SUCCEEDED else lost_since_ms
                if state in _ENDS and ended_ms is not None and ended_ms >= from_ms:
                    counts[row.new.kind, Ending(state.value)] += 1
                    is_lost = state.value in LOST
                    lost[row.new.kind] += is_lost and ended_ms >= since_ms
                counts[row.new.kind, Ending.FAILED] += sum(
                    one.shown.finished_at_ms > after_ms
                    and one.shown.outcome not in _NOBODYS
                    for one in row.tried
                )
        return Endings(+counts, +lost, now_ms)

    def stuck_flows(self, before_ms: int) -> list[tuple[int, str]]:
        """See `Store.stuck_flows`."""
        with self._session.reading:
            return [
                (flow.id, flow.name)
                for flow in sorted(self._database.flows.rows.values(), key=_id_of)
                if flow.state is FlowState.OPEN
                and flow.created_at_ms < before_ms
                and not any(self._moves(step, before_ms) for step in flow.steps)
            ]

    def _moves(self, step_id: int, before_ms: int) -> bool:
        """Say whether anything of a step runs, waits for its time, or has ended."""
        step, jobs = self._database.steps[step_id], self._database.jobs
        waits = step.external and step.state is StepState.READY
        for row in map(jobs.__getitem__, jobs.members.get(step_id, ())):
            if row.finished_at_ms is not None:
                if row.finished_at_ms >= before_ms:
                    return True
            elif (
                waits
                or row.state in {JobState.LEASED, JobState.PENDING}
                or (row.state is JobState.RUNNABLE and row.run_at_ms >= before_ms)
            ):
                return True
        return False

    def claim_alert(self, receivers: Sequence[str], for_s: float) -> AlertRow | None:
        """See `Store.claim_alert`."""
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            left: dict[tuple[int | None, int, str], AlertRow] = {}
            for one in self._database.alerts.values():
                if one.next_at_ms is not None:
                    own = one.id if one.incident is None else 0
                    about = (one.incident, own, one.receiver)
                    first = left.setdefault(about, one)
                    left[about] = min(first, one, key=lambda row: row.id)
            due = [
                (one.next_at_ms, one.id)
                for one in left.values()
                if one.receiver in receivers and (one.next_at_ms or 0) <= now_ms
            ]
            if not due:
                return None
            alert = self._database.alerts[min(due)[1]]
            claimed = _replace(
                alert,
                state=after(alert.state, AlertEvent.CLAIM),
                tries=alert.tries + 1,
                next_at_ms=now_ms + round(for_s * 1000),
            )
            self._database.put(self._database.alerts, alert.id, claimed)
        return claimed

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
        with self._session.writing:
            now_ms = self._clock.utc_ms()
            known = self._database.alerts.get(alert.id)
            is_held = known is not None and known.state is AlertState.SENDING
            if known is None or not is_held or known.tries != alert.tries:
                return False
            is_done = state is not AlertState.WAITING
            settled = _replace(
                known,
                state=state,
                next_at_ms=None if is_done else now_ms + round(after_s * 1000),
                done_at_ms=now_ms if is_done else None,
                error=error,
            )
            self._database.put(self._database.alerts, alert.id, settled)
        return True
