"""What is done to schedules, and when they come next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from jobpool.core.rules.schedules.rule import jitter_of, next_after, times_after
from jobpool.core.rules.schedules.schedule import Declared
from jobpool.core.rules.schedules.words import rule_words
from jobpool.core.rules.schedules.zone import zone_of
from jobpool.errors import ConfigError
from jobpool.operations.action import Action, Change, Done, Step
from jobpool.operations.principal import Principal
from jobpool.store.protocol import Store
from jobpool.store.records.schedules import ScheduleRow

_OVERDUE_MS = 60_000


class Outlook(NamedTuple):
    """What can be told of a schedule here."""

    when: str
    """Its rule in words."""
    tz: str
    """The zone to show its times in."""
    upcoming_ms: tuple[int, ...]
    """Its next times."""
    problem: str = ""
    """Why this host cannot plan it; others may."""


def outlook(row: ScheduleRow, now_ms: int, count: int) -> Outlook:
    """Return what can be told of a schedule here, as of `upcoming`."""
    rule = row.declared.rule
    try:
        when, times = rule_words(rule), upcoming(row, now_ms, count)
        zone_of(rule.tz)
    except ConfigError as exc:
        return Outlook(rule.cron or "", "UTC", (), str(exc))
    return Outlook(when, rule.tz, tuple(times))


def upcoming(row: ScheduleRow, now_ms: int, count: int) -> list[int]:
    """Return the next nominal times of a schedule, at most so many.

    There are none while it is paused without an end. One that counts from the end of
    its last job has one at most: none while that job is unfinished.

    Args:
        row: the schedule.
        now_ms: the store's clock, or one that is near it.
        count: the most.

    Raises:
        ConfigError: this host does not know the schedule's zone.
    """
    is_paused = row.paused_ms is not None
    if row.retired_ms is not None or (is_paused and row.paused_until_ms is None):
        return []
    rule, since_ms = row.declared.rule, row.since_ms
    jitter_ms = jitter_of(rule, row.declared.name)
    if rule.from_end:
        if row.next_ms is not None and row.next_ms > now_ms and not is_paused:
            return [row.next_ms - jitter_ms]
        first_ms = next_after(rule, since_ms, since_ms=since_ms)
        return [] if row.last_ms is not None or first_ms is None else [first_ms]
    marks = (since_ms, now_ms - jitter_ms, row.last_ms, (row.paused_until_ms or 1) - 1)
    horizon_ms = max(now_ms, row.paused_until_ms or 0)
    after_ms = max(one for one in marks if one is not None and one <= horizon_ms)
    return list(islice(times_after(rule, after_ms, since_ms=since_ms), count))


def state_of(row: ScheduleRow, now_ms: int) -> str:
    """Return ``retired``, ``paused``, ``overdue`` or ``active``.

    It is overdue if no supervisor has come to it for a minute since it was due.
    """
    if row.retired_ms is not None:
        return "retired"
    if row.paused_ms is not None:
        return "paused"
    is_overdue = row.next_ms is not None and row.next_ms < now_ms - _OVERDUE_MS
    return "overdue" if is_overdue else "active"


class _OfOne(Action, frozen=True, kw_only=True):
    """Done to one schedule."""

    schedule: str

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {"schedule": self.schedule}


class PutSchedule(Action, frozen=True, kw_only=True):
    """Store a schedule of nobody's code, or change it."""

    name = "schedules put"
    declared: Declared

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        one = self.declared
        target = {
            "schedule": one.name,
            "kind": one.kind,
            "pool": one.pool,
            "when": rule_words(one.rule),
        }
        return target if one.tenant is None else {**target, "tenant": one.tenant}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: Change(is_made=store.put_schedule(self.declared))


class PauseSchedule(_OfOne, frozen=True, kw_only=True):
    """Let a schedule have no ticks."""

    name = "schedules pause"
    for_s: float | None = None
    """None: until it is resumed."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        target = super().target()
        return target if self.for_s is None else {**target, "for_s": self.for_s}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del done
        yield lambda: Change(
            is_made=store.pause_schedule(
                self.schedule, for_s=self.for_s, who=by.who, note=self.note
            )
        )


class ResumeSchedule(_OfOne, frozen=True, kw_only=True):
    """Undo the pause of a schedule."""

    name = "schedules resume"
    catch_up: bool = False
    """The ticks of the pause count as missed; otherwise there are none."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        target = super().target()
        return {**target, "catch_up": True} if self.catch_up else target

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: Change(
            is_made=store.resume_schedule(self.schedule, catch_up=self.catch_up)
        )


class RemoveSchedule(_OfOne, frozen=True, kw_only=True):
    """Delete a schedule with its ticks."""

    name = "schedules remove"

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: Change(is_made=store.remove_schedule(self.schedule))


class RunSchedule(_OfOne, frozen=True, kw_only=True):
    """Enqueue a tick now."""

    name = "schedules run"
    on_stored: Callable[[int], None]
    """Called with the job's id, once it is stored."""

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        ids: list[int] = []

        def step() -> Change:
            ids[:] = [store.run_now(self.schedule)]
            return Change(is_made=True, jobs=1, ids=ids)

        yield step
        self.on_stored(*ids)


class Backfill(_OfOne, frozen=True, kw_only=True):
    """Store the ticks of a span of the past."""

    name = "schedules backfill"
    from_ms: int
    to_ms: int

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {**super().target(), "from_ms": self.from_ms, "to_ms": self.to_ms}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`. What is matched are the ticks; their jobs come later."""
        del by
        yield lambda: self._backfill(store, done)

    def _backfill(self, store: Store, done: Done) -> Change:
        done.matched = store.backfill(self.schedule, self.from_ms, self.to_ms)
        return Change(is_made=done.matched > 0)
