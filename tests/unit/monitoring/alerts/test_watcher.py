"""Those who watch: each incident is found, told and over once, whoever dies."""

import msgspec
import pytest

from jobpool.core.events.alerts import (
    AlertNotSent,
    IncidentEnded,
    IncidentOpened,
    NotWatched,
)
from jobpool.core.jobs.job import Evidence
from jobpool.core.jobs.outcome import Outcome
from jobpool.monitoring.alerts import watcher as watching
from jobpool.monitoring.alerts.watcher import EVERY_S, GIVE_UP_MS
from support.store.storing import ended, lease, new_job
from support.waiting import wait_until

PATIENCE_S = 30.0
HOOK = "https://x.example"


def kill_one(store):
    store.enqueue([new_job()])
    store.settle(
        [ended(one, Outcome.FAILED, give_up=True) for one in lease(store, limit=1)]
    )


def go_on(store, clock, *watchers, passed_s, every_s=EVERY_S):
    """Let time pass, and all of them look as often as they do."""
    while passed_s > 0:
        clock.advance(min(every_s, passed_s))
        passed_s -= every_s
        store.renew("run-1", 60.0, anew=True)
        for one in watchers:
            one.step(store)


def test_an_incident_is_told_when_it_opens_and_when_it_ends(
    store, clock, watcher, ear, events
):
    one = watcher()
    kill_one(store)
    one.step(store)
    assert ear.names == ["1-opened"]
    told = msgspec.json.decode(ear.heard[0][1])
    assert (told["event"], told["rule"], told["severity"]) == (
        *("opened", "dead"),
        "ticket",
    )
    assert (told["id"], told["queue"]) == ("1-opened", store.url)
    assert told["text"] == (
        "1 job of shop.thumbnail became dead within 15m00s; the last: failed (jobpool "
        "show 1)"
    )
    assert told["runbook"] == "jobpool manual alerts#dead"
    go_on(store, clock, one, passed_s=930)
    assert ear.names == ["1-opened", "1-ended"]
    over = msgspec.json.decode(ear.heard[1][1])
    assert (over["event"], over["text"]) == ("ended", f"over: {told['text']}")
    assert over["ended_at"] > over["opened_at"] == told["opened_at"]
    assert [type(event) for event in events] == [IncidentOpened, IncidentEnded]
    assert events[1].lasted_s == 915


def test_an_alert_names_the_class_of_an_error_and_not_its_text(
    store, clock, watcher, ear
):
    """Its receiver may be anybody's: the text of an error may hold anything."""
    store.enqueue([new_job()] * 2)
    first, last = lease(store, limit=2)
    store.settle([ended(first, Outcome.TIMED_OUT, give_up=True)])
    clock.advance(1.0)
    evidence = Evidence(
        reason="raised shop.NoAddress: Ada has none",
        error_class="shop.NoAddress",
        error="Ada has none",
    )
    store.settle([ended(last, Outcome.FAILED, give_up=True, evidence=evidence)])
    watcher().step(store)
    ((_, body),) = ear.heard
    text = msgspec.json.decode(body)["text"]
    assert text.endswith(f"; the last: shop.NoAddress (jobpool show {last.id})")
    assert b"Ada" not in body


def test_of_many_who_watch_one_finds_it_and_one_tells_it(store, clock, watcher, ear):
    many = [watcher() for _ in range(5)]
    kill_one(store)
    go_on(store, clock, *many, passed_s=1000)
    assert ear.names == ["1-opened", "1-ended"]


def test_one_that_is_killed_while_it_tells_is_followed_by_another(
    store, clock, watcher, ear
):
    """The receiver hears it again, by the same name."""
    kill_one(store)
    first, second = watcher(), watcher()

    class Killed(BaseException):
        pass

    def die(*_args, **_more):
        raise Killed

    store.settle_alert, settle = die, store.settle_alert
    with pytest.raises(Killed):
        first.step(store)
    store.settle_alert = settle
    assert ear.names == ["1-opened"]
    second.step(store)
    assert ear.names == ["1-opened"], "the first may still be at it"
    clock.advance(61)
    second.step(store)
    assert ear.names == ["1-opened", "1-opened"]
    assert ear.heard[0] == ear.heard[1]
    clock.advance(61)
    second.step(store)
    assert len(ear.heard) == 2


def test_what_is_refused_is_told_later_and_given_up_in_the_end(
    store, clock, watcher, ear, events
):
    one = watcher()
    kill_one(store)
    ear.refuses = "x.example:443 said 503"
    one.step(store)
    (failed,) = (event for event in events if isinstance(event, AlertNotSent))
    assert (failed.reason, failed.again_in_s) == (ear.refuses, 10.0)
    pauses = []
    for _ in range(8):
        clock.advance(events[-1].again_in_s)
        one.step(store)
        pauses.append(events[-1].again_in_s)
    assert pauses[:3] == [20.0, 40.0, 80.0]
    assert pauses[-1] == 900.0
    clock.advance(GIVE_UP_MS / 1000)
    one.step(store)
    not_sent = [event for event in events if isinstance(event, AlertNotSent)]
    assert not_sent[-1].again_in_s is None or not_sent[-2].again_in_s is None
    assert store.alerts()[-1].state == "failed"


def test_a_bug_in_a_receiver_costs_its_alert_a_try_and_no_other(
    store, clock, watcher, ear, events
):
    """And says where to look."""
    one = watcher()
    kill_one(store)
    ear.send, send = (lambda _name, _body: {}["host"]), ear.send
    one.step(store)
    (failed,) = (event for event in events if isinstance(event, AlertNotSent))
    assert failed.reason.startswith("KeyError: 'host' (test_watcher.py:")
    assert failed.reason.endswith("please report it")
    assert failed.again_in_s == 10.0
    ear.send = send
    clock.advance(10)
    one.step(store)
    assert ear.names == ["1-opened"]


def broken(store):
    """Have the store raise what nobody expects whenever it is looked at."""
    ends, store.endings = store.endings, lambda *_args, **_named: {}["kind"]
    return ends


def test_what_was_found_before_is_told_though_looking_has_a_bug(
    store, clock, watcher, ear
):
    one = watcher()
    kill_one(store)
    ear.refuses = "gone"
    one.step(store)
    ear.refuses = ""
    broken(store)
    clock.advance(EVERY_S)
    with pytest.raises(KeyError):
        one.step(store)
    assert ear.names == ["1-opened"]


def test_a_bug_is_told_once_and_watching_goes_on(
    store, watcher, ear, events, monkeypatch
):
    """Else one strange row would end all watchers, one after the other, in silence."""
    monkeypatch.setattr(watching, "_POLL_S", 0.005)
    monkeypatch.setattr(store, "close", lambda: None)
    kill_one(store)
    looked, mends = [], broken(store)
    watch = store.watch
    monkeypatch.setattr(store, "watch", lambda: looked.append(1) or watch())
    one = watcher()
    one.start()
    try:
        wait_until(lambda: len(looked) > 2, PATIENCE_S, "it looks again")
        (told,) = events
        assert type(told) is NotWatched
        assert told.reason.startswith("KeyError: 'kind' (test_watcher.py:")
        store.endings = mends
        wait_until(lambda: ear.names == ["1-opened"], PATIENCE_S, "it watches")
    finally:
        one.close()


def test_an_alert_whose_row_is_damaged_is_given_up(store, clock, watcher, ear, events):
    """The others are told."""
    one = watcher()
    kill_one(store)
    claim = store.claim_alert
    store.claim_alert = lambda *_args: None
    one.step(store)
    store.claim_alert = claim
    (alert,) = store.alerts()
    store._database.alerts[alert.id] = msgspec.structs.replace(alert, body="{")
    go_on(store, clock, one, passed_s=930)
    assert ear.names == ["1-ended"]
    (failed,) = (event for event in events if isinstance(event, AlertNotSent))
    assert failed.reason == "its row in the database cannot be read"
    assert failed.again_in_s is None


def test_lost_notes_leave_no_incident_open(store, clock, watcher, ear):
    """It is known from the store, and ends as any other."""
    one = watcher()
    kill_one(store)
    one.step(store)
    store._database.watch[""] = (7, 0, "garbage")
    go_on(store, clock, one, passed_s=930)
    assert store.incidents() == []
    assert ear.names == ["1-opened", "1-ended"]


def test_a_digest_comes_once_a_day_over_all_who_watch(store, clock, watcher, ear):
    """Of what became dead since the last one; nothing is sent if nothing did."""
    many = [watcher(digest=8 * 60, dead=None, ratio=None) for _ in range(3)]
    go_on(store, clock, *many, passed_s=60)
    for _ in range(3):
        kill_one(store)
    go_on(store, clock, *many, passed_s=86_400, every_s=600)
    ((name, body),) = ear.heard
    told = msgspec.json.decode(body)
    assert name == f"digest-{told['since'][:8]}16"
    assert told["event"] == "digest"
    assert told["dead"] == [{"kind": "shop.thumbnail", "jobs": 3}]
    assert told["text"] == "jobs that need a look: 3 dead"
    go_on(store, clock, *many, passed_s=86_400, every_s=600)
    assert len(ear.heard) == 1


def test_the_heartbeat_beats_each_minute_while_all_is_well(
    store, clock, watcher, ear, monkeypatch
):
    """Once over all who watch; not without a supervisor, nor if nobody hears alerts."""
    beats = []
    monkeypatch.setattr(
        watching, "request", lambda method, url, **_: beats.append((method, url))
    )
    many = [watcher(heartbeat_url=f"{HOOK}/beat", no_supervisor_s=None)] * 3
    go_on(store, clock, *many, passed_s=300)
    assert beats == [("GET", f"{HOOK}/beat")] * 5
    clock.advance(61)
    many[0].step(store)
    assert len(beats) == 5, "the supervisor is not heard of"
    go_on(store, clock, *many, passed_s=60)
    assert len(beats) == 6
    ear.refuses = "gone"
    kill_one(store)
    go_on(store, clock, *many, passed_s=500)
    before = len(beats)
    go_on(store, clock, *many, passed_s=600)
    assert len(beats) <= before + 3


def test_an_alert_for_a_receiver_that_is_gone_keeps_no_heartbeat_back(
    store, watcher, monkeypatch
):
    """Else whoever replaces a receiver that took nothing never hears one again."""
    beats = []
    monkeypatch.setattr(watching, "request", lambda *_args, **_more: beats.append(1))
    store.unsent = lambda receivers: (1, 10**9) if "former" in receivers else (0, 0)
    watcher(heartbeat_url=f"{HOOK}/beat", no_supervisor_s=None).step(store)
    assert beats == [1]
