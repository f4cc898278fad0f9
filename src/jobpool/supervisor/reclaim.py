"""Takes back the jobs of dead supervisors: once they are proven dead.

Theory of operation. A thread of its own looks at the open runs in the store. On one
host no lease expires by time: a run is dead when its lock is free, every process on
its record is gone, and no process carries its marker; survivors are killed first
(`sandbox.proof`). Then the jobs whose marks say that they were really running are
settled as lost, and the others handed back, under their old tokens: a late word of
anybody else changes nothing. What cannot be proven stays leased, with an alarm.

Run directories that no open run owns (their supervisor died while it tidied up) are
removed once they, too, are proven dead.
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
TIDY_EVERY = 60
"""Looks between two searches for directories that nobody owns."""


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
        looks = 0
        while not self._closing.is_set():
            try:
                runs = self._open_runs()
                for run in runs or ():
                    self._consider(run)
                if runs is not None and looks % TIDY_EVERY == 0:
                    self._tidy({run.id for run in runs})
            except (OSError, ValueError) as exc:
                text = f"looking for dead runs failed: {exc!r}; trying again"
                self._post(ev.Alarm(at_ms=self._clock.utc_ms(), text=text))
            looks += 1
            self._closing.wait(EVERY_S)

    def close(self) -> None:
        """Look no more."""
        self._closing.set()

    def _open_runs(self) -> list[Run] | None:
        """Ask the store thread for the open runs of this host; None: no answer."""
        answer: list[list[Run]] = []
        answered = threading.Event()

        def chore(store: Store) -> Sequence[ev.Event]:
            try:
                runs = store.open_runs()
                # Host names change, with every container for one: only a store that
                # several hosts can share may go by them.
                answer.append(
                    [r for r in runs if store.one_host or r.host == self._own.host]
                )
            finally:
                answered.set()
            return ()

        self._store.chore(chore)
        while not answered.wait(EVERY_S):
            if self._closing.is_set():
                return None
        return answer[0] if answer else None

    def _consider(self, run: Run) -> None:
        if run.id == self._own.id:
            return
        same_boot = run.boot_id == self._own.boot_id
        proof = prove_dead(self._root, run.id, same_boot=same_boot)
        if isinstance(proof, DeadRun):
            self._store.chore(lambda store: self._reclaim(store, run, proof))
        elif isinstance(proof, Unproven):
            self._alarm(run, proof.reason)

    def _tidy(self, owned: set[str]) -> None:
        """Remove run directories whose run has ended, or never began."""
        for path in self._root.iterdir():
            if path.name in owned or path.name == self._own.id:
                continue
            if isinstance(prove_dead(self._root, path.name), DeadRun):
                remove_run(self._root, path.name)

    def _alarm(self, run: Run, reason: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._alarmed_s.get(run.id, -ALARM_EVERY_S) < ALARM_EVERY_S:
            return
        self._alarmed_s[run.id] = now_s
        self._post(
            ev.Alarm(
                at_ms=self._clock.utc_ms(),
                text=f"run {run.id} (pid {run.pid} on {run.host}) may or may not be "
                f"alive, so its jobs stay leased: {reason}. Once you are sure that "
                f"nothing of it lives: jobpool reclaim {run.id}",
            )
        )

    def _reclaim(self, store: Store, run: Run, proof: DeadRun) -> Sequence[ev.Event]:
        """Take a dead run's jobs back; runs in the store thread."""
        said = reclaim(
            store,
            run,
            running=proof.running_tokens,
            killed=proof.killed,
            registry=self._registry(),
            now_ms=self._clock.utc_ms(),
        )
        remove_run(self._root, run.id)
        return said


def reclaim(
    store: Store,
    run: Run,
    *,
    running: frozenset[int] | None,
    killed: int = 0,
    registry: Registry | None = None,
    now_ms: int,
) -> list[ev.Event]:
    """Settle everything that a dead run holds, and end the run.

    Args:
        store: where its jobs are.
        run: the run; nothing of it may be alive.
        running: tokens of the attempts that were really running; None: all may be.
        killed: survivors that had to be killed, for the report.
        registry: the kinds' policies; None: the defaults.
        now_ms: the store's clock.

    Returns:
        What is to be said about it.

    Raises:
        StoreUnavailable: nothing was changed.
    """
    with store.transaction():
        leases = store.leases_of(run.id)
        settlements = [_verdict(lease, running, registry, now_ms) for lease in leases]
        store.settle(settlements)
        store.end_run(run.id)
    store.ring()
    said: list[ev.Event] = []
    lost = [
        (lease, settlement)
        for lease, settlement in zip(leases, settlements, strict=True)
        if settlement.outcome is not None
    ]
    for lease, settlement in lost:
        said += notices.job_set_aside(now_ms, lease, settlement)
    said.append(
        ev.RunReclaimed(
            at_ms=now_ms,
            run_id=run.id,
            host=run.host,
            pid=run.pid,
            handed_back=len(leases) - len(lost),
            lost=len(lost),
            killed=killed,
        )
    )
    return said


def _verdict(
    lease: Lease,
    running: frozenset[int] | None,
    registry: Registry | None,
    now_ms: int,
) -> Settlement:
    if running is not None and lease.token not in running:
        return hand_back(lease)
    ending = Ending(
        outcome=Outcome.LOST,
        evidence=Evidence(reason="its supervisor or host died while it ran"),
    )
    if registry is None:
        return account(lease, Policy(), ending, now_ms=now_ms)
    settlement = account(lease, registry.policy(lease.kind), ending, now_ms=now_ms)
    return registry.with_followup(lease, settlement)
