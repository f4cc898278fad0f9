"""Pruning: steps are short, pauses are longer, and the backlog goes."""

from __future__ import annotations

from typing import Any

import pytest

from jobpool.core.config.settings import Retention
from jobpool.supervisor.maintenance.pruning import (
    PAUSE_S_MIN,
    PAUSE_STEPS,
    SINGLE_EVERY,
    STEP_ROWS,
    STEP_ROWS_MAX,
    STEP_ROWS_MIN,
    STEP_S,
    Pruning,
)


class Backlog:
    """A store with old jobs, and the clock by which it deletes them."""

    def __init__(self, jobs: int, row_s: float) -> None:
        self.jobs = jobs
        self.row_s = row_s
        self.waits_s = 0.0
        self.step_s = 0.0
        self.outputs = 0
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def prune(self, retention: Retention, limit: int) -> int:
        del retention
        deleted = min(limit, self.jobs)
        self.jobs -= deleted
        self.now_s += deleted * self.row_s + self.step_s + self.waits_s
        self.waits_s = 0.0
        return deleted

    def drop_outputs(self, kept_bytes: int, limit: int) -> int:
        del kept_bytes
        dropped = min(limit, self.outputs)
        self.outputs -= dropped
        return dropped


def step(pruning: Pruning, backlog: Any) -> float | None:
    return pruning.step(backlog, Retention())


@pytest.mark.parametrize("row_s", [1e-7, 1e-5, 1e-4, 1e-3])
def test_steps_take_as_long_as_they_should(row_s: float) -> None:
    """A few steps after the first, whatever a row costs; bounded in rows as well."""
    backlog: Any = Backlog(10**9, row_s)
    pruning = Pruning(backlog)
    for _ in range(8):
        step(pruning, backlog)
    assert STEP_ROWS_MIN <= pruning.rows <= STEP_ROWS_MAX
    fitting = STEP_S / row_s
    expected = min(max(fitting, STEP_ROWS_MIN), STEP_ROWS_MAX)
    assert pruning.rows == pytest.approx(expected, rel=0.01)


def test_others_get_twice_the_time_of_a_step() -> None:
    """A single row timed as well; at least a moment; nothing left: the usual pause."""
    backlog: Any = Backlog(STEP_ROWS + 10, 1e-4)
    pruning = Pruning(backlog)
    assert step(pruning, backlog) == pytest.approx(PAUSE_STEPS * (STEP_ROWS + 1) * 1e-4)
    assert step(pruning, backlog) is None
    assert backlog.jobs == 0
    quick: Any = Backlog(10**9, 0.0)
    assert step(Pruning(quick), quick) == PAUSE_S_MIN


def test_outputs_alone_are_a_backlog_too() -> None:
    """Jobs and outputs go together; neither is left for the next half minute."""
    backlog: Any = Backlog(0, 1e-4)
    backlog.outputs = STEP_ROWS + 10
    pruning = Pruning(backlog)
    assert step(pruning, backlog) is not None
    assert step(pruning, backlog) is None
    assert backlog.outputs == 0


def test_one_step_that_waits_for_others_says_little() -> None:
    """The next deletes half as much, not nearly nothing."""
    backlog: Any = Backlog(10**9, STEP_S / STEP_ROWS)
    pruning = Pruning(backlog)
    backlog.waits_s = 10.0
    step(pruning, backlog)
    assert pruning.rows == STEP_ROWS / 2


def test_where_each_step_takes_long_it_deletes_for_as_long_again() -> None:
    """Far from the database half of the time goes into deleting, not nearly nothing."""
    backlog: Any = Backlog(10**9, 5e-5)
    backlog.step_s = 5 * STEP_S
    pruning = Pruning(backlog)
    for _ in range(8):
        step(pruning, backlog)
    assert pruning.rows * backlog.row_s == pytest.approx(backlog.step_s, rel=0.01)
    backlog.step_s = 0.0
    for _ in range(SINGLE_EVERY + 8):
        step(pruning, backlog)
    assert pruning.rows * backlog.row_s == pytest.approx(STEP_S, rel=0.01)


def test_one_single_row_that_waits_for_others_says_little() -> None:
    """The next step deletes twice as much at most; soon all is as it was."""
    backlog: Any = Backlog(10**9, 2 * STEP_S / STEP_ROWS)
    pruning = Pruning(backlog)
    delete, waits = backlog.prune, [10.0]

    def prune(retention: Retention, limit: int) -> int:
        if limit == 1 and waits:
            backlog.waits_s = waits.pop()
        return int(delete(retention, limit))

    backlog.prune = prune
    step(pruning, backlog)
    assert not waits
    assert pruning.rows <= 2 * STEP_ROWS
    for _ in range(SINGLE_EVERY + 8):
        step(pruning, backlog)
    assert pruning.rows == pytest.approx(STEP_ROWS / 2, rel=0.01)
