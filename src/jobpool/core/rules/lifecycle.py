"""A job's state machine, and the only place where attempts are accounted.

`TRANSITIONS` is total over states and events; None marks what must not happen.
`account` turns the end of an attempt into the settlement that the store writes;
nothing else decides what a job is charged or what its next state is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from jobpool.core.jobs.budget import Budget, Spent
from jobpool.core.jobs.job import (
    Evidence,
    JobState,
    Lease,
    PastAttempt,
    Settlement,
    Throttle,
    Throttled,
)
from jobpool.core.jobs.outcome import CHARGES, Charge, Outcome
from jobpool.core.rules.policy import (
    HOST_MEMORY,
    HOST_MEMORY_FREE_S,
    INTERRUPTIONS_MAX,
    SNOOZE_MIN_S,
    SNOOZED_MAX_S,
    SNOOZES_MAX,
    Policy,
    Rerun,
    RetryRule,
    crashes_in_window,
    failing_for_s,
    host_memory_delay_s,
    host_memory_row,
    matching_rule,
    retry_delay_s,
    spent_attempts,
)
from jobpool.core.rules.quotas.throttle import THROTTLES_MAX, is_refused
from jobpool.core.rules.suspects import is_clearing
from jobpool.core.units import show_duration
from jobpool.errors import JobpoolBug


class JobEvent(StrEnum):
    """What can happen to a job."""

    FALL_DUE = "fall_due"
    LEASE = "lease"
    SUCCEED = "succeed"
    TRY_AGAIN = "try_again"
    HAND_BACK = "hand_back"
    """An attempt that never began is given back; it does not count."""
    HAND_ON = "hand_on"
    """The same for arguments that did not fit, if no supervisor may fit them now."""
    SNOOZE = "snooze"
    """An attempt snoozed; it does not count either."""
    DIE = "die"
    QUARANTINE = "quarantine"
    CANCEL = "cancel"
    EXPIRE = "expire"
    REVIVE = "revive"
    """An operator's retry or release."""
    PROCEED = "proceed"
    """What it waited for has ended."""
    POSTPONE = "postpone"
    """Its unique text was enqueued again: it is due later, with other arguments."""
    HOLD = "hold"
    """Its flow was paused before it began."""


_S, _E = JobState, JobEvent
TRANSITIONS: Mapping[JobState, Mapping[JobEvent, JobState | None]] = {
    _S.PENDING: {
        _E.FALL_DUE: _S.RUNNABLE,
        _E.LEASE: None,
        _E.SUCCEED: None,
        _E.TRY_AGAIN: None,
        _E.HAND_BACK: None,
        _E.HAND_ON: None,
        _E.SNOOZE: None,
        _E.DIE: None,
        _E.QUARANTINE: None,
        _E.CANCEL: _S.CANCELED,
        _E.EXPIRE: _S.CANCELED,
        _E.REVIVE: _S.RUNNABLE,
        _E.PROCEED: None,
        _E.POSTPONE: _S.PENDING,
        _E.HOLD: _S.WAITING,
    },
    _S.WAITING: {
        **dict.fromkeys(_E),
        _E.SUCCEED: _S.SUCCEEDED,  # of an external step: somebody has approved it
        _E.CANCEL: _S.CANCELED,
        _E.PROCEED: _S.PENDING,
        _E.POSTPONE: _S.WAITING,
    },
    _S.RUNNABLE: {
        _E.FALL_DUE: None,
        _E.LEASE: _S.LEASED,
        _E.SUCCEED: None,
        _E.TRY_AGAIN: None,
        _E.HAND_BACK: None,
        _E.HAND_ON: None,
        _E.SNOOZE: None,
        _E.DIE: None,
        _E.QUARANTINE: None,
        _E.CANCEL: _S.CANCELED,
        _E.EXPIRE: _S.CANCELED,
        _E.REVIVE: None,
        _E.PROCEED: None,
        _E.POSTPONE: _S.PENDING,
        _E.HOLD: _S.WAITING,
    },
    _S.LEASED: {
        _E.FALL_DUE: None,
        _E.LEASE: None,
        _E.SUCCEED: _S.SUCCEEDED,
        _E.TRY_AGAIN: _S.PENDING,
        _E.HAND_BACK: _S.RUNNABLE,
        _E.HAND_ON: _S.PENDING,
        _E.SNOOZE: _S.PENDING,
        _E.DIE: _S.DEAD,
        _E.QUARANTINE: _S.QUARANTINED,
        _E.CANCEL: _S.CANCELED,
        _E.EXPIRE: None,
        _E.REVIVE: None,
        _E.PROCEED: None,
        _E.POSTPONE: None,
        _E.HOLD: None,
    },
    _S.SUCCEEDED: dict.fromkeys(_E),
    _S.DEAD: {**dict.fromkeys(_E), _E.REVIVE: _S.RUNNABLE},
    _S.QUARANTINED: {
        **dict.fromkeys(_E),
        _E.CANCEL: _S.CANCELED,
        _E.REVIVE: _S.RUNNABLE,
    },
    _S.CANCELED: {**dict.fromkeys(_E), _E.REVIVE: _S.RUNNABLE},
}


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt ended, before it is accounted."""

    outcome: Outcome
    evidence: Evidence = Evidence()
    result: bytes | None = None
    error_classes: tuple[str, ...] = ()
    """The exception's class and its bases, qualified, nearest first."""
    give_up: bool = False
    """The handler raised `GiveUp`: this job can never succeed."""
    retry_in_s: float | None = None
    """The handler asked for this delay."""
    misfit: bool = False
    """The stored arguments do not fit the handler."""
    snooze_s: float | None = None
    """The handler snoozed, and asked to be called again after this delay."""
    throttled: tuple[str, str] | None = None
    """The quota that has made it snooze, and the value that this counts by."""
    charge: Charge | None = None
    """What it costs, if not the outcome's usual charge (`suspects`)."""
    for_host_memory: bool = False
    """It was interrupted so that the host does not run out of memory."""
    suspect: bool | None = None
    """As in `Settlement`; None: a suspect whose end clears it is cleared."""

    @property
    def price(self) -> Charge:
        """What it costs."""
        return CHARGES[self.outcome] if self.charge is None else self.charge


def after(state: JobState, event: JobEvent) -> JobState:
    """Return the state that *event* leads to.

    Raises:
        JobpoolBug: the table says that this must not happen.
    """
    following = TRANSITIONS[state][event]
    if following is None:
        raise JobpoolBug(f"a {state} job met {event}; please report this")
    return following


_SUCCEEDED = after(JobState.LEASED, JobEvent.SUCCEED)


def hand_back(lease: Lease) -> Settlement:
    """Hand back a lease whose attempt never began; nothing is charged."""
    return Settlement(
        id=lease.id,
        token=lease.token,
        state=after(JobState.LEASED, JobEvent.HAND_BACK),
        unbegun=True,
    )


def hand_on(as_dead: Settlement, delay_ms: int) -> Settlement:
    """Hand back a misfit's lease instead of making the job dead.

    Args:
        as_dead: the settlement that would have made it dead.
        delay_ms: until it is tried again; 0: some supervisor may fit it now.
    """
    event = JobEvent.HAND_ON if delay_ms else JobEvent.HAND_BACK
    return Settlement(
        id=as_dead.id,
        token=as_dead.token,
        state=after(JobState.LEASED, event),
        delay_ms=delay_ms,
        evidence=Evidence(reason=as_dead.evidence.reason, slot=as_dead.evidence.slot),
    )


def success(
    lease: Lease,
    evidence: Evidence,
    result: bytes | None,
    *,
    began_s: float | None = None,
    ended_s: float | None = None,
) -> Settlement:
    """Return the settlement of a job whose handler returned; nothing is charged."""
    return Settlement(
        id=lease.id,
        token=lease.token,
        state=_SUCCEEDED,
        outcome=Outcome.SUCCEEDED,
        result=result,
        evidence=evidence,
        suspect=False if lease.suspect else None,
        began_s=began_s,
        ended_s=ended_s,
    )


def account(lease: Lease, policy: Policy, ending: Ending, *, now_ms: int) -> Settlement:
    """Decide what an attempt's end costs and what its job's next state is.

    Args:
        lease: the attempt's lease; its counters exclude this attempt.
        policy: the kind's policy.
        ending: how the attempt ended.
        now_ms: the store's clock, as closely as the caller knows it.

    Returns:
        The settlement to write under the lease's token.
    """
    if ending.outcome is Outcome.SUCCEEDED:
        return success(lease, ending.evidence, ending.result)
    if ending.throttled is not None and (text := _throttled_out(lease, now_ms)):
        ending = _failed(ending, text)
    if ending.snooze_s is not None and not _snoozed_out(lease, now_ms):
        return _snooze(lease, ending.snooze_s, ending, now_ms)
    # An outcome's own name comes last: a death has no exception, and "crashed" or
    # "timed_out" may have delays and a budget of its own as well.
    names = (*ending.error_classes, ending.outcome.value)
    rule = matching_rule(policy, names) if ending.price.failure else None
    if ending.for_host_memory:
        rule = HOST_MEMORY
    own = PastAttempt(ending.outcome, rule, now_ms)
    history = (*lease.history, own)
    if ending.for_host_memory and _is_free(history):
        free = Charge(end_unknown=ending.price.end_unknown)
        ending = msgspec.structs.replace(ending, charge=free)
    charge = ending.price
    spent = _spent(lease, policy, charge, history=history, rule=rule)
    event, delay_s, verdict = _judge(
        lease, policy, ending, history=history, rule=rule, spent=spent
    )
    reason = "; ".join(filter(None, (ending.evidence.reason, verdict))) or None
    return Settlement(
        id=lease.id,
        token=lease.token,
        state=after(JobState.LEASED, event),
        outcome=ending.outcome,
        charge=charge,
        spent=tuple(spent.values()),
        delay_ms=round(delay_s * 1000),
        rule=rule,
        evidence=msgspec.structs.replace(ending.evidence, reason=reason),
        # If its arguments did not fit, nothing of the job has run.
        suspect=None if ending.misfit else _suspect(lease, ending, event),
        unknown_for_ms=round(policy.unknown_for_s * 1000) if ending.misfit else None,
        fits=lease.unfit and not ending.misfit,
        throttle=_throttle(ending),
    )


def _is_free(history: Sequence[PastAttempt]) -> bool:
    """Say whether interruptions for the host's memory still cost nothing."""
    row = host_memory_row(history)
    lasted_ms = row[-1].finished_at_ms - row[0].finished_at_ms
    return lasted_ms < HOST_MEMORY_FREE_S * 1000


def _snooze(lease: Lease, after_s: float, ending: Ending, now_ms: int) -> Settlement:
    """Return the settlement of an attempt that snoozed: nothing is charged.

    A suspect stays one: a snooze proves nothing.
    """
    return Settlement(
        id=lease.id,
        token=lease.token,
        state=after(JobState.LEASED, JobEvent.SNOOZE),
        snoozed=True,
        fits=lease.unfit,
        delay_ms=round(max(after_s, SNOOZE_MIN_S) * 1000),
        evidence=ending.evidence,
        throttle=_throttle(ending),
        throttled=_again(lease, now_ms) if ending.throttled else None,
    )


def _again(lease: Lease, now_ms: int) -> Throttled:
    """Return how often a job was throttled that was throttled once more."""
    since_ms = lease.throttled_since_ms
    return Throttled(lease.throttles + 1, now_ms if since_ms is None else since_ms)


def _throttle(ending: Ending) -> Throttle | None:
    """Return whom an attempt's end keeps from a quota, and for how long."""
    after_s = ending.retry_in_s if ending.snooze_s is None else ending.snooze_s
    if ending.throttled is None or after_s is None:
        return None
    return Throttle(*ending.throttled, after_ms=round(after_s * 1000))


def _throttled_out(lease: Lease, now_ms: int) -> str:
    """Return why being throttled has become a failure; "": it has not."""
    times, since_ms = _again(lease, now_ms)
    since_s = (now_ms - since_ms) / 1000
    if not is_refused(times, since_s):
        return ""
    if times > THROTTLES_MAX:
        return f"throttled {times} times in a row"
    return f"throttled for {show_duration(since_s)}"


def _failed(ending: Ending, why: str) -> Ending:
    """Return the end of an attempt that may not snooze any more: it has failed."""
    reason = "; ".join(filter(None, (ending.evidence.reason, why)))
    failed: Ending = msgspec.structs.replace(
        ending,
        snooze_s=None,
        retry_in_s=ending.snooze_s,
        evidence=msgspec.structs.replace(ending.evidence, reason=reason),
    )
    return failed


def _snoozed_out(lease: Lease, now_ms: int) -> str:
    """Return why a job may not snooze again; "": it may."""
    if lease.snoozes + 1 >= SNOOZES_MAX:
        return f"snoozed {SNOOZES_MAX:,} times in a row"
    since_ms = lease.snoozed_since_ms
    if since_ms is not None and now_ms - since_ms >= SNOOZED_MAX_S * 1000:
        return f"snoozed for {show_duration(SNOOZED_MAX_S)}"
    return ""


def _suspect(lease: Lease, ending: Ending, event: JobEvent) -> bool | None:
    """Return whether the job is a suspect from now on: only if it runs again."""
    if event is not JobEvent.TRY_AGAIN:
        return False if lease.suspect else None
    if ending.suspect is None and lease.suspect and is_clearing(ending.outcome):
        return False
    return ending.suspect


def _spent(
    lease: Lease,
    policy: Policy,
    charge: Charge,
    *,
    history: Sequence[PastAttempt],
    rule: str | None,
) -> Mapping[Budget, Spent]:
    """Return each budget that is charged, as it is afterwards."""
    found = []
    if charge.failure:
        count, _under_rule = spent_attempts(policy, history, rule)
        limits = policy.retry[rule] if rule is not None else RetryRule()
        most = limits.max_attempts or lease.max_attempts or policy.max_attempts
        # What is retried for a time has no number that could be used up.
        if limits.for_s is None:
            own = rule if limits.max_attempts else None
            found.append(Spent(Budget.FAILURE, count, most, own))
    if charge.crash:
        count = crashes_in_window(policy, history, history[-1].finished_at_ms)
        found.append(Spent(Budget.CRASH, count, policy.max_crashes))
    if charge.interruption:
        count = lease.interruptions + 1
        found.append(Spent(Budget.INTERRUPTION, count, INTERRUPTIONS_MAX))
    if charge.recovery:
        found.append(Spent(Budget.RECOVERY, lease.recoveries + 1, policy.max_lost))
    return {one.budget: one for one in found}


def _judge(  # noqa: PLR0911 - one line per verdict, in order of precedence
    lease: Lease,
    policy: Policy,
    ending: Ending,
    *,
    history: Sequence[PastAttempt],
    rule: str | None,
    spent: Mapping[Budget, Spent],
) -> tuple[JobEvent, float, str]:
    """Return the event, the delay before the next attempt, and the verdict as text."""
    charge = ending.price
    if ending.outcome is Outcome.CANCELED:
        return JobEvent.CANCEL, 0.0, ""
    if policy.rerun is Rerun.NEVER and charge.end_unknown:
        return JobEvent.DIE, 0.0, 'its end is unknown and rerun="never"'
    if ending.give_up:
        # If its child reported a reason, that says it already.
        return (
            JobEvent.DIE,
            0.0,
            "" if ending.evidence.reason else "the handler gave up",
        )
    if ending.snooze_s is not None:
        return JobEvent.DIE, 0.0, _snoozed_out(lease, history[-1].finished_at_ms)
    if (crash := spent.get(Budget.CRASH)) and crash.is_used_up:
        return JobEvent.QUARANTINE, 0.0, str(crash)
    if (recovery := spent.get(Budget.RECOVERY)) and recovery.is_used_up:
        return (
            JobEvent.QUARANTINE,
            0.0,
            f"lost {recovery.count} times alone with its supervisor or host",
        )
    if (interruption := spent.get(Budget.INTERRUPTION)) and interruption.is_used_up:
        return (
            JobEvent.QUARANTINE if ending.outcome is Outcome.LOST else JobEvent.DIE,
            0.0,
            f"interrupted {INTERRUPTIONS_MAX} times",
        )
    if ending.for_host_memory:
        delay_s = host_memory_delay_s(len(host_memory_row(history)))
        return JobEvent.TRY_AGAIN, delay_s, ""
    if not charge.failure:
        return JobEvent.TRY_AGAIN, 0.0, ""
    failure = spent.get(Budget.FAILURE)
    return _judge_failure(lease, policy, ending, history, rule, failure)


def _judge_failure(  # noqa: PLR0917 - what `_judge` has
    lease: Lease,
    policy: Policy,
    ending: Ending,
    history: Sequence[PastAttempt],
    rule_name: str | None,
    failure: Spent | None,
) -> tuple[JobEvent, float, str]:
    """Decide about an outcome that is charged as a failure."""
    rule = policy.retry[rule_name] if rule_name is not None else None
    if rule and rule.never:
        return JobEvent.DIE, 0.0, f"never retried after {rule_name}"
    if failure is not None and failure.is_used_up:
        return JobEvent.DIE, 0.0, str(failure)
    if rule and rule.for_s is not None and rule_name is not None:
        failing_s = failing_for_s(history, rule_name)
        if failing_s >= rule.for_s:
            return (
                JobEvent.DIE,
                0.0,
                f"failed with {rule_name} for {show_duration(rule.for_s)}",
            )
    if ending.retry_in_s is not None:
        return JobEvent.TRY_AGAIN, ending.retry_in_s, ""
    spent, under_rule = spent_attempts(policy, history, rule_name)
    wait_s = retry_delay_s(
        rule,
        nth=spent,
        under_rule=under_rule,
        crashed=CHARGES[ending.outcome].crash,
        spread=spread_of(lease.token),
    )
    return JobEvent.TRY_AGAIN, wait_s, ""


def spread_of(token: int) -> float:
    """Return jitter in [-1, 1) from the token, so that a replay is identical.

    Source: Knuth's multiplicative hash, TAOCP 3, 6.4.
    """
    return (token * 2654435761 % 2**32) / 2**31 - 1
