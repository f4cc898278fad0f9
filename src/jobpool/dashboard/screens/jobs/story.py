"""A job told in a sentence or two: what it does, what became of it, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

import msgspec

from jobpool.core.jobs.job import Attempt, Job, JobState
from jobpool.core.jobs.memory_trail import trail_of
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.usage.sketch import Counts, Measure, quantile
from jobpool.dashboard.rendering import duration, size
from jobpool.monitoring.looking.reading import Seen
from jobpool.words.figures import ago
from jobpool.words.jobs.values import running_s

_TIMES = ("never", "once", "twice")
_NUMBERS = (
    *("three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve"),
)
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_LEAST_OF_UNIT = 1.5
"""Below so many of a unit the next smaller one says more."""
_BY = {
    Outcome.FAILED: "It failed",
    Outcome.STALLED: "It was ended for its silence",
    Outcome.CRASHED: "Its process died",
    Outcome.INTERRUPTED: "It was interrupted",
    Outcome.LOST: "Its supervisor or its host died while it ran",
    Outcome.CANCELED: "It was canceled while it ran",
    Outcome.TIMED_OUT: "Its time limit ended it",
    Outcome.OUT_OF_MEMORY: "Its memory limit killed it",
}
Sketches = Mapping[Measure, Mapping[int, Counts]]
"""What attempts of its kind have used."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A job in words."""

    lead: str
    """What there is to know first."""
    more: tuple[str, ...] = ()
    """Sentences that explain it."""
    next: str = ""
    """What happens now, by itself or not."""


def story_of(seen: Seen, sketches: Sketches, now_ms: int) -> Story:
    """Tell what has become of a job.

    Args:
        seen: what was read of it, redacted.
        sketches: what attempts of its kind have used.
        now_ms: the time.
    """
    job = seen.job
    if job.is_erased:
        return Story(
            lead=f"{job.reason[:1].upper()}{job.reason[1:]}." if job.reason else ""
        )
    match job.state:
        case JobState.SUCCEEDED:
            return Story(lead=_success(job), more=_usual(seen, sketches))
        case JobState.LEASED:
            return Story(lead=_running(job, now_ms), more=_before(seen))
        case JobState.DEAD | JobState.QUARANTINED:
            more = (*_details(seen), *_usual(seen, sketches))
            return Story(lead=_ends(seen), more=more, next=_set_aside(job))
        case JobState.CANCELED:
            return Story(lead=_sentence(job.reason or "canceled"), more=_before(seen))
        case _:
            return Story(lead=_waiting(seen, now_ms), more=_before(seen))


def times(count: int) -> str:
    """Return how often: ``once``, ``three times``, ``40 times``."""
    if count < len(_TIMES):
        return _TIMES[count]
    place = count - len(_TIMES)
    return f"{_NUMBERS[place] if place < len(_NUMBERS) else f'{count:,}'} times"


def span(seconds: float) -> str:
    """Return a rough length of time: ``11 minutes``."""
    for unit_s, name in _UNITS:
        count = round(seconds / unit_s)
        if seconds >= _LEAST_OF_UNIT * unit_s or (unit_s == 1 and count == 1):
            return f"{count} {name}{'' if count == 1 else 's'}"
    return "a second"


def same_ends(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the last attempts that have ended in one way, oldest first."""
    if not attempts:
        return []
    last = attempts[-1].outcome
    return list(takewhile(lambda one: one.outcome is last, reversed(attempts)))[::-1]


def _success(job: Job) -> str:
    ran = f", after {duration(job.duration_s)}" if job.duration_s else ""
    which = f" at attempt {job.attempt}" if job.attempt > 1 else ""
    return f"It succeeded{which}{ran}."


def _running(job: Job, now_ms: int) -> str:
    ran_s = running_s(job, now_ms)
    if ran_s is None:
        return f"Attempt {job.attempt} has just begun."
    wish = "; it was asked to stop" if job.cancel_requested else ""
    return f"It runs, for {duration(ran_s)} by now: attempt {job.attempt}{wish}."


def _waiting(seen: Seen, now_ms: int) -> str:
    job = seen.job
    if seen.waits:
        return f"It waits: {seen.waits}."
    if job.follows is not None:
        return f"It runs when job {job.follows} has ended, which has its unique text."
    if job.state is JobState.WAITING:
        return "It runs when what it depends on has ended."
    if job.state is JobState.PENDING and job.run_at_ms > now_ms:
        again = "It is tried again" if job.attempt else "It runs"
        return f"{again} {ago(job.run_at_ms, now_ms)}."
    return "It runs as soon as a slot of its pool is free."


def _before(seen: Seen) -> tuple[str, ...]:
    """Return how the last attempt has ended, of a job that may go on."""
    if not seen.attempts:
        return ()
    return (f"Before: {_plain_ends(seen)}.", *_details(seen))


def _ends(seen: Seen) -> str:
    """Return how often it has ended in the way in which it has ended last."""
    ends = f"{_plain_ends(seen)}." if seen.attempts else ""
    return ends or _sentence(seen.job.reason or f"it is {seen.job.shown_state}")


def _plain_ends(seen: Seen) -> str:
    same = same_ends(seen.attempts)
    last = same[-1]
    often = f" {times(len(same))}"
    if len(same) > 1:
        since_s = (last.finished_at_ms - same[0].started_at_ms) / 1000
        often += f" within {span(since_s)}"
    return f"{_by(last, seen)}{often}"


def _by(last: Attempt, seen: Seen) -> str:
    """Return what has ended an attempt, with the limit that did."""
    if last.outcome is Outcome.OUT_OF_MEMORY:
        limit = limit_bytes(last, seen)
        if limit is not None:
            return f"Its memory limit of {size(limit)} killed it"
    if last.outcome is Outcome.TIMED_OUT:
        limit_s = seen.job.timeout_s or (seen.known.timeout_s if seen.known else None)
        if limit_s is not None:
            return f"Its time limit of {duration(limit_s)} ended it"
    return _BY.get(last.outcome, f"It ended as {last.outcome}")


def limit_bytes(one: Attempt, seen: Seen) -> int | None:
    """Return the memory limit of an attempt, as well as it is known."""
    if trail := trail_of(one.memory_trail):
        return trail.limit_bytes
    return seen.job.memory_bytes or (seen.known.memory_bytes if seen.known else None)


def _details(seen: Seen) -> tuple[str, ...]:
    """Return the reason of the last end, where the lead does not say it."""
    last = seen.attempts[-1] if seen.attempts else None
    if last is None or last.outcome in {Outcome.OUT_OF_MEMORY, Outcome.TIMED_OUT}:
        return ()
    reason = last.reason or last.error_class
    return (_sentence(reason),) if reason else ()


def _usual(seen: Seen, sketches: Sketches) -> tuple[str, ...]:
    """Return what attempts of its kind use, where that explains something."""
    counts = sketches.get(Measure.MEMORY, {})
    half, most = quantile(counts, 0.5), quantile(counts, 0.99)
    if half is None or most is None or seen.job.peak_rss_bytes is None:
        return ()
    least = "at least " if most.is_least else ""
    said = (
        f"Attempts of its kind peaked at about {size(half.value)} (P50) and "
        f"{least}{size(most.value)} (P99)."
    )
    return (said,)


def _set_aside(job: Job) -> str:
    if job.replaced_by is not None:
        return "Another job has replaced it; this one stays as evidence."
    told = "Nothing happens until you act."
    if job.outcome is Outcome.OUT_OF_MEMORY:
        return (
            f"{told} Unless its memory limit is raised, it would probably end so again."
        )
    return told


def _sentence(text: str) -> str:
    text = text.strip()
    return (
        f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"
    )
