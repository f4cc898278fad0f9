"""The critical path of a flow: the chain of steps that its time depends on. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobpool.core.jobs.flow import ENDED_STEPS, StepState, When
from jobpool.store.records.flows import StepRow
from jobpool.words.flows.order import in_order


def critical_path(steps: Sequence[StepRow]) -> list[StepRow]:
    """Return the steps of the critical path, in order; hooks are not on it.

    Of a flow that has ended it leads to the step that ended last, and before each step
    on it stands the one that it waited for longest. Of an open flow it goes through the
    step under way that the longest chain of steps still waits for; a step that a
    failure has to come before is not in that chain.
    """
    plain = {one.number: one for one in steps if one.hook is None}
    under_way = [one for one in plain.values() if one.state is StepState.READY]
    if under_way:
        ahead = _Ahead(plain)
        turn = max(under_way, key=lambda one: (ahead.length(one), -one.number))
        return [*_back(plain, turn), *ahead.chain(turn)]
    ended = [one for one in plain.values() if one.ended_ms is not None]
    return _back(plain, max(ended, key=_ended)) if ended else []


def _back(plain: Mapping[int, StepRow], turn: StepRow) -> list[StepRow]:
    """Return what led to a step, and the step itself."""
    path = [turn]
    while before := [plain[number] for number, _ in path[-1].after]:
        path.append(max(before, key=_ended))
    return path[::-1]


def _ended(step: StepRow) -> tuple[int, int]:
    return step.ended_ms or 0, -step.number


class _Ahead:
    """The longest chains of steps that have not ended."""

    def __init__(self, plain: Mapping[int, StepRow]) -> None:
        self._plain = plain
        self._length = dict.fromkeys(plain, 0)
        self._next: dict[int, int] = {}
        before = {one.number: [n for n, _ in one.after] for one in plain.values()}
        for number in reversed(in_order(before)):
            step = plain[number]
            if step.state in ENDED_STEPS:
                continue
            for other, when in step.after:
                if when is not When.FAILED and self._reaches(other, number):
                    self._length[other] = self._length[number] + 1
                    self._next[other] = number

    def _reaches(self, other: int, number: int) -> bool:
        """Say whether a step's longest chain so far is shorter than through another."""
        longer = self._length[number] + 1 - self._length[other]
        return longer > 0 or (longer == 0 and number < self._next[other])

    def length(self, step: StepRow) -> int:
        """Return how many steps wait for this one, one after another."""
        return self._length[step.number]

    def chain(self, step: StepRow) -> list[StepRow]:
        """Return these steps."""
        found = []
        number = step.number
        while (following := self._next.get(number)) is not None:
            found.append(self._plain[following])
            number = following
        return found
