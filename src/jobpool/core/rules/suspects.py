"""Suspects: the jobs that may have killed a supervisor or its host, and what they pay.

Nothing recorded how the attempts that ran at such a death ended, so none of them can
be blamed for certain. A single death charges no job. From the second death within ten
minutes on, the jobs that were really running become *suspects*. So does a job that was
lost before, however long ago. Suspects run again on *probation*: one at a time in the
whole store, while nothing else begins on their host. A suspect is cleared when its
attempt's end is seen, or when it has run for long enough.

**A recovery is charged only to a job that ran alone**: no other attempt was running
under the dead supervisor, or under another one on that host that died at the same
time. If other attempts were running, any of them may have caused the death, however
long they had run: each is charged an interruption, and all become suspects.

Why a killer soon runs alone, whenever it strikes:

- The probation grows with the job's own losses: 10 s after the first two, then 20 s,
  40 s, … 10 min (`probation_s`). A killer that strikes after T seconds can be cleared
  first, and then take other jobs with it, at most log2(T / 10 s) times.
- From then on it strikes on probation, when nothing has begun after it. Suspects are
  tried in that order: the one that began last before a death comes first. In a
  supervisor that has just started nothing begins before it, so that next time the
  killer runs alone.
- From then on it runs alone each time, and is charged each time: ``max_lost``
  recoveries. The other suspects wait meanwhile, and are charged nothing.

If other jobs run for hours and no supervisor starts afresh, a suspect waits until they
have ended: the longer, the more often it was lost, but never for ever. A job that
strikes later than the longest probation cannot be identified by running it alone, for
no pool may stand still for hours. Once lost again after the longest probation, a job
is no longer cleared by time. Other jobs then begin beside it, but no other suspect, so
that it does not keep taking the same ones with it. Its interruptions end it.

Supervisors that died with their host, in one boot of it, count as one death.

`LOSSES` is the whole rule, as a table; nothing else decides what a loss costs:

| death / job | unsuspected | lost before | on probation | alone |
|---|---|---|---|---|
| explained | interruption | interruption | interruption | interruption |
| first | interruption | interruption, suspect | interruption | recovery |
| again | interruption, suspect | interruption, suspect | interruption | recovery |
| unprovoked | interruption | interruption, suspect | interruption | interruption |

Every path is bounded: a job is quarantined after ``max_lost`` recoveries, and also by
a loss that is its last interruption (`policy.INTERRUPTIONS_MAX`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from jobpool.core.jobs.job import Lease
from jobpool.core.jobs.outcome import Charge, Outcome

DEATHS_WITHIN_S = 600.0
"""Deaths this close together are not considered chance."""
PROBATION_S = 10.0
"""How long a suspect must run to be cleared, the first time."""
PROBATION_MAX_S = DEATHS_WITHIN_S
"""The longest probation, unless the first is longer: nothing else begins meanwhile."""
_LOSSES_FIRST = 2
"""Losses up to which the first probation applies: most suspects were lost twice."""


class Death(StrEnum):
    """How a supervisor died."""

    EXPLAINED = "explained"
    """It was draining or stopping: its end was wanted."""
    FIRST = "first"
    """No other death in the ten minutes before it took running jobs with it."""
    AGAIN = "again"
    """Another death in the ten minutes before it did."""
    UNPROVOKED = "unprovoked"
    """Another death in the ten minutes before it happened while nothing was running:
    supervisors or hosts die here without any job's doing."""


class Standing(StrEnum):
    """What was known of a job that was really running at a death."""

    UNSUSPECTED = "unsuspected"
    LOST_BEFORE = "lost_before"
    """Not a suspect, but an earlier attempt since its last reset was lost as well."""
    ON_PROBATION = "on_probation"
    """A suspect not cleared yet, while other attempts ran."""
    ALONE = "alone"
    """A suspect not cleared yet, while nothing else ran."""


class Deaths(NamedTuple):
    """What a store knows about a death."""

    leaving: bool
    """The supervisor had begun to drain or stop."""
    with_jobs: int
    """Other deaths in the ten minutes before that took running jobs with them."""
    idle: int
    """Those that happened while nothing was running."""
    beside: int = 0
    """Attempts that may have run under other supervisors of its host that died with
    it."""


class Loss(NamedTuple):
    """What a loss does to its job."""

    charge: Charge
    suspect: bool | None
    """Whether it is a suspect from now on; None: unchanged."""


_INNOCENT = Charge(interruption=True, end_unknown=True)
_D, _S = Death, Standing
_UNTOUCHED, _SUSPECTED = Loss(_INNOCENT, None), Loss(_INNOCENT, suspect=True)
_CHARGED = Loss(Charge(recovery=True, end_unknown=True), suspect=True)
LOSSES: Mapping[Death, Mapping[Standing, Loss]] = {
    _D.EXPLAINED: dict.fromkeys(_S, _UNTOUCHED),
    _D.FIRST: {
        _S.UNSUSPECTED: _UNTOUCHED,
        _S.LOST_BEFORE: _SUSPECTED,
        _S.ON_PROBATION: _UNTOUCHED,
        _S.ALONE: _CHARGED,
    },
    _D.AGAIN: {
        _S.UNSUSPECTED: _SUSPECTED,
        _S.LOST_BEFORE: _SUSPECTED,
        _S.ON_PROBATION: _UNTOUCHED,
        _S.ALONE: _CHARGED,
    },
    _D.UNPROVOKED: {
        _S.UNSUSPECTED: _UNTOUCHED,
        _S.LOST_BEFORE: _SUSPECTED,
        _S.ON_PROBATION: _UNTOUCHED,
        _S.ALONE: _UNTOUCHED,
    },
}


def death_of(seen: Deaths) -> Death:
    """Classify a death."""
    if seen.leaving:
        return Death.EXPLAINED
    if seen.idle:
        return Death.UNPROVOKED
    return Death.AGAIN if seen.with_jobs else Death.FIRST


def standing_of(lease: Lease, *, alone: bool) -> Standing:
    """Return a lost job's standing.

    Args:
        lease: the lease under which it was lost.
        alone: nothing else can have been running where the death occurred.
    """
    if lease.suspect:
        return Standing.ALONE if alone else Standing.ON_PROBATION
    return Standing.LOST_BEFORE if _losses_of(lease) else Standing.UNSUSPECTED


def probation_s(lease: Lease, first_s: float) -> float:
    """Return how long a suspect must run before it is cleared.

    Args:
        lease: the suspect's, with its history.
        first_s: the shortest probation, as configured.
    """
    return min(first_s * 2.0 ** _doublings(lease), _longest_s(first_s))


def is_past_clearing(lease: Lease, first_s: float) -> bool:
    """Return whether a suspect was lost again after the longest probation.

    If so, only an end that is seen clears it.
    """
    before = _doublings(lease) - 1
    return before >= 0 and first_s * 2.0**before >= _longest_s(first_s)


def _doublings(lease: Lease) -> int:
    return max(0, _losses_of(lease) - _LOSSES_FIRST)


def _longest_s(first_s: float) -> float:
    return max(first_s, PROBATION_MAX_S)


def _losses_of(lease: Lease) -> int:
    """Count the losses since its last reset."""
    return sum(past.outcome is Outcome.LOST for past in lease.history)


def is_clearing(outcome: Outcome | None) -> bool:
    """Return whether an attempt's end clears a suspect: seen, and its own doing.

    An interruption comes from outside, and an attempt that never began proves nothing.
    """
    return outcome not in {None, Outcome.LOST, Outcome.INTERRUPTED}
