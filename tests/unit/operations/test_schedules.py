"""The next times of a schedule, as people and programs are told them."""

import pytest

from jobpool.core.rules.schedules.rule import Rule, jitter_of
from jobpool.operations.schedules import outlook, state_of, upcoming
from jobpool.store.records.schedules import ScheduleRow
from support.store.scheduling import MINUTE_MS, declared

NOW_MS = 1_700_000_000_000
MINUTELY = Rule(every_ms=MINUTE_MS)
FROM_END = Rule(every_ms=MINUTE_MS, from_end=True)
LATER = Rule(every_ms=MINUTE_MS, jitter_ms=MINUTE_MS - 1)
LATE_MS = jitter_of(LATER, "poll")


def row(rule=MINUTELY, *, since_ms=NOW_MS - 90_000, **more):
    """Return a schedule that had its last tick 30 s ago, unless said otherwise."""
    given = {"last_ms": NOW_MS - 30_000, "next_ms": NOW_MS + 30_000, "missed": 0}
    return ScheduleRow(
        declared=declared(rule=rule),
        application=None,
        app_version=None,
        since_ms=since_ms,
        updated_ms=since_ms,
        **(given | more),
    )


@pytest.mark.parametrize(
    ("schedule", "after_s"),
    [
        (row(), [30, 90, 150]),
        (row(last_ms=None), [30, 90, 150]),
        # A time that has come and is not due yet, because of its jitter, is the next.
        (row(LATER, last_ms=NOW_MS - 90_000), [-30, 30, 90]),
        (row(LATER, last_ms=NOW_MS - 30_000), [30, 90, 150]),
        # What a clock that was ahead has written is ignored.
        (row(last_ms=NOW_MS + 10**9), [30, 90, 150]),
        (row(paused_ms=NOW_MS), []),
        (row(paused_ms=NOW_MS, paused_until_ms=NOW_MS + 90_000), [90, 150, 210]),
        (row(retired_ms=NOW_MS), []),
        (row(FROM_END), [30]),
        (row(FROM_END, next_ms=None), []),
        (row(FROM_END, last_ms=None, next_ms=NOW_MS), [-30]),
        (row(FROM_END, paused_ms=NOW_MS), []),
        (
            row(
                Rule(every_ms=MINUTE_MS, from_end=True, jitter_ms=50_000),
                next_ms=NOW_MS + 90_000,
            ),
            [90 - jitter_of(Rule(jitter_ms=50_000), "poll") / 1000],
        ),
        (row(Rule(every_ms=MINUTE_MS, ends_ms=NOW_MS + 40_000)), [30]),
    ],
)
def test_the_next_times(schedule, after_s):
    """Nominal ones, three at most."""
    assert 30_000 < LATE_MS < 60_000
    times = upcoming(schedule, NOW_MS, 3)
    assert [(at_ms - NOW_MS) / 1000 for at_ms in times] == after_s


@pytest.mark.parametrize(
    ("schedule", "state"),
    [
        (row(), "active"),
        (row(next_ms=NOW_MS - 60_000), "active"),
        (row(next_ms=NOW_MS - 60_001), "overdue"),
        (row(next_ms=None), "active"),
        (row(next_ms=0, paused_ms=NOW_MS), "paused"),
        (row(next_ms=0, retired_ms=NOW_MS), "retired"),
        (row(paused_ms=NOW_MS, retired_ms=NOW_MS), "retired"),
    ],
)
def test_a_schedule_to_which_nobody_comes_is_overdue(schedule, state):
    """One that is paused or retired is not meant to have ticks."""
    assert state_of(schedule, NOW_MS) == state


def test_a_rule_that_was_changed_by_hand_is_told():
    """The list goes on; the problem has its own place."""
    seen = outlook(row(Rule(cron="0 0 tomorrow * *")), NOW_MS, 3)
    assert (seen.when, seen.tz, seen.upcoming_ms) == ("0 0 tomorrow * *", "UTC", ())
    assert "is not an expression" in seen.problem
