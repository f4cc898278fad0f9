"""What costs more the more jobs there are is read once for all open pages."""

import asyncio
import threading

import pytest

from jobpool.dashboard.live import part as parts
from jobpool.dashboard.live.live import Live
from jobpool.dashboard.reading import Unknown
from support.waiting import wait_until


@pytest.fixture
def live(opener, store):
    live = Live(opener)
    yield live
    live.close()


def test_whoever_asks_at_the_same_time_gets_the_same_read(live, monkeypatch):
    monkeypatch.setattr(parts, "left_s", lambda: 30.0)
    reads = []

    def read(store):
        reads.append(store)
        return len(reads)

    async def ask():
        return await asyncio.gather(*(live.shared("a", read) for _ in range(5)))

    assert asyncio.run(ask()) == [1] * 5


def test_what_is_late_is_unknown_at_first_and_is_not_read_again(live):
    """The read goes on, and who asks next gets what it has found."""
    may_end = threading.Event()

    def read(store):
        assert may_end.wait(30)
        return "found"

    async def ask():
        first = await live.shared("a", read)
        may_end.set()
        while isinstance(found := await live.shared("a", read), Unknown):
            pass
        return first, found

    first, found = asyncio.run(ask())
    assert isinstance(first, Unknown)
    assert found == "found"


def test_after_a_change_it_is_read_anew(live, monkeypatch):
    monkeypatch.setattr(parts, "left_s", lambda: 30.0)
    reads = []

    def read(store):
        reads.append(store)
        return len(reads)

    def shown():
        return asyncio.run(live.shared("a", read))

    assert shown() == 1
    live.expire()
    # On a machine that stands still for seconds it may be read once more.
    wait_until(lambda: shown() > 1, 30, "it is read anew; meanwhile the one before is")


def test_a_page_that_waits_for_it_is_told_once_it_is_known(live):
    async def first_event():
        events = live.changes()
        await anext(events)
        await live.shared("a", lambda _: 1)
        async with asyncio.timeout(30):
            async for event in events:
                if event.startswith("event: changed"):
                    return event
        return None

    assert asyncio.run(first_event()) == "event: changed\ndata: \n\n"
