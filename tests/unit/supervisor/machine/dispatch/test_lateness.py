"""A kind whose jobs cannot begin in the time that its rate allows is reported."""

import msgspec
import pytest

from jobpool.core.config.settings import PoolSettings
from jobpool.core.events.event import Level
from jobpool.core.events.flow import RateTooTight
from jobpool.core.rules.quotas.gcra import SLOW_MAX_S
from jobpool.store.records.jobs import LeaseBatch
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine import inputs as inp
from jobpool.supervisor.machine.dispatch.lateness import AGAIN_S, ROW_S, ROW_TIMES
from support.machine.world import World, pool

WITHIN_S = 0.05
MOST_S = WITHIN_S + SLOW_MAX_S
TAKES_S = 0.6
"""Longer than that: what a supervisor can ask for does not help."""


class SlowStore(World):
    """An answer with leases takes its time; one without takes none."""

    takes_s = 0.0

    def _answer(self, granted: inp.Granted) -> None:
        if granted.batch.leases:
            self.now_s += self.takes_s
        self.step(granted)

    def _grant(self, asked: cmd.Lease) -> LeaseBatch:
        """Grant as much more time as is asked for."""
        leases = [
            one
            if one.begin_within_s is None
            else msgspec.structs.replace(
                one, begin_within_s=one.begin_within_s + asked.slow_s
            )
            for one in super()._grant(asked).leases
        ]
        return LeaseBatch(leases=tuple(leases))

    def go_on(self, seconds: float) -> None:
        """Let time pass, deadline by deadline; it never goes back."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            moment_s = min(self.machine.next_deadline_s(), until_s)
            self.now_s = max(self.now_s, moment_s)
            self.step(inp.Tick())

    def until_it_is_said(self) -> RateTooTight:
        """Let time pass until the next report, for half an hour at most."""
        had, until_s = len(self.reports), self.now_s + 1800
        while len(self.reports) == had:
            assert self.now_s < until_s
            self.go_on(0.01)
        return self.reports[-1]

    @property
    def reports(self) -> list[RateTooTight]:
        """Return what was said about rates."""
        return [one for one in self.said if isinstance(one, RateTooTight)]


def slow(takes_s: float, *others: PoolSettings) -> SlowStore:
    """Return a world with one job of a rate, and with a store that is too slow."""
    world = SlowStore(pool("cpu", 1), *others).up()
    world.takes_back = True
    world.takes_s = takes_s
    world.job(begin_within_s=WITHIN_S, laned=True)
    world.notify()
    return world


def test_it_says_how_long_a_lease_took_and_what_the_rate_allows():
    """Counted from the request; a warning."""
    said = slow(TAKES_S).until_it_is_said()
    assert said.kind == "cpu.work"
    assert said.late_s == pytest.approx(TAKES_S)
    assert said.begin_within_s == MOST_S
    assert said.level is Level.WARNING


def test_a_store_that_is_slower_than_the_rate_alone_allows_is_not_reported():
    """Its jobs begin: they are given more time."""
    world = slow(2 * WITHIN_S)
    world.go_on(2.0)
    assert len(world.settled) == 1
    assert len(world.machine.slots[0].queue) == 1
    assert world.reports == []


def test_it_takes_twenty_times():
    """However long they took."""
    world = slow(ROW_S / 8)
    began_s = world.now_s
    world.until_it_is_said()
    assert len(world.settled) == ROW_TIMES
    assert all(one.unbegun for one in world.settled)
    assert world.now_s - began_s > ROW_S


def test_it_takes_thirty_seconds():
    """However often they went back in that time."""
    world = slow(TAKES_S)
    began_s = world.now_s
    while world.now_s < began_s + ROW_S - 1.5:
        world.machine.pools["cpu"].has_child()  # so that the kind is leased at once
        world.notify()
        world.go_on(0.1)
    assert len(world.settled) > ROW_TIMES
    assert world.reports == []
    world.until_it_is_said()
    assert world.now_s - began_s >= ROW_S


def test_many_jobs_that_are_late_at_once_count_once():
    """One slow answer is none of a row."""
    world = slow(0.0)
    world.done(0)
    world.settled.clear()
    world.takes_s = ROW_S
    world.machine.pools["cpu"].capacity = lambda _now_s: ROW_TIMES
    for _ in range(2 * ROW_TIMES):
        world.job(begin_within_s=WITHIN_S, laned=True)
    world.notify()
    world.go_on(ROW_S)
    assert len(world.settled) >= 2 * ROW_TIMES
    assert world.reports == []


def test_a_job_that_begins_ends_the_row():
    """Then the store is not too slow for the kind, only at times."""
    world = slow(TAKES_S)
    world.go_on(ROW_S - 1.0)
    world.takes_s = 0.0
    world.go_on(2.0)
    assert len(world.machine.slots[0].queue) == 1
    world.done(0)
    world.takes_s = TAKES_S
    world.job(begin_within_s=WITHIN_S, laned=True)
    world.notify()
    world.go_on(ROW_S - 1.0)
    assert world.reports == []
    world.until_it_is_said()


def test_it_is_said_again_after_ten_minutes():
    """Not each time that a job goes back."""
    world = slow(TAKES_S)
    world.until_it_is_said()
    said_s = world.now_s
    world.until_it_is_said()
    assert AGAIN_S <= world.now_s - said_s < AGAIN_S + 5.0


def test_jobs_of_another_kind_that_begin_do_not_end_the_row():
    """Each kind has its own."""
    world = slow(TAKES_S, pool("io", 1))
    until_s, begun = world.now_s + 2 * ROW_S, 0
    while not world.reports:
        assert world.now_s < until_s
        world.job("io")
        world.notify()
        world.go_on(1.1)
        if world.machine.slots[1].queue:
            begun += 1
            world.done(1)
    assert begun >= ROW_TIMES // 2
    assert [one.kind for one in world.reports] == ["cpu.work"]
