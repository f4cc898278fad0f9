"""The loop: what one turn passes to the store thread."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import JobState, Settlement
from jobpool.errors import JobpoolBug
from jobpool.supervisor import loop
from jobpool.supervisor.loop import Loop
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp

FINISH = cmd.Finish(exit_code=0, handed_back=0, leases_held=0)


class Stage:
    """A loop among fakes: each event is answered by the next of *answers*."""

    def __init__(self, *answers: list[cmd.Command] | Exception) -> None:
        self.answers = deque(answers)
        self.left: list[list[cmd.Command]] = []
        self._events = deque([inp.Tick()] * len(answers))
        machine: Any = SimpleNamespace(start=lambda *_: [], step=self._step)
        reactor: Any = self
        store: Any = SimpleNamespace(leave=lambda some: self.left.append(list(some)))
        parts: Any = SimpleNamespace(begin_watch=None)
        self.clock = SystemClock()
        self.loop = Loop(
            machine,
            reactor,
            store=store,
            children=parts,
            zygotes=parts,
            observer=parts,
        )

    def __len__(self) -> int:
        return len(self._events)

    def take(self) -> inp.SupervisorEvent:
        """Return the next event."""
        return self._events.popleft()

    def _step(self, *_: object) -> list[cmd.Command]:
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


def settle(number: int) -> cmd.Settle:
    """Return the order to settle a job."""
    return cmd.Settle([Settlement(id=number, token=number, state=JobState.SUCCEEDED)])


def test_a_turn_passes_all_its_requests_to_the_store_at_once() -> None:
    """In order; the two threads meet at their lock once per turn, not once per job."""
    stage = Stage([settle(1), settle(2)], [settle(3), FINISH])
    assert stage.loop.run() is FINISH
    assert stage.left == [[settle(1), settle(2), settle(3)]]


def test_a_turn_without_requests_does_not_wake_the_store() -> None:
    """An idle supervisor costs nothing."""
    stage = Stage([FINISH])
    stage.loop.run()
    assert stage.left == []


def test_an_end_reaches_the_store_although_the_turn_fails() -> None:
    """A bug in the core must not make a finished job run again."""
    stage = Stage([settle(1)], JobpoolBug("please report this"), [FINISH])
    with pytest.raises(JobpoolBug):
        stage.loop.run()
    assert stage.left == [[settle(1)]]


@pytest.mark.parametrize(("is_congested", "gather_s"), [(False, 0.5), (True, 0.0)])
def test_ends_gather_only_while_sockets_hold_everything_that_is_sent(
    monkeypatch: pytest.MonkeyPatch, is_congested: bool, gather_s: float
) -> None:
    """Otherwise a child may have nothing to do, or wait until its end is read."""
    waits: list[float] = []
    monkeypatch.setattr(loop, "patience_s", lambda _pools: 0.5)
    parts: Any = SimpleNamespace(
        is_congested=lambda: is_congested,
        begin_watch=None,
        next_s=lambda: 9.0,
        check=lambda _now_s: None,
    )
    machine: Any = SimpleNamespace(pools={}, next_deadline_s=lambda: 9.0, step=None)
    reactor: Any = Idle(waits)
    turning = loop.Loop(
        machine,
        reactor,
        store=parts,
        children=parts,
        zygotes=parts,
        observer=parts,
    )
    turning._turn()
    assert waits == [gather_s]


class Idle:
    """A reactor in which nothing happens."""

    def __init__(self, waits: list[float]) -> None:
        self.clock = SystemClock()
        self._waits = waits

    def __len__(self) -> int:
        return 0

    def now_s(self) -> float:
        """Return no particular time."""
        return 1.0

    def wait(self, _until_s: float, gather_s: float = 0.0) -> None:
        """Record how long ends may gather."""
        self._waits.append(gather_s)
