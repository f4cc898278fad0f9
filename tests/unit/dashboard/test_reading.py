"""Reads for pages: by a deadline, on few threads, none of which is lost."""

import asyncio
import sqlite3
import threading
from http import HTTPStatus

import pytest
from starlette.responses import PlainTextResponse

from jobpool.dashboard import app
from jobpool.dashboard import reading as reads
from jobpool.dashboard.reading import (
    Reading,
    Unknown,
    begin_page,
    left_s,
)
from jobpool.dashboard.routes import Route
from jobpool.errors import StoreUnavailable
from jobpool.operations.jobs import Retry
from jobpool.store.opening import open_store
from support.browsing import OURS, Browser, memory_stores
from support.store.new_file import place_new_file
from support.waiting import wait_until

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT count(*) FROM n"
)


@pytest.fixture
def opened():
    """The stores that were opened."""
    return []


@pytest.fixture
def reading(tmp_path, opened):
    place_new_file(tmp_path / "jobpool.db")

    def opener():
        url = f"sqlite:///{tmp_path}/jobpool.db"
        opened.append(open_store(url, create=False, reader=True))
        return opened[-1]

    reading = Reading(opener, deadline_s=0.05, threads=1)
    yield reading
    reading.close()


@pytest.fixture
def patient(reading):
    """The same, which is not late on a busy machine either."""
    reading._deadline_s = 30
    return reading


def endless(store):
    with store._database.reading() as session:
        return session.connection.execute(ENDLESS).fetchall()


def pauses(store):
    return store.pauses()


def test_a_late_read_is_ended_and_its_thread_reads_again(reading, opened):
    """By the same connection: it is not lost either."""
    late = asyncio.run(reading.read(endless))
    assert late == Unknown("not known within 50 ms")

    def is_back():
        return asyncio.run(reading.read(pauses)) == []

    wait_until(is_back, 30, "the thread is free")
    assert len(opened) == 1


def test_what_has_not_begun_by_the_deadline_never_begins(reading):
    began, go_on = threading.Event(), threading.Event()
    asked = []

    def first(_store):
        began.set()
        go_on.wait(30)

    async def both():
        one = reading.begin(first)
        assert await asyncio.to_thread(began.wait, 30)
        late = await reading.read(asked.append)
        go_on.set()
        await asyncio.wrap_future(one)
        reading._deadline_s = 30  # what is read now is late on a busy machine only
        return late, await reading.read(pauses)

    late, then = asyncio.run(both())
    assert isinstance(late, Unknown)
    assert then == []
    assert asked == []


def test_one_late_read_keeps_no_other_back(tmp_path):
    place_new_file(tmp_path / "jobpool.db")
    url = f"sqlite:///{tmp_path}/jobpool.db"
    reading = Reading(lambda: open_store(url, reader=True), deadline_s=0.05, threads=2)
    ended = threading.Event()

    async def both():
        begun = [reading._begin(lambda _: ended.wait(30)), reading._begin(pauses)]
        await asyncio.to_thread(begun[1].future.result, 30)
        return await reading._wait(begun)

    try:
        late, found = asyncio.run(both())
    finally:
        ended.set()
        reading.close()
    assert isinstance(late, Unknown)
    assert found == []


def test_all_that_one_page_reads_in_turn_has_one_deadline(tmp_path):
    """What is read after it has passed is not waited for."""
    place_new_file(tmp_path / "jobpool.db")
    url = f"sqlite:///{tmp_path}/jobpool.db"
    reading = Reading(lambda: open_store(url, reader=True), deadline_s=600, threads=2)
    ended = threading.Event()

    async def page():
        begin_page(0.05)
        return [await reading.read(lambda _: ended.wait(30)) for _ in range(3)]

    async def in_time():
        return await asyncio.wait_for(page(), 20)

    try:
        found = asyncio.run(in_time())
    finally:
        ended.set()
        reading.close()
    assert all(isinstance(one, Unknown) for one in found)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_time_of_a_page_begins_when_it_is_asked_for(tmp_path, monkeypatch, method):
    """A form's does not: what it changes may take long."""
    left = []

    async def answer(_asked):
        left.append(left_s(600))
        return PlainTextResponse("")

    action = None if method == "GET" else Retry
    route = Route(name="overview", path="/", answer=answer, action=action)
    monkeypatch.setattr(app, "ROUTES", [route])
    browser = Browser(memory_stores(tmp_path), deadline_s=20)
    assert (
        browser.client.request(method, "/", headers=OURS).status_code == HTTPStatus.OK
    )
    browser.close()
    if method == "GET":
        assert 0 <= left[0] <= 20
    else:
        assert left == [600]


def test_a_store_that_is_away_is_said_and_opened_again(patient, opened):
    """The next read has a new connection."""

    def fails(_store):
        raise StoreUnavailable("the disk\x1b[2J is gone")

    found = asyncio.run(patient.read(fails))
    assert "the disk\\x1b[2J is gone" in found.why
    wait_until(lambda: asyncio.run(patient.read(pauses)) == [], 30, "it reads again")
    assert len(opened) == 2


def test_what_is_wrong_with_us_is_no_late_read(patient):
    with pytest.raises(ZeroDivisionError):
        asyncio.run(patient.read(lambda _: 1 / 0))


def test_what_many_ask_for_alike_is_read_once(patient, monkeypatch):
    """While it is read, and within a second after; others are read apart."""
    monkeypatch.setattr(reads, "_YOUNG_S", 30.0)  # a busy machine needs more than one
    began, go_on = threading.Event(), threading.Event()
    read = []

    def counts(_store):
        read.append("")
        began.set()
        go_on.wait(30)
        return len(read)

    async def several():
        one = asyncio.create_task(patient.read_alike("jobs", counts))
        assert await asyncio.to_thread(began.wait, 30)
        two = asyncio.create_task(patient.read_alike("jobs", counts))
        await asyncio.sleep(0)
        go_on.set()
        return [await one, await two, await patient.read_alike("other", counts)]

    assert asyncio.run(several()) == [1, 1, 2]


@pytest.mark.parametrize("error", [StoreUnavailable("the disk is gone"), None])
def test_what_was_not_found_is_read_again_for_who_asks_next(reading, error):
    """Be it that it failed, or that it was late."""
    go_on = threading.Event()

    def fails(_store):
        if error is not None:
            raise error
        go_on.wait(30)

    found = asyncio.run(reading.read_alike("pauses", fails))
    go_on.set()
    assert isinstance(found, Unknown)

    def is_back():
        return asyncio.run(reading.read_alike("pauses", pauses)) == []

    wait_until(is_back, 30, "it is read again")


def test_a_read_that_is_late_before_its_store_is_open_never_begins(reading):
    """To open it takes longer on a busy machine; nobody else would end the read."""
    may_open, open_it = threading.Event(), reading._opener

    def opens_late():
        may_open.wait(30)
        return open_it()

    reading._opener = opens_late
    assert asyncio.run(reading.read(endless)) == Unknown("not known within 50 ms")
    reading._interrupting.submit(may_open.set).result()  # after the interruption

    def is_back():
        return asyncio.run(reading.read(pauses)) == []

    wait_until(is_back, 30, "the thread is free")


def test_who_joins_a_read_that_is_ended_as_late_hears_that_it_is_late(
    reading, monkeypatch
):
    """Not that a statement was interrupted: they have asked for nothing of the kind."""
    monkeypatch.setattr(reads, "_YOUNG_S", 30.0)
    has_begun = threading.Event()  # else nothing is interrupted, on a busy machine

    def too_long(store):
        has_begun.set()
        try:
            return endless(store)
        except sqlite3.OperationalError as exc:
            raise StoreUnavailable("interrupted") from exc

    async def one_after_the_other():
        begun = reading._alike["jobs"] = reading._begin(too_long)
        assert await asyncio.to_thread(has_begun.wait, 30)
        await reading.read_alike("jobs", too_long)
        end = asyncio.wrap_future(begun.future)
        end.add_done_callback(reads.hear)  # asyncio would complain beside other tests
        await asyncio.wait([end])
        assert begun.turn.is_interrupted
        return reading._outcome(begun)

    late = asyncio.run(one_after_the_other())
    assert late == Unknown("not known within 50 ms")
