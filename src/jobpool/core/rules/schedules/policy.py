"""Policies: what becomes of a tick that is late, or comes while another runs.

A tick's job may still be unfinished when the next tick is due. What follows is a table
over the policy, what is ahead of the tick, and how many ticks wait already. Only under
`allow_all` are two jobs of a schedule ever unfinished at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.units import show_duration
from jobpool.errors import ConfigError

MISSED_AFTER_S = 60
"""A tick that could be stored only so late after it was due has been missed."""
CATCHUP_WINDOW_S = 86_400
CATCHUP_MAX = 1000
CATCHUP_WINDOW_MIN_S, CATCHUP_WINDOW_MAX_S = MISSED_AFTER_S, 366 * 86_400
BUFFER_MAX = 1000
"""Ticks of a schedule that wait, at most; backfilled ones are not counted."""


class Missed(StrEnum):
    """What to do about ticks that no supervisor was there for."""

    SKIP = "skip"
    """Nothing."""
    ONE = "one"
    """One job for all of them: the newest one's."""
    ALL = "all"
    """A job for each, oldest first, one after another: they are backfilled."""


class Overlap(StrEnum):
    """What to do about a tick while the job of an earlier one is unfinished."""

    SKIP = "skip"
    """It gets no job."""
    BUFFER_ONE = "buffer_one"
    """It waits for the end of that job, unless a tick waits already."""
    BUFFER_ALL = "buffer_all"
    """It waits for its turn."""
    CANCEL_OTHER = "cancel_other"
    """That job is canceled, and it waits for its end; the newest tick is kept."""
    ALLOW_ALL = "allow_all"
    """It gets its job at once."""


KEEP_RETRIES = (Overlap.BUFFER_ALL, Overlap.ALLOW_ALL)
"""Each tick is to run: none replaces the waiting retry of an earlier one."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of a schedule's ticks. See `check_policy`."""

    missed: Missed = Missed.ONE
    catchup_window_s: int = CATCHUP_WINDOW_S
    """Missed ticks that were due longer ago get no job."""
    catchup_max: int = CATCHUP_MAX
    """Of more missed ticks, the newest get jobs."""
    overlap: Overlap = Overlap.SKIP
    retry_over_tick: bool = False
    """A job that waits for a retry counts as running, as it does under `KEEP_RETRIES`.

    Otherwise the next tick cancels it, and takes its place.
    """
    pause_on_dead: bool = False
    """The schedule is paused once one of its jobs is dead or quarantined."""

    @property
    def keeps_retries(self) -> bool:
        """Return whether a job that waits for a retry counts as running."""
        return self.retry_over_tick or self.overlap in KEEP_RETRIES


def check_policy(policy: Policy, rule: Rule) -> Policy:
    """Return a policy that can be kept with a rule.

    Raises:
        ConfigError: it cannot; the message says why.
    """
    low_s, high_s = CATCHUP_WINDOW_MIN_S, CATCHUP_WINDOW_MAX_S
    if not low_s <= policy.catchup_window_s <= high_s:
        raise ConfigError(
            f"catchup_window={show_duration(policy.catchup_window_s)} is out of range; "
            f"expected {show_duration(low_s)} to {show_duration(high_s)} (to catch up "
            'with nothing: missed="skip")'
        )
    if not 1 <= policy.catchup_max <= CATCHUP_MAX:
        raise ConfigError(
            f"catchup_max={policy.catchup_max} is out of range; expected 1 to "
            f'{CATCHUP_MAX} (to catch up with nothing: missed="skip")'
        )
    if policy.retry_over_tick and policy.overlap is Overlap.CANCEL_OTHER:
        raise ConfigError(
            'overlap="cancel_other" cancels what retry_over_tick=True keeps; leave one '
            "of them out"
        )
    if rule.from_end and (policy.missed, policy.overlap) != (Missed.ONE, Overlap.SKIP):
        raise ConfigError(
            'with from_="end" a tick comes after the end of the last one: none is '
            "missed, and none overlaps; leave missed and overlap out"
        )
    return policy


class Ahead(StrEnum):
    """What of its schedule is unfinished when a tick is due."""

    NOTHING = "nothing"
    RETRY = "retry"
    """A job that waits for a retry, and that the tick may replace."""
    RUNNING = "running"
    """Any other job, whether it has begun or not."""
    BACKFILLED = "backfilled"
    """A backfilled tick's job, and no other."""


class Buffer(StrEnum):
    """How many of its ticks wait for a job's end, backfilled ones aside."""

    EMPTY = "empty"
    HELD = "held"
    FULL = "full"


class Decision(StrEnum):
    """What happens to a tick."""

    START = "start"
    """It gets its job."""
    REPLACE = "replace"
    """It gets its job, and those that wait for a retry are canceled."""
    BUFFER = "buffer"
    """It waits."""
    CANCEL = "cancel"
    """It waits; those that run are canceled, those that wait are skipped."""
    SKIP = "skip"
    """It gets no job."""


_START, _REPLACE = Decision.START, Decision.REPLACE
_BUFFER, _CANCEL, _SKIP = Decision.BUFFER, Decision.CANCEL, Decision.SKIP
_ROWS: Mapping[Overlap, Mapping[Ahead, tuple[Decision, Decision, Decision]]] = {
    # ahead                what waits:  none     some      most
    Overlap.SKIP: {
        Ahead.NOTHING: (_START, _SKIP, _SKIP),
        Ahead.RETRY: (_REPLACE, _SKIP, _SKIP),
        Ahead.RUNNING: (_SKIP, _SKIP, _SKIP),
        Ahead.BACKFILLED: (_BUFFER, _SKIP, _SKIP),
    },
    Overlap.BUFFER_ONE: {
        Ahead.NOTHING: (_START, _SKIP, _SKIP),
        Ahead.RETRY: (_REPLACE, _SKIP, _SKIP),
        Ahead.RUNNING: (_BUFFER, _SKIP, _SKIP),
        Ahead.BACKFILLED: (_BUFFER, _SKIP, _SKIP),
    },
    Overlap.BUFFER_ALL: {
        Ahead.NOTHING: (_START, _BUFFER, _SKIP),
        Ahead.RETRY: (_BUFFER, _BUFFER, _SKIP),
        Ahead.RUNNING: (_BUFFER, _BUFFER, _SKIP),
        Ahead.BACKFILLED: (_BUFFER, _BUFFER, _SKIP),
    },
    Overlap.CANCEL_OTHER: {
        Ahead.NOTHING: (_START, _CANCEL, _CANCEL),
        Ahead.RETRY: (_REPLACE, _CANCEL, _CANCEL),
        Ahead.RUNNING: (_CANCEL, _CANCEL, _CANCEL),
        Ahead.BACKFILLED: (_CANCEL, _CANCEL, _CANCEL),
    },
    Overlap.ALLOW_ALL: {
        Ahead.NOTHING: (_START, _START, _START),
        Ahead.RETRY: (_START, _START, _START),
        Ahead.RUNNING: (_START, _START, _START),
        Ahead.BACKFILLED: (_START, _START, _START),
    },
}
DECISIONS: Mapping[tuple[Overlap, Ahead, Buffer], Decision] = {
    (overlap, ahead, buffer): decision
    for overlap, rows in _ROWS.items()
    for ahead, decisions in rows.items()
    for buffer, decision in zip(Buffer, decisions, strict=True)
}
"""What happens to a tick that is not backfilled."""
