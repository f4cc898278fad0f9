"""Reads the options of ``jobs.cron``, ``jobs.schedule`` and ``jobs.schedules.put``."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal, TypedDict, TypeVar, Unpack

from jobpool.client.declare.declaration import positive_s
from jobpool.client.declare.options import checked_text, moment_ms
from jobpool.core.jobs.job import NewJob
from jobpool.core.rules.schedules.policy import (
    CATCHUP_MAX,
    CATCHUP_WINDOW_S,
    Missed,
    Overlap,
    Policy,
)
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import Declared, check_declared
from jobpool.core.units import DurationLike, duration_s
from jobpool.errors import ConfigError, UsageError

E = TypeVar("E", bound=StrEnum)
_FROM_END = "end"


class PolicyOptions(TypedDict, total=False):
    """When a schedule begins and ends, and what becomes of ticks in the way."""

    jitter: DurationLike | None
    """Ticks are due later by less than this; always the same for one schedule."""
    starts: datetime | float | None
    """No tick is before: an aware datetime or Unix seconds."""
    ends: datetime | float | None
    """No tick is after: an aware datetime or Unix seconds."""
    missed: Literal["skip", "one", "all"]
    """Which ticks get a job that no supervisor was there for: ``"one"``, the newest
    (the default), ``"all"``, one after another, or ``"skip"``, none."""
    catchup_window: DurationLike | None
    """Missed ticks that were due longer ago get no job; 1 day by default."""
    catchup_max: int | None
    """Of more missed ticks, the newest get jobs; 1,000 by default."""
    overlap: Literal["skip", "buffer_one", "buffer_all", "cancel_other", "allow_all"]
    """What a tick does while the job of an earlier one is unfinished: get no job (the
    default), wait for its end if no other does, wait for its turn, cancel it, or run
    beside it."""
    retry_over_tick: bool
    """A job that waits for a retry is not replaced by the next tick."""
    pause_on_dead: bool
    """The schedule is paused once one of its jobs is dead or quarantined."""


class ScheduleOptions(PolicyOptions, total=False):
    """When a schedule has ticks, and its policies. One of cron and every is needed."""

    cron: str | None
    """Five fields, such as ``"0 2 * * 1-5"``, or a name such as ``@daily``."""
    every: DurationLike | None
    """The period, such as ``"30s"``: from `starts`, or else from when it was stored."""
    from_: Literal["end"] | None
    """``"end"``: `every` counts from the end of the last tick's job."""
    tz: str
    """The zone whose clocks `cron` goes by; UTC by default."""
    tenant: str | None
    """On whose behalf its jobs run."""


def read_schedule(
    name: str, job: NewJob, **options: Unpack[ScheduleOptions]
) -> Declared:
    """Return a schedule as the store needs it.

    Args:
        name: its name.
        job: what each of its jobs is like.
        **options: see `ScheduleOptions`.

    Raises:
        ConfigError: a value is wrong; the message names the schedule and the value.
    """
    if not isinstance(name, str):
        raise ConfigError(
            f"a schedule's name is text, got {type(name).__name__}; write "
            'jobs.schedule("poll", poll.call("eu"), every="30s")'
        )
    try:
        _refuse_unknown(options)
        _refuse_one_time_options(job)
        schedule = Declared(
            name=name,
            kind=job.kind,
            pool=job.pool,
            payload=job.payload,
            codec=job.codec,
            quota_values=job.quota_values,
            rule=_rule(options),
            policy=_policy(options),
            priority=job.priority,
            tenant=checked_text(options.get("tenant", job.tenant), "tenant"),
            max_attempts=job.max_attempts,
            timeout_s=job.timeout_s,
            memory_bytes=job.memory_bytes,
            expires_in_ms=job.expires_in_ms,
        )
    except (ConfigError, UsageError) as exc:
        raise ConfigError(f"schedule {name[:60]!r}: {exc}") from None
    return check_declared(schedule)


def _rule(options: ScheduleOptions) -> Rule:
    every_s = positive_s(options.get("every"), "every")
    jitter = options.get("jitter")
    starts, ends = options.get("starts"), options.get("ends")
    return Rule(
        cron=_text(options.get("cron"), "cron"),
        every_ms=None if every_s is None else round(every_s * 1000),
        from_end=_is_from_end(options.get("from_")),
        tz=_text(options.get("tz"), "tz") or "UTC",
        jitter_ms=0 if jitter is None else round(duration_s(jitter, "jitter") * 1000),
        starts_ms=None if starts is None else moment_ms(starts, "starts"),
        ends_ms=None if ends is None else moment_ms(ends, "ends"),
    )


def _policy(options: ScheduleOptions) -> Policy:
    window_s = positive_s(options.get("catchup_window"), "catchup_window")
    return Policy(
        missed=_choice(Missed, options.get("missed", Missed.ONE), "missed"),
        catchup_window_s=round(window_s or CATCHUP_WINDOW_S),
        catchup_max=_count(options.get("catchup_max"), "catchup_max"),
        overlap=_choice(Overlap, options.get("overlap", Overlap.SKIP), "overlap"),
        retry_over_tick=_flag(options.get("retry_over_tick", False), "retry_over_tick"),
        pause_on_dead=_flag(options.get("pause_on_dead", False), "pause_on_dead"),
    )


def _refuse_unknown(options: ScheduleOptions) -> None:
    known = ScheduleOptions.__annotations__
    for name in options:
        if name not in known:
            raise ConfigError(
                f"it has no option {name[:40]!r}; expected one of {', '.join(known)}"
            )


def _refuse_one_time_options(job: NewJob) -> None:
    for name, is_given in (
        ("key", job.key is not None),
        ("unique", job.unique is not None),
        ("run_in", job.delay_ms),
        ("run_at", job.run_at_ms is not None),
        ("trace", job.trace is not None),
    ):
        if is_given:
            raise ConfigError(
                f"its call has {name}=, which is for one job; each tick makes another "
                "one: leave it out"
            )


def _is_from_end(value: object) -> bool:
    if value not in (None, _FROM_END):
        raise ConfigError(f'from_: expected "end", got {str(value)[:40]!r}')
    return value == _FROM_END


def _text(value: object, what: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{what}: expected text, got {type(value).__name__}")
    return value


def _choice(choices: type[E], value: object, what: str) -> E:
    try:
        return choices(str(value))
    except ValueError:
        known = ", ".join(f'"{one}"' for one in choices)
        raise ConfigError(
            f"{what}: {str(value)[:40]!r} is unknown; expected one of {known}"
        ) from None


def _count(value: object, what: str) -> int:
    if value is None:
        return CATCHUP_MAX
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(
            f"{what}: expected a whole number, got {type(value).__name__}"
        )
    return value


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{what}: expected True or False, got {str(value)[:40]!r}")
    return value
