"""Interleaves sessions of PostgreSQL at every statement, in a test's order.

Each actor runs in a thread of its own and stops before each statement that its store
sends. One goes on at a time. What waits for another's lock is left to wait, and the
others go on; PostgreSQL itself says what waits.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from unittest import mock

from jobpool.store.postgres.connection.pipeline import Answers, Wire
from support.postgres.patient_locks import patient_locks

_QUIET = frozenset({"begin", "begun", "savepoint", "release", "plan_anew", "wake"})
"""Statements before which nobody stops: they neither read nor change a row."""
_DEADLOCK = "40P01"
_PATIENCE_S = 20.0
_LOOK_S = 0.004
"""A statement that takes longer may be waiting for a lock."""
_WAITS = """
SELECT count(*) > 0 FROM unnest(%s::int[]) AS p
WHERE cardinality(pg_blocking_pids(p)) > 0
"""

Choose = Callable[[list["Actor"]], "Actor"]
"""Returns who goes on, of those that can."""


class Actor:
    """One session's work, in a thread.

    Args:
        name: for messages.
        work: called with this actor, which says by `reach` where to stop.
        pids: of the server's processes that work for it.
    """

    def __init__(self, name, work, pids):
        self.name = name
        self.pids = pids
        self.steps = 0
        self.error = None
        self.is_done = False
        self.is_blocked = False
        self.has_deadlocked = False
        self.at = "its begin"
        self._work = work
        self._moved = threading.Condition()
        self._may_go = False
        self._is_paused = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        """Start it, up to its first stop."""
        self._thread.start()
        self._wait_quiet(_PATIENCE_S)

    def reach(self, statement):
        """Stop before a statement until it is this actor's turn."""
        if statement in _QUIET:
            return
        with self._moved:
            self.at = statement
            self._is_paused = True
            self._moved.notify_all()
            while not self._may_go:
                self._moved.wait()
            self._may_go = self._is_paused = False

    def go_on(self, monitor):
        """Let it run to its next stop, its end, or a lock that another one has."""
        with self._moved:
            self._may_go = True
            self._is_paused = False
            self._moved.notify_all()
        self.steps += 1
        self.look(monitor)

    def look(self, monitor):
        """See whether it has stopped, or waits for a lock."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while not self._wait_quiet(_LOOK_S):
            if monitor.execute(_WAITS, [self.pids]).fetchone()[0]:
                if not self._wait_quiet(_LOOK_S):
                    self.is_blocked = True
                    return
                break
            if time.monotonic() > deadline_s:
                raise AssertionError(f"{self.name} neither ends nor waits: {self.at}")
        self.is_blocked = False

    def _wait_quiet(self, timeout_s):
        with self._moved:
            return self._moved.wait_for(
                lambda: self.is_done or (self._is_paused and not self._may_go),
                timeout_s,
            )

    def _run(self):
        _actors[threading.get_ident()] = self
        try:
            self._work(self)
        except Exception as exc:  # noqa: BLE001 - the test judges it
            self.error = exc
        finally:
            del _actors[threading.get_ident()]
            with self._moved:
                self.is_done = True
                self._moved.notify_all()


_actors = {}
"""By thread."""


@contextlib.contextmanager
def stops():
    """Let actors' stores, which are opened meanwhile, stop before each statement."""
    ask = Wire.ask

    def ask_one_by_one(self, statements):
        actor = _actors.get(threading.get_ident())
        if actor is None:
            return ask(self, statements)
        results = []
        for statement in statements:
            actor.reach(statement.shape[0])
            answers = ask(self, [statement])
            results += answers.results
            if answers.error is not None:
                actor.has_deadlocked |= answers.error.sqlstate == _DEADLOCK
                return Answers(results, answers.error)
        return Answers(results, None)

    with mock.patch.object(Wire, "ask", ask_one_by_one), patient_locks():
        yield


def interleave(actors, choose, monitor, after_commit=lambda: None):
    """Run actors to their ends.

    Args:
        actors: not started yet.
        choose: who goes on.
        monitor: a connection of the test's own, in autocommit.
        after_commit: called when something may have been committed.

    Returns:
        Who went on before which statement, in order.
    """
    trace = []
    for actor in actors:
        actor.start()
    while left := [one for one in actors if not one.is_done]:
        for one in left:
            if one.is_blocked:
                one.look(monitor)
        able = [one for one in left if not one.is_blocked and not one.is_done]
        if not able:
            if not all(one.is_done for one in left):
                _await_any(left, monitor)
            continue
        actor = choose(able)
        trace.append((actor.name, actor.at))
        actor.go_on(monitor)
        if "commit" in trace[-1][1]:
            after_commit()
    return trace


def _await_any(actors, monitor):
    """All wait for each other: the server ends that, a second later."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while all(one.is_blocked and not one.is_done for one in actors):
        for one in actors:
            one.look(monitor)
        if time.monotonic() > deadline_s:
            raise AssertionError(f"all wait: {[(one.name, one.at) for one in actors]}")


def in_turns(first, *counts):
    """Return an order: *first* makes so many steps, then the other, and so on.

    Whoever cannot go on when it would is passed over.
    """
    left = list(counts)
    turn = [first]

    def choose(able):
        while left and left[0] <= 0:
            left.pop(0)
            turn[0] = 1 - turn[0]
        if left:
            left[0] -= 1
        wanted = [one for one in able if one.name == turn[0]]
        return wanted[0] if wanted else able[0]

    return choose


def at_random(random):
    """Return a random order, in which each goes on for some steps."""
    current = [None]

    def choose(able):
        same = [one for one in able if one is current[0]]
        if not same or random.random() < 0.35:
            current[0] = random.choice(able)
        return current[0]

    return choose
