"""The circuit-breaker gate: holds back kinds that crash in a row.

A kind that has not crashed has no breaker and costs nothing. Every change is saved, so
that it survives a supervisor that its jobs kill, reaches other supervisors, and
`jobpool resume --kind` can close a breaker by deleting its row. Rows read from the
store count only if they include everything that we have saved.
"""

from __future__ import annotations

from jobpool.core.events.flow import KindResumed, KindSlowed
from jobpool.core.jobs.job import Lease, Settlement
from jobpool.core.jobs.outcome import CHARGES, Outcome
from jobpool.core.rules.circuit_breaker import (
    Breaker,
    BreakerEvent,
    BreakerState,
    Saved,
)
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.admission.gate import Gate
from jobpool.supervisor.machine.state.slot import NEVER_S, Assigned
from jobpool.supervisor.machine.state.step import Step

_CLOSED = BreakerState.CLOSED


class CircuitBreakers(Gate):
    """The gate that holds kinds which crash in a row.

    Args:
        step: shared by all parts of the machine.
    """

    cause = "crashes"
    sorts_out = True

    def __init__(self, step: Step) -> None:
        self._step = step
        self._breakers: dict[str, Breaker] = {}
        self._saves = 0
        self._passed_over: set[str] = set()
        """Kinds of which jobs may wait because they were held at the last check."""
        step.on_settle.append(self._settled)

    def held(self) -> frozenset[str]:
        """Return the kinds that may not begin now."""
        if not self._breakers:
            return frozenset()
        now_s = self._step.now_s
        held = frozenset(
            one.kind for one in self._breakers.values() if not one.may_begin(now_s)
        )
        self._passed_over |= held
        return held

    @property
    def is_open(self) -> bool:
        """Whether no kind has crashed since its last success."""
        return not self._breakers

    @property
    def needs_ends(self) -> bool:
        """Whether a success would close a breaker."""
        return bool(self._breakers)

    def admit(self, job: Assigned) -> str | None:
        """Admit a job; of a kind that is held, only the trial job."""
        lease = job.lease
        breaker = self._breakers.get(lease.kind)
        if breaker is None or breaker.is_tried(lease.token):
            return None
        if breaker.may_begin(self._step.now_s):
            breaker.begin(lease.token)
            return None
        self._passed_over.add(lease.kind)
        return f"kind {lease.kind} is {breaker.state}"

    def next_s(self) -> float:
        """Return when the next kind may be tried."""
        now_s = self._step.now_s
        return min(
            (
                one.next_s
                for one in self._breakers.values()
                if one.state is not _CLOSED and one.next_s > now_s
            ),
            default=NEVER_S,
        )

    def keep_time(self) -> None:
        """Set the wake-up for the next kind that may be tried.

        Kinds that were passed over get one recheck; after that polling is enough.
        """
        if self._breakers and (next_s := self.next_s()) < NEVER_S:
            self._step.wake_at(next_s)
        free = {
            kind
            for kind in self._passed_over
            if kind not in self._breakers
            or self._breakers[kind].may_begin(self._step.now_s)
        }
        if free:
            self._passed_over -= free
            self._step.recheck = True

    def host_killed(self, event: inp.HostKilled) -> None:
        """A suspect that ran alone killed another supervisor or its host."""
        self._crashed(event.kind, event.id, None)

    def seen(self, event: inp.BreakersSeen) -> None:
        """Adopt the breakers that the store has."""
        if event.saves != self._saves:
            return
        stored = {one.kind: one for one in event.rows}
        for kind in [kind for kind in self._breakers if kind not in stored]:
            self._close(kind, BreakerEvent.RESUME, "an operator or another supervisor")
        for kind, saved in stored.items():
            self._adopt(kind, saved)
        self.keep_time()

    def _adopt(self, kind: str, saved: Saved) -> None:
        """Adopt one stored breaker, under the present settings."""
        after, breaker = self._after(kind), self._breakers.get(kind)
        if not after:
            if breaker is not None:
                self._close(kind, BreakerEvent.RESUME, "its breaker is off here now")
            return
        if breaker is None:
            breaker = self._breakers[kind] = Breaker(kind, after)
        breaker.slow_after = after
        breaker.adopt(saved, self._step.now_s)

    def _after(self, kind: str) -> int:
        registry = self._step.registry
        return registry.breaker_after(kind) if registry else 0

    def _settled(self, lease: Lease, settlement: Settlement) -> None:
        outcome = settlement.outcome
        if outcome is not None and CHARGES[outcome].crash:
            self._crashed(lease.kind, lease.id, lease.token)
            return
        breaker = self._breakers.get(lease.kind)
        if breaker is None:
            return
        if outcome is Outcome.SUCCEEDED:
            self._close(lease.kind, BreakerEvent.SUCCEED, f"job {lease.id} succeeded")
            self._save(Breaker(lease.kind, breaker.slow_after))
        else:
            began = outcome is not None or settlement.snoozed
            breaker.end(lease.token, self._step.now_s, began=began)
            self._wake(breaker)

    def _crashed(self, kind: str, job_id: int, token: int | None) -> None:
        step = self._step
        breaker = self._breakers.get(kind)
        if breaker is None:
            after = self._after(kind)
            if not after:
                return
            breaker = self._breakers[kind] = Breaker(kind, after)
        breaker.crash(job_id, token, step.now_s)
        self._save(breaker)
        if breaker.state is not _CLOSED:
            step.report(
                KindSlowed(
                    at_ms=step.now_ms,
                    kind=kind,
                    state=breaker.state,
                    crashes=breaker.crashes,
                    again_in_s=breaker.pause_s(),
                )
            )
            self._wake(breaker)

    def _wake(self, breaker: Breaker) -> None:
        if breaker.state is not _CLOSED:
            self._step.wake_at(max(breaker.next_s, self._step.now_s))

    def _close(self, kind: str, event: BreakerEvent, reason: str) -> None:
        breaker = self._breakers.pop(kind)
        was_closed = breaker.state is _CLOSED
        breaker.close(event)
        if not was_closed:
            self._step.report(
                KindResumed(at_ms=self._step.now_ms, kind=kind, reason=reason)
            )
            self._step.recheck = True

    def _save(self, breaker: Breaker) -> None:
        self._saves += 1
        self._step.out.append(cmd.SaveBreaker(breaker.saved(self._step.now_s)))
