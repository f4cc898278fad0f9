"""The reclaimer: takes back the jobs of supervisors that are proven dead.

Theory of operation. A thread of its own checks the open runs in the store. On one host
no lease expires by time: a run is dead when its lock is free, every process on its
record is gone, and no process carries its marker; survivors are killed first
(`death_proof`). Then the jobs whose marks say that they were really running are settled
as lost, and the others handed back, under their old tokens: a late write by anything
else changes nothing. What cannot be proven stays leased, with an alarm if that lasts.
What a loss costs, and which job is a suspect after it, is the table of
`core.rules.suspects`. No job is leased before the first check is over, so that a
suspect left by this supervisor's predecessor finds it empty.

In a store that several hosts share, that is the only rule for runs whose directory is
on this host. Nothing can be proven of a run of another host: it is presumed dead when
its leases have run out by the store's clock, since a living one has ended its own jobs
by then (`fencing`). Its jobs are taken, but it stays open: it may come back. This does
not apply after an outage of the store, when the leases of living runs ran out as well.

Run directories without an open run (their supervisor died while it cleaned up) are
removed once they, too, are proven dead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from jobpool.core.clock import Clock
from jobpool.core.events.event import Event
from jobpool.core.events.supervisor import Alarm
from jobpool.core.jobs.trace import Tracer
from jobpool.sandbox.runs.run_directory import remove_run
from jobpool.sandbox.system.process_tree import Member
from jobpool.store.protocol import Store
from jobpool.store.records.runs import Run
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.maintenance.death_proof import (
    Alive,
    DeadRun,
    Proof,
    Unproven,
    prove_dead,
)
from jobpool.supervisor.maintenance.lost_jobs import settle_all, take_back
from jobpool.supervisor.storage.inbox import Chore
from jobpool.supervisor.storage.thread import StoreThread

T = TypeVar("T")
EVERY_S = 1.0
EXPIRED_EVERY_S = 0.25
"""Between two checks for runs of other hosts whose leases have run out."""
FORGOTTEN_MS = 86_400_000
"""An open run that expired this long ago, and holds nothing, is ended."""
ALARM_AFTER_S = 5.0
"""So long nothing is said of a run: what was killed may take a while to die."""
ALARM_EVERY_S = 60.0
TIDY_EVERY = 60
"""Checks between two searches for directories without a run."""


class Reclaimer(threading.Thread):
    """Checks regularly for dead runs.

    Args:
        run: this supervisor's own.
        store: does what is the store's; must have been opened.
        may_take: whether runs that seem to have expired really have; asked in the
            store thread.
        registry: the kinds' policies.
        post: takes events.
        on_first_check: a chore, left when the first check is over, behind what was
            found.
        clock: for the times of events.
        tracer: names the spans of lost attempts; None: nobody hears of spans.
        details: all that is known of them is reported (`Step`).
    """

    def __init__(
        self,
        run: Run,
        *,
        store: StoreThread,
        may_take: Callable[[], bool],
        registry: Callable[[], Registry | None],
        post: Callable[[inp.SupervisorEvent | Event], None],
        on_first_check: Chore,
        clock: Clock,
        tracer: Callable[[], Tracer | None] = lambda: None,
        details: bool = False,
    ) -> None:
        super().__init__(name="jobpool-reclaim", daemon=True)
        self._own = run
        self._root = store.run_root
        self._store = store
        self._may_take = may_take
        self._registry = registry
        self._post = post
        self._on_first_check = on_first_check
        self._clock = clock
        self._tracer = tracer
        self._details = details
        self._closing = threading.Event()
        self._alarm_s: dict[str, float] = {}
        """When to speak of a run that cannot be proven dead."""
        self._killed: dict[str, set[Member]] = {}
        """Survivors of runs that are not proven dead yet, by run."""
        self._living = frozenset((run.id,))
        """Runs that were alive at the last check."""

    def run(self) -> None:
        """Check, prove, reclaim, until closed."""
        shared = self._store.shared
        every_s = EXPIRED_EVERY_S if shared else EVERY_S
        full_every = round(EVERY_S / every_s)
        checks = 0
        while not self._closing.is_set():
            try:
                if checks % full_every == 0:
                    self._check_dead(tidy=checks % (full_every * TIDY_EVERY) == 0)
                if shared:
                    self._check_expired()
            except (OSError, ValueError) as exc:
                text = f"looking for dead runs failed: {exc!r}; trying again"
                self._post(Alarm(at_ms=self._clock.utc_ms(), text=text))
            finally:
                if checks == 0:
                    self._store.chore(self._on_first_check)
            checks += 1
            self._closing.wait(every_s)

    def close(self) -> None:
        """Stop checking."""
        self._closing.set()

    def _ask(self, question: Callable[[Store], T]) -> T | None:
        """Ask the store thread; None: no answer."""
        answer: list[T] = []
        answered = threading.Event()

        def chore(store: Store) -> Sequence[Event]:
            try:
                answer.append(question(store))
            finally:
                answered.set()
            return ()

        self._store.chore(chore)
        while not answered.wait(EVERY_S):
            if self._closing.is_set():
                return None
        return answer[0] if answer else None

    # -- runs of this host ---------------------------------------------------------

    def _check_dead(self, *, tidy: bool) -> None:
        runs = self._ask(lambda store: store.open_runs())
        if runs is None:
            return
        proofs: list[tuple[Run, Proof]] = []
        for run in runs:
            if run.id == self._own.id:
                continue
            if self._is_provable(run):
                same_boot = run.boot_id == self._own.boot_id
                killed = self._killed.setdefault(run.id, set())
                proof = prove_dead(
                    self._root, run.id, same_boot=same_boot, killed=killed
                )
                if isinstance(proof, DeadRun):
                    del self._killed[run.id]
                proofs.append((run, proof))
            elif run.lease_until_ms + FORGOTTEN_MS < self._clock.utc_ms():
                self._store.chore(partial(_forget, run_id=run.id))
        open_ids = {run.id for run in runs}
        self._killed = {
            id_: one for id_, one in self._killed.items() if id_ in open_ids
        }
        living = {run.id for run, proof in proofs if isinstance(proof, Alive)}
        self._living = frozenset((*living, self._own.id))
        for run, proof in proofs:
            self._consider(run, proof)
        if tidy:
            self._tidy(open_ids)

    def _is_provable(self, run: Run) -> bool:
        """Say whether a run counts as dead only if it is proven dead."""
        if not self._store.shared:
            # All runs are of this host, whose name may change (with every container).
            return True
        return run.boot_id == self._own.boot_id and Path(self._root, run.id).is_dir()

    def _consider(self, run: Run, proof: Proof) -> None:
        if isinstance(proof, DeadRun):
            self._store.chore(lambda store: self._reclaim(store, run, proof))
        if isinstance(proof, Unproven):
            self._alarm(run, proof.reason)
        else:
            self._alarm_s.pop(run.id, None)

    def _tidy(self, owned: set[str]) -> None:
        """Remove run directories whose run has ended, or never began."""
        for path in self._root.iterdir():
            if path.name in owned or path.name == self._own.id:
                continue
            if isinstance(prove_dead(self._root, path.name), DeadRun):
                remove_run(self._root, path.name)

    def _alarm(self, run: Run, reason: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._alarm_s.setdefault(run.id, now_s + ALARM_AFTER_S):
            return
        self._alarm_s[run.id] = now_s + ALARM_EVERY_S
        self._post(
            Alarm(
                at_ms=self._clock.utc_ms(),
                text=f"run {run.id} (pid {run.pid} on {run.host}) may or may not be "
                f"alive, so its jobs stay leased: {reason}. Once you are sure that "
                f"none of its processes is left: jobpool reclaim {run.id}",
            )
        )

    def _reclaim(
        self, store: Store, run: Run, proof: DeadRun
    ) -> Sequence[Event | inp.HostKilled]:
        """Take a dead run's jobs back; runs in the store thread."""
        taken = take_back(
            store,
            run,
            running=proof.running_tokens,
            registry=self._registry(),
            now_ms=self._clock.utc_ms(),
            with_host=run.boot_id != self._own.boot_id,
            living=self._living,
            tracer=self._tracer(),
            details=self._details,
        )
        if taken.later == 0:
            remove_run(self._root, run.id)
        return taken.posts(run, self._clock.utc_ms(), killed=proof.killed)

    # -- runs of other hosts -------------------------------------------------------

    def _check_expired(self) -> None:
        for run in self._ask(lambda store: store.expired_runs()) or ():
            if run.id != self._own.id and not self._is_provable(run):
                self._store.chore(partial(self._take_expired, run=run))

    def _take_expired(self, store: Store, run: Run) -> Sequence[Event | inp.HostKilled]:
        """Take the jobs of a run that is presumed dead; runs in the store thread."""
        if not self._may_take():
            return ()
        now_ms = self._clock.utc_ms()
        with store.transaction():
            if not store.seize(run.id, by=self._own.id):
                return ()
            taken = settle_all(
                store,
                run,
                running=None,
                registry=self._registry(),
                now_ms=now_ms,
                living=self._living,
                tracer=self._tracer(),
                details=self._details,
            )
        store.wake()
        return taken.posts(run, now_ms, presumed=True)


def _forget(store: Store, run_id: str) -> Sequence[Event]:
    """End a run that expired a day ago; runs in the store thread."""
    with store.transaction():
        is_forgotten = store.seize(run_id, lapsed_s=FORGOTTEN_MS / 1000)
        if is_forgotten and not store.leases_of(run_id):
            store.end_run(run_id)
    return ()
