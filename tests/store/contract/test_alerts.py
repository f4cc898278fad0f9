"""Incidents and alerts, in every store: each is opened, ended and told once."""

import itertools

import msgspec
import pytest

from jobpool.core.config.settings import AlertSettings
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import JobpoolBug
from jobpool.monitoring.alerts.watcher import Watcher
from jobpool.store.operations.operators.alerting import (
    ABANDONED,
    ABANDONED_MS,
    KEPT_MS,
    after,
)
from jobpool.store.records.alerts import (
    MOVES,
    AlertEvent,
    AlertState,
    Found,
    Incident,
    NewAlert,
    Turn,
)
from support.store.flows import step, store_flow
from support.store.storing import ended, handed_back, lease, new_job, succeeded

DEAD = Found(rule="dead", subject="k", summary="3 jobs of k are dead")
OLD = Found(rule="oldest_age", subject="cpu", summary="ä job of cpu has waited")
BOTH = ("webhook", "command")


def turn(store, **found):
    """Take the next turn, as the only one who watches."""
    return Turn(number=store.watch().turn, notes="{}", **found)


def told(store):
    return [(one.name, one.receiver) for one in reversed(store.alerts())]


def test_one_of_those_who_have_looked_at_once_has_the_turn(store, clock):
    """What the others have found is dropped; the notes are those of the one."""
    assert store.watch()[:3] == (0, 0, "")
    mine = turn(store, opened=(DEAD,), receivers=BOTH)
    theirs = msgspec.structs.replace(mine, notes="theirs", opened=(OLD,))
    assert store.take_turn(mine)
    assert not store.take_turn(theirs)
    clock.advance(3)
    watch = store.watch()
    assert (watch.turn, watch.notes, watch.now_ms - watch.at_ms) == (1, "{}", 3000)
    assert [one.rule for one in store.incidents()] == ["dead"]
    assert told(store) == [("1-opened", "webhook"), ("1-opened", "command")]


def test_an_incident_opens_once_and_ends_once(store, clock):
    """Whatever a turn says; the alerts say it as it was at that moment."""
    began_ms = clock.utc_ms()
    store.take_turn(turn(store, opened=(DEAD, OLD, DEAD), receivers=("webhook",)))
    clock.advance(60)
    store.take_turn(turn(store, opened=(DEAD,), receivers=("webhook",)))
    newest, oldest = store.incidents()
    assert (oldest.rule, oldest.subject, oldest.summary) == ("dead", "k", DEAD.summary)
    assert (newest.summary, newest.opened_at_ms) == (OLD.summary, began_ms)
    for _ in range(2):
        store.take_turn(turn(store, ended=(oldest.id, 99), receivers=("webhook",)))
    assert store.incidents() == [newest]
    ended = msgspec.structs.replace(oldest, ended_at_ms=clock.utc_ms())
    assert store.incidents(ended=True) == [newest, ended]
    assert store.incidents(ended=True, limit=1) == [newest]
    bodies = [msgspec.json.decode(one.body, type=Incident) for one in store.alerts()]
    assert bodies == [ended, newest, oldest]
    names = [one.name for one in store.alerts()]
    first, second = oldest.id, newest.id
    assert names == [f"{first}-ended", f"{second}-opened", f"{first}-opened"]
    store.take_turn(turn(store, opened=(DEAD,)))
    assert len(store.incidents()) == 2, "it can open again"
    assert len(store.alerts()) == 3, "there was nobody to tell"


def test_a_digest_is_told_once_a_name(store):
    """Also if somebody has lost the notes, and tells it again."""
    digest = NewAlert(name="digest-2027-01-15", body='{"dead":3}')
    for receivers in (("webhook",), BOTH, BOTH):
        store.take_turn(turn(store, digest=digest, receivers=receivers))
    assert told(store) == [(digest.name, "webhook"), (digest.name, "command")]
    assert store.alerts()[0].body == digest.body


def test_an_alert_is_sent_by_one_at_a_time(store, clock):
    """Who is taken to be gone is followed by another, and says nothing any more."""
    store.take_turn(turn(store, opened=(DEAD,), receivers=("webhook",)))
    assert store.claim_alert(["command"], 30.0) is None
    first = store.claim_alert(["webhook", "command"], 30.0)
    assert (first.state, first.tries, first.incident) == (AlertState.SENDING, 1, 1)
    assert store.claim_alert(["webhook"], 30.0) is None
    clock.advance(30)
    second = store.claim_alert(["webhook"], 30.0)
    assert (second.id, second.tries) == (first.id, 2)
    assert not store.settle_alert(first, AlertEvent.TAKEN)
    assert store.settle_alert(second, AlertEvent.TAKEN)
    assert not store.settle_alert(second, AlertEvent.REFUSED)
    (row,) = store.alerts()
    assert (row.state, row.tries) == (AlertState.SENT, 2)
    assert (row.done_at_ms, row.next_at_ms) == (clock.utc_ms(), None)


def test_a_refused_alert_is_tried_again_until_it_is_given_up(store, clock):
    """With the reason; then it counts as unsent no more."""
    assert store.unsent(["webhook"]) == (0, 0)
    store.take_turn(turn(store, opened=(DEAD,), receivers=("webhook",)))
    alert = store.claim_alert(["webhook"], 30.0)
    refused = {"after_s": 10.0, "error": "503 \0 Service Unavailable"}
    assert store.settle_alert(alert, AlertEvent.REFUSED, **refused)
    assert store.alerts()[0].state is AlertState.WAITING
    assert store.alerts()[0].error.startswith("503 ")
    clock.advance(9.9)
    assert store.claim_alert(["webhook"], 30.0) is None
    assert store.unsent(["webhook"]) == (1, 9900)
    assert store.unsent(["command"]) == (0, 0)
    clock.advance(0.1)
    alert = store.claim_alert(["webhook"], 30.0)
    assert store.settle_alert(alert, AlertEvent.GIVE_UP, error="too old")
    assert store.unsent(["webhook"]) == (0, 0)
    assert (store.alerts()[0].state, store.alerts()[0].error) == ("failed", "too old")


def test_the_end_of_an_incident_is_told_after_its_beginning(store, clock):
    """To each receiver by itself; other incidents do not wait."""
    store.take_turn(turn(store, opened=(DEAD, OLD), receivers=BOTH))
    (old, dead) = store.incidents()
    store.take_turn(turn(store, ended=(dead.id,), receivers=BOTH))
    names = [store.claim_alert(["webhook"], 30.0) for _ in range(3)]
    assert [one and one.name for one in names] == [
        f"{dead.id}-opened",
        f"{old.id}-opened",
        None,
    ]
    assert store.settle_alert(names[0], AlertEvent.REFUSED, after_s=10.0)
    assert store.claim_alert(["webhook"], 30.0) is None
    for _ in range(2):
        store.settle_alert(store.claim_alert(["command"], 30.0), AlertEvent.TAKEN)
    assert store.claim_alert(["command"], 30.0).name == f"{dead.id}-ended"
    clock.advance(10)
    again = store.claim_alert(["webhook"], 30.0)
    assert again.name == f"{dead.id}-opened"
    assert store.settle_alert(again, AlertEvent.GIVE_UP)
    assert store.claim_alert(["webhook"], 30.0).name == f"{dead.id}-ended"


def test_an_alert_for_a_receiver_that_is_gone_is_given_up(store, clock):
    """Not before all who might have it configured would have given it up."""
    store.take_turn(turn(store, opened=(DEAD,), receivers=BOTH))
    assert store.claim_alert(["command"], 30.0) is not None
    clock.advance(ABANDONED_MS / 1000)
    store.take_turn(turn(store, receivers=("webhook",)))
    assert {one.done_at_ms for one in store.alerts()} == {None}
    clock.advance(0.001)
    store.take_turn(turn(store, receivers=("webhook",)))
    states = {one.receiver: (one.state, one.error) for one in store.alerts()}
    assert states == {"webhook": ("waiting", None), "command": ("failed", ABANDONED)}
    assert store.claim_alert(["command"], 30.0) is None
    assert store.claim_alert(["webhook"], 30.0) is not None


def test_old_incidents_and_alerts_are_deleted(store, clock):
    """What is open stays, and so does what is not sent."""
    store.take_turn(turn(store, opened=(DEAD, OLD), receivers=("webhook",)))
    (old, dead) = store.incidents()
    store.settle_alert(store.claim_alert(["webhook"], 30.0), AlertEvent.TAKEN)
    store.take_turn(turn(store, ended=(dead.id,)))
    clock.advance(KEPT_MS / 1000)
    store.take_turn(turn(store))
    assert len(store.incidents(ended=True)) == len(store.alerts()) == 2
    clock.advance(0.001)
    store.take_turn(turn(store))
    assert store.incidents(ended=True) == [old]
    assert [one.name for one in store.alerts()] == [f"{old.id}-opened"]


@pytest.mark.parametrize(
    ("state", "event"), [*itertools.product(AlertState, AlertEvent)], ids=str
)
def test_what_cannot_happen_to_an_alert_is_refused(state, event):
    """The table is complete; an alert that is done stays so, and none skips its try."""
    expected = MOVES[state][event]
    if state in {AlertState.SENT, AlertState.FAILED}:
        assert expected is None
    if expected is AlertState.SENT:
        assert state is AlertState.SENDING
    if expected is None:
        with pytest.raises(JobpoolBug, match=f"an alert is {state}"):
            after(state, event)
    else:
        assert after(state, event) is expected


def test_endings_are_counted_by_kind(store, clock):
    """Since moments, and failed attempts since the last count; each is counted once."""
    begin_ms = clock.utc_ms()
    store.enqueue([new_job()] * 4 + [new_job("shop.resize")])
    nothing = store.endings(begin_ms, lost_since_ms=begin_ms, after_attempt=None)
    assert nothing.counts == {}
    clock.advance(1)
    *others, dying = lease(store)
    store.settle(
        [
            succeeded(others[0]),
            ended(others[1]),
            ended(others[2], Outcome.INTERRUPTED),
            ended(others[3], give_up=True),
            succeeded(dying),
        ]
    )
    since = {"lost_since_ms": begin_ms, "after_attempt": nothing.last_attempt}
    kind = others[0].kind
    found = store.endings(begin_ms, **since)
    assert found.counts == {
        (kind, "succeeded"): 1,
        (kind, "dead"): 1,
        (kind, "failed"): 2,
        ("shop.resize", "succeeded"): 1,
    }
    assert found.lost == {kind: 1}
    clock.advance(1)
    now_ms = clock.utc_ms()
    after = found.last_attempt
    left = store.endings(now_ms, lost_since_ms=begin_ms, after_attempt=after)
    assert (left.counts, left.lost) == ({(kind, "dead"): 1}, {})
    left = store.endings(now_ms, lost_since_ms=now_ms, after_attempt=after)
    assert left.counts == {}


def test_a_flow_is_stuck_of_which_nothing_moves(store, clock):
    """Not one that runs, is delayed, is paused, or waits for a person."""
    stuck = store_flow(store, step(0), step(1, 0), name="stuck")
    moving = store_flow(store, step(0), step(1, 0), name="moving")
    paused = store_flow(store, step(0), name="paused")
    store.pause_flow(paused)
    store_flow(store, step(0), name="delayed", job={"delay_ms": 10**9})
    store_flow(store, step(0, external=True), name="asks")
    store.fold()
    assert store.stuck_flows(clock.utc_ms()) == [], "they are new"
    clock.advance(3600)
    began_ms = clock.utc_ms()
    clock.advance(60)
    moved = [one for one in lease(store) if store.flow_of(one.id).flow == moving]
    store.settle([succeeded(one) for one in moved])
    (busy,) = [one for one in store.leased() if store.flow_of(one.id).flow == stuck]
    assert store.stuck_flows(began_ms) == []
    (held,) = [one for one in store.leases_of("run-1") if one.id == busy.id]
    store.settle([handed_back(held)])
    assert store.stuck_flows(began_ms) == [(stuck, "stuck")]
    store.fold()
    clock.advance(3600)
    assert store.stuck_flows(clock.utc_ms()) == [(stuck, "stuck"), (moving, "moving")]


def test_a_watcher_works_on_every_store(store, clock):
    """It looks, finds, tells, and ends; and nobody else has its turn meanwhile."""
    told = []

    class Ear:
        place = "here"

        def send(self, name, body):
            told.append((name, msgspec.json.decode(body)["text"]))

    rules = AlertSettings(oldest_age_s=None, no_supervisor_s=None)
    watcher = Watcher(
        lambda: store, rules, {"webhook": Ear()}, lambda _event: None, queue=store.url
    )
    store.enqueue([new_job()] * 2)
    store.settle([ended(one, give_up=True) for one in lease(store)])
    store_flow(store, step(0), name="order")
    watcher.step(store)
    watcher.step(store)
    ((name, text),) = told
    assert name == "1-opened"
    said = "2 jobs of shop.thumbnail became dead within 15m00s; the last: "
    assert text.startswith(said)
    clock.advance(901)
    watcher.step(store)
    assert told[1:] == [("1-ended", f"over: {text}")]
    assert store.unsent(["webhook"]) == (0, 0)
