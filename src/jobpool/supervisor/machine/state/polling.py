"""When to ask the store for jobs: at once after a hint, else less and less often.

A producer's wake-up is only a hint; polling finds every job. A job enqueued inside an
application's own transaction becomes visible only after its hint, so the polls that
follow a hint come soon and then thin out: 2 ms, 4 ms, … 1 s.
"""

from __future__ import annotations

FIRST_S = 0.002
LAST_S = 1.0
FACTOR = 2.0
CROWDED_FIRST_S = 0.032
"""While several supervisors take turns at a quota's permits, each wakes the others with
every one that comes free: a second look would nearly always be for nothing."""
CROWDED_FOR_S = 1.0


class Polling:
    """A pool's next poll, in monotonic seconds."""

    def __init__(self) -> None:
        self._pause_s = FIRST_S
        self.next_s = 0.0
        self._crowded_until_s = 0.0

    def crowded(self, now_s: float) -> None:
        """Jobs were leased that need quotas."""
        self._crowded_until_s = now_s + CROWDED_FOR_S

    def hint(self) -> None:
        """There may be due jobs: poll now, then soon again."""
        self._pause_s = FIRST_S
        self.next_s = 0.0

    def answered(
        self, *, now_s: float, more_likely: bool, next_due_in_s: float | None
    ) -> None:
        """The store answered.

        Args:
            now_s: monotonic time.
            more_likely: some pool got all that it asked for.
            next_due_in_s: until the next pending job falls due.
        """
        if more_likely:
            self.hint()
            return
        if now_s < self._crowded_until_s:
            self._pause_s = max(self._pause_s, CROWDED_FIRST_S)
        self._wait(now_s)
        if next_due_in_s is not None:
            self.next_s = min(self.next_s, now_s + max(next_due_in_s, FIRST_S))

    def expect(self, moment_s: float) -> None:
        """A job falls due then: poll no later."""
        self.next_s = min(self.next_s, moment_s)

    def failed(self, *, now_s: float) -> None:
        """The store could not answer: try again later, less and less often."""
        self._pause_s = max(self._pause_s, 0.1)
        self._wait(now_s)

    def _wait(self, now_s: float) -> None:
        self.next_s = now_s + self._pause_s
        self._pause_s = min(self._pause_s * FACTOR, LAST_S)
