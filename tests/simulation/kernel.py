"""Virtual time: one thread, one heap of events, and tasks that wait for them.

Theory of operation. Everything that happens is a call at a time; calls at equal times
keep the order in which they were scheduled, so that a run is a function of its seed
alone. Code that blocks (the supervisor's real threads) runs in greenlets: where it
would wait, it yields to the heap, and is resumed at its time or when it is woken.
Nothing else switches, so between two waits a task is alone.

A task belongs to a process. What falls due for a stopped process is kept until it is
continued. A killed one is unwound at once, wherever its tasks stand, and nothing that
they still do while unwinding can wait or be seen.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Self

from greenlet import GreenletExit, getcurrent, greenlet

EVENTS_MAX = 40_000
LONG_EVENTS_MAX = 4 * EVENTS_MAX
"""A run that takes more of them does not come to an end; nor does one of days."""
GRAIN_S = 1e-7
"""The shortest wait: after weeks a shorter time would add nothing to the clock."""
Act = Callable[[], object]


class Endless(Exception):
    """The run takes more events than any correct one: something spins."""


class Process:
    """Something that can be stopped, continued and killed as a whole."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.stopped = False
        self.stops = 0
        """How often it was stopped."""
        self.tasks: list[Task] = []
        self.held: list[Act] = []
        """What fell due while it was stopped."""
        self.on_death: list[Act] = []
        self.steps = 0
        """Points passed at which it might be killed."""
        self.dies_at_step = 0
        """0: at none of them."""


class Task:
    """A thread of a process, as a greenlet."""

    def __init__(self, kernel: Kernel, process: Process, run: Act) -> None:
        self.kernel = kernel
        self.process = process
        self.turn = 0
        """Counts its waits; a wake-up is for one of them."""
        self.ended = False
        self._run = run
        self._greenlet = greenlet(self._body, parent=kernel.hub)

    def _body(self, _woken: bool = False) -> None:
        try:
            self._run()
        except Exception:  # noqa: BLE001 - a thread that ends so is a finding
            if self.process.alive:
                self.kernel.crashes.append(
                    f"{self.process.name}: {traceback.format_exc(limit=-6)}"
                )
        finally:
            self.ended = True

    def resume(self, turn: int, *, woken: bool = False) -> None:
        """Continue it, unless that wait is over."""
        if turn != self.turn or self.ended:
            return
        self.turn += 1
        self.kernel.current = self
        self._greenlet.switch(woken)
        self.kernel.current = None

    def unwind(self) -> None:
        """End it where it stands."""
        if not self.ended:
            self.kernel.current = self
            self._greenlet.throw(GreenletExit)
            self.kernel.current = None
            self.ended = True


class Kernel:
    """The virtual world's time.

    Args:
        seed: of the small delays between threads.
        events_max: an honest run takes no more.
    """

    def __init__(self, seed: int, events_max: int = EVENTS_MAX) -> None:
        self.events_max = events_max
        self.now_s = 0.0
        self.hub = getcurrent()
        self.current: Task | None = None
        self.crashes: list[str] = []
        """Uncaught exceptions."""
        self.sometimes: Counter[str] = Counter()
        """Rare things that have happened."""
        self.random = random.Random(seed)
        self.events = 0
        self._heap: list[tuple[float, int, Act, Process | None]] = []
        self._asked = 0
        self._urgent: deque[Act] = deque()

    # -- time ------------------------------------------------------------------------

    def at(self, when_s: float, act: Act, process: Process | None = None) -> None:
        """Call *act* at a time, as a part of *process* if one is given."""
        self._asked += 1
        heappush(self._heap, (when_s, self._asked, act, process))

    def after(self, delay_s: float, act: Act, process: Process | None = None) -> None:
        """Call *act* after a delay."""
        self._asked += 1
        heappush(self._heap, (self.now_s + delay_s, self._asked, act, process))

    def soon_s(self) -> float:
        """Return a delay as between two threads."""
        return self.random.random() * 1e-4

    def run(self, until_s: float, over: Callable[[], bool] | None = None) -> None:
        """Let time pass up to a given time, or until the run is over.

        Raises:
            Endless: it does not come to an end.
        """
        heap, urgent = self._heap, self._urgent
        while heap and heap[0][0] <= until_s and not (over and over()):
            when_s, _, act, process = heappop(heap)
            self.now_s = max(self.now_s, when_s)
            if process is not None:
                if not process.alive:
                    continue
                if process.stopped:
                    process.held.append(act)
                    continue
            self.events += 1
            if self.events > self.events_max:
                raise Endless(f"{self.events_max} events, and no end")
            act()
            while urgent:
                urgent.popleft()()
        if not (over and over()):
            self.now_s = max(self.now_s, until_s)

    # -- processes -------------------------------------------------------------------

    def spawn(self, process: Process, run: Act) -> Task:
        """Begin a thread."""
        task = Task(self, process, run)
        process.tasks.append(task)
        self.after(self.soon_s(), partial(task.resume, task.turn), process)
        return task

    def stop(self, process: Process) -> None:
        """SIGSTOP."""
        process.stopped = True
        process.stops += 1

    def go_on(self, process: Process) -> None:
        """SIGCONT: what has fallen due meanwhile happens now, in its order."""
        if not process.stopped:
            return
        process.stopped = False
        held, process.held = process.held, []
        for act in held:
            self.after(self.soon_s(), act, process)

    def kill(self, process: Process) -> None:
        """SIGKILL; not from within one of its tasks."""
        if not process.alive:
            return
        process.alive = False
        for task in process.tasks:
            task.unwind()
        for act in process.on_death:
            act()

    def step(self, process: Process) -> None:
        """Pass a point at which a process may be killed; from within its tasks."""
        process.steps += 1
        if process.steps == process.dies_at_step and process.alive:
            self.sometimes["killed between two steps"] += 1
            self._urgent.append(lambda: self.kill(process))
            raise GreenletExit

    # -- waiting, from within a task ---------------------------------------------------

    def wait(self, seconds: float | None) -> bool:
        """Yield until woken, or for so long; say whether it was woken."""
        task = self.current
        if task is None:
            raise RuntimeError("only a task can wait")
        process = task.process
        if not process.alive:
            raise GreenletExit
        if seconds is not None:
            if seconds < GRAIN_S:
                seconds = GRAIN_S if seconds > 0 else 0.0
            self.after(seconds, partial(task.resume, task.turn), process)
        return bool(self.hub.switch())

    def sleep(self, seconds: float) -> None:
        """Yield for so long."""
        self.wait(seconds)


class Waiters:
    """Tasks that wait for one thing."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self._waiting: list[tuple[Task, int]] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until woken, or for so long; say whether it was woken."""
        task = self.kernel.current
        if task is None:
            raise RuntimeError("only a task can wait")
        self._waiting.append((task, task.turn))
        return self.kernel.wait(timeout)

    def wake(self) -> None:
        """Wake all of them, each a little later."""
        waiting, self._waiting = self._waiting, []
        for task, turn in waiting:
            self._wake_one(task, turn)

    def _wake_one(self, task: Task, turn: int) -> None:
        if turn == task.turn:
            self.kernel.after(
                self.kernel.soon_s(),
                partial(task.resume, turn, woken=True),
                task.process,
            )


class SimEvent(Waiters):
    """`threading.Event` in virtual time."""

    _is_set = False

    def set(self) -> None:
        """See `threading.Event.set`."""
        self._is_set = True
        self.wake()

    def clear(self) -> None:
        """See `threading.Event.clear`."""
        self._is_set = False

    def is_set(self) -> bool:
        """See `threading.Event.is_set`."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """See `threading.Event.wait`."""
        if not self._is_set:
            super().wait(timeout)
        return self._is_set


class SimCondition(Waiters):
    """`threading.Condition` in virtual time; no other task runs while it is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        """Nothing is to be released."""

    def notify(self) -> None:
        """See `threading.Condition.notify`; all of them are woken."""
        self.wake()

    def wait_for(
        self, predicate: Callable[[], bool], timeout: float | None = None
    ) -> bool:
        """See `threading.Condition.wait_for`."""
        until_s = None if timeout is None else self.kernel.now_s + timeout
        while not predicate():
            left_s = None if until_s is None else until_s - self.kernel.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return predicate()
