"""The host's ledger of unfinished calls: turns calls into jobs, and ends into messages.

Theory of operation. A call becomes a job or, while calls of its function are quick,
part of a bundle (`bundles.bundle`). A bundle ends in one of three ways. Its child has
made all calls; or the child stopped early, and the remaining calls become new jobs; or
it died: the call that was running is to blame, and the remaining calls become new jobs
that are not charged. Calls behind one that turns out slow are taken back and become
jobs.

Calls become jobs in the order of their submission. A single worker also begins them in
that order: nothing is enqueued behind a bundle, because its child may give calls back,
nor a bundle behind other jobs; such calls wait here. With several workers, calls of a
bundle may begin later than the next ones, by as long as a bundle takes.

All of this happens in one thread, the caller's. The store's reports of ended jobs are
read only there as well, so that a job is in the ledger before its end is looked up.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic

import msgspec

from jobpool.core.jobs.job import JobState, NewJob, Settlement
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.units import show_duration
from jobpool.executor.bundles.bundle import Bundle, budget_s
from jobpool.executor.bundles.bundle_file import CallEnd, HostTray
from jobpool.executor.bundles.durations import Durations
from jobpool.executor.bundles.grouping import grouped
from jobpool.executor.child import BUNDLE_KIND, KIND, POOL
from jobpool.executor.host.store import HostStore
from jobpool.executor.wire.messages import Died, Setup, Task
from jobpool.sandbox.protocol.messages import Decoder, FrameError
from jobpool.store.records.operating import Filter

BUNDLES_MAX = 64
"""The most bundles at once; each takes a descriptor and two files."""
CHECK_S = 0.05
"""A bundle that began no call for this long has a slow one."""
CHECKS_MAX = 4
"""A bundle that is still there after this many checks is not quick either."""
_FIRST = 1
"""The priority of calls that are enqueued again: they go first."""


@dataclass(slots=True)
class Ends:
    """What to send to the caller."""

    results: list[tuple[int, bytes]] = field(default_factory=list)
    deaths: list[Died] = field(default_factory=list)
    output: list[bytes] = field(default_factory=list)
    """Output of calls in bundles; that of others comes as events."""


@dataclass(slots=True)
class _Together:
    """A bundle.

    Attributes:
        tasks: its calls; a call's index is its place.
        tray: its files.
        open: places of calls that have neither ended nor been taken back so far.
        left: how many had not begun at the last check.
        checks: how often it was found to have begun.
    """

    tasks: list[Task]
    tray: HostTray
    open: dict[int, Task]
    left: int
    checks: int = 0

    def give_back(self) -> list[Task]:
        """Take back the calls that have not begun."""
        taken = (self.open.pop(place, None) for place in self.tray.take_back())
        return [task for task in taken if task is not None]


class Ledger:
    """The unfinished calls of one caller.

    Args:
        store: takes the jobs.
        setup: the caller's first message.
    """

    def __init__(self, store: HostStore, setup: Setup) -> None:
        self._store = store
        self._setup = setup
        self._durations = Durations()
        self._single: dict[int, Task] = {}
        self._bundles: dict[int, _Together] = {}
        self._line: deque[Task] | None = deque() if setup.workers == 1 else None
        """Calls that must wait to keep their order, and are no jobs yet."""
        self._calls = 0
        self._trays = itertools.count(1)
        self._check_s = 0.0

    # -- in ----------------------------------------------------------------------------

    def take(self, tasks: Sequence[Task]) -> None:
        """Turn calls into jobs."""
        self._calls += len(tasks)
        if self._line is None:
            self._enqueue(self._grouped(tasks))
        else:
            self._line.extend(tasks)
            self._advance(self._line)

    def _take_again(self, tasks: Sequence[Task]) -> None:
        """Turn calls that came back into jobs that go first."""
        if self._line is None:
            self._enqueue(self._grouped(tasks), _FIRST)
        else:
            self._line.extendleft(reversed(tasks))
            self._advance(self._line)

    def _advance(self, line: deque[Task]) -> None:
        """Enqueue the waiting calls that may follow those already enqueued."""
        groups: list[list[Task]] = []
        while line and not self._bundles:
            group = next(self._grouped(line))
            if len(group) > 1 and (self._single or groups):
                break
            for _task in group:
                line.popleft()
            groups.append(group)
            if len(group) > 1:
                break
        self._enqueue(groups)

    def _enqueue(self, groups: Iterable[list[Task]], priority: int = 0) -> None:
        jobs: list[NewJob] = []
        book: list[Task | _Together] = []
        for group in groups:
            tray = self._tray(len(group)) if len(group) > 1 else None
            if tray is None:
                jobs += [_job(task, priority) for task in group]
                book += group
            else:
                jobs.append(_bundle_job(group, tray, priority))
                calls = dict(enumerate(group))
                book.append(_Together(group, tray, calls, len(group)))
        if not jobs:
            return
        for entry, stored in zip(book, self._store.enqueue(jobs), strict=True):
            if isinstance(entry, _Together):
                self._bundles[stored.id] = entry
            else:
                self._single[stored.id] = entry
        self._store.wake()

    def _grouped(self, tasks: Iterable[Task]) -> Iterator[list[Task]]:
        if self._setup.jobs_per_child is not None:
            return ([task] for task in tasks)
        # Every worker should have something to do.
        most = -(-self._calls // (2 * self._setup.workers))
        return grouped(tasks, self._durations, most)

    def _tray(self, calls: int) -> HostTray | None:
        """Make a tray; None: there are too many already, or it cannot be made."""
        if len(self._bundles) >= BUNDLES_MAX:
            return None
        path = f"{self._setup.directories[0]}/{next(self._trays)}"
        try:
            return HostTray(path, calls)
        except OSError:
            return None  # calls by themselves need none

    # -- back --------------------------------------------------------------------------

    def recall(self) -> list[int]:
        """Take back the calls that were never leased; return their numbers."""
        book = (*self._single, *self._bundles)
        waiting = Filter(ids=book, states=(JobState.RUNNABLE,))
        with self._store.transaction():
            found = self._store.find(waiting, limit=len(book))
            ids = [job.id for job in found if job.attempt == 0]
            self._store.cancel(ids)
            self._store.forget(ids)
        numbers = []
        for job_id in ids:
            if job_id in self._single:
                numbers.append(self._single.pop(job_id).number)
            else:
                bundle = self._bundles.pop(job_id)
                numbers += [task.number for task in bundle.give_back()]
                bundle.tray.close()
        if self._line:
            numbers += [task.number for task in self._line]
            self._line.clear()
        self._calls -= len(numbers)
        return numbers

    def wait_s(self) -> float | None:
        """Return after how long `check` must be called at the latest."""
        return max(0.0, self._check_s - monotonic()) if self._bundles else None

    def check(self, ends: Ends) -> None:
        """Take back calls that wait behind a slow one, and report ended calls.

        Args:
            ends: added to.
        """
        now_s = monotonic()
        if not self._bundles or now_s < self._check_s:
            return
        self._check_s = now_s + CHECK_S
        back: list[Task] = []
        for bundle in self._bundles.values():
            left = bundle.tray.waiting()
            if left == len(bundle.tasks):
                continue  # no child has it yet
            bundle.checks += 1
            self._note_ends(bundle, bundle.tray.ends(), ends)
            if left and (left == bundle.left or bundle.checks > CHECKS_MAX):
                back += bundle.give_back()
                for task in bundle.open.values():
                    self._durations.took(task.function, CHECK_S)
            bundle.left = left
        self._take_again(back)

    # -- out ---------------------------------------------------------------------------

    def ended(self, ended: Iterable[tuple[Settlement, int]], ends: Ends) -> None:
        """Remove jobs that the store has finished, and report their calls' ends.

        Args:
            ended: how each ended, and how many attempts it has had.
            ends: added to.
        """
        again: list[Task] = []
        for settlement, attempts in ended:
            task = self._single.pop(settlement.id, None)
            if task is None:
                again += self._bundle_ended(settlement, ends)
                continue
            self._calls -= 1
            if settlement.outcome is Outcome.SUCCEEDED:
                duration_s = settlement.evidence.duration_s or 0.0
                self._durations.took(task.function, duration_s)
                ends.results.append((task.number, settlement.result or b""))
            else:
                self._durations.died(task.function)
                ends.deaths.append(_died(task, settlement, attempts))
        self._take_again(again)

    def _bundle_ended(self, settlement: Settlement, ends: Ends) -> list[Task]:
        """Note a bundle's ends; return the calls that must still be made."""
        bundle = self._bundles.pop(settlement.id)
        again = bundle.give_back()
        self._note_ends(bundle, bundle.tray.ends(), ends)
        self._note_ends(bundle, _unwritten(settlement), ends)
        if settlement.outcome is not Outcome.SUCCEEDED:
            suspects = bundle.tasks
            if bundle.open:
                _place, task = bundle.open.popitem()  # the last one that has begun
                self._calls -= 1
                ends.deaths.append(_died_in_bundle(task, settlement))
                suspects = [task]
            for task in suspects:
                self._durations.died(task.function)
        bundle.tray.close()
        # An interrupted attempt may have begun calls that the next one did not get.
        return [*bundle.open.values(), *again]

    def _note_ends(
        self, bundle: _Together, found: Iterable[CallEnd], ends: Ends
    ) -> None:
        for end in found:
            task = bundle.open.pop(end.place, None)
            if task is None:
                continue  # something that no child of ours writes
            self._calls -= 1
            self._durations.took(task.function, end.duration_s)
            ends.results.append((task.number, end.wrapped))
            if end.output:
                ends.output.append(end.output)


def _unwritten(settlement: Settlement) -> Iterator[CallEnd]:
    """Yield the end that the child could not write to its tray."""
    with contextlib.suppress(FrameError):  # the user's own code may have spoken
        yield from Decoder(CallEnd).feed(settlement.result or b"")


def _died(task: Task, settlement: Settlement, attempts: int) -> Died:
    outcome = settlement.outcome or Outcome.INTERRUPTED
    return Died(task.number, outcome.value, attempts, settlement.evidence)


def _died_in_bundle(task: Task, settlement: Settlement) -> Died:
    """Report it as if the call had been a job: with the call's own limit."""
    died = _died(task, settlement, 1)
    reason = died.evidence.reason
    if task.timeout_s is not None and reason is not None:
        job_s = task.timeout_s + budget_s(task.timeout_s)
        reason = reason.replace(show_duration(job_s), show_duration(task.timeout_s), 1)
        died.evidence = msgspec.structs.replace(died.evidence, reason=reason)
    return died


def _job(task: Task, priority: int) -> NewJob:
    return NewJob(
        kind=KIND,
        pool=POOL,
        payload=task.call,
        priority=priority,
        timeout_s=task.timeout_s,
        memory_bytes=task.memory_bytes,
        max_attempts=task.max_crashes,
    )


def _bundle_job(tasks: list[Task], tray: HostTray, priority: int) -> NewJob:
    one = tasks[0]  # they are alike
    budget = None if one.timeout_s is None else budget_s(one.timeout_s)
    bundle = Bundle(tray.path, [task.call for task in tasks], budget)
    return NewJob(
        kind=BUNDLE_KIND,
        pool=POOL,
        payload=msgspec.msgpack.encode(bundle),
        priority=priority,
        timeout_s=None if one.timeout_s is None else one.timeout_s + (budget or 0.0),
        memory_bytes=one.memory_bytes,
        max_attempts=1,
    )
