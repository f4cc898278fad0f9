"""Bugs that are planted on purpose, to see whether anybody notices.

Each is a change of the real code, made while it runs and taken back afterwards, of
the kind that people make: a check forgotten, a counter off by one, an error dropped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import msgspec

from jobpool.core import lifecycle
from jobpool.core.job import JobState
from jobpool.core.outcome import CHARGES, Charge, Outcome
from jobpool.core.policy import Rerun
from jobpool.sandbox import verdict
from jobpool.sandbox.identity import Alive, DeadRun
from jobpool.store.memory import MemoryDatabase
from jobpool.store.memory import leasing as memory_leasing
from jobpool.store.memory import settling as memory_settling
from jobpool.store.memory.keeping import Keeping
from jobpool.store.memory.producing import Producing
from jobpool.store.records import Receipt
from jobpool.supervisor import messages as m
from jobpool.supervisor.attempts import Attempts
from jobpool.supervisor.fencing import Fencing
from jobpool.supervisor.leasing import Leasing
from jobpool.supervisor.loading import Loading
from jobpool.supervisor.machine import Machine
from jobpool.supervisor.outbox import Outbox
from jobpool.supervisor.pulse import Pulse
from jobpool.supervisor.reclaim import Reclaimer
from jobpool.supervisor.registry import Registry
from jobpool.supervisor.storethread import StoreThread
from sim.host import Host, RunDir
from sim.zygotes import SimZygotes

replace = msgspec.structs.replace
reclaim = import_module("jobpool.supervisor.reclaim")
Change = tuple[Any, str, Any]
"""Where, what, and what it is to be."""


def _nothing(*_args: Any, **_named: Any) -> None:
    """Do nothing."""


def _settle_whatever_the_token() -> list[Change]:
    right = memory_settling.Settling._settle_one

    def wrong(self: Any, s: Any, now_ms: int) -> Receipt:
        row = self._database.jobs.get(s.id)
        if row is not None and row.held is not None:
            s = replace(s, token=row.held.token)
        return right(self, s, now_ms)

    return [(memory_settling.Settling, "_settle_one", wrong)]


def _reclaim_the_living() -> list[Change]:
    right = reclaim.Reclaimer._consider

    def wrong(self: Any, run: Any) -> None:
        host = self._root.host
        found = host.runs.get(run.id)
        if found is not None and isinstance(
            host.prove_dead(run.id, same_boot=True), Alive
        ):
            proof = DeadRun(running_tokens=frozenset(found.marks))
            self._store.chore(lambda store: self._reclaim(store, run, proof))
            return
        right(self, run)

    return [(Reclaimer, "_consider", wrong)]


def _blame_who_never_began() -> list[Change]:
    right = Attempts.died

    def wrong(self: Any, slot: Any, exited: Any) -> None:
        right(self, slot, replace(exited, never_begun=()))

    return [(Attempts, "died", wrong)]


def _charge(outcome: Outcome, charge: Charge) -> list[Change]:
    return [(lifecycle, "CHARGES", {**CHARGES, outcome: charge})]


def _interruptions_are_crashes() -> list[Change]:
    wrong = {**verdict.OUTCOME_OF_KILL, verdict.KillReason.STOPPED: Outcome.CRASHED}
    return [(verdict, "OUTCOME_OF_KILL", wrong)]


def _same_token_twice() -> list[Change]:
    def wrong(self: Any) -> int:
        self._last_token += 1
        return (self._last_token + 1) // 2

    return [(MemoryDatabase, "take_token", wrong)]


def _drain_forgets_what_waits() -> list[Change]:
    return [(Leasing, "give_up", lambda _self, pool: pool.backlog.clear())]


def _retry_for_ever() -> list[Change]:
    def wrong(*_args: Any, **_named: Any) -> Any:
        return lifecycle.JobEvent.TRY_AGAIN, 1.0, ""

    return [(lifecycle, "_judge_failure", wrong)]


def _failed_commit_forgets_ends() -> list[Change]:
    right = StoreThread._failed

    def wrong(self: Any, batch: Any, error: Any) -> None:
        self._outbox._waiting.clear()
        right(self, batch, error)

    return [(StoreThread, "_failed", wrong)]


def _run_again_what_must_not() -> list[Change]:
    right = Registry.policy

    def wrong(self: Any, kind: str) -> Any:
        return replace(right(self, kind), rerun=Rerun.ALWAYS)

    return [(Registry, "policy", wrong)]


def _expiry_is_proof() -> list[Change]:
    def wrong(self: Any, *, tidy: bool) -> None:
        del tidy
        for run in self._ask(lambda store: store.open_runs()) or ():
            if run.id != self._own.id:
                self._store.chore(
                    lambda store, run=run: (
                        self._reclaim(store, run, DeadRun())
                        if run.lease_until_ms < self._clock.utc_ms()
                        else ()
                    )
                )

    return [(Reclaimer, "_look_for_dead", wrong)]


def _nobody_fences() -> list[Change]:
    return [
        (Fencing, "is_due", property(lambda _self: False)),
        (SimZygotes, "look_at_fence", _nothing),
    ]


def _lease_believed_longer() -> list[Change]:
    right = Pulse._tell

    def wrong(self: Any, ttl_s: float) -> None:
        self._until_s += 3 * ttl_s
        right(self, ttl_s)

    return [(Pulse, "_tell", wrong)]


def _no_reconciliation() -> list[Change]:
    def wrong(self: Any, _store: Any) -> None:
        self.in_doubt = False

    return [(Outbox, "reconcile", wrong)]


def _returns_are_counted() -> list[Change]:
    right = memory_settling._handed_back

    def wrong(row: Any, held: Any, s: Any, now_ms: int) -> Any:
        return replace(right(row, held, s, now_ms), attempt=row.attempt)

    return [(memory_settling, "_handed_back", wrong)]


def _survivors_are_overlooked() -> list[Change]:
    return [(RunDir, "survivors", lambda _self: iter(()))]


def _one_crash_more() -> list[Change]:
    right = lifecycle.crashes_in_window

    def wrong(*args: Any) -> int:
        return right(*args) - 1

    return [(lifecycle, "crashes_in_window", wrong)]


def _cancel_is_forgotten() -> list[Change]:
    right = memory_settling._moved

    def wrong(row: Any, held: Any, s: Any, now_ms: int) -> Any:
        return right(row, replace(held, cancel_requested=False), s, now_ms)

    return [(memory_settling, "_moved", wrong)]


def _no_time_limit() -> list[Change]:
    right = Attempts.due

    def wrong(self: Any, slot: Any, detail: Any) -> None:
        job = slot.queue[0]
        job.limits = replace(job.limits, timeout_s=1e6)
        right(self, slot, detail)

    return [(Attempts, "due", wrong)]


def _last_words_are_ignored() -> list[Change]:
    return [(Attempts, "late_done", _nothing)]


def _lost_zygote_stays_lost() -> list[Change]:
    return [(Loading, "retry", _nothing)]


def _failed_grant_is_awaited() -> list[Change]:
    return [(Leasing, "failed", _nothing)]


def _keys_are_not_looked_up() -> list[Change]:
    return [(Producing, "_held", _nothing)]


def _recalled_jobs_vanish() -> list[Change]:
    right = Attempts.recalled

    def wrong(self: Any, slot: Any, seqs: Any) -> list[Any]:
        right(self, slot, seqs)
        return []

    return [(Attempts, "recalled", wrong)]


def _any_done_will_do() -> list[Change]:
    right = Attempts.done

    def wrong(self: Any, slot: Any, frame: Any) -> None:
        job = slot.queue[0]
        frame.token, frame.seq = job.lease.token, job.seq
        right(self, slot, frame)

    return [(Attempts, "done", wrong)]


def _stale_ends_are_not_counted() -> list[Change]:
    return [(MemoryDatabase, "count_stale", _nothing)]


def _the_renewed_are_seized() -> list[Change]:
    right = Keeping.expired_runs

    def wrong(self: Any) -> list[Any]:
        return right(self) or self._open_runs()

    return [
        (Keeping, "seize", lambda _self, _run_id, **_named: True),
        (Keeping, "expired_runs", wrong),
    ]


def _marks_are_not_read() -> list[Change]:
    right = Host.prove_dead

    def wrong(self: Any, run: str, *, same_boot: bool) -> Any:
        proof = right(self, run, same_boot=same_boot)
        if isinstance(proof, DeadRun):
            return replace(proof, running_tokens=frozenset())
        return proof

    return [(Host, "prove_dead", wrong)]


def _everything_was_running() -> list[Change]:
    right = reclaim._verdict

    def wrong(lease: Any, _running: Any, registry: Any, now_ms: int) -> Any:
        return right(lease, None, registry, now_ms)

    return [(reclaim, "_verdict", wrong)]


def _a_fence_trusts_what_comes() -> list[Change]:
    right = Leasing._accept

    def wrong(self: Any, lease: Any) -> None:
        self._asked_epoch = self._desk.epoch
        fenced, self._desk.fenced = self._desk.fenced, False
        right(self, lease)
        self._desk.fenced = fenced

    return [(Leasing, "_accept", wrong)]


def _settled_twice_is_an_end() -> list[Change]:
    right = Machine._settled

    def wrong(self: Any, event: m.Settled) -> None:
        right(self, replace(event, count=event.count + 1))

    return [(Machine, "_settled", wrong)]


def _promote_too_late() -> list[Change]:
    return [(memory_leasing.Leasing, "_promote_due", _nothing)]


def _dead_before_the_budget() -> list[Change]:
    right = lifecycle.spent_attempts

    def wrong(*args: Any) -> tuple[int, int]:
        spent, under = right(*args)
        return spent + 1, under

    return [(lifecycle, "spent_attempts", wrong)]


def _quarantined_is_dead() -> list[Change]:
    table = {state: dict(cells) for state, cells in lifecycle.TRANSITIONS.items()}
    table[JobState.LEASED][lifecycle.JobEvent.QUARANTINE] = JobState.DEAD
    return [(lifecycle, "TRANSITIONS", table)]


BUGS: Mapping[str, Callable[[], list[Change]]] = {
    bug.__name__.strip("_").replace("_", " "): bug
    for bug in (
        _settle_whatever_the_token,
        _reclaim_the_living,
        _blame_who_never_began,
        _interruptions_are_crashes,
        _same_token_twice,
        _drain_forgets_what_waits,
        _retry_for_ever,
        _failed_commit_forgets_ends,
        _run_again_what_must_not,
        _expiry_is_proof,
        _nobody_fences,
        _lease_believed_longer,
        _no_reconciliation,
        _returns_are_counted,
        _survivors_are_overlooked,
        _one_crash_more,
        _cancel_is_forgotten,
        _no_time_limit,
        _last_words_are_ignored,
        _lost_zygote_stays_lost,
        _failed_grant_is_awaited,
        _keys_are_not_looked_up,
        _recalled_jobs_vanish,
        _any_done_will_do,
        _stale_ends_are_not_counted,
        _the_renewed_are_seized,
        _marks_are_not_read,
        _everything_was_running,
        _a_fence_trusts_what_comes,
        _settled_twice_is_an_end,
        _promote_too_late,
        _dead_before_the_budget,
        _quarantined_is_dead,
    )
} | {
    "lost is not counted": lambda: _charge(Outcome.LOST, Charge(end_unknown=True)),
    "crashes are not counted": lambda: _charge(
        Outcome.CRASHED, Charge(failure=True, end_unknown=True)
    ),
    "interruptions spend attempts": lambda: _charge(
        Outcome.INTERRUPTED, Charge(failure=True, end_unknown=True)
    ),
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """Run with a bug."""
    changes = BUGS[name]()
    before = [(place, what, place.__dict__[what]) for place, what, _ in changes]
    try:
        for place, what, wrong in changes:
            setattr(place, what, wrong)
        yield
    finally:
        for place, what, right in before:
            setattr(place, what, right)
