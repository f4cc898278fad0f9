"""Pace, sizes and durations: the small rules of leasing."""

from __future__ import annotations

import pytest

from jobpool.supervisor.machine.state.durations import AHEAD_MAX, BRISK_S, Durations
from jobpool.supervisor.machine.state.polling import (
    CROWDED_FIRST_S,
    CROWDED_FOR_S,
    FIRST_S,
    LAST_S,
    Polling,
)
from jobpool.supervisor.machine.state.pool import HELD_MAX, HELD_MAX_BYTES, Pool
from jobpool.supervisor.machine.state.slot import SlotState
from support.machine.world import pool as pool_settings


def test_polls_become_rarer_until_a_hint() -> None:
    """Empty answers double the pause from 2 ms to 1 s; a hint resets it."""
    pace = Polling()
    pauses = []
    for _ in range(12):
        pace.answered(now_s=100.0, more_likely=False, next_due_in_s=None)
        pauses.append(round(pace.next_s - 100.0, 6))
    assert pauses[:4] == [0.002, 0.004, 0.008, 0.016]
    assert pauses[-1] == LAST_S
    pace.hint()
    assert pace.next_s == 0.0
    pace.answered(now_s=100.0, more_likely=False, next_due_in_s=None)
    assert pace.next_s == pytest.approx(100.0 + FIRST_S)


def test_the_pause_ends_when_the_next_job_is_due() -> None:
    """The next pending job, in the store or just settled, bounds the pause."""
    pace = Polling()
    for _ in range(12):
        pace.answered(now_s=100.0, more_likely=False, next_due_in_s=0.3)
    assert pace.next_s == pytest.approx(100.3)
    pace.expect(100.1)
    assert pace.next_s == 100.1


def test_a_failing_store_is_left_alone_for_longer() -> None:
    """After a failure the next request waits at least a tenth of a second."""
    pace = Polling()
    pace.failed(now_s=100.0)
    assert pace.next_s >= 100.1


def test_one_slow_attempt_makes_a_kind_slow() -> None:
    """A kind is fast after a series of fast attempts, no longer after a slow one."""
    durations = Durations()
    for _ in range(7):
        durations.took([0.0001])
    assert not durations.fast
    durations.took([0.0001])
    assert durations.fast
    durations.took([0.5])
    assert not durations.fast


@pytest.mark.parametrize(
    ("duration_s", "leased"),
    [(0.0019, 66), (0.001, 128), (0.0004, 320), (0.0001, HELD_MAX), (0.0, HELD_MAX)],
)
def test_the_faster_the_jobs_the_more_are_leased_at_once(
    duration_s: float, leased: int
) -> None:
    """About as much as two slots can do in 64 ms, and never more than the marks."""
    pool = Pool(pool_settings("cpu", 2), 0)
    pool.zygote_up = True
    for slot in pool.slots:
        slot.state = SlotState.IDLE
    assert pool.capacity(0.0) == 2
    for _ in range(16):
        pool.durations.took([duration_s])
    assert pool.capacity(0.0) == leased + 2


def test_jobs_with_large_arguments_are_leased_in_small_numbers() -> None:
    """They would fill the supervisor's memory; the slots get theirs all the same."""
    pool = Pool(pool_settings("cpu", 2), 0)
    pool.zygote_up = True
    for slot in pool.slots:
        slot.state = SlotState.IDLE
    for _ in range(16):
        pool.durations.took([0.0])
    pool.weigh(HELD_MAX_BYTES // 100)
    assert pool.capacity(0.0) == 2 + 100
    pool.weigh(2 * HELD_MAX_BYTES)
    assert pool.capacity(0.0) == 2
    for _ in range(10_000):
        pool.weigh(0)
    assert pool.capacity(0.0) == 2 + HELD_MAX


@pytest.mark.parametrize(
    ("duration_s", "ahead"),
    [
        (0.0, AHEAD_MAX),
        (0.0005, AHEAD_MAX),
        (0.001, 32),
        (0.0019, 16),
        (0.0021, 1),
        (0.099, 1),
        (0.1, 0),
    ],
)
def test_the_faster_the_jobs_the_more_wait_in_a_child(
    duration_s: float, ahead: int
) -> None:
    """They make up about as much work; of slower jobs it is one."""
    durations = Durations()
    assert durations.ahead == 0
    for _ in range(8):
        durations.took([duration_s])
    assert durations.ahead == ahead
    durations.took([BRISK_S])
    assert durations.ahead == 0


def test_while_jobs_with_quotas_are_leased_a_hint_is_followed_by_few_polls():
    """Supervisors that take turns at permits wake each other all the time."""
    polling = Polling()
    polling.crowded(10.0)
    polling.hint()
    polling.answered(now_s=10.1, more_likely=False, next_due_in_s=None)
    assert polling.next_s == 10.1 + CROWDED_FIRST_S
    polling.hint()
    later_s = 10.0 + CROWDED_FOR_S
    polling.answered(now_s=later_s, more_likely=False, next_due_in_s=None)
    assert polling.next_s == later_s + FIRST_S
