"""What all open pages share: read once for everybody, as often as is worth it."""

import asyncio
import threading

import pytest

from jobpool.core.clock import SystemClock
from jobpool.dashboard.live import part as parts
from jobpool.dashboard.live.live import Live
from jobpool.dashboard.live.part import Part
from jobpool.dashboard.live.readers import Backlogs, Memory
from jobpool.dashboard.reading import Reading, Unknown
from jobpool.errors import StoreUnavailable
from jobpool.store.records.operating import Filter
from support.store.storing import ManualClock, lease_one, new_job, succeeded
from support.waiting import wait_until

PATIENCE_S = 30.0


class Read:
    """Counts how often it is read; answers with that."""

    def __init__(self, clock, took_s=0.0):
        self.clock, self.took_s = clock, took_s
        self.times = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.error = None

    def __call__(self, store, last):
        self.may_end.wait(30)
        self.times += 1
        self.clock.advance(self.took_s)
        if self.error is not None:
            raise self.error
        return self.times


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def reading(opener):
    reading = Reading(opener, threads=1)
    yield reading
    reading.close()


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Wait for what is read, unless a test is about what is late."""
    monkeypatch.setattr(parts, "left_s", lambda: PATIENCE_S)


def part(reading, read, clock, every_s=1.0, share=0.05):
    return Part(reading, read, clock, every_s=every_s, share=share)


def known(one):
    return asyncio.run(one.known())


def test_whoever_asks_at_the_same_time_shares_one_read(reading, clock):
    read = Read(clock)
    one = part(reading, read, clock)

    async def ten():
        return await asyncio.gather(*(one.known() for _ in range(10)))

    assert asyncio.run(ten()) == [1] * 10
    assert read.times == 1


def test_what_is_young_is_not_read_again(reading, clock):
    read = Read(clock)
    one = part(reading, read, clock)
    assert known(one) == 1
    clock.advance(0.9)
    assert known(one) == 1
    clock.advance(60)
    assert known(one) == 2
    assert read.times == 2


def test_a_dear_read_takes_its_share_of_the_time_at_most(reading, clock):
    """What took 2 s is read every 40 s; meanwhile its age is shown, nobody waits."""
    read = Read(clock, took_s=2.0)
    one = part(reading, read, clock)
    known(one)
    clock.advance(60)
    assert known(one) == 2
    for _ in range(3):
        clock.advance(13)
        assert known(one) == 2
    clock.advance(50)
    assert known(one) == 3


def test_what_takes_too_long_is_unknown_and_then_known(reading, clock, monkeypatch):
    read = Read(clock)
    read.may_end.clear()
    one = part(reading, read, clock)
    with monkeypatch.context() as hurried:
        hurried.setattr(parts, "left_s", lambda: 0.01)
        assert isinstance(known(one), Unknown)
    read.may_end.set()
    wait_until(lambda: known(one) == 1, 30, "it is known")
    assert read.times == 1


def test_a_store_that_is_away_is_unknown_until_it_is_back(reading, clock):
    """And no longer, also if it is read once a minute."""
    read = Read(clock)
    one = part(reading, read, clock, every_s=60)
    read.error = StoreUnavailable("the disk is gone")
    assert "the disk is gone" in known(one).why
    read.error = None
    clock.advance(2)
    wait_until(lambda: known(one) == 2, 30, "it was read anew")


def test_what_was_read_before_a_change_is_not_taken_for_after_it(reading, clock):
    """Not even what began to be read before it."""
    read = Read(clock)
    one = part(reading, read, clock)
    known(one)
    read.may_end.clear()
    clock.advance(2)
    one.look()
    one.expire()
    read.may_end.set()
    wait_until(lambda: known(one) == 3, 30, "it was read after the change")


@pytest.fixture
def live(opener):
    live = Live(opener)
    yield live
    live.close()


def test_a_store_in_which_nothing_is_committed_is_not_read_again(live, store):
    """The same glance is returned, however old its part is."""
    sights = live._seen

    async def again():
        sights.expire()
        return await sights.known()

    first = asyncio.run(again())
    assert asyncio.run(again()) is first
    store.enqueue([new_job()])
    assert asyncio.run(again()) is not first


@pytest.mark.parametrize(
    ("took_s", "is_read"), [(0.1, True), (0.19, True), (0.21, False), (60.0, False)]
)
def test_what_only_grows_older_is_read_for_a_small_share_of_the_time(
    monkeypatch, took_s, is_read
):
    """Here 40 s after it was read: of what takes longer than 0.2 s, that is more."""

    class Unchanged:
        def changed(self):
            return False

    store, now_ms = Unchanged(), 1_800_000_000_000
    monkeypatch.setattr(SystemClock, "utc_ms", lambda _self: now_ms)
    memory = Memory(store=store, read_ms=now_ms - 40_000, took_s=took_s)
    assert memory.is_new(store) is is_read


def test_open_pages_hear_of_a_change(live, store):
    """Once for each look that found something else; then only that it is still here."""

    async def heard():
        events = live.changes()
        assert await anext(events) == ": here\n\n"
        store.enqueue([new_job()])
        event = await asyncio.wait_for(anext(events), 30)
        live.end()
        rest = [one async for one in events]
        return event, rest

    event, _rest = asyncio.run(heard())
    assert event.startswith("event: changed\n")


def test_what_was_read_for_open_pages_counts_as_a_change(live, store):
    """Though nobody has asked for it since: a page shows it as it was before."""
    asyncio.run(live.shared("jobs", lambda store: store.find(Filter(), 9), every_s=0))
    asyncio.run(live.seen())
    (shown,) = live._shared.values()
    live._follow()
    wait_until(shown._future.done, 30, "it is read anew")
    before = shown.version
    live._follow()
    assert shown.version == before + 1


def test_what_kinds_have_used_does_not_wait_until_all_jobs_are_counted(
    opener, store, monkeypatch
):
    counting, counted = threading.Event(), threading.Event()

    def count_slowly(_self, _store, _last):
        counting.set()
        counted.wait(30)

    monkeypatch.setattr(Backlogs, "read", count_slowly)
    live = Live(opener)

    def used():
        found = asyncio.run(live.usage())
        return None if isinstance(found, Unknown) else found

    try:
        live.numbers()
        assert counting.wait(30)
        wait_until(used, 30, "it is known")
        assert used().kinds == store.kinds()
    finally:
        counted.set()
        live.close()


def test_the_hour_grows_by_what_has_ended_since(live, store):
    store.enqueue([new_job()] * 2)
    store.settle([succeeded(lease_one(store))])

    async def ended():
        live.expire()
        found = (await live.known()).backlog
        return sum(row.succeeded for row in found.minutes)

    assert asyncio.run(ended()) == 1
    store.settle([succeeded(lease_one(store))])
    assert asyncio.run(ended()) == 2
