"""Pruning in steps: old jobs go, however many, and nobody waits long for it.

Theory of operation. A step is one transaction. It holds up whatever else this
supervisor wants to write, and on SQLite every other writer. So it is sized by the time
that the last one took, and followed by a pause that is twice as long. A backlog of
millions is then deleted within minutes, and a claim waits for one step at most.
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

    def step(self, store: Store, retention: Retention) -> float | None:
        """Delete some old jobs, if there are any.

        Args:
            store: has them.
            retention: what is kept.

        Returns:
            Seconds until the next step is due; None: nothing is left to delete.
        """
        began_s, rows = self._clock.monotonic_s(), self.rows
        is_done = store.prune(retention, rows) < rows
        is_done &= store.drop_outputs(retention.outputs_bytes, rows) < rows
        took_s = max(self._clock.monotonic_s() - began_s, 0.0)
        # One step that had to wait for others says little: no more than half or twice.
        fitting = rows * STEP_S / max(took_s, STEP_S / 2)
        fitting = max(fitting, rows / 2, STEP_ROWS_MIN)
        self.rows = round(min(fitting, STEP_ROWS_MAX))
        return None if is_done else max(PAUSE_STEPS * took_s, PAUSE_S_MIN)
