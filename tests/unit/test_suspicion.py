"""What a loss costs: the whole table, and the way of a job through it."""

import msgspec
import pytest

from jobpool.core.job import JobState, Lease, PastAttempt
from jobpool.core.lifecycle import Ending, account, hand_back
from jobpool.core.outcome import CHARGES, Charge, Outcome
from jobpool.core.policy import INTERRUPTIONS_MAX, Policy, Rerun
from jobpool.core.suspicion import (
    LOSSES,
    Death,
    Deaths,
    Standing,
    death_of,
    standing_of,
)

LEASE = Lease(id=1, token=1, kind="k", pool="cpu", attempt=1, payload=b"{}")
D, S = Death, Standing
FREE = {
    (D.FIRST, S.BESIDE),
    (D.AGAIN, S.BESIDE),
}
CHARGED = {
    (D.FIRST, S.ON_PROBATION),
    (D.AGAIN, S.ON_PROBATION),
}
SUSPECTED = {
    (D.FIRST, S.LOST_BEFORE),
    (D.AGAIN, S.LOST_BEFORE),
    (D.UNPROVOKED, S.LOST_BEFORE),
    (D.AGAIN, S.UNSUSPECTED),
}


@pytest.mark.parametrize("death", Death)
@pytest.mark.parametrize("standing", Standing)
def test_every_death_meets_every_job(death, standing):
    """Only a job on probation pays a recovery, and only where that says anything."""
    loss = LOSSES[death][standing]
    cell = (death, standing)
    assert loss.charge.recovery == (cell in CHARGED)
    assert loss.charge.interruption == (cell not in CHARGED | FREE)
    assert (loss.charge.failure, loss.charge.crash) == (False, False)
    assert loss.charge.end_unknown, 'rerun="never" must hold whoever pays'
    assert loss.suspect == (True if cell in CHARGED | SUSPECTED else None)


@pytest.mark.parametrize("death", Death)
def test_no_death_is_free_for_everybody(death):
    """Where one job pays nothing, a suspect beside it has paid."""
    row = LOSSES[death]
    for standing, loss in row.items():
        if not any(loss.charge[:4]):
            assert standing is S.BESIDE
            assert row[S.ON_PROBATION].charge.recovery


@pytest.mark.parametrize(
    ("seen", "death"),
    [
        ((True, 9, 9), Death.EXPLAINED),
        ((False, 9, 9), Death.UNPROVOKED),
        ((False, 0, 1), Death.UNPROVOKED),
        ((False, 1, 0), Death.AGAIN),
        ((False, 0, 0), Death.FIRST),
    ],
)
def test_what_kind_of_death_it_was(seen, death):
    """A wish explains it; one of an idle supervisor speaks for the jobs."""
    assert death_of(Deaths(*seen)) is death


def test_where_a_job_stood():
    """A suspect is on probation, whatever else; what was lost before is remembered."""
    suspect = msgspec.structs.replace(LEASE, suspect=True)
    past = (PastAttempt(Outcome.LOST, None, 0),)
    before = msgspec.structs.replace(LEASE, history=past)
    assert standing_of(suspect, beside_suspect=True) is S.ON_PROBATION
    assert standing_of(before, beside_suspect=True) is S.BESIDE
    assert standing_of(before, beside_suspect=False) is S.LOST_BEFORE
    assert standing_of(LEASE, beside_suspect=False) is S.UNSUSPECTED


@pytest.mark.parametrize("outcome", Outcome)
def test_an_end_that_was_seen_clears_a_suspect(outcome):
    """All but an interruption, and a loss, whose table says it."""
    suspect = msgspec.structs.replace(LEASE, suspect=True)
    settled = account(suspect, Policy(), Ending(outcome=outcome), now_ms=0)
    stays = outcome in {Outcome.INTERRUPTED, Outcome.LOST}
    assert settled.suspect is (None if stays else False)
    plain = account(LEASE, Policy(), Ending(outcome=outcome), now_ms=0)
    assert plain.suspect is None
    assert hand_back(suspect).suspect is None


def lose(lease, death):
    """Lose a job, and return its next lease, None when there is none."""
    loss = LOSSES[death][standing_of(lease, beside_suspect=False)]
    ending = Ending(outcome=Outcome.LOST, charge=loss.charge, suspect=loss.suspect)
    settled = account(lease, Policy(), ending, now_ms=0)
    if settled.state is not JobState.PENDING:
        return settled, None
    return settled, msgspec.structs.replace(
        lease,
        attempt=lease.attempt + 1,
        interruptions=lease.interruptions + settled.charge.interruption,
        recoveries=lease.recoveries + settled.charge.recovery,
        history=(*lease.history, PastAttempt(Outcome.LOST, None, 0)),
        suspect=lease.suspect if settled.suspect is None else settled.suspect,
    )


@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize("death", Death)
def test_a_job_that_kills_its_host_ends_in_quarantine(death, clears):
    """However its deaths fall, and even if it always waits until it is cleared."""
    lease, deaths = LEASE, 0
    while lease is not None:
        held = msgspec.structs.replace(lease, suspect=False) if clears else lease
        settled, lease = lose(held, death)
        deaths += 1
    if death in {D.FIRST, D.AGAIN} and not clears:
        assert deaths == Policy().max_lost + (2 if death is D.FIRST else 1)
    else:
        assert deaths == INTERRUPTIONS_MAX
    assert settled.state is JobState.QUARANTINED
    assert settled.suspect is not True


def test_what_is_never_rerun_is_dead_whoever_pays():
    """The price of a loss does not change that nobody knows its end."""
    for row in LOSSES.values():
        for loss in row.values():
            ending = Ending(outcome=Outcome.LOST, charge=loss.charge)
            policy = Policy(rerun=Rerun.NEVER)
            settled = account(LEASE, policy, ending, now_ms=0)
            assert settled.state is JobState.DEAD


def test_an_end_without_a_price_costs_the_outcomes():
    """Every other caller of `account` is as it was."""
    for outcome in Outcome:
        assert Ending(outcome=outcome).price == CHARGES[outcome]
    assert Ending(outcome=Outcome.LOST, charge=Charge()).price == Charge()
