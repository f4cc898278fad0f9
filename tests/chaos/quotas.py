"""Whether quotas held, as the handlers themselves wrote it down, and nobody else."""

from chaos.limits import BURST, PLACES, RATE_PER_S
from support.store.invariants import Violation

CAPPED, PACED = "capped", "paced"
LATE = ("supervisor stopped", "child stopped", "zygote stopped")
"""What was granted before one of these may begin after it."""
SHIFT = "clock shifted"
"""On one host a rate is counted by a clock that here each supervisor has for itself."""
GRAIN = 1e-6


def caps_hold(accounts):
    """I20: at no moment do more handlers run than there are places."""
    moments = [
        moment
        for one in _attempts(accounts, CAPPED)
        for moment in (
            (one.began_ns, False, one.job, one.token),
            (one.last_ns, True, one.job, one.token),
        )
    ]
    running = set()
    # A beginning comes before an end at the same time: one that has left only its first
    # mark would run for ever otherwise.
    for _, ends, job, token in sorted(moments):
        if ends:
            running.discard(token)
            continue
        running.add(token)
        if len(running) > PLACES:
            text = f"{len(running)} run in {PLACES} places: {sorted(running)}"
            yield Violation("I20", job, text, token)


def rates_hold(accounts):
    """I21: in no window begin more handlers than the rate and the burst allow.

    After a blow that lets begins come late, or sets a clock, there may be a burst.
    """
    resets = sorted(
        blow.until_ns
        for blow in accounts.blows
        if blow.sort.startswith(LATE) or (blow.sort == SHIFT and not accounts.shared)
    )
    begins = sorted(
        (one.began_ns, one.job, one.token) for one in _attempts(accounts, PACED)
    )
    left, since_ns = float(BURST), 0
    for at_ns, job, token in begins:
        left = min(BURST, left + RATE_PER_S * (at_ns - since_ns) / 1e9)
        if any(since_ns <= reset_ns <= at_ns for reset_ns in resets):
            left = float(BURST)
        left, since_ns = left - 1, at_ns
        if left < -GRAIN:
            text = f"began {-left:.2f} over {RATE_PER_S}/s and {BURST}"
            yield Violation("I21", job, text, token)
            left = 0.0


def _attempts(accounts, kind):
    """Return the attempts of a kind that have left marks."""
    jobs = {job.job for job in accounts.jobs if job.kind == kind}
    return [one for one in accounts.attempts.values() if one.job in jobs]
