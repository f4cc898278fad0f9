"""The application of a chaos run: handlers that write down themselves what they do.

A line of the marks is ``what job token attempt pid ns``: ``start`` first, ``tick``
every 20 ms by whatever process of the attempt lives, then its act, beforehand:
``stop`` (it returns), ``raise``, ``die``, ``hang``, ``hog``, or after that ``burst``
(there was no more memory to be had, and it raises that). ``given=N`` is a value among
its arguments that another job has returned. No supervisor can take a line
back, and none can write one.
"""

import ctypes
import os
import random
import time

from chaos.flows import GATHERS, SPREADS, added_calls
from chaos.limits import BURST, PLACES, RATE_PER_S
from jobpool import JobPool, current

TICK_S = 0.02
DAEMON_S = 20.0
SCHEDULE = "every-second"
HOG_STEP_BYTES = 8 << 20
SOON = {
    name: ["20ms"]
    for name in ("crashed", "out_of_memory", "timed_out", "stalled", "Exception")
}
jobs = JobPool()
places = jobs.quota("places", concurrency=PLACES)
pace = jobs.quota("pace", rate=f"{RATE_PER_S}/s", burst=BURST)
_marks = os.open(
    os.environ["CHAOS_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
)


class FlakyError(Exception):
    """Raised by a flaky handler on purpose."""


def mark(what, attempt=None):
    """Append a line atomically."""
    now = attempt or current()
    place = f"{now.id} {now.token} {now.attempt} {os.getpid()}"
    os.write(_marks, f"{what} {place} {time.time_ns()}\n".encode())


def live(lasts_ms):
    """Run for a while and write marks."""
    now = current()  # of a handler's fork it is not, once that has returned
    until_s = time.monotonic() + lasts_ms / 1000
    while (left_s := until_s - time.monotonic()) > 0:
        time.sleep(min(TICK_S, left_s))
        mark("tick", now)


def work(lasts_ms):
    """Run as an honest job whose result names its lease."""
    mark("start")
    live(lasts_ms)
    mark("stop")
    return current().token


@jobs.job("cpu", kind="steady", timeout="10s", retry=SOON)
def steady(call, lasts_ms):
    return work(lasts_ms)


@jobs.job("io", kind="waiting", timeout="10s", retry=SOON)
def waiting(call, lasts_ms):
    return work(lasts_ms)


@jobs.job("io", kind="capped", timeout="10s", retry=SOON, quotas=[places])
def capped(call, lasts_ms):
    return work(lasts_ms)


@jobs.job("cpu", kind="paced", timeout="10s", retry=SOON, quotas=[pace])
def paced(call, lasts_ms):
    return work(0)


@jobs.job("cpu", kind="quick", timeout="10s", retry=SOON)
def quick(call, lasts_ms):
    return work(0)


@jobs.job("io", kind="once", timeout="10s", retry=SOON, rerun="never")
def once(call, lasts_ms):
    return work(lasts_ms)


@jobs.job("io", kind="flaky", timeout="10s", retry=SOON)
def flaky(call, lasts_ms):
    mark("start")
    live(lasts_ms)
    if random.Random(current().token).random() < 0.5:
        mark("raise")
        raise FlakyError
    mark("stop")
    return current().token


@jobs.job("cpu", kind="segfault", timeout="10s", retry=SOON)
def segfault(call, lasts_ms):
    mark("start")
    mark("die")
    ctypes.string_at(0)


@jobs.job("io", kind="leave", timeout="10s", retry=SOON)
def leave(call, lasts_ms):
    mark("start")
    mark("die")
    os._exit(0)


@jobs.job("io", kind="hang", timeout="700ms", retry=SOON, max_attempts=2)
def hang(call, lasts_ms):
    mark("start")
    mark("hang")
    live(60_000)


@jobs.job("cpu", kind="hog", timeout="10s", memory="160MiB", retry=SOON)
def hog(call, lasts_ms):
    mark("start")
    mark("hog")
    taken = []
    try:
        while True:
            taken.append(b"x" * HOG_STEP_BYTES)
            time.sleep(0.002)
    except MemoryError:
        # Far beyond its limit, at the backstop: not sampled for long.
        taken.clear()
        mark("burst")
        raise


@jobs.job("io", kind="family", timeout="10s", retry=SOON)
def family(call, lasts_ms):
    """Leave a daemon behind that no process group finds."""
    mark("start")
    try:
        first = os.fork()
    except BlockingIOError:
        mark("raise")  # there is no pid: that is the nemesis's doing, and its failure
        raise
    if first == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                live(1000 * DAEMON_S)
        finally:
            os._exit(0)
    os.wait()
    live(lasts_ms)
    mark("stop")
    return current().token


@jobs.job("cpu", kind="scheduled", timeout="10s", retry=SOON)
def scheduled(call, lasts_ms):
    return work(lasts_ms)


@jobs.job("io", kind=GATHERS, timeout="10s", retry=SOON)
def gather(call, lasts_ms, parts):
    """Write down what the steps before it have returned."""
    mark("start")
    for part in parts:
        for token in part if isinstance(part, list) else [part]:
            mark(f"given={token}")
    live(lasts_ms)
    mark("stop")
    return current().token


@jobs.job("cpu", kind=SPREADS, timeout="10s", retry=SOON)
def spread(call, lasts_ms, count):
    """Add others to its own step, which its success stores."""
    current().flow.add_many(quick.call(one, 5) for one in added_calls(call, count))
    return work(lasts_ms)


# Each tick is wanted: however late it is, and whatever else of the schedule runs.
jobs.schedule(
    SCHEDULE,
    scheduled.call("nobody's", 5),
    every="1s",
    missed="all",
    overlap="allow_all",
)

HANDLERS = {
    handler.kind: handler
    for handler in (
        steady, waiting, capped, paced, quick, once, flaky, segfault, leave, hang, hog,
        family, gather, spread,
    )
}  # fmt: skip
