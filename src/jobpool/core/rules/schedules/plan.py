"""Plan: what a step of one schedule does, as a function of its state and the time.

A step finds the times that have come since the last one. Those that are late by more
than `MISSED_AFTER_S` were missed, and `Missed` says which of them get jobs. The others
go through the table in `policy`, oldest first.
"""

from __future__ import annotations

from typing import NamedTuple

from jobpool.core.rules.schedules.policy import MISSED_AFTER_S, Missed
from jobpool.core.rules.schedules.rule import between, jitter_of, next_after
from jobpool.core.rules.schedules.schedule import (
    FOREVER_MS,
    PlannedTick,
    Progress,
    ScheduleState,
)
from jobpool.core.rules.schedules.spans import count_between, newest_between
from jobpool.core.rules.schedules.turns import Turns

_MISSED_AFTER_MS = MISSED_AFTER_S * 1000


class Plan(NamedTuple):
    """What to store in one transaction. Ticks are named by their nominal times."""

    done: tuple[int, ...] = ()
    """Open ticks whose jobs have ended."""
    start: tuple[int, ...] = ()
    """Buffered ticks that get their jobs, and are open."""
    skip: tuple[int, ...] = ()
    """Buffered ticks that are skipped: a newer one took their place."""
    write: tuple[PlannedTick, ...] = ()
    """New ticks. One that exists already is left as it is, and gets no other job."""
    cancel: tuple[int, ...] = ()
    """Ids of jobs to be canceled; those that wait for a retry, in this transaction."""
    missed: int = 0
    """Ticks that were missed and get no job; `COUNTED_MAX` stands for that or more."""
    last_ms: int | None = None
    """To be kept as the schedule's `last_ms`."""
    next_due_ms: int | None = None
    """When the next tick is due; None: never, or after the end of a job."""
    waits: bool = False
    """The end of a job, or of its attempt, makes another step due before that."""
    pause: bool = False
    """`pause_on_dead` applies: the schedule is to be paused without an end."""
    more: bool = False
    """The limit was reached: another step is due at once."""


def plan(state: ScheduleState, now_ms: int, *, limit: int = 100) -> Plan:
    """Return what a step does.

    Args:
        state: of the schedule, as stored.
        now_ms: the store's clock.
        limit: at most so many new ticks are written; `more` says that there are others.

    Raises:
        ConfigError: this host does not know the schedule's zone; or its rule was
            changed by hand, and has no times.
    """
    died = any(tick.progress is Progress.DEAD for tick in state.ticks)
    if died and state.policy.pause_on_dead:
        return _paused(state, pause=True)
    if state.paused_until_ms is not None and now_ms < state.paused_until_ms:
        return _paused(state, pause=False)
    turns = Turns(state.policy, state.ticks)
    turns.start_buffered()
    due = (
        _due_from_end(state, turns, now_ms)
        if state.rule.from_end
        else _due(state, now_ms)
    )
    chosen = due.ticks[:limit]
    for nominal_ms, is_backfilled in chosen:
        if nominal_ms in state.known_ms:
            continue  # Its own job would be in its way, and be canceled for it.
        if is_backfilled:
            turns.add_backfilled(nominal_ms)
        else:
            turns.add(nominal_ms)
    turns.start_backfilled()
    more = len(chosen) < len(due.ticks)
    last_ms = chosen[-1][0] if more else due.last_ms
    minds_ends = state.rule.from_end or state.policy.pause_on_dead
    return Plan(
        done=_ended(state),
        start=tuple(turns.started),
        skip=tuple(turns.skipped),
        write=tuple(turns.written.values()),
        cancel=tuple(turns.canceled),
        missed=due.missed,
        last_ms=last_ms,
        next_due_ms=now_ms if more else _next_due(state, turns, last_ms, now_ms),
        waits=turns.waits or (turns.is_unfinished and minds_ends),
        more=more,
    )


def _paused(state: ScheduleState, *, pause: bool) -> Plan:
    """Return a step that only looks at what has ended."""
    until_ms = None if pause else state.paused_until_ms
    return Plan(
        done=_ended(state),
        last_ms=state.last_ms,
        next_due_ms=None if until_ms == FOREVER_MS else until_ms,
        pause=pause,
    )


def _ended(state: ScheduleState) -> tuple[int, ...]:
    over = (Progress.ENDED, Progress.DEAD)
    return tuple(tick.nominal_ms for tick in state.ticks if tick.progress in over)


class _Due(NamedTuple):
    """The times that have come."""

    ticks: tuple[tuple[int, bool], ...]
    """Those to be written, oldest first: nominal time, whether backfilled."""
    missed: int
    """So many others were missed."""
    last_ms: int | None
    """As of `Plan`, once all of them are written."""


def _due(state: ScheduleState, now_ms: int) -> _Due:
    rule, policy, since_ms = state.rule, state.policy, state.since_ms
    until_ms = now_ms - jitter_of(rule, state.name)
    done_ms = _dealt_with(state, now_ms)
    missed_ms = max(until_ms - _MISSED_AFTER_MS - 1, done_ms)  # the last that may be
    on_time = tuple(between(rule, missed_ms, until_ms, since_ms=since_ms))
    wanted = {
        Missed.SKIP: 0,
        Missed.ONE: 0 if on_time else 1,
        Missed.ALL: policy.catchup_max,
    }
    late = newest_between(
        rule,
        max(until_ms - policy.catchup_window_s * 1000 - 1, done_ms),
        missed_ms,
        since_ms=since_ms,
        count=wanted[policy.missed],
    )
    gone_ms = late[0] - 1 if late else missed_ms
    missed = count_between(rule, done_ms, gone_ms, since_ms=since_ms)
    is_backfilled = policy.missed is Missed.ALL
    ticks = [(nominal_ms, is_backfilled) for nominal_ms in late]
    ticks += [(nominal_ms, False) for nominal_ms in on_time]
    if ticks:
        done_ms = ticks[-1][0]
    elif missed:
        done_ms = missed_ms
    return _Due(tuple(ticks), missed, done_ms)


def _dealt_with(state: ScheduleState, now_ms: int) -> int:
    """Return up to where a schedule's times have been dealt with.

    What is later than now was written by a clock that was ahead: it is ignored. Only of
    a schedule that was declared less than a minute later than now there are no ticks
    yet: this clock may be the wrong one, and soon be there.
    """
    since_ms, until_ms = state.since_ms, state.paused_until_ms
    if now_ms < since_ms <= now_ms + _MISSED_AFTER_MS:
        return since_ms
    marks = (since_ms, state.last_ms, None if until_ms is None else until_ms - 1)
    past = [mark for mark in marks if mark is not None and mark <= now_ms]
    last_ms = since_ms if state.last_ms is None else state.last_ms
    if last_ms > now_ms:
        has_past = since_ms <= now_ms
        window_ms = _MISSED_AFTER_MS + 1 if has_past else 0
        past.append(now_ms - jitter_of(state.rule, state.name) - window_ms)
    return max(past)


def _due_from_end(state: ScheduleState, turns: Turns, now_ms: int) -> _Due:
    next_ms = None if turns.is_unfinished else _after_end(state, now_ms)
    if next_ms is None or next_ms + jitter_of(state.rule, state.name) > now_ms:
        return _Due((), 0, state.last_ms)
    return _Due(((next_ms, False),), 0, next_ms)


def _after_end(state: ScheduleState, now_ms: int) -> int | None:
    """Return the time of the tick that follows the end of the last one's job.

    If that end was written by a clock that was ahead, the tick is due now.
    """
    marks = (state.since_ms, state.last_ms, state.last_end_ms)
    last_ms = max(mark for mark in marks if mark is not None)
    if last_ms > now_ms:
        jitter_ms = jitter_of(state.rule, state.name)
        last_ms = now_ms - jitter_ms - (state.rule.every_ms or 0)
    next_ms = next_after(state.rule, last_ms)
    if next_ms is None or state.paused_until_ms is None:
        return next_ms
    return max(next_ms, state.paused_until_ms)


def _next_due(
    state: ScheduleState, turns: Turns, last_ms: int | None, now_ms: int
) -> int | None:
    rule = state.rule
    if not rule.from_end:
        next_ms = next_after(rule, last_ms or 0, since_ms=state.since_ms)
    else:
        next_ms = None if turns.is_unfinished else _after_end(state, now_ms)
    return None if next_ms is None else next_ms + jitter_of(rule, state.name)
