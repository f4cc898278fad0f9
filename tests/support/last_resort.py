"""Shows the stacks of all threads where the time-out of a test could not end it.

Theory of operation. pytest's own ``faulthandler_timeout`` begins a thread for each
test and waits for its end, which on busy processors takes longer than most tests do.
Here one thread serves all tests that begin within some seconds, and so shows stacks
later by as much.
"""

import faulthandler
import os
import sys
import time

LATE_S = 30.0
"""So long after its time-out. To walk the stacks of threads that run has crashed
CPython 3.11 in a test of minutes: a test's time-out is to have its chance first."""
AGAIN_S = 15.0
"""How often the wait starts over, while tests begin."""


class LastResort:
    """A plugin of pytest.

    Args:
        timeout_s: of a test.
        late_s: see `LATE_S`.
        again_s: see `AGAIN_S`.
    """

    def __init__(self, timeout_s, *, late_s=LATE_S, again_s=AGAIN_S):
        self._wait_s = timeout_s + late_s + again_s
        self._again_s = again_s
        self._due_s = 0.0
        # What is captured while tests run would not be seen.
        self._stderr = os.dup(sys.__stderr__.fileno())

    def pytest_runtest_setup(self):
        """Start the wait over, unless it has just begun."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + self._again_s
            faulthandler.dump_traceback_later(self._wait_s, file=self._stderr)

    def pytest_unconfigure(self):
        """Show nothing after the tests."""
        faulthandler.cancel_dump_traceback_later()
        os.close(self._stderr)
