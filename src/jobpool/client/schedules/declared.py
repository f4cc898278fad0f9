"""Schedules that an application's code declares."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from jobpool.client.declare.options import DEFAULT
from jobpool.client.handler import Call, Handler
from jobpool.errors import ConfigError

if TYPE_CHECKING:
    from jobpool.client.declare.schedules import PolicyOptions, ScheduleOptions
    from jobpool.core.jobs.job import NewJob
    from jobpool.core.rules.schedules.schedule import Declared


class DeclaredSchedules:
    """The schedules that the code of one application declares."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._declared: dict[str, Callable[[], Declared]] = {}

    def declare(self, name: str, call: Call[Any], options: ScheduleOptions) -> None:
        """See `JobPool.schedule`."""
        schedule = read_called(name, call, options)
        self._add(schedule, lambda: schedule)

    def declare_cron(
        self,
        name: str | None,
        handler: Handler[..., Any],
        expression: str,
        tz: str,
        policy: PolicyOptions,
    ) -> None:
        """See `JobPool.cron`."""
        if not isinstance(handler, Handler):
            raise ConfigError(
                f"@jobs.cron stands above @jobs.job, got a {type(handler).__name__} "
                "that is no handler yet; exchange the two lines"
            )
        handler.check_has_defaults()
        own = handler.kind if name is None else name
        job = handler.new_job(DEFAULT)
        schedule = _read(own, job, **policy, cron=expression, tz=tz)

        def with_payload() -> Declared:
            # Not at once: the annotations may name what is defined further down.
            payload, values = handler.encode_call((), {}), handler.values({})
            return msgspec.structs.replace(
                schedule, payload=payload, quota_values=values
            )

        self._add(schedule, with_payload)

    def declared(self) -> tuple[Declared, ...]:
        """Return what the code declares.

        Raises:
            ArgumentsRejected: the defaults of a handler with ``@jobs.cron`` do not fit.
        """
        return tuple(declared() for declared in self._declared.values())

    def _add(self, schedule: Declared, declared: Callable[[], Declared]) -> None:
        with self._lock:
            if schedule.name in self._declared:
                raise ConfigError(
                    f"schedule {schedule.name!r} is declared twice; give one of them "
                    "another name"
                )
            self._declared[schedule.name] = declared


def read_called(name: str, call: Call[Any], options: ScheduleOptions) -> Declared:
    """Return a schedule whose jobs are like a call.

    Raises:
        ConfigError: it is no call, or a value is wrong.
    """
    if not isinstance(call, Call):
        raise ConfigError(
            "a schedule needs a call, such as handler.call(...), got "
            f"{type(call).__name__}"
        )
    if call.connection is not None:
        raise ConfigError(
            "a schedule's call has connection=, which is for one job; leave it out"
        )
    return _read(name, call.job, **options)


def _read(name: str, job: NewJob, **options: Unpack[ScheduleOptions]) -> Declared:
    # 5 ms, which applications without schedules do not pay.
    from jobpool.client.declare.schedules import read_schedule  # noqa: PLC0415

    return read_schedule(name, job, **options)
