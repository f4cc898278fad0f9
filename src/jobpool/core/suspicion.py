"""Who pays when a supervisor or its host dies: the jobs that may have killed it.

Nobody saw the end of what was running then, so nobody can be blamed by name. A death
that comes alone is charged to nobody. From the second within ten minutes on, the jobs
that were really running are *suspects*: each runs again on *probation*, while no other
suspect runs anywhere and nothing else begins beside it. Whoever takes its supervisor
along a second time was alone, and pays a recovery; who runs well for a while, or comes
to an end that is seen, is cleared. A job that was lost before is a suspect too, however
long ago that was, so that one which kills its host once a day comes to an end as well.

Supervisors that died with their host, in one boot of it, died one death.

`LOSSES` is the whole rule, as a table; nothing else decides what a loss costs:

| death / job | unsuspected | lost before | beside a suspect | on probation |
|---|---|---|---|---|
| explained | interruption | interruption | interruption | interruption |
| first | interruption | interruption, suspect | nothing | recovery, suspect |
| again | interruption, suspect | interruption, suspect | nothing | recovery, suspect |
| unprovoked | interruption | interruption, suspect | interruption | interruption |

Every path is bounded: ``max_lost`` recoveries are quarantine, and so is a loss that
is the job's last interruption (`policy.INTERRUPTIONS_MAX`). A death that costs a job
nothing is paid by the suspect beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from jobpool.core.job import Lease
from jobpool.core.outcome import Charge, Outcome

DEATHS_WITHIN_S = 600.0
"""Deaths so close together are not taken for chance."""
PROBATION_S = 10.0
"""A suspect that has run for so long is cleared."""


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
    BESIDE = "beside"
    """No suspect, while one was on probation in the same supervisor."""
    ON_PROBATION = "on_probation"
    """A suspect that was not cleared yet, alone."""


class Deaths(NamedTuple):
    """What a store knows about a death."""

    leaving: bool
    """The supervisor had begun to drain or stop."""
    with_jobs: int
    """Other deaths within ten minutes before that took running jobs along."""
    idle: int
    """And those that happened while nothing was running."""


class Loss(NamedTuple):
    """What becomes of a job that was lost."""

    charge: Charge
    suspect: bool | None
    """From now on; None: as it was."""


_INNOCENT = Charge(interruption=True, end_unknown=True)
_GUILTY = Charge(recovery=True, end_unknown=True)
_D, _S = Death, Standing
_PAID_BY_ANOTHER = Loss(Charge(end_unknown=True), None)
_UNTOUCHED, _SUSPECTED = Loss(_INNOCENT, None), Loss(_INNOCENT, suspect=True)
_CHARGED = Loss(_GUILTY, suspect=True)
LOSSES: Mapping[Death, Mapping[Standing, Loss]] = {
    _D.EXPLAINED: dict.fromkeys(_S, _UNTOUCHED),
    _D.FIRST: {
        _S.UNSUSPECTED: _UNTOUCHED,
        _S.LOST_BEFORE: _SUSPECTED,
        _S.BESIDE: _PAID_BY_ANOTHER,
        _S.ON_PROBATION: _CHARGED,
    },
    _D.AGAIN: {
        _S.UNSUSPECTED: _SUSPECTED,
        _S.LOST_BEFORE: _SUSPECTED,
        _S.BESIDE: _PAID_BY_ANOTHER,
        _S.ON_PROBATION: _CHARGED,
    },
    _D.UNPROVOKED: {
        _S.UNSUSPECTED: _UNTOUCHED,
        _S.LOST_BEFORE: _SUSPECTED,
        _S.BESIDE: _UNTOUCHED,
        _S.ON_PROBATION: _UNTOUCHED,
    },
}


def death_of(seen: Deaths) -> Death:
    """Say what kind of death it was."""
    if seen.leaving:
        return Death.EXPLAINED
    if seen.idle:
        return Death.UNPROVOKED
    return Death.AGAIN if seen.with_jobs else Death.FIRST


def standing_of(lease: Lease, *, beside_suspect: bool) -> Standing:
    """Say where a job stood.

    Args:
        lease: the lease that it was lost under.
        beside_suspect: the dead supervisor held a suspect on probation.
    """
    if lease.suspect:
        return Standing.ON_PROBATION
    if beside_suspect:
        return Standing.BESIDE
    was_lost = any(past.outcome is Outcome.LOST for past in lease.history)
    return Standing.LOST_BEFORE if was_lost else Standing.UNSUSPECTED


def is_clearing(outcome: Outcome | None) -> bool:
    """Say whether an attempt's end clears a suspect: it was seen, and its own.

    An interruption came from outside, and what never began has shown nothing.
    """
    return outcome not in {None, Outcome.LOST, Outcome.INTERRUPTED}
