"""What a loss costs: the whole table, and a job's way through it."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.jobs.job import JobState, Lease, PastAttempt
from jobpool.core.jobs.outcome import CHARGES, Charge, Outcome
from jobpool.core.rules.lifecycle import Ending, account, hand_back
from jobpool.core.rules.policy import INTERRUPTIONS_MAX, Policy, Rerun
from jobpool.core.rules.suspects import (
    LOSSES,
    PROBATION_MAX_S,
    PROBATION_S,
    Death,
    Deaths,
    Standing,
    death_of,
    is_past_clearing,
    probation_s,
    standing_of,
)

LEASE = Lease(id=1, token=1, kind="k", pool="cpu", attempt=1, payload=b"{}")
D, S = Death, Standing
CHARGED = {
    (D.FIRST, S.ALONE),
    (D.AGAIN, S.ALONE),
}
SUSPECTED = {
    (D.FIRST, S.LOST_BEFORE),
    (D.AGAIN, S.LOST_BEFORE),
    (D.UNPROVOKED, S.LOST_BEFORE),
    (D.AGAIN, S.UNSUSPECTED),
}


@pytest.mark.parametrize("death", Death)
@pytest.mark.parametrize("standing", Standing)
def test_every_combination_of_death_and_job_has_a_charge(death, standing):
    """Only a job that was alone is charged a recovery, and only as proof."""
    loss = LOSSES[death][standing]
    cell = (death, standing)
    assert loss.charge.recovery == (cell in CHARGED)
    assert loss.charge.interruption == (cell not in CHARGED)
    assert (loss.charge.failure, loss.charge.crash) == (False, False)
    assert loss.charge.end_unknown, 'rerun="never" must hold whoever pays'
    assert loss.suspect == (True if cell in CHARGED | SUSPECTED else None)


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
def test_deaths_are_classified(seen, death):
    """A requested end is explained; the death of an idle supervisor clears the jobs."""
    assert death_of(Deaths(*seen)) is death


def lost(times, **fields):
    """Return the lease of a job that was lost so often."""
    past = (PastAttempt(Outcome.LOST, None, 0),) * times
    return msgspec.structs.replace(LEASE, history=past, **fields)


def test_a_jobs_standing_at_a_loss_is_classified():
    """A suspect is on probation, alone or not; earlier losses are remembered."""
    suspect = lost(0, suspect=True)
    assert standing_of(suspect, alone=True) is S.ALONE
    assert standing_of(suspect, alone=False) is S.ON_PROBATION
    for alone in (True, False):
        assert standing_of(lost(1), alone=alone) is S.LOST_BEFORE
        assert standing_of(LEASE, alone=alone) is S.UNSUSPECTED


def test_probation_doubles_with_each_loss():
    """The first one twice, then double each time, up to the longest."""
    found = [probation_s(lost(n), 10.0) for n in range(1, 11)]
    assert found == [10, 10, 20, 40, 80, 160, 320, 600, 600, 600]
    assert probation_s(lost(1000), 10.0) == PROBATION_MAX_S
    assert probation_s(lost(1000), 900.0) == 900.0, "never less than the first"
    others = (PastAttempt(Outcome.CRASHED, None, 0),) * 9
    crashed = msgspec.structs.replace(LEASE, history=others)
    assert probation_s(crashed, 10.0) == 10.0, "its own ends do not count"


def test_a_job_lost_after_the_longest_probation_is_not_cleared_by_time():
    """Once it has had that one. A job that was lost less often always is."""
    assert [is_past_clearing(lost(n), 10.0) for n in range(12)] == [False] * 9 + [
        True
    ] * 3
    assert not is_past_clearing(lost(2), PROBATION_MAX_S)
    assert is_past_clearing(lost(3), PROBATION_MAX_S)


@pytest.mark.parametrize("outcome", Outcome)
def test_an_end_that_was_observed_clears_a_suspect(outcome):
    """Any end but an interruption, or a loss, which has its own table."""
    suspect = msgspec.structs.replace(LEASE, suspect=True)
    settled = account(suspect, Policy(), Ending(outcome=outcome), now_ms=0)
    stays = outcome in {Outcome.INTERRUPTED, Outcome.LOST}
    assert settled.suspect is (None if stays else False)
    plain = account(LEASE, Policy(), Ending(outcome=outcome), now_ms=0)
    assert plain.suspect is None
    assert hand_back(suspect).suspect is None


def lose(lease, death, *, alone=True):
    """Lose a job, and return its next lease, None when there is none."""
    loss = LOSSES[death][standing_of(lease, alone=alone)]
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


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize("death", Death)
def test_a_job_that_kills_its_host_ends_in_quarantine(death, clears, alone):
    """However its deaths fall, even if it is always cleared before, or never alone."""
    lease, deaths = LEASE, 0
    while lease is not None:
        held = msgspec.structs.replace(lease, suspect=False) if clears else lease
        settled, lease = lose(held, death, alone=alone)
        deaths += 1
    if death in {D.FIRST, D.AGAIN} and alone and not clears:
        assert deaths == Policy().max_lost + (2 if death is D.FIRST else 1)
    else:
        assert deaths == INTERRUPTIONS_MAX
    assert settled.state is JobState.QUARANTINED
    assert settled.suspect is not True


class Host:
    """A supervisor that is started again after each death, by the rule alone.

    Suspects first, one after the other, the last that began first; then all others. A
    killer strikes a while after it began; the innocent jobs run for so long.
    """

    def __init__(self, strikes_s, innocents_s):
        self.strikes_s = strikes_s
        self.lasts_s = dict(enumerate(innocents_s, 1))
        self.jobs = {
            n: msgspec.structs.replace(LEASE, id=n) for n in (0, *self.lasts_s)
        }
        self.tokens = dict.fromkeys(self.jobs, 0)
        self.deaths = 0
        self.fate = {}

    def live(self, order):
        """Run until the killer strikes; say whether it did."""
        began_s, now_s, waiting = {}, 0.0, list(order)
        suspects = [n for n in waiting if self.jobs[n].suspect]
        suspects.sort(key=lambda n: -self.tokens[n])
        plain = [n for n in waiting if n not in suspects]
        for n in (*suspects, *plain):
            self.tokens[n] = max(self.tokens.values()) + 1
            began_s[n] = now_s
            if not self.jobs[n].suspect:
                continue
            over_s = now_s + probation_s(self.jobs[n], PROBATION_S)
            if self.strikes_at(began_s) < over_s:
                return self.strike(began_s)
            now_s = min(over_s, now_s + self.lasts_s.get(n, over_s))
            cleared = msgspec.structs.replace(self.jobs[n], suspect=False)
            self.jobs[n] = cleared
        return self.strike(began_s)

    def strikes_at(self, began_s):
        return began_s[0] + self.strikes_s if 0 in began_s else float("inf")

    def strike(self, began_s):
        """Let the killer take down all running jobs."""
        at_s = self.strikes_at(began_s)
        runs = [
            n
            for n, since_s in began_s.items()
            if n == 0 or since_s + self.lasts_s[n] > at_s
        ]
        for n in set(began_s) - set(runs):
            del self.jobs[n]
        self.deaths += 1
        kind = Death.FIRST if self.deaths == 1 else Death.AGAIN
        for n in runs:
            settled, after = lose(self.jobs[n], kind, alone=len(runs) == 1)
            if after is None:
                self.fate[n] = settled.state
                del self.jobs[n]
            else:
                self.jobs[n] = after


SPREAD_S = st.floats(0.1, PROBATION_MAX_S - 1)


@given(SPREAD_S, st.lists(st.floats(0.1, 1e5), max_size=20), st.randoms())
def test_a_killer_is_charged_and_innocent_jobs_are_not(strikes_s, lasts_s, chance):
    """Whenever it strikes, and whatever runs beside it, for however long.

    Two deaths make it a suspect. Its probation doubles until it is longer than the time
    it takes to strike. Once it finds others running before it. Five deaths are charged
    to it.
    """
    host = Host(strikes_s, lasts_s)
    while 0 in host.jobs:
        order = list(host.jobs)
        chance.shuffle(order)
        host.live(order)
    doublings = max(0, math.ceil(math.log2(strikes_s / PROBATION_S) + 1e-9))
    assert host.deaths <= 2 + doublings + 1 + Policy().max_lost < INTERRUPTIONS_MAX
    assert host.fate == {0: JobState.QUARANTINED}
    innocents = [one for n, one in host.jobs.items() if n]
    assert all(one.recoveries == 0 for one in innocents)
    assert all(one.interruptions <= 3 + doublings for one in innocents)


def test_a_lost_job_that_must_not_rerun_is_dead_whatever_is_charged():
    """A loss's charge does not change that the attempt's end is unknown."""
    for row in LOSSES.values():
        for loss in row.values():
            ending = Ending(outcome=Outcome.LOST, charge=loss.charge)
            policy = Policy(rerun=Rerun.NEVER)
            settled = account(LEASE, policy, ending, now_ms=0)
            assert settled.state is JobState.DEAD


def test_an_end_without_an_explicit_charge_costs_its_outcomes():
    """Other callers of `account` are unaffected."""
    for outcome in Outcome:
        assert Ending(outcome=outcome).price == CHARGES[outcome]
    assert Ending(outcome=Outcome.LOST, charge=Charge()).price == Charge()
