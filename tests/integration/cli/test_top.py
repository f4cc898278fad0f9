"""jobpool top: on a store with something in it, and in a real terminal."""

import contextlib
import os
import re
import signal
import termios
import threading

import msgspec
import pytest

from jobpool.cli.watch.top import watcher as watching_for
from jobpool.cli.watch.top.watcher import Counting, Watcher
from jobpool.core.application.redaction import with_redaction
from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import Evidence, JobState, Progress
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.rules.run_report import KindReport, PoolReport, RunReport
from jobpool.errors import StoreUnavailable
from jobpool.monitoring.glance.glance import Glance
from jobpool.monitoring.glance.reading import Reader, count
from jobpool.operations.jobs import Cancel
from jobpool.operations.queue import Pause
from jobpool.operations.selection import Selection
from jobpool.store.opening import open_store
from jobpool.store.records.operating import AuditFilter
from support.site.terminal import LEFT, shown
from support.store.cli_store import (
    KIND,
    RUN,
    dead,
    enqueue,
    quarantined,
    run,
    settle,
    stored,
    url_of,
)
from support.store.storing import started
from support.waiting import wait_until

WITHIN_S = 30.0
SECRET = "4711-0815"
TOP = "top --every 100ms"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path):
    store = stored(tmp_path)
    yield store
    store.close()


def running(store, **more):
    """Have a job run that has reported something; return its id."""
    (job_id,) = enqueue(store, **more)
    (lease,) = store.lease(RUN.id, {"cpu": 1}, {"cpu": [KIND.kind]}).leases
    began_s = SystemClock().boottime_s() - 20
    store.begin_attempts([started(lease, "cpu/1", began_s)])
    store.record([Progress(lease.id, lease.token, b"0.25", None, 256 * 2**20)])
    return job_id


def test_one_picture_shows_what_runs_waits_and_died(store):
    """Without a terminal as well; figures are beside their limits."""
    one = running(store)
    gone = quarantined(store)
    lost = dead(store)
    enqueue(store, 3)
    enqueue(store, 2, kind="nobody.knows", pool="gpu")
    report = RunReport(
        pools={"cpu": PoolReport(size=4, busy=1), "io": PoolReport(size=16)},
        kinds={KIND.kind: KindReport(ends_per_s=12.0)},
    )
    store.put_report(RUN.id, report)
    shown = run("top", "--once")
    assert shown.exit_code == 0, shown.output
    text = shown.stdout
    for words in (
        rf"{one} +shop.thumbnail +cpu/1 .*256MiB/512MiB .* 25 %",
        rf"ago +{gone} +shop.thumbnail .*crashed +quarantined",
        rf"ago +{lost} .*failed +dead +failure 5 of 5",
        r"cpu +·▄·· +1/4 +12 +3 .* slots",
        r"gpu .* 2 .* NO SUPERVISOR",
        r"1 dead +1 quarantined",
    ):
        assert re.search(words, text), (words, text)
    assert ">" not in text, "nothing can be chosen"
    assert "quit" not in text


def test_it_wants_a_terminal_and_says_what_else_there_is():
    """Keys cannot come from a pipe."""
    shown = run("top")
    assert shown.exit_code == 2
    assert "--once" in shown.output


def test_what_a_kind_redacts_is_not_shown(tmp_path):
    """Neither progress nor reasons, in the picture and in an open job."""
    store = open_store(url_of(tmp_path))
    schema = with_redaction(KIND.schema, ["card"], [])
    store.begin_run(RUN, [msgspec.structs.replace(KIND, schema=schema)], 60.0)
    arguments = f'{{"path": "a.jpg", "card": "{SECRET}"}}'.encode()
    enqueue(store, payload=arguments)
    evidence = Evidence(reason=f"refused {SECRET}")
    settle(store, Outcome.FAILED, JobState.DEAD, evidence=evidence)
    job_id = running(store, payload=arguments)
    (lease,) = store.leases_of(RUN.id)
    told = f'"card {SECRET}"'.encode()
    store.record([Progress(lease.id, lease.token, told, None, 1)])
    text = run("top", "--once").stdout
    assert "card [redacted]" in text
    assert "refused [redacted]" in text
    assert SECRET not in text
    reader, before = Reader(store), store.payload(job_id)
    first, second = reader.read(count(store)), reader.read(count(store))
    assert before == arguments
    assert SECRET not in repr((first, second))
    store.close()


def test_a_silent_supervisor_is_named(store):
    """And its pools are served by nobody."""
    enqueue(store)
    store.begin_run(msgspec.structs.replace(RUN, id="run-2", pid=12), [], 0.0)
    glance = Reader(store).read(count(store))
    assert isinstance(glance, Glance)
    assert [one for one in glance.silent if "supervisor 12 on host-1" in one]
    assert glance.alive == 1


@contextlib.contextmanager
def watching(opener):
    """Watch a store; yield the watcher and what says that there is news."""
    news = threading.Event()
    watcher = Watcher(opener, every_s=0.02, wake=news.set)
    watcher.start()
    try:
        yield watcher
    finally:
        watcher.close()


def until(watcher, condition, what):
    return wait_until(lambda: condition(watcher.latest), WITHIN_S, what)


def test_actions_are_carried_out_and_are_in_the_audit_trail(tmp_path, store):
    """With what became of them; an action that means nothing says why."""
    one, lost = running(store), dead(store)

    def opener():
        return contextlib.closing(open_store(url_of(tmp_path)))

    with watching(opener) as watcher:
        until(watcher, lambda seen: seen.glance is not None, "a glance")
        for number, action, said in (
            (1, Cancel(jobs=Selection(ids=(one,))), f"job {one} canceled"),
            (2, Pause(pool="io"), "pool io paused"),
            (3, Pause(pool="io"), "pool io was paused already"),
            (4, Cancel(jobs=Selection(ids=(lost,))), f"job {lost} is dead"),
        ):
            watcher.ask(action)
            until(watcher, lambda seen, n=number: seen.requests == n, "an answer")
            assert said in watcher.latest.said
        watcher.ask(one)
        until(watcher, lambda seen: seen.job is not None, "the open job")
        assert watcher.latest.job.job.id == one
        watcher.ask(99)
        until(watcher, lambda seen: "no job 99" in seen.said, "that there is none")
    trail = [(row.action, row.origin) for row in store.audits(AuditFilter())]
    assert [action for action, _ in trail] == ["pause", "cancel"]
    assert all(origin.startswith("jobpool top on ") for _, origin in trail)


def test_a_store_that_goes_away_is_told_and_read_again_once_it_is_back(tmp_path, store):
    """The last picture stays; nothing is done meanwhile, and it says so."""
    away, seen = threading.Event(), threading.Event()

    def opener():
        if away.is_set():
            assert seen.wait(WITHIN_S)  # the next error takes the first one's place
            raise StoreUnavailable("no route to host")
        return contextlib.closing(open_store(url_of(tmp_path)))

    def leased(self, limit):
        if away.is_set():
            raise StoreUnavailable("connection lost")
        return store_type.leased_before(self, limit)

    store_type = type(store)
    store_type.leased_before = store_type.leased
    try:
        store_type.leased = leased
        with watching(opener) as watcher:
            until(watcher, lambda seen: seen.glance is not None, "a glance")
            away.set()
            until(watcher, lambda now: "lost" in now.error, "the first error")
            seen.set()
            until(watcher, lambda now: "no route" in now.error, "the next one")
            assert watcher.latest.glance is not None
            watcher.ask(Pause(pool="io"))
            until(watcher, lambda seen: seen.said, "an answer")
            assert watcher.latest.said.startswith("not done")
            away.clear()
            until(watcher, lambda seen: not seen.error, "that it is back")
            assert store.pauses() == []
    finally:
        store_type.leased = store_type.leased_before
        del store_type.leased_before


def test_a_store_that_was_never_there_ends_it_at_once(tmp_path):
    """As any command: with the error, and no picture."""

    def opener():
        return contextlib.closing(open_store(url_of(tmp_path / "gone"), create=False))

    with watching(opener) as watcher:
        wait_until(lambda: watcher.failure, WITHIN_S, "the end of the thread")
        assert "gone" in str(watcher.failure)
        assert watcher.latest.glance is None


def test_counting_takes_at_most_a_fifth_of_the_time(store, monkeypatch):
    """However many jobs wait."""
    now_s, waited_s = [100.0], []
    clock = watching_for.SystemClock
    monkeypatch.setattr(clock, "monotonic_s", lambda _: now_s[0])
    depths = type(store).depths

    def slow(self):
        now_s[0] += 2.0
        return depths(self)

    monkeypatch.setattr(type(store), "depths", slow)
    counting = Counting(lambda: contextlib.nullcontext(store), every_s=1.0)

    class Closing(threading.Event):
        def wait(self, timeout_s):
            waited_s.append(timeout_s)
            self.set()

    counting._closing = Closing()
    counting._run()
    assert waited_s == [8.0]
    assert counting.counts.at_ms is not None


def test_what_runs_is_read_while_what_waits_is_still_counted(tmp_path, store):
    """A picture comes at once, and says what it lacks; keys are answered."""
    one, release = running(store), threading.Event()
    depths = type(store).depths

    def stuck(self):
        assert release.wait(WITHIN_S)
        return depths(self)

    def opener():
        return contextlib.closing(open_store(url_of(tmp_path)))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(store), "depths", stuck)
        with watching(opener) as watcher:
            until(watcher, lambda seen: seen.glance is not None, "a glance")
            glance = watcher.latest.glance
            assert glance.counted_ms is None
            assert [row.job.id for row in glance.running] == [one]
            watcher.ask(Pause(pool="io"))
            until(watcher, lambda seen: seen.said == "pool io paused", "an answer")
            release.set()
            until(watcher, lambda seen: seen.glance.counted_ms, "the counts")


def test_a_bug_in_a_thread_ends_it_with_its_error(store):
    """It is no silence with old figures."""
    for broken in ("depths", "leased"):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(store), broken, lambda *_: 1 / 0)
            with watching(lambda: contextlib.nullcontext(store)) as watcher:
                wait_until(lambda w=watcher: w.failure, WITHIN_S, "the failure")
                assert isinstance(watcher.failure, ZeroDivisionError)


@pytest.fixture
def screen(tmp_path, store):
    running(store)
    with shown(tmp_path, TOP) as screen:
        yield screen


def test_keys_work_in_a_terminal_which_is_left_as_it_was(screen, store):
    """A job is opened and canceled; q ends it, and the terminal echoes again."""
    screen.until("shop.thumbnail")
    screen.press("\r")
    screen.until("counts .*attempts 1")
    screen.press("\x1b")
    screen.until("LAST FAILURES")
    screen.press("c")
    screen.until(r"Cancel job 1 .*\[y/N\]")
    screen.press("y")
    screen.until("job 1 canceled")
    screen.press("q")
    assert screen.exit_code() == 0
    assert screen.told.endswith(LEFT)
    assert termios.tcgetattr(screen.fd) == screen.before
    assert store.get(1).cancel_requested


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)]
)
def test_a_signal_leaves_the_terminal_as_it_was(screen, number, code):
    """Whoever ends it does not end up in another screen without a cursor."""
    screen.until("shop.thumbnail")
    os.kill(screen.pid, number)
    assert screen.exit_code() == code
    assert screen.told.endswith(LEFT)
    assert termios.tcgetattr(screen.fd) == screen.before


def test_it_can_be_suspended_and_goes_on(tmp_path, store):
    """Ctrl-Z gives the terminal back for so long; the picture is drawn anew."""
    running(store)
    with shown(tmp_path, TOP, "set -m; {}; echo STOPPED; fg") as screen:
        screen.until("shop.thumbnail")
        screen.press("\x1a")
        screen.until(r"(?s)\x1b\[\?1049l.*STOPPED.*\x1b\[\?1049h.*shop.thumbnail")
        screen.press("q")
        assert screen.exit_code() == 0


def test_a_terminal_that_is_gone_ends_it(screen):
    """Nobody is left behind who reads a store for a window that was closed."""
    screen.until("shop.thumbnail")
    screen.hang_up()
    assert screen.exit_code() == 0


def test_without_a_store_it_says_so_as_any_command(tmp_path):
    """On the screen that was there before."""
    (tmp_path / "empty").mkdir()
    with shown(tmp_path / "empty", TOP) as screen:
        assert screen.exit_code() == 4
        assert re.search(r"1049l(?s:.*)Error: .*jobpool.db", screen.told)
