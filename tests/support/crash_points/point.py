"""One crash point: an operation, one of its system calls, and what happens there.

The child runs the operation and reports its progress. At the n-th call of a name it is
killed, or the call fails with an errno: once, or from there on until the operation
reports an error. What it reports must be true: after `StoreUnavailable` nothing may
have happened, not even for a process that finds the files as they are at that time.
Then the fault is removed, and the same store object must be able to do the step and the
rest. Another process may keep the database open meanwhile, so that its log outlives the
child.
"""

import contextlib
import errno
import os
import signal
import sqlite3
from collections import Counter
from typing import NamedTuple

from jobpool.errors import JobpoolBug, JobpoolError, OutcomeUnknown
from support.crash_points import filter as crash_filter
from support.crash_points.filter import GO_ON, KILL, UNLOCK
from support.crash_points.operations import OPERATIONS
from support.crash_points.preparations import checkpoint_at_once, open_at, repeatable
from support.crash_points.states import copy_of, judge, reference

KILLED = 0
"""In the place of an errno: SIGKILL."""
ERRORS = {
    "access": (errno.EIO,),
    "fallocate": (errno.ENOSPC,),
    "fchmod": (errno.EIO,),
    "fcntl": (errno.EINTR, errno.EIO, errno.ENOLCK),
    "fdatasync": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "ftruncate": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "getdents64": (errno.EIO,),
    "mkdir": (errno.EIO, errno.ENOSPC),
    "mmap": (errno.ENOMEM,),
    "newfstatat": (errno.EIO, errno.ENOMEM),
    "openat": (errno.EIO, errno.ENOSPC, errno.EINTR, errno.ENOMEM, errno.EMFILE),
    "pread64": (errno.EIO, errno.EINTR),
    "pwrite64": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "rename": (errno.EIO, errno.ENOSPC, errno.ENOMEM),
    "rmdir": (errno.EIO,),
    UNLOCK: (),  # No kernel fails that on a local file, and SQLite relies on it.
    "unlink": (errno.EIO, errno.ENOMEM),
    "unlinkat": (errno.EIO, errno.ENOMEM),
    "write": (errno.EIO, errno.ENOSPC, errno.EINTR),
}
_FOR_EVER = frozenset({errno.EIO, errno.ENOSPC, errno.ENOMEM, errno.EMFILE})
"""A call that is interrupted each time is tried again forever, and rightly."""
DONE, _NOT_DONE, _UNKNOWN, _UNTIDY, _WRONG = range(1, 6)
_IN_DOUBT = 9
"""An exit code: the last thing it said was that it does not know."""
_RETRIES = 5


class Point(NamedTuple):
    """Where and how an operation is hit.

    Attributes:
        operation: its name.
        nth: which of the calls of that name, from 1. Others are not counted: how
            often memory is asked for differs from process to process.
        call: its name.
        error: the errno that it returns, or `KILLED`.
        forever: every call of that name fails from then on.
        neighbour: another process has the database open.
    """

    operation: str
    nth: int
    call: str
    error: int
    forever: bool = False
    neighbour: bool = False

    def __str__(self):
        what = errno.errorcode[self.error] if self.error else "SIGKILL"
        return (
            f"{self.operation}: {what} at {self.call} {self.nth}"
            f"{' and after' if self.forever else ''}"
            f"{', with a neighbour' if self.neighbour else ''}"
        )


class Result(NamedTuple):
    """The result of a point.

    Attributes:
        problem: what was wrong; None: nothing.
        was_met: the child got as far as the call.
        was_reported: the child reported an error.
    """

    problem: str | None
    was_met: bool
    was_reported: bool


def calls_of(name, *, neighbour=False):
    """Return the names of the calls that an operation makes, in order."""
    calls = []

    def decide(call):
        calls.append(call.name)
        return GO_ON

    expected = reference(name)
    with copy_of(expected.base) as directory, _neighbour(directory, wanted=neighbour):
        ended = run_operation(name, directory, decide, lambda _report: None)
    assert ended.code == 0, ended.said
    return calls


def points_of(name, *, neighbour=False):
    """Yield every point of an operation."""
    seen = Counter()
    for call in calls_of(name, neighbour=neighbour):
        seen[call] += 1
        nth = seen[call]
        yield Point(name, nth, call, KILLED, neighbour=neighbour)
        for error in ERRORS[call]:
            yield Point(name, nth, call, error, neighbour=neighbour)
            if error in _FOR_EVER:
                yield Point(name, nth, call, error, forever=True, neighbour=neighbour)


def run_point(point):
    """Hit an operation at a point; return a `Result`."""
    expected = reference(point.operation)
    with copy_of(expected.base) as directory:
        with _neighbour(directory, wanted=point.neighbour):
            case = Case(point, directory)
            ended = run_operation(
                point.operation, directory, case.decide, case.hear, only={point.call}
            )
            problem = case.problem or case.verdict_on(ended)
            if problem is None and point.neighbour and case.kept:
                # The neighbour's view of the shared memory, before all are gone.
                problem = judge_copy_in_place(point.operation, directory, case)
        if problem is None and not point.neighbour:
            problem = judge(
                point.operation, directory, case.done, surely_not=case.surely_not
            )
    return Result(problem, case.was_met, case.was_reported)


def judge_copy_in_place(name, directory, case):
    """Judge the files as found without the shared memory, then as others see them."""
    with copy_of(directory) as copy:
        problem = judge(name, copy, case.done, surely_not=case.surely_not)
    return problem or judge(name, directory, case.done, surely_not=case.surely_not)


class Case:
    """What happens at one point, as the parent sees it.

    Args:
        point: a `Point`.
        directory: where the database is.
    """

    def __init__(self, point, directory):
        self._point, self._directory = point, directory
        self._seen = 0
        self._healed = False
        self.done = 0
        self.kept = True
        self.surely_not = False
        self.was_met = self.was_reported = False
        self.problem = None

    def decide(self, call):
        """Let no call fail but those that the point names; see `crash_filter.run`."""
        if call.name != self._point.call:
            return GO_ON
        self._seen += 1
        if self._healed or self._seen < self._point.nth:
            return GO_ON
        if self._seen == self._point.nth:
            self.was_met = True
            return self._point.error or KILL
        return self._point.error if self._point.forever else GO_ON

    def hear(self, report):
        name = self._point.operation
        if report.what == DONE:
            self.done = report.figure + 1
            self.surely_not = False
        elif report.what == _WRONG:
            self.problem = f"step {report.figure} answered something else"
        elif report.what in {_NOT_DONE, _UNKNOWN, _UNTIDY}:
            self.was_reported = self._healed = True
            self.surely_not = report.what == _NOT_DONE
            if self.problem is None:
                with copy_of(self._directory) as copy:
                    self.problem = judge(
                        name, copy, self.done, surely_not=self.surely_not
                    )

    def verdict_on(self, ended):
        """Say what is wrong with how the child ended."""
        if ended.code == 0 and not ended.said:
            steps = len(OPERATIONS[self._point.operation].steps)
            return None if self.done == steps else f"{self.done} of {steps} steps done"
        if ended.code == (_IN_DOUBT if self._point.error else -signal.SIGKILL):
            return None
        return f"the child ended with {ended.code}: {ended.said[-2000:]}"


@repeatable()
def run_operation(name, directory, decide, hear, *, seen_opening=False, only=None):
    """Run an operation in a child; see `crash_filter.run`.

    Args:
        name: the operation.
        directory: where its database is.
        decide: as there.
        hear: as there.
        seen_opening: the calls of opening the store are seen in any case.
        only: as there.
    """
    operation, expected = OPERATIONS[name], reference(name)
    stores = []

    def open_it():
        stores.append(open_at(directory))
        if operation.checkpoints:
            checkpoint_at_once(stores[0])

    opens = seen_opening or operation.opens

    def act():
        if opens:
            _insist(0, open_it)
        store = stores[0]
        for place, step in enumerate(operation.steps):
            answer = _insist(place, lambda step=step: step(store, expected.given))
            if repr(answer) != expected.answers[place]:
                crash_filter.report(_WRONG, place)
            crash_filter.report(DONE, place)
        _insist(len(operation.steps), store.close)

    return crash_filter.run(act, decide, hear, None if opens else open_it, only)


def _insist(place, action):
    """Do something, and again after an error, which is reported first."""
    for left in reversed(range(_RETRIES)):
        try:
            return action()
        except OutcomeUnknown:
            # What doing it again leads to is judged on the files.
            crash_filter.report(_UNKNOWN, place)
            os._exit(_IN_DOUBT)
        except JobpoolBug:
            crash_filter.report(_UNTIDY, place)
            raise
        except (JobpoolError, MemoryError):
            if not left:
                raise
            crash_filter.report(_NOT_DONE, place)
        except BaseException:
            crash_filter.report(_UNTIDY, place)
            raise
    raise AssertionError


@contextlib.contextmanager
def _neighbour(directory, *, wanted):
    """Keep the database open in another process, idle."""
    path = directory / "jobs.db"
    if not wanted or not path.exists():
        yield
        return
    ready, is_open = os.pipe()
    over, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(end)
        connection = sqlite3.connect(path)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        os.write(is_open, b"o")
        os.read(over, 1)
        os._exit(0)
    try:
        assert os.read(ready, 1) == b"o"
        yield
    finally:
        for fd in (ready, is_open, over, end):
            os.close(fd)
        os.waitpid(pid, 0)
