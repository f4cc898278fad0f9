"""Schedules of a store: put, read, and changed as a person does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from jobpool.client.declare.options import moment_ms
from jobpool.client.gateway import Gateway
from jobpool.client.handler import Call
from jobpool.client.job import Job, operate
from jobpool.client.schedules.declared import read_called
from jobpool.core.clock import SystemClock
from jobpool.core.units import DurationLike, duration_s
from jobpool.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from jobpool.client.declare.schedules import ScheduleOptions
    from jobpool.client.schedules.schedule import Schedule, Tick
    from jobpool.store.records.schedules import ScheduleRow

_COUNT_MAX = 10_000
"""Times or ticks that are returned at once."""


class Schedules:
    """The schedules of the store, declared and put. Made by `JobPool`.

    What changes one has a row in the audit trail, with its note of at most 1,000
    characters. Like all that needs the store, it cannot be used inside a handler.

    Args:
        gateway: to the store.
        decoder_of: returns the decoder of a kind's results.
    """

    def __init__(
        self, gateway: Gateway, decoder_of: Callable[[str], Callable[..., Any]]
    ) -> None:
        self._gateway = gateway
        self._decoder_of = decoder_of

    def put(
        self,
        name: str,
        call: Call[Any],
        /,
        *,
        note: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> bool:
        """Store a schedule, or change the one of this name.

        It lasts until it is removed, whatever code runs. Another rule counts from now.

        Args:
            name: its own, in this store.
            call: what to run: ``handler.call(...)`` or
                ``handler.options(priority=...).call(...)``.
            note: why.
            **options: see `ScheduleOptions`.

        Returns:
            False if it was there as it is.

        Raises:
            UsageError: a value is wrong, or an application declares a schedule of this
                name. Nothing was stored.
            FeatureHeldBack: its arguments are encoded, and older supervisors run.
                Nothing was stored.
        """
        from jobpool.operations.schedules import PutSchedule  # noqa: PLC0415 - rare

        try:
            declared = read_called(name, call, options)
        except ConfigError as exc:
            raise UsageError(f"{exc}; nothing was stored") from None
        return operate(self._gateway, PutSchedule(declared=declared, note=note))

    def get(self, name: str) -> Schedule | None:
        """Read a schedule; None: there is none of this name."""
        row = self._row(name)
        return None if row is None else _told(row)

    def list(self) -> tuple[Schedule, ...]:
        """Read all schedules, by name."""
        store = self._gateway.store("reading schedules")
        return tuple(_told(row) for row in store.schedules())

    def next(self, name: str, count: int = 5) -> tuple[datetime, ...]:
        """Return the next times of a schedule, in its zone; see `Schedule.next`.

        Args:
            name: the schedule.
            count: the most; up to 10,000.

        Raises:
            UsageError: there is no such schedule, or count is out of range.
            ConfigError: this host does not know its time zone.
        """
        from jobpool.core.rules.schedules.zone import local_time  # noqa: PLC0415 - rare
        from jobpool.operations.schedules import upcoming  # noqa: PLC0415 - rare

        _check_count(count)
        row = self._existing(name)
        tz = row.declared.rule.tz
        times = upcoming(row, SystemClock().utc_ms(), count)
        return tuple(local_time(at_ms, tz) for at_ms in times)

    def ticks(self, name: str, limit: int = 100) -> tuple[Tick, ...]:
        """Read the ticks of a schedule, the latest first.

        They are kept as long as their jobs.

        Raises:
            UsageError: there is no such schedule, or limit is not 1 to 10,000.
        """
        from jobpool.client.schedules.schedule import tick_of  # noqa: PLC0415 - rare
        from jobpool.operations.schedules import outlook  # noqa: PLC0415 - rare

        _check_count(limit)
        tz = outlook(self._existing(name), 0, 0).tz
        store = self._gateway.store("reading ticks")
        return tuple(tick_of(row, tz) for row in store.ticks(name, limit))

    def pause(
        self,
        name: str,
        duration: DurationLike | None = None,
        *,
        note: str | None = None,
    ) -> bool:
        """Let a schedule have no ticks; its jobs go on.

        Args:
            name: the schedule.
            duration: ``"2h"``, seconds or a timedelta, after which it ends by itself;
                None: it lasts until `resume`.
            note: why; shown with the schedule.

        Returns:
            False if it was paused already, with the same end.

        Raises:
            UsageError: there is no such schedule, or no duration; nothing was paused.
        """
        from jobpool.operations.schedules import PauseSchedule  # noqa: PLC0415 - rare

        try:
            for_s = None if duration is None else duration_s(duration, "duration")
        except ConfigError as exc:
            raise UsageError(f"{exc}; nothing was paused") from None
        action = PauseSchedule(schedule=_checked(name), for_s=for_s, note=note)
        return operate(self._gateway, action)

    def resume(
        self, name: str, *, catch_up: bool = False, note: str | None = None
    ) -> bool:
        """Undo a pause.

        Args:
            name: the schedule.
            catch_up: the ticks of the pause were missed, and its policy says what
                happens to them; otherwise there are none.
            note: why.

        Returns:
            False if it was not paused.

        Raises:
            UsageError: there is no such schedule.
        """
        from jobpool.operations.schedules import ResumeSchedule  # noqa: PLC0415 - rare

        action = ResumeSchedule(schedule=_checked(name), catch_up=catch_up, note=note)
        return operate(self._gateway, action)

    def remove(self, name: str, *, note: str | None = None) -> bool:
        """Delete a schedule that nobody declares any more, or was put, with its ticks.

        Its jobs stay.

        Returns:
            False if there was none.

        Raises:
            UsageError: an application declares it of which supervisors run; nothing
                was changed.
        """
        from jobpool.operations.schedules import RemoveSchedule  # noqa: PLC0415 - rare

        return operate(
            self._gateway, RemoveSchedule(schedule=_checked(name), note=note)
        )

    def run(self, name: str, *, note: str | None = None) -> Job[Any]:
        """Enqueue a job of a schedule now, whatever its rule and its policies say.

        Returns:
            The job: a tick whose nominal time is now.

        Raises:
            UsageError: there is no such schedule; nothing was enqueued.
        """
        from jobpool.operations.schedules import RunSchedule  # noqa: PLC0415 - rare

        ids: list[int] = []
        action = RunSchedule(schedule=_checked(name), on_stored=ids.append, note=note)
        operate(self._gateway, action)
        (job_id,) = ids
        kind = self._gateway.read(job_id).kind
        return Job(
            job_id,
            kind,
            created=True,
            gateway=self._gateway,
            decode=self._decoder_of(kind),
        )

    def backfill(
        self,
        name: str,
        start: datetime | float,
        end: datetime | float | None = None,
        *,
        dry_run: bool = False,
        note: str | None = None,
    ) -> int:
        """Make up for the times of a span that have no tick; they run one by one.

        Args:
            name: the schedule.
            start: the first moment: an aware datetime or Unix seconds.
            end: the last one, not after now; None: a minute ago, since later times
                still get their ticks by themselves.
            dry_run: only count them.
            note: why.

        Returns:
            How many there are.

        Raises:
            UsageError: there is no such schedule, it is retired or counts from the end
                of its last job, or the span is not in the past or has more than 1,000.
                Nothing was changed.
        """
        from jobpool.operations.action import Done  # noqa: PLC0415 - rare
        from jobpool.operations.schedules import Backfill  # noqa: PLC0415 - rare

        from_ms, to_ms = moment_ms(start, "start"), _end_ms(end)
        if dry_run:
            store = self._gateway.store("counting ticks")
            return store.backfill(_checked(name), from_ms, to_ms, dry_run=True)
        done = Done()
        action = Backfill(
            schedule=_checked(name), from_ms=from_ms, to_ms=to_ms, note=note
        )
        operate(self._gateway, action, done)
        return done.matched

    def _row(self, name: str) -> ScheduleRow | None:
        rows = self._gateway.store("reading a schedule").schedules(_checked(name))
        return rows[0] if rows else None

    def _existing(self, name: str) -> ScheduleRow:
        row = self._row(name)
        if row is None:
            raise UsageError(f"there is no schedule {name[:200]!r} in this store")
        return row


def _checked(name: str) -> str:
    if not isinstance(name, str):
        raise UsageError(
            f"a schedule's name is text, got {type(name).__name__}; nothing was done"
        )
    return name


def _end_ms(end: datetime | float | None) -> int:
    if end is None:
        # 8 ms, which others do not pay.
        from jobpool.core.rules.schedules.policy import (  # noqa: PLC0415
            MISSED_AFTER_S,
        )

        return SystemClock().utc_ms() - MISSED_AFTER_S * 1000
    if isinstance(end, datetime):  # Rounded, the present time would be in the future.
        end = end.replace(microsecond=end.microsecond // 1000 * 1000)
    return moment_ms(end, "end")


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise UsageError(f"expected a whole number, got {type(count).__name__}")
    if not 1 <= count <= _COUNT_MAX:
        raise UsageError(f"expected 1 to {_COUNT_MAX:,}, got {count}")


def _told(row: ScheduleRow) -> Schedule:
    from jobpool.client.schedules.schedule import schedule_of  # noqa: PLC0415 - rare

    return schedule_of(row, SystemClock().utc_ms())
