"""Who pays when a supervisor or its host dies: the jobs that may have killed it.

Nobody saw the end of what was running then, so nobody can be blamed by name. A death
that comes alone is charged to nobody. From the second within ten minutes on, the jobs
that were really running are *suspects*, and so is a job that was lost before, however
long ago that was. Suspects run again on *probation*, one at a time in the whole store,
while nothing else begins on their host; who comes to an end that is seen, or runs well
for long enough, is cleared.

**A recovery is charged only to who was alone**: no other attempt was running with the
dead supervisor, or with another one of that host that died at the same time. Whatever
a job was suspected of, a death with others beside it may be theirs, however long they
had run by then: it costs each of them an interruption, and makes all of them suspects.

Why a killer is alone before long, whenever it strikes:

- What is long enough grows with the job's own losses: 10 s after the first two, then
  20 s, 40 s, … 10 min (`probation_s`). A killer that strikes after T seconds is cleared
  in time, and free to take others along, no more than log2(T / 10 s) times.
- From then on it strikes on probation, when nothing has begun after it. Suspects take
  their turns by that: who began last before a death comes first. In a supervisor that
  has just started nothing begins before the first of them: next time it is alone.
- The same it is each time after that, and pays each time: ``max_lost`` recoveries. The
  other suspects wait meanwhile, and lose nothing.

Where others run for hours and there is no fresh supervisor, a suspect waits for their
ends before its turn, the longer the more often it was lost, but never for ever. And a
job that strikes later than the longest probation cannot be told by being alone, for no
pool may stand still for hours. Who is lost again after the longest probation is not
cleared by time any more: others begin beside it then, but no other suspect, so that it
does not take the same ones along again and again. It ends by its interruptions.

Supervisors that died with their host, in one boot of it, died one death.

`LOSSES` is the whole rule, as a table; nothing else decides what a loss costs:

| death / job | unsuspected | lost before | on probation | alone |
|---|---|---|---|---|
| explained | interruption | interruption | interruption | interruption |
| first | interruption | interruption, suspect | interruption | recovery |
| again | interruption, suspect | interruption, suspect | interruption | recovery |
| unprovoked | interruption | interruption, suspect | interruption | interruption |

Every path is bounded: ``max_lost`` recoveries are quarantine, and so is a loss that
is the job's last interruption (`policy.INTERRUPTIONS_MAX`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from jobpool.core.jobs.job import Lease
from jobpool.core.jobs.outcome import Charge, Outcome

DEATHS_WITHIN_S = 600.0
"""Deaths so close together are not taken for chance."""
PROBATION_S = 10.0
"""A suspect that has run for so long is cleared, the first time."""
PROBATION_MAX_S = DEATHS_WITHIN_S
"""No probation is longer, unless the first one is: nothing begins meanwhile."""
_LOSSES_FIRST = 2
"""With so many losses the first probation is served: two make most suspects."""


class Death(StrEnum):
    """How a supervisor came to its end."""

    EXPLAINED = "explained"
    """It was draining or stopping: somebody wanted its end."""
    FIRST = "first"
    """No other death within ten minutes before it took running jobs along."""
    AGAIN = "again"
    """Another one within ten minutes before it did."""
    UNPROVOKED = "unprovoked"
    """Another one within ten minutes before it happened while nothing was running:
    supervisors or hosts die here without any job's doing."""


class Standing(StrEnum):
    """Where a job stood that was really running at a death."""

    UNSUSPECTED = "unsuspected"
    LOST_BEFORE = "lost_before"
    """No suspect, but an earlier attempt since its last reset was lost as well."""
    ON_PROBATION = "on_probation"
    """A suspect that was not cleared yet, and others ran."""
    ALONE = "alone"
    """A suspect that was not cleared yet, and nothing else ran."""


class Deaths(NamedTuple):
    """What a store knows about a death."""

    leaving: bool
    """The supervisor had begun to drain or stop."""
    with_jobs: int
    """Other deaths within ten minutes before that took running jobs along."""
    idle: int
    """And those that happened while nothing was running."""
    beside: int = 0
    """Attempts that may have been running with supervisors of its host that died with
    it."""


class Loss(NamedTuple):
    """What becomes of a job that was lost."""

    charge: Charge
    suspect: bool | None
    """From now on; None: as it was."""


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
    """Say what kind of death it was."""
    if seen.leaving:
        return Death.EXPLAINED
    if seen.idle:
        return Death.UNPROVOKED
    return Death.AGAIN if seen.with_jobs else Death.FIRST


def standing_of(lease: Lease, *, alone: bool) -> Standing:
    """Say where a job stood.

    Args:
        lease: the lease that it was lost under.
        alone: nothing else can have been running where the death struck.
    """
    if lease.suspect:
        return Standing.ALONE if alone else Standing.ON_PROBATION
    return Standing.LOST_BEFORE if _losses_of(lease) else Standing.UNSUSPECTED


def probation_s(lease: Lease, first_s: float) -> float:
    """Return for how long a suspect has to run before it is cleared.

    Args:
        lease: the suspect's, with its past.
        first_s: the shortest probation, as configured.
    """
    return min(first_s * 2.0 ** _doublings(lease), _longest_s(first_s))


def is_past_clearing(lease: Lease, first_s: float) -> bool:
    """Say whether a suspect was lost again after the longest probation.

    Then only an end that is seen clears it.
    """
    before = _doublings(lease) - 1
    return before >= 0 and first_s * 2.0**before >= _longest_s(first_s)


def _doublings(lease: Lease) -> int:
    return max(0, _losses_of(lease) - _LOSSES_FIRST)


def _longest_s(first_s: float) -> float:
    return max(first_s, PROBATION_MAX_S)


def _losses_of(lease: Lease) -> int:
    """Count how often it was lost since its last reset."""
    return sum(past.outcome is Outcome.LOST for past in lease.history)


def is_clearing(outcome: Outcome | None) -> bool:
    """Say whether an attempt's end clears a suspect: it was seen, and its own.

    An interruption came from outside, and what never began has shown nothing.
    """
    return outcome not in {None, Outcome.LOST, Outcome.INTERRUPTED}
