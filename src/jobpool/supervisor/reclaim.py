"""Takes back the jobs of dead supervisors of this host: once they are proven dead.

Theory of operation. A thread of its own looks at the open runs in the store. On
one host no lease expires by time: a run is dead when its lock is free, every
process on its record is gone, and no process carries its marker; survivors are
killed first (`sandbox.identity.prove_dead`). Then the jobs whose marks say that
they were really running are settled as lost, and the others handed back, under
their old tokens: if two supervisors do this at once, the first one wins and the
other's writes change nothing. What cannot be proven stays leased, with an alarm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from jobpool.core import events as ev
from jobpool.core.clock import Clock
from jobpool.core.job import Evidence, Lease, Settlement
from jobpool.core.lifecycle import Ending, account, hand_back
from jobpool.core.outcome import Outcome
from jobpool.core.policy import Policy
from jobpool.sandbox.identity import DeadRun, Unproven, prove_dead, remove_run
from jobpool.store.base import Run, Store
from jobpool.supervisor import messages as m
from jobpool.supervisor import notices
from jobpool.supervisor.registry import Registry
from jobpool.supervisor.storethread import StoreThread

EVERY_S = 1.0
ALARM_EVERY_S = 60.0


class Reclaimer(threading.Thread):
    """Looks for dead runs now and then.

    Args:
        run: this supervisor's own.
        root: where the run directories of the store are.
        store: does what is the store's.
        registry: the kinds' policies.
        post: takes events.
        clock: for the times of events.
    """

    def __init__(
        self,
        run: Run,
        root: Path,
        *,
        store: StoreThread,
        registry: Callable[[], Registry | None],
        post: Callable[[m.SupervisorEvent | ev.Event], None],
        clock: Clock,
    ) -> None:
        super().__init__(name="jobpool-reclaim", daemon=True)
        self._own = run
        self._root = root
        self._store = store
        self._registry = registry
        self._post = post
        self._clock = clock
        self._closing = threading.Event()
        self._alarmed_s: dict[str, float] = {}

    def run(self) -> None:
        """Look, prove, reclaim, until closed."""
        while not self._closing.is_set():
            for run in self._open_runs():
                self._consider(run)
            self._closing.wait(EVERY_S)

    def close(self) -> None:
        """Look no more."""
        self._closing.set()

    def _open_runs(self) -> Sequence[Run]:
        """Ask the store thread for the other open runs of this host."""
        found: list[Run] = []
        answered = threading.Event()

        def chore(store: Store) -> Sequence[ev.Event]:
            try:
                found.extend(store.open_runs())
            finally:
                answered.set()
            return ()

        self._store.chore(chore)
        while not answered.wait(EVERY_S):
            if self._closing.is_set():
                return ()
        own = self._own
        return [run for run in found if run.id != own.id and run.host == own.host]

    def _consider(self, run: Run) -> None:
        proof = prove_dead(
            self._root, run.id, same_boot=run.boot_id == self._own.boot_id
        )
        if isinstance(proof, DeadRun):
            self._store.chore(lambda store: self._reclaim(store, run, proof))
        elif isinstance(proof, Unproven):
            self._alarm(run, proof.reason)

    def _alarm(self, run: Run, reason: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._alarmed_s.get(run.id, -ALARM_EVERY_S) < ALARM_EVERY_S:
            return
        self._alarmed_s[run.id] = now_s
        self._post(
            ev.Alarm(
                at_ms=self._clock.utc_ms(),
                text=f"run {run.id} (pid {run.pid}) may or may not be alive: {reason}; "
                "its jobs stay leased",
            )
        )

    def _reclaim(self, store: Store, run: Run, proof: DeadRun) -> Sequence[ev.Event]:
        """Settle a dead run's leases and end it; runs in the store thread."""
        said: list[ev.Event] = []
        with store.transaction():
            leases = store.leases_of(run.id)
            settlements = [self._verdict(lease, proof) for lease in leases]
            accepted = store.settle(settlements)
            store.end_run(run.id)
        lost = 0
        now_ms = self._clock.utc_ms()
        for lease, settlement, good in zip(leases, settlements, accepted, strict=True):
            if good and settlement.outcome is not None:
                lost += 1
                said += notices.job_set_aside(now_ms, lease, settlement)
        store.ring()
        remove_run(self._root, run.id)
        said.append(
            ev.RunReclaimed(
                at_ms=now_ms,
                run_id=run.id,
                host=run.host,
                pid=run.pid,
                handed_back=sum(accepted) - lost,
                lost=lost,
                killed=proof.killed,
            )
        )
        return said

    def _verdict(self, lease: Lease, proof: DeadRun) -> Settlement:
        running = proof.running_tokens
        if running is not None and lease.token not in running:
            return hand_back(lease)
        ending = Ending(
            outcome=Outcome.LOST,
            evidence=Evidence(reason="its supervisor or host died while it ran"),
        )
        registry = self._registry()
        policy = registry.policy(lease.kind) if registry else Policy()
        settlement = account(lease, policy, ending, now_ms=self._clock.utc_ms())
        return registry.with_followup(lease, settlement) if registry else settlement
