"""Bugs of supervisors and of the rules, to plant in the simulation."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import CHARGES, Charge, Outcome
from jobpool.core.rules import lifecycle
from jobpool.core.rules.policy import Rerun
from jobpool.core.rules.suspects import LOSSES
from jobpool.sandbox.protocol import verdict
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.admission import probation
from jobpool.supervisor.machine.attempts import running
from jobpool.supervisor.machine.attempts.killing import Killing
from jobpool.supervisor.machine.attempts.running import Running
from jobpool.supervisor.machine.dispatch.dispatcher import Dispatcher
from jobpool.supervisor.machine.dispatch.fencing import Fencing
from jobpool.supervisor.machine.machine import Machine
from jobpool.supervisor.machine.pools.application import Loading
from jobpool.supervisor.machine.registry import Registry
from jobpool.supervisor.machine.shutdown import Shutdown
from jobpool.supervisor.maintenance import lost_jobs, reclaimer
from jobpool.supervisor.maintenance.death_proof import Alive, DeadRun
from jobpool.supervisor.maintenance.lease_renewal import LeaseRenewal
from jobpool.supervisor.maintenance.reclaimer import Reclaimer
from jobpool.supervisor.storage.outbox import Outbox
from jobpool.supervisor.storage.thread import StoreThread
from planted_bugs.bug import Promise
from simulation.host import Host, RunDir
from simulation.planting import Change, breaks, nothing
from simulation.zygotes import SimZygotes

replace = msgspec.structs.replace


@breaks(Promise.NO_OVERLAP)
def reclaim_the_living() -> list[Change]:
    right = reclaimer.Reclaimer._consider

    def wrong(self: Any, run: Any, proof: Any) -> None:
        found = self._root.host.runs.get(run.id)
        if found is not None and isinstance(proof, Alive):
            proof = DeadRun(running_tokens=frozenset(found.marks))
        right(self, run, proof)

    return [(Reclaimer, "_consider", wrong)]


@breaks(Promise.INNOCENCE)
def blame_who_never_began() -> list[Change]:
    right = Killing.died

    def wrong(self: Any, slot: Any, exited: Any) -> None:
        right(self, slot, replace(exited, never_begun=()))

    return [(Killing, "died", wrong)]


@breaks(Promise.INNOCENCE)
def interruptions_are_crashes() -> list[Change]:
    wrong = {**verdict.OUTCOME_OF_KILL, verdict.KillReason.STOPPED: Outcome.CRASHED}
    return [(verdict, "OUTCOME_OF_KILL", wrong)]


@breaks(Promise.BOUNDED_PATHS)
def drain_forgets_what_waits() -> list[Change]:
    return [(Dispatcher, "give_up", lambda _self, pool: pool.backlog.clear())]


@breaks(Promise.BOUNDED_PATHS)
def retry_for_ever() -> list[Change]:
    def wrong(*_args: Any, **_named: Any) -> Any:
        return lifecycle.JobEvent.TRY_AGAIN, 1.0, ""

    return [(lifecycle, "_judge_failure", wrong)]


@breaks(Promise.BOUNDED_PATHS)
def a_snooze_is_a_failure() -> list[Change]:
    def wrong(_lease: Any, _now_ms: int) -> str:
        return "snoozed once"

    return [(lifecycle, "_snoozed_out", wrong)]


@breaks(Promise.FENCED)
def failed_commit_forgets_ends() -> list[Change]:
    right = StoreThread._failed

    def wrong(self: Any, batch: Any, due: Any, error: Any) -> None:
        self._outbox._forget(due)
        right(self, batch, due, error)

    return [(StoreThread, "_failed", wrong)]


@breaks(Promise.AT_MOST_ONCE)
def run_again_what_must_not() -> list[Change]:
    right = Registry.policy

    def wrong(self: Any, kind: str) -> Any:
        return replace(right(self, kind), rerun=Rerun.ALWAYS)

    return [(Registry, "policy", wrong)]


@breaks(Promise.NO_OVERLAP)
def expiry_is_proof() -> list[Change]:
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

    return [(Reclaimer, "_check_dead", wrong)]


@breaks(Promise.LATE_OVERLAP)
def nobody_fences() -> list[Change]:
    return [
        (Fencing, "is_due", property(lambda _self: False)),
        (SimZygotes, "check_fence", nothing),
    ]


@breaks(Promise.LATE_OVERLAP)
def lease_believed_longer() -> list[Change]:
    right = LeaseRenewal._announce

    def wrong(self: Any, ttl_s: float) -> None:
        self._until_s += 3 * ttl_s
        right(self, ttl_s)

    return [(LeaseRenewal, "_announce", wrong)]


@breaks(Promise.FENCED)
def no_reconciliation() -> list[Change]:
    def wrong(self: Any, _store: Any) -> None:
        self.in_doubt = False

    return [(Outbox, "reconcile", wrong)]


@breaks(Promise.NO_OVERLAP)
def survivors_are_overlooked() -> list[Change]:
    return [(RunDir, "survivors", lambda _self: iter(()))]


@breaks(Promise.BOUNDED_PATHS)
def one_crash_more() -> list[Change]:
    right = lifecycle.crashes_in_window

    def wrong(*args: Any) -> int:
        return right(*args) - 1

    return [(lifecycle, "crashes_in_window", wrong)]


@breaks(Promise.HARD_LIMITS)
def no_time_limit() -> list[Change]:
    right = Running.due

    def wrong(self: Any, slot: Any, detail: Any) -> None:
        job = slot.queue[0]
        job.limits = replace(job.limits, timeout_s=1e6)
        right(self, slot, detail)

    return [(Running, "due", wrong)]


@breaks(Promise.NAMED_ENDS)
def last_words_are_ignored() -> list[Change]:
    return [(Killing, "late_done", nothing)]


@breaks(Promise.FENCED)
def lost_zygote_stays_lost() -> list[Change]:
    return [(Loading, "retry", nothing)]


@breaks(Promise.FENCED)
def failed_grant_is_awaited() -> list[Change]:
    return [(Dispatcher, "failed", nothing)]


@breaks(Promise.FENCED)
def recalled_jobs_vanish() -> list[Change]:
    right = Running.recalled

    def wrong(self: Any, slot: Any, event: Any) -> None:
        with mock.patch.object(self._killing, "put_back"):
            right(self, slot, event)

    return [(Running, "recalled", wrong)]


@breaks(Promise.NAMED_ENDS)
def any_done_will_do() -> list[Change]:
    right = Running.done

    def wrong(self: Any, slot: Any, frame: Any) -> None:
        job = slot.queue[0]
        frame.token, frame.seq = job.lease.token, job.seq
        right(self, slot, frame)

    return [(Running, "done", wrong)]


@breaks(Promise.BOUNDED_PATHS)
def marks_are_not_read() -> list[Change]:
    right = Host.prove_dead

    def wrong(self: Any, run: str, *, same_boot: bool) -> Any:
        proof = right(self, run, same_boot=same_boot)
        if isinstance(proof, DeadRun):
            return replace(proof, running_tokens=frozenset())
        return proof

    return [(Host, "prove_dead", wrong)]


@breaks(Promise.INNOCENCE)
def everything_was_running() -> list[Change]:
    right = lost_jobs.settle_all

    def wrong(*args: Any, **named: Any) -> Any:
        return right(*args, **{**named, "running": None})

    return [(lost_jobs, "settle_all", wrong)]


@breaks(Promise.BOUNDED_PATHS)
def a_probation_never_grows() -> list[Change]:
    return [
        (probation, "probation_s", lambda _lease, first_s: first_s),
        (probation, "is_past_clearing", lambda _lease, _first_s: False),
    ]


@breaks(Promise.INNOCENCE)
def who_was_not_alone_pays() -> list[Change]:
    right = lost_jobs.standing_of

    def wrong(lease: Any, *, alone: bool) -> Any:
        del alone
        return right(lease, alone=True)

    return [(lost_jobs, "standing_of", wrong)]


@breaks(Promise.BOUNDED_PATHS)
def settled_twice_is_an_end() -> list[Change]:
    right = Machine._settled

    def wrong(self: Any, event: inp.Settled) -> None:
        right(self, replace(event, count=event.count + 1))

    return [(Machine, "_settled", wrong)]


@breaks(Promise.BOUNDED_PATHS)
def dead_before_the_budget() -> list[Change]:
    right = lifecycle.spent_attempts

    def wrong(*args: Any) -> tuple[int, int]:
        spent, under = right(*args)
        return spent + 1, under

    return [(lifecycle, "spent_attempts", wrong)]


@breaks(Promise.BOUNDED_PATHS)
def quarantined_is_dead() -> list[Change]:
    table = {state: dict(cells) for state, cells in lifecycle.TRANSITIONS.items()}
    table[JobState.LEASED][lifecycle.JobEvent.QUARANTINE] = JobState.DEAD
    return [(lifecycle, "TRANSITIONS", table)]


def _charge(outcome: Outcome, charge: Charge) -> list[Change]:
    return [(lifecycle, "CHARGES", {**CHARGES, outcome: charge})]


@breaks(Promise.BOUNDED_PATHS)
def lost_is_not_counted() -> list[Change]:
    free = {
        death: {
            standing: loss._replace(charge=loss.charge._replace(recovery=False))
            for standing, loss in row.items()
        }
        for death, row in LOSSES.items()
    }
    return [(lost_jobs, "LOSSES", free)]


@breaks(Promise.BOUNDED_PATHS)
def crashes_are_not_counted() -> list[Change]:
    return _charge(Outcome.CRASHED, Charge(failure=True, end_unknown=True))


@breaks(Promise.INNOCENCE)
def interruptions_spend_attempts() -> list[Change]:
    return _charge(Outcome.INTERRUPTED, Charge(failure=True, end_unknown=True))


@breaks(Promise.FENCED)
def the_outdated_ask_on() -> list[Change]:
    return [(Shutdown, "outdated", nothing)]


@breaks(Promise.FENCED)
def what_was_never_committed_is_a_success() -> list[Change]:
    right = running.verdict_of_done

    def wrong(done: Any, slot: str, **more: Any) -> Any:
        return right(replace(done, completed=False), slot, **more)

    return [(running, "verdict_of_done", wrong)]
