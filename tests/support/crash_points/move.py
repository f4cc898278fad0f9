"""Every crash point of a move into PostgreSQL: `jobpool move`, hit at its system calls.

Theory of operation. The mover is a child under the filter of `crash_filter`; the server
is a real one. Points are counted by the call's name, because how often a socket has
nothing to read yet is the network's business. Whatever happens to the mover, the target
shows nothing or all of it; then another process continues the move, or abandons it,
and each job is in one place, as it was, and once.
"""

import contextlib
import errno
import functools
import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from jobpool.core.jobs.job import JobState
from jobpool.errors import JobpoolError, StoreRefused, StoreUnavailable
from jobpool.store.move import move
from jobpool.store.move import source as move_source
from jobpool.store.opening import open_store
from jobpool.store.postgres.connection import connect
from jobpool.store.records.operating import Filter
from support.crash_points import filter as crash_filter
from support.crash_points.filter import GO_ON, KILL
from support.crash_points.point import ERRORS, KILLED
from support.crash_points.states import copy_of, work_root
from support.postgres.server import query_of, server
from support.store.storing import begin_run, ended, lease, new_job, succeeded

JOBS = 14
CHUNK = 5
"""Jobs that are staged at once here, so that there are several chunks."""
TRIES = 5
GONE_S_MAX, LOOK_S = 30.0, 0.005
NETWORK = {
    "recvfrom": (errno.ECONNRESET,),
    "sendto": (errno.ECONNRESET, errno.EPIPE),
}
CALLS = {name: errors for name, errors in ERRORS.items() if name != "mmap"} | NETWORK
"""What is hit, and how; memory is asked for too often, and by everybody."""
_TOLD = 9
"""An exit code: the move raised one of jobpool's own errors."""


class MovePoint(NamedTuple):
    """Where a mover is hit, and what is done afterwards."""

    call: str
    nth: int
    error: int
    gives_up: bool
    """The move is given up then, not gone on with."""

    def __str__(self):
        what = errno.errorcode[self.error] if self.error else "SIGKILL"
        after = "given up" if self.gives_up else "gone on with"
        return f"move: {what} at {self.call} {self.nth}, then {after}"


def make_source(directory):
    """Make a queue with jobs that wait, succeeded, failed and died."""
    with contextlib.closing(open_store(source_url(directory))) as store:
        begin_run(store)
        store.enqueue([new_job(payload=b'{"n":%d}' % n) for n in range(JOBS)])
        granted = lease(store, limit=6)
        store.settle([succeeded(one) for one in granted[::2]])
        store.settle([ended(one) for one in granted[1::2]])
        store.end_run("run-1")


def source_url(directory):
    """Return the URL of the queue in a directory."""
    return f"sqlite:///{directory}/jobs.db"


def points_of_a_move():
    """Return every point of a move, from an uninterrupted one."""
    base, calls = base_of_moves(), Counter()

    def decide(call):
        calls[call.name] += 1
        return GO_ON

    with copy_of(base) as directory, _target() as target:
        ended_ = _run_move(directory, target, decide)
        assert ended_.code == 0, ended_.said
    return [
        MovePoint(call, nth, error, gives_up)
        for call, count in sorted(calls.items())
        if call in CALLS
        for nth in range(1, count + 1)
        for error in (KILLED, *CALLS[call])
        for gives_up in (False, True)
    ]


def run_move_point(point):
    """Hit a mover at a point; return what is wrong afterwards, or None."""
    base, seen = base_of_moves(), [0]

    def decide(call):
        if call.name != point.call:
            return GO_ON
        seen[0] += 1
        if seen[0] != point.nth:
            return GO_ON
        if call.name in NETWORK and point.error:
            call.hang_up()  # libpq goes on reading from a connection that lives
        return point.error or KILL

    with copy_of(base) as directory, _target() as target:
        before = _holdings(source_url(directory))
        try:
            moved = _run_move(directory, target, decide, only={point.call})
            _outlast_mover(target)
        except TimeoutError as exc:
            return f"the mover does not end: {exc}"
        legal = {0, _TOLD} if point.error else {0, -signal.SIGKILL}
        if moved.code not in legal:
            return f"the mover ended with {moved.code}: {moved.said[-2000:]}"
        try:
            return _judge(directory, target, before, point)
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is the verdict
            return f"{type(exc).__name__} afterwards: {exc}"


@contextlib.contextmanager
def _target():
    url = server().store_url()
    try:
        yield url
    finally:
        server().drop(url)


def _run_move(directory, target, decide, only=None):
    def act():
        move_source.CHUNK = CHUNK
        connect._DEFAULTS["application_name"] = _name_of_mover(target)
        try:
            move.move(source_url(directory), target)
        except JobpoolError:
            os._exit(_TOLD)

    return crash_filter.run(act, decide, lambda _report: None, only=only)


def _name_of_mover(target):
    return f"mover to {query_of(target)['schema']}"


def _outlast_mover(target):
    """Wait until the server is done with a mover's last statement, as its commit.

    Raises:
        TimeoutError: it is not.
    """
    deadline_s = time.monotonic() + GONE_S_MAX
    with server().connect() as connection:
        while connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = %s",
            [_name_of_mover(target)],
        ).fetchall():
            if time.monotonic() > deadline_s:
                raise TimeoutError("the server still works for it")
            time.sleep(LOOK_S)


def _judge(directory, target, before, point):
    """Continue the move, or abandon it; say what is wrong then."""
    source = source_url(directory)
    shown = _holdings(target)
    if shown[0] and shown != before:
        return "the target shows another queue than there was"
    gone = point.gives_up and _insist(lambda: _given_up(source, target))
    if point.gives_up and gone == bool(shown[0]):
        return f"it was {'given up' if gone else 'kept'}, and {len(shown[0])} moved"
    if not gone:
        _insist(lambda: move.move(source, target))
    wanted = ([], [], []) if gone else before
    if _holdings(target) != wanted:
        return "the target holds something else than was moved"
    if gone and _holdings(source) != before:
        return "the source is not what it was"
    if _is_open(source) != gone:
        return f"the source {'refuses' if gone else 'takes'} jobs"
    return f"left: {left}" if (left := _staging(target)) else None


def _given_up(source, target):
    """Abandon a move. False: it is done. One that never began is abandoned, too."""
    try:
        move.abandon(source, target)
    except StoreRefused as refused:
        if "is done" in str(refused):
            return False
        if "has begun" not in str(refused):
            raise
    return True


def _insist(act):
    for left in reversed(range(TRIES)):
        try:
            return act()
        except StoreUnavailable:
            if not left:
                raise
    raise AssertionError


def _is_open(url):
    """Say whether a source accepts jobs."""
    with contextlib.closing(open_store(url)) as store:
        try:
            return store.enqueue([new_job(kind="probe")])[0].created
        except StoreRefused:
            return False


def _holdings(url):
    """Return all jobs of a store, their arguments and their history."""
    with contextlib.closing(open_store(url)) as store:
        jobs = store.find(Filter(), limit=10 * JOBS)
        tried = [job.id for job in jobs if job.state is not JobState.SUCCEEDED]
        return (
            jobs,
            [store.payload(job.id) for job in jobs],
            [store.attempts(job_id) for job_id in tried],
        )


def _staging(target):
    """Name the staging tables that a target has."""
    with server().connect() as connection:
        return connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s "
            "AND tablename LIKE 'moving%%'",
            [query_of(target)["schema"]],
        ).fetchall()


@functools.cache
def base_of_moves():
    """Return a directory with a queue to be moved; made once in a process."""
    directory = Path(tempfile.mkdtemp(prefix="base-move-", dir=work_root()))
    make_source(directory)
    return directory
