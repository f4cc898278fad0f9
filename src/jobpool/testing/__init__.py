"""Tools for applications' tests: handlers and whole queues, without a supervisor.

`run_now` passes arguments and result through JSON as a real job would; `running` lets
a handler that is called directly send heartbeats and enqueue; `Queue` keeps jobs in
memory and runs them in this process, in virtual time, with deaths on demand.
`jobpool.testing.plugin` has fixtures of pytest for it. Nothing here is isolated, and
all of it works wherever Python does.

May import: client, core, sandbox, store, supervisor. Start with `queue.py`.
"""

from jobpool.core.application.current import ScheduledTick
from jobpool.testing.fake_clock import FakeClock
from jobpool.testing.faults import Fault
from jobpool.testing.queue import Queue, Ran
from jobpool.testing.rehearsal import (
    Beat,
    Block,
    Completion,
    Rehearsal,
    Request,
    TakenPermit,
    run_now,
    running,
)

__all__ = [
    "Beat",
    "Block",
    "Completion",
    "FakeClock",
    "Fault",
    "Queue",
    "Ran",
    "Rehearsal",
    "Request",
    "ScheduledTick",
    "TakenPermit",
    "run_now",
    "running",
]
