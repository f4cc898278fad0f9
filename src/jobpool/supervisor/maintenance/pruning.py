"""Pruning in steps: old jobs go, however many, and nobody waits long for it.

Theory of operation. A step is one transaction. It holds up whatever else this
supervisor wants to write, and on SQLite every other writer. So it is sized by the time
that the last one took, and followed by a pause that is twice as long. A backlog of
millions is then deleted within minutes, and a claim waits for one step at most.

Far from its database, on a slow disk or a busy machine, a step may take longer than it
should even for a single row. Smaller steps would then only be more, and jobs could end
faster than they are deleted. So one that deletes a single row is timed now and then,
and a step may take twice as long as that.
"""

from __future__ import annotations

from jobpool.core.clock import Clock
from jobpool.core.config.settings import Retention
from jobpool.store.protocol import Store

STEP_S = 0.01
"""How long a step should take."""
STEP_ROWS = 1000
"""Of the first step."""
STEP_ROWS_MIN = 50
STEP_ROWS_MAX = 4000
SINGLE_EVERY = 20
"""While steps take too long, one with a single row is timed after so many."""
PAUSE_S_MIN = 0.02
PAUSE_STEPS = 2.0
"""The pause after a step, in times of its duration."""


class Pruning:
    """Prunes a step at a time.

    Args:
        clock: measures the steps.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.rows = STEP_ROWS
        """How many the next step deletes at most."""
        self._fixed_s = 0.0
        """What a step takes whatever it deletes; 0: that does not matter."""
        self._until_single = 0

    def step(self, store: Store, retention: Retention) -> float | None:
        """Delete some old jobs, if there are any.

        Args:
            store: has them.
            retention: what is kept.

        Returns:
            Seconds until the next step is due; None: nothing is left to delete.
        """
        is_done, took_s = self._delete(store, retention, self.rows)
        all_s = took_s
        self._until_single = max(0, self._until_single - 1)
        if took_s <= STEP_S:
            self._fixed_s = 0.0
        elif not is_done and self._until_single == 0:
            _, single_s = self._delete(store, retention, 1)
            self._fixed_s = max(0.0, single_s - took_s / self.rows)
            self._until_single = SINGLE_EVERY
            all_s += single_s
        self.rows = self._fitting(took_s)
        return None if is_done else max(PAUSE_STEPS * all_s, PAUSE_S_MIN)

    def _delete(
        self, store: Store, retention: Retention, rows: int
    ) -> tuple[bool, float]:
        """Delete at most so many; return whether that is all, and seconds."""
        began_s = self._clock.monotonic_s()
        is_done = store.prune(retention, rows) < rows
        is_done &= store.drop_outputs(retention.outputs_bytes, rows) < rows
        return is_done, max(self._clock.monotonic_s() - began_s, 0.0)

    def _fitting(self, took_s: float) -> int:
        """Return how many rows the next step should delete."""
        # One step that had to wait for others says little: no more than half or twice.
        self._fixed_s = min(self._fixed_s, took_s)
        room_s = max(STEP_S - self._fixed_s, self._fixed_s)
        spent_s = max(took_s - self._fixed_s, room_s / 2)
        fitting = max(self.rows * room_s / spent_s, self.rows / 2, STEP_ROWS_MIN)
        return round(min(fitting, STEP_ROWS_MAX))
