"""The host's memory is looked at while attempts run, and told of while it is short."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

import pytest

from jobpool.sandbox.cgroups.memory_left import Left
from jobpool.sandbox.metering.sampling import SAMPLE_MAX_S, SAMPLE_MIN_S
from jobpool.supervisor.machine.inputs import HostMemorySeen
from jobpool.supervisor.machine.state.slot import NEVER_S
from jobpool.supervisor.processes.host_memory import TELL_EVERY_S, HostMemory, scarcity

GIB = 2**30
TOTAL = 20 * GIB


@dataclass
class Host:
    """A host with so much memory left."""

    available: int = 10 * GIB
    busy: bool = True
    errors: list[int] = field(default_factory=list)
    told: list[HostMemorySeen] = field(default_factory=list)
    pressures: int = 0

    def __post_init__(self) -> None:
        self.watch = HostMemory(
            self._look,
            self._pressure,
            is_busy=lambda: self.busy,
            report=self.told.append,
        )

    def _look(self) -> Left:
        if self.errors:
            raise OSError(self.errors.pop(), "no")
        return Left(self.available, TOTAL)

    def _pressure(self) -> float:
        self.pressures += 1
        return 3.0


@pytest.mark.parametrize(
    ("scarcest", "other"),
    [
        # A host that is short, around a small container that has less and is not.
        (Left(GIB // 4, 24 * GIB), Left(GIB // 8, GIB // 2)),
        # A container that is short, in a large host that nears its reserve.
        (Left(GIB // 8, 4 * GIB), Left(3 * GIB, 256 * GIB)),
        # None is near its reserve: what has less.
        (Left(GIB, 2 * GIB), Left(20 * GIB, 256 * GIB)),
    ],
)
def test_the_scarcest_is_what_is_nearest_to_its_own_reserve(
    scarcest: Left, other: Left
) -> None:
    assert min(other, scarcest, key=scarcity) == scarcest


def test_nobody_looks_while_nothing_runs() -> None:
    """An idle supervisor is not woken; an attempt begins it again."""
    host = Host()
    assert host.watch.next_s == NEVER_S
    host.watch.begin(5.0)
    assert host.watch.next_s == 5.0
    host.watch.check(5.0)
    assert host.watch.next_s == 5.0 + SAMPLE_MAX_S
    host.busy = False
    host.watch.check(6.0)
    assert host.watch.next_s == NEVER_S


def test_the_machine_hears_of_a_short_host_and_of_its_end_at_once() -> None:
    """With much left, it hears once a second, and nobody asks for the pressure."""
    host = Host()
    host.watch.begin(0.0)
    host.watch.check(0.0)
    assert host.told == [HostMemorySeen(10 * GIB, TOTAL, None)]
    host.told.clear()
    seen = []
    for available in (10 * GIB, GIB // 2, GIB // 4, 10 * GIB, 10 * GIB):
        host.available = available
        host.watch.check(host.watch.next_s)
        seen.append(len(host.told))
    assert seen == [0, 1, 2, 3, 3]
    assert host.pressures == 2
    assert host.told[0] == HostMemorySeen(GIB // 2, TOTAL, 3.0)
    host.watch.check(host.watch.next_s + TELL_EVERY_S)
    assert len(host.told) == 4


def test_the_less_is_left_the_sooner_it_looks_again() -> None:
    """At the level at which attempts are interrupted: every 2 ms."""
    host = Host(available=GIB // 2)
    host.watch.begin(1.0)
    host.watch.check(1.0)
    assert host.watch.next_s == pytest.approx(1.0 + SAMPLE_MIN_S)


def test_a_host_without_descriptors_is_looked_at_again() -> None:
    """Any other error is a bug, and not hidden."""
    host = Host(errors=[errno.EMFILE])
    host.watch.begin(1.0)
    host.watch.check(1.0)
    assert host.watch.next_s == pytest.approx(1.0 + SAMPLE_MIN_S)
    host.errors.append(errno.EINVAL)
    with pytest.raises(OSError, match="no"):
        host.watch.check(2.0)
