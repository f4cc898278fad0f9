"""Records of schedules and their ticks."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.job import TIME_MAX_MS, UNFINISHED, JobState
from jobpool.core.rules.schedules.policy import Policy, check_policy
from jobpool.core.rules.schedules.rule import Rule, check_rule
from jobpool.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,199}")
"""Valid names of schedules: letters, digits and ``_ . : / -``."""
FOREVER_MS = TIME_MAX_MS
"""Until when a schedule is paused whose pause has no end."""


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as an application or a caller states it; None: the pool's default."""

    name: str
    kind: str
    pool: str
    payload: bytes
    """JSON object: the arguments by name; encoded, if there is a codec."""
    rule: Rule
    policy: Policy = Policy()
    priority: int = 0
    tenant: str | None = None
    max_attempts: int | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    expires_in_ms: int | None = None
    codec: str | None = None
    """The one that encoded the payload."""
    quota_values: Mapping[str, str] | None = None
    """As in `core.jobs.job.NewJob`."""


def check_declared(declared: Declared) -> Declared:
    """Return a schedule whose name, rule and policy can be kept.

    Raises:
        ConfigError: one of them cannot; the message names the schedule.
    """
    if not NAME.fullmatch(declared.name):
        raise ConfigError(
            f"schedule {declared.name[:60]!r} is not a valid name; expected up to 200 "
            "letters, digits or any of _ . : / -, such as 'report.nightly'"
        )
    try:
        check_rule(declared.rule)
        check_policy(declared.policy, declared.rule)
    except ConfigError as exc:
        raise ConfigError(f"schedule {declared.name!r}: {exc}") from exc
    return declared


class TickState(StrEnum):
    """A tick's state, as stored."""

    BUFFERED = "buffered"
    """It waits for the job of another tick to end."""
    OPEN = "open"
    """It has a job, whose end has not been seen yet."""
    DONE = "done"
    """Its job has ended, in whatever way. Final."""
    SKIPPED = "skipped"
    """It got no job. Final."""


class Progress(StrEnum):
    """How far a tick is that is buffered or open: its state, and its job's."""

    BUFFERED = "buffered"
    RUNNING = "running"
    """Its job is unfinished, whether it has begun or not."""
    RETRYING = "retrying"
    """Its job waits for another attempt."""
    ENDED = "ended"
    DEAD = "dead"
    """Its job has ended as dead or quarantined."""


def progress_of(job_state: JobState | None, attempt: int) -> Progress:
    """Return how far an open tick is.

    Args:
        job_state: its job's; None: there is no such job any more.
        attempt: the number of its job's last attempt; 0: there was none.
    """
    if job_state in (JobState.DEAD, JobState.QUARANTINED):
        return Progress.DEAD
    if job_state is None or job_state not in UNFINISHED:
        return Progress.ENDED
    waits = job_state is not JobState.LEASED
    return Progress.RETRYING if waits and attempt > 0 else Progress.RUNNING


class OpenTick(NamedTuple):
    """A tick that is buffered or open."""

    nominal_ms: int
    progress: Progress
    job_id: int | None = None
    """None: it is buffered."""
    is_backfilled: bool = False


class PlannedTick(NamedTuple):
    """A tick to be stored."""

    nominal_ms: int
    state: TickState
    """OPEN: together with its job. Otherwise without one."""
    is_backfilled: bool = False


class ScheduleState(msgspec.Struct, frozen=True, kw_only=True):
    """What a step of a schedule depends on, besides the time."""

    name: str
    rule: Rule
    policy: Policy
    since_ms: int
    """When it got this rule: no tick is older."""
    last_ms: int | None = None
    """Up to here its times have been dealt with; as `Plan` said the last time."""
    last_end_ms: int | None = None
    """When the job of its last tick ended; only `from_end` needs it."""
    paused_until_ms: int | None = None
    """It has no ticks before; `FOREVER_MS`: the pause has no end."""
    ticks: tuple[OpenTick, ...] = ()
    """All that are buffered or open, in any order."""
    known_ms: Container[int] = ()
    """Nominal times that have a tick already: their times come again when the clock
    goes back."""
