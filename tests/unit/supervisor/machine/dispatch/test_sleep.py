"""What a host's sleep changes for the jobs that its supervisor holds."""

from __future__ import annotations

import signal

import pytest

from jobpool.core.jobs.job import JobState, PastAttempt
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.policy import Policy
from support.machine.world import World

HOUR_S = 3600


@pytest.mark.parametrize(
    ("slept_h", "state"), [(0, JobState.QUARANTINED), (2, JobState.PENDING)]
)
def test_time_asleep_does_not_age_crashes(slept_h: int, state: JobState) -> None:
    """Crashes count within their window; the store's clock never slept."""
    policy = Policy()
    window_ms = round(policy.crash_window_s * 1000)
    leased_at_ms = 2 * window_ms
    past = PastAttempt(Outcome.CRASHED, None, leased_at_ms - window_ms + HOUR_S * 1000)
    world = World().up()
    spent = policy.max_crashes - 1
    job = world.job(history=(past,) * spent, leased_at_ms=leased_at_ms, crashes=spent)
    world.notify()
    world.slept_s += slept_h * HOUR_S
    world.died(0, signal=signal.SIGSEGV)
    (settlement,) = world.settled
    assert (settlement.id, settlement.state) == (job.id, state)
