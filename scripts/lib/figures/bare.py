"""The limit program of kill lateness: bare processes that are only killed.

As many at a time as jobpool has slots run for their limit, get SIGKILL, and are waited
for: no job, no tree, no stacks, no record. What that takes is the machine's own share;
measured in turn with jobpool's kills, it shows how much of their lateness is jobpool's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

MANNERS = {
    "busy": "while True: pass",
    "stopped": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
}
BEGUN = b"."
SAY_BEGUN = f"import os; os.write(1, {BEGUN!r})\n"
PRIORITY = -10
"""As a supervisor's, where permitted: otherwise the comparison would flatter it."""


def bare_kills(manner: str, kills: int, limit_s: float, abreast: int) -> list[float]:
    """Return how many seconds after their limit bare processes ended."""

    def lateness_s(_kill: int) -> float:
        return _one(SAY_BEGUN + MANNERS[manner], limit_s)

    with ThreadPoolExecutor(abreast) as threads:
        return list(threads.map(lateness_s, range(kills)))


def _one(code: str, limit_s: float) -> float:
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, bufsize=0
    ) as child:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PRIORITY)
            os.setpriority(os.PRIO_PROCESS, child.pid, 0)
        said = child.stdout.read(1) if child.stdout else b""
        until_s = time.monotonic() + limit_s
        if said != BEGUN:
            raise SystemExit(f"figures: a bare process said {said!r} at its start")
        time.sleep(limit_s)
        child.kill()
        child.wait()
        return time.monotonic() - until_s
