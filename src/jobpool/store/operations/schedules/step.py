"""What a step does to one schedule, in terms of rows. Pure.

What begins, what waits and when the next step is due is decided by
`core.rules.schedules.plan`. A `Step` is that for every store: they only carry it out.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from jobpool.core.jobs.job import NewJob
from jobpool.core.rules.schedules.plan import Plan, plan
from jobpool.core.rules.schedules.policy import Overlap, Policy
from jobpool.core.rules.schedules.rule import between, jitter_of
from jobpool.core.rules.schedules.schedule import (
    FOREVER_MS,
    Declared,
    OpenTick,
    Progress,
    ScheduleState,
    TickState,
)
from jobpool.errors import ConfigError, UsageError
from jobpool.store.records.schedules import Notice
from jobpool.store.statements.schedules import (
    EndedTick,
    NewTick,
    StoredSchedule,
    StoredTick,
    job_of,
)
from jobpool.store.statements.validation import check_new_jobs

NEW_TICKS_MAX = 100
"""The most new ticks of one schedule that one step stores."""
LATE_MS = 60_000
"""A tick that is stored so long after it was due is worth a notice."""
BACKFILL_MAX = 1000
"""The most ticks that are backfilled at once."""
LEFT_MS = 3000
"""How long what is due and this host cannot plan is left to others as it is."""
ELSEWHERE_MS = 10_000
"""How soon this host tries again if none of them has taken it."""
PAUSED_BY = "jobpool"
WAITS_NOT, WAITS_FOR_END, WAITS_FOR_RETRY = range(3)
"""When another step is due, besides at a time: as soon as an open tick's job has ended;
or waits for a retry. Not the latter while one waits that is not to be replaced: steps
would follow each other, and do nothing."""
AGAIN_MS = 1000
"""How soon a step tries again to cancel a job that somebody holds."""
_OVER = frozenset({Progress.ENDED, Progress.DEAD})
_replace = msgspec.structs.replace


class Step(NamedTuple):
    """What a step does to one schedule."""

    schedule: StoredSchedule
    """As it is afterwards."""
    job: NewJob | None = None
    """What each tick enqueues."""
    ended: Sequence[EndedTick] = ()
    begun: Sequence[int] = ()
    """Ids of buffered ticks that get their jobs."""
    new: Sequence[NewTick] = ()
    cancel: Sequence[int] = ()
    """Ids of jobs."""
    missed: int = 0
    notice: Notice | None = None
    is_left: bool = False
    """Nothing is done: it is left to others."""

    def again_at(self, at_ms: int) -> Step:
        """Return the step when a job could not be canceled now: another one tries."""
        next_ms = min(at_ms, self.schedule.next_at_ms or at_ms)
        return self._replace(schedule=_replace(self.schedule, next_at_ms=next_ms))


def step(
    stored: StoredSchedule,
    ticks: Sequence[StoredTick],
    now_ms: int,
    known_ms: Container[int] = (),
) -> Step:
    """Return what a step does to a schedule.

    Args:
        stored: its row.
        ticks: those that have not ended.
        now_ms: the store's clock.
        known_ms: nominal times that have a tick, as far as it would store new ones.
    """
    if stored.retired_at_ms is not None:
        return Step(_replace(stored, next_at_ms=None, waits=WAITS_NOT))
    try:
        declared = stored.declared()
        job = job_of(declared)
        check_new_jobs([job], now_ms)
    except (msgspec.MsgspecError, UsageError):
        why = "its row cannot be read; another program has written it"
        return Step(
            paused(stored, now_ms, PAUSED_BY, why),
            notice=Notice(name=stored.name, paused=why),
        )
    ends_ms = [t.finished_ms for t in ticks if t.finished_ms is not None]
    if stored.waits and all(t.job_id is None for t in ticks):
        ends_ms = [now_ms]  # What it waits for was deleted together with its job.
    stored = _replace(stored, last_end_ms=max(ends_ms, default=stored.last_end_ms))
    try:
        found = plan(
            _state(stored, declared, ticks, known_ms), now_ms, limit=NEW_TICKS_MAX
        )
    except ConfigError as exc:
        # The rule was checked where it was put, so this host lacks its time zone.
        if stored.next_at_ms is not None and now_ms - stored.next_at_ms < LEFT_MS:
            return Step(stored, is_left=True)
        later = _replace(stored, next_at_ms=now_ms + ELSEWHERE_MS)
        return Step(later, notice=Notice(name=stored.name, unplanned=str(exc)))
    by_time = {tick.nominal_ms: tick for tick in ticks}
    buffered = [
        tick
        for tick in ticks
        if tick.progress is Progress.BUFFERED
        and tick.nominal_ms not in {*found.start, *found.skip}
    ]
    return Step(
        _after(stored, found, declared.policy, ticks, now_ms),
        job,
        [*_ended(found, by_time, now_ms)],
        [by_time[nominal_ms].id for nominal_ms in found.start],
        [NewTick(stored.id, *tick) for tick in found.write],
        sorted({*found.cancel, *_to_be_canceled(declared.policy, ticks, buffered)}),
        found.missed,
        _notice(declared, found, ticks, now_ms),
    )


def paused(
    stored: StoredSchedule,
    now_ms: int,
    who: str | None,
    note: str | None,
    until_ms: int | None = None,
) -> StoredSchedule:
    """Return a schedule as it is once it is paused; until None: without an end."""
    return _replace(
        stored,
        next_at_ms=until_ms,
        waits=WAITS_NOT,
        paused_at_ms=now_ms,
        paused_until_ms=FOREVER_MS if until_ms is None else until_ms,
        paused_by=who,
        note=note,
    )


def is_paused_so(
    stored: StoredSchedule, until_ms: int | None, note: str | None
) -> bool:
    """Say whether a schedule is paused with this end; note None: with any note."""
    is_paused = stored.paused_at_ms is not None
    has_end = stored.paused_until_ms == (FOREVER_MS if until_ms is None else until_ms)
    return is_paused and has_end and note in {None, stored.note}


def past_times(
    stored: StoredSchedule,
    declared: Declared,
    now_ms: int,
    *,
    from_ms: int,
    to_ms: int,
    known: Collection[int],
) -> list[int]:
    """Return the nominal times of a span that have no tick, to be backfilled.

    Args:
        stored: the schedule.
        declared: what it says.
        now_ms: the store's clock.
        from_ms: the first moment of the span.
        to_ms: the last one.
        known: the times that have a tick.

    Raises:
        UsageError: the schedule is retired or has no times of its own, the span is
            empty or in the future, or there are too many.
    """
    where = f"schedule {declared.name!r}"
    if stored.retired_at_ms is not None:
        raise UsageError(
            f"{where} is retired: no step would begin its ticks; declare it again, or "
            "run it now. Nothing was changed"
        )
    if declared.rule.from_end:
        raise UsageError(
            f'{where}: with from_="end" it has no times by itself that could be '
            "backfilled; run it now instead. Nothing was changed"
        )
    if not 0 <= from_ms <= to_ms <= now_ms:
        raise UsageError(
            f"{where}: expected a span of the past to backfill, whose end is not "
            "before its beginning. Nothing was changed"
        )
    times = between(declared.rule, from_ms - 1, to_ms, since_ms=stored.since_ms)
    found = [*islice((at for at in times if at not in known), BACKFILL_MAX + 1)]
    if len(found) > BACKFILL_MAX:
        raise UsageError(
            f"{where} has more than {BACKFILL_MAX:,} times to backfill there; choose "
            "a shorter span. Nothing was changed"
        )
    return found


def resumed(
    stored: StoredSchedule, now_ms: int, *, catch_up: bool = False
) -> StoredSchedule:
    """Return a schedule as it is once it is resumed; a step plans it next.

    Args:
        stored: as it is.
        now_ms: the store's clock.
        catch_up: the ticks of the pause were missed; otherwise there are none.
    """
    return _replace(
        stored,
        next_at_ms=now_ms,
        paused_at_ms=None,
        paused_until_ms=None if catch_up else now_ms,
        paused_by=None,
        note=None,
    )


def _state(
    stored: StoredSchedule,
    declared: Declared,
    ticks: Sequence[StoredTick],
    known_ms: Container[int],
) -> ScheduleState:
    return ScheduleState(
        name=stored.name,
        rule=declared.rule,
        policy=declared.policy,
        since_ms=stored.since_ms,
        last_ms=stored.last_at_ms,
        last_end_ms=stored.last_end_ms,
        paused_until_ms=stored.paused_until_ms,
        ticks=tuple(
            OpenTick(tick.nominal_ms, tick.progress, tick.job_id, tick.is_backfilled)
            for tick in ticks
        ),
        known_ms=known_ms,
    )


def _ended(
    found: Plan, by_time: Mapping[int, StoredTick], now_ms: int
) -> Sequence[EndedTick]:
    ended = [
        EndedTick(
            tick.id,
            TickState.DONE,
            tick.job_state,
            now_ms if tick.finished_ms is None else tick.finished_ms,
        )
        for tick in map(by_time.__getitem__, found.done)
    ]
    ended += [
        EndedTick(by_time[nominal_ms].id, TickState.SKIPPED, None, now_ms)
        for nominal_ms in found.skip
    ]
    return ended


def _after(
    stored: StoredSchedule,
    found: Plan,
    policy: Policy,
    ticks: Sequence[StoredTick],
    now_ms: int,
) -> StoredSchedule:
    until_ms = stored.paused_until_ms
    if until_ms is not None and until_ms <= now_ms:
        stored = resumed(stored, now_ms, catch_up=True)
    waits = WAITS_NOT
    if found.waits:
        stays = any(t.is_retrying and t.job_id not in found.cancel for t in ticks)
        waits = WAITS_FOR_END if stays or policy.keeps_retries else WAITS_FOR_RETRY
    stored = _replace(
        stored,
        last_at_ms=found.last_ms,
        next_at_ms=found.next_due_ms,
        waits=waits,
        missed=stored.missed + found.missed,
    )
    return paused(stored, now_ms, PAUSED_BY, _death(ticks)) if found.pause else stored


def _death(ticks: Sequence[StoredTick]) -> str:
    dead = next(tick for tick in ticks if tick.progress is Progress.DEAD)
    return f"its job {dead.job_id} is {dead.job_state}"


def _to_be_canceled(
    policy: Policy, ticks: Sequence[StoredTick], buffered: Sequence[StoredTick]
) -> Sequence[int]:
    """Return what was to be canceled before, if it still runs."""
    if policy.overlap is not Overlap.CANCEL_OTHER or not any(
        not tick.is_backfilled for tick in buffered
    ):
        return ()
    return [
        tick.job_id
        for tick in ticks
        if tick.job_id is not None
        and tick.progress is Progress.RUNNING
        and not tick.is_backfilled
    ]


def _notice(
    declared: Declared, found: Plan, ticks: Sequence[StoredTick], now_ms: int
) -> Notice | None:
    """Return what somebody should know of a step, if anything."""
    jitter_ms = jitter_of(declared.rule, declared.name)
    late_ms = max(
        (
            now_ms - jitter_ms - tick.nominal_ms
            for tick in found.write
            if tick.state is TickState.OPEN and not tick.is_backfilled
        ),
        default=0,
    )
    late_ms = late_ms if late_ms > LATE_MS else 0
    if not (late_ms or found.missed or found.pause):
        return None
    return Notice(
        name=declared.name,
        missed=found.missed,
        late_ms=late_ms,
        paused=_death(ticks) if found.pause else None,
    )
