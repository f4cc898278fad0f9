"""Schedules as applications declare them, and as people put, pause and remove them."""

import msgspec
import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.schedules.policy import Overlap
from jobpool.core.rules.schedules.rule import Rule
from jobpool.core.rules.schedules.schedule import TickState
from jobpool.errors import FeatureHeldBack, UsageError
from jobpool.store.records.operating import Filter
from jobpool.store.records.schedules import Published
from support.store.scheduling import MINUTE_MS, declared, put, run_one, states
from support.store.storing import KINDS, begin_run, succeeded

ENGINES = ["sqlite", "memory"]
"""PostgreSQL's are walked beside the one in memory (`test_walk`)."""
DAY_MS = 86_400_000


def begin(store, run_id, version, application="shop"):
    """Begin a run of an application's code, and let time pass."""
    begin_run(store, run_id, application=application, app_version=version)
    return run_id


def names(store):
    """The schedules that are not retired."""
    rows = store.schedules()
    return [row.declared.name for row in rows if row.retired_ms is None]


def publish(store, run_id, *given, again=False):
    told = [one if not isinstance(one, str) else declared(one) for one in given]
    return store.publish_schedules(run_id, told, again=again)


# -- what applications declare ---------------------------------------------------------


def test_what_is_declared_is_added_changed_and_retired(store, clock):
    """What is the same is not touched, and what is gone has no ticks any more."""
    begin(store, "r", "v1")
    assert publish(store, "r", "a", "b") == Published(added=("a", "b"))
    assert publish(store, "r", "a", "b") == Published()
    clock.advance(1)
    hourly = declared("b", every_ms=3_600_000)
    assert publish(store, "r", hourly) == Published(changed=("b",), retired=("a",))
    gone, changed = store.schedules()
    assert (gone.retired_ms, gone.next_ms) == (clock.utc_ms(), None)
    assert (changed.declared, changed.application) == (hourly, "shop")
    assert (changed.since_ms, changed.app_version) == (clock.utc_ms(), "v1")
    clock.advance(120)
    assert store.tick().enqueued == 0


def test_a_schedule_that_comes_back_has_missed_nothing(store, clock):
    """It begins anew; a tick that waited when it was retired is not enqueued."""
    begin(store, "r", "v1")
    publish(store, "r", declared("a", overlap=Overlap.BUFFER_ONE))
    store.tick()
    clock.advance(60)
    store.tick()
    clock.advance(60)
    assert store.tick().buffered == 1
    store.renew("r", 60.0, anew=True)
    publish(store, "r")
    assert states(store, "a") == [TickState.OPEN, TickState.SKIPPED]
    store.settle([succeeded(store.lease("r", {"cpu": 1}, KINDS).leases[0])])
    clock.advance(3600)
    store.renew("r", 60.0, anew=True)
    assert publish(store, "r", "a") == Published(changed=("a",))
    assert (store.tick().enqueued, store.tick().missed) == (0, 0)
    clock.advance(60)
    assert store.tick().enqueued == 1


def test_options_that_change_leave_the_times_as_they_were(store, clock):
    """Only another rule counts from now."""
    begin(store, "r", "v1")
    publish(store, "r", "a")
    store.tick()
    clock.advance(40)
    other = declared("a", of={"priority": 7})
    assert publish(store, "r", other) == Published(changed=("a",))
    assert store.tick().enqueued == 0
    clock.advance(20)
    assert store.tick().enqueued == 1
    (job,) = store.find(Filter())
    assert job.priority == 7


def test_a_codec_that_makes_another_text_each_time_changes_nothing(store, clock):
    """Two runs of the same code would else store it in turn; a new run's is kept."""
    begin(store, "r", "v1")
    first, second = (
        msgspec.structs.replace(declared("a"), codec="fernet", payload=text)
        for text in (b"gAAA1", b"gAAA2")
    )
    assert publish(store, "r", first).added == ("a",)
    assert publish(store, "r", second, again=True) == Published()
    assert store.schedules("a")[0].declared == first
    clock.advance(1)
    assert publish(store, "r", second) == Published()  # with a new key, perhaps
    (row,) = store.schedules("a")
    assert (row.declared, row.since_ms) == (second, clock.utc_ms() - 1000)
    plain = msgspec.structs.replace(second, codec=None, payload=b"{}")
    assert publish(store, "r", plain, again=True).changed == ("a",)


def test_the_newest_living_code_decides(store, clock):
    """A rolling deploy does not flap, even if an old one is started again in it."""
    begin(store, "old", "v1")
    publish(store, "old", "a")
    clock.advance(1)
    begin(store, "new", "v2")
    assert publish(store, "new", "b").added == ("b",)
    store.end_run("old")
    clock.advance(1)
    begin(store, "old-again", "v1")
    assert publish(store, "old-again", "a") == Published(is_newest=False)
    assert names(store) == ["b"]
    store.end_run("new")
    assert publish(store, "old-again", "a").changed == ("a",)
    assert names(store) == ["a"]


def test_code_that_is_reloaded_is_as_new_as_its_version(store, clock):
    """Not as old as its supervisor."""
    begin(store, "first", "v1")
    clock.advance(1)
    begin(store, "second", "v1")
    clock.advance(1)
    begin(store, "first", "v2")
    assert publish(store, "second", "a") == Published(is_newest=False)
    assert publish(store, "first", "b").added == ("b",)


def test_a_run_that_is_gone_has_no_say(store, clock):
    """Once its lease ran out a minute ago."""
    begin(store, "old", "v1")
    clock.advance(1)
    begin(store, "new", "v2")
    clock.advance(121)
    store.renew("old", 60.0, anew=True)
    assert publish(store, "old", "a").added == ("a",)
    assert publish(store, "new", "b") == Published(is_newest=False)
    assert publish(store, "unknown", "b") == Published(is_newest=False)


def test_nobody_elses_schedules_are_touched(store):
    """Another application's of the same store, or such as were put."""
    begin(store, "shop", "v1")
    begin(store, "till", "v1", "till")
    publish(store, "shop", "a")
    put(store, "c")
    assert publish(store, "till", "a", "b", "c") == Published(
        added=("b",), refused=("a", "c")
    )
    assert publish(store, "till") == Published(retired=("b",))
    assert names(store) == ["a", "c"]
    with pytest.raises(UsageError, match="'a' is declared by the application 'shop'"):
        store.put_schedule(declared("a"))
    with pytest.raises(UsageError, match="'a' is declared by the application 'shop'"):
        store.remove_schedule("a")
    assert publish(store, "shop") == Published(retired=("a",))
    assert store.put_schedule(declared("a"))
    assert publish(store, "shop", "a") == Published(refused=("a",))


def test_a_schedule_whose_application_is_gone_can_be_removed(store, clock):
    """It was renamed, say: nobody else would ever retire it."""
    begin(store, "old", "v1", "shop.py")
    publish(store, "old", "a")
    clock.advance(119)
    with pytest.raises(UsageError, match="a minute after the last supervisor"):
        store.remove_schedule("a")
    clock.advance(2)
    assert store.remove_schedule("a")
    begin(store, "new", "v1", "shop.jobs")
    assert publish(store, "new", "a") == Published(added=("a",))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (declared("no name"), "is not a valid name"),
        (declared(rule=Rule(cron="0 0 31 2 *")), "bad day-of-month"),
        (declared(rule=Rule(cron="@daily", tz="Mars/Base")), "unknown here"),
        (declared(of={"priority": 10**6}), "priority: expected a whole number"),
        (declared(of={"timeout_s": 0.0}), "timeout_s: expected a finite number"),
    ],
)
def test_what_cannot_be_kept_is_refused_whole(store, wrong, why):
    """Nothing of it is stored, and the message names the schedule."""
    begin(store, "r", "v1")
    with pytest.raises(UsageError, match=why):
        publish(store, "r", "a", wrong)
    with pytest.raises(UsageError, match=f"{wrong.name}'.*nothing was stored"):
        store.put_schedule(wrong)
    assert store.schedules() == []


def test_an_encoded_schedule_enqueues_encoded_jobs(store, clock):
    """It waits, as such a job does, until no older supervisor runs."""
    encoded = declared(of={"codec": "fernet"})
    begin_run(store, "older", format=1)
    with pytest.raises(FeatureHeldBack):
        store.put_schedule(encoded)
    assert store.schedules() == []
    store.end_run("older")
    assert store.put_schedule(encoded)
    store.tick()
    clock.advance(60)
    store.tick()
    (job,) = store.find(Filter())
    assert job.codec == "fernet"
    assert store.schedules()[0].declared == encoded


# -- what people do --------------------------------------------------------------------


def test_a_schedule_that_is_put_can_be_changed_and_removed(store, clock):
    """Its jobs stay."""
    assert store.put_schedule(declared())
    assert not store.put_schedule(declared())
    store.tick()
    clock.advance(60)
    store.tick()
    assert store.put_schedule(declared(every_ms=1000))
    assert store.remove_schedule("poll")
    assert not store.remove_schedule("poll")
    assert (store.schedules(), store.ticks("poll")) == ([], [])
    (job,) = store.find(Filter())
    assert job.state is JobState.RUNNABLE
    assert run_one(store).schedule is None


def test_a_paused_schedule_has_no_ticks(store, clock):
    """None when it goes on either, unless it is to catch up."""
    put(store, "a", "b")
    for name in "ab":
        assert store.pause_schedule(name, who="ann", note="too loud")
        assert not store.pause_schedule(name)
    row = store.schedules("a")[0]
    assert (row.paused_by, row.note, row.paused_until_ms) == ("ann", "too loud", None)
    clock.advance(600.5)
    assert store.tick() == store.tick()
    assert store.resume_schedule("a")
    assert store.resume_schedule("b", catch_up=True)
    assert not store.resume_schedule("b")
    stepped = store.tick()
    assert (stepped.enqueued, stepped.missed) == (1, 9)
    assert [len(store.ticks(name)) for name in "ab"] == [0, 1]
    clock.advance(60)
    assert store.tick().enqueued == 1


def test_a_pause_ends_by_itself(store, clock):
    """At the time that was said, by the store's clock."""
    put(store)
    store.pause_schedule("poll", for_s=300.5)
    assert store.tick().next_due_in_s == 300.5
    clock.advance(300.5)
    assert store.tick().next_due_in_s == 59.5
    (row,) = store.schedules()
    assert (row.paused_ms, row.paused_until_ms, row.missed) == (None, None, 0)
    with pytest.raises(UsageError, match="longer than 0"):
        store.pause_schedule("poll", for_s=0.0)


def test_what_waits_is_held_by_a_pause(store, clock):
    """Its turn comes when the schedule goes on."""
    put(store, overlap=Overlap.BUFFER_ONE)
    clock.advance(60)
    store.tick()
    clock.advance(60)
    store.tick()
    store.pause_schedule("poll")
    run_one(store)
    assert store.tick().enqueued == 0
    store.resume_schedule("poll")
    assert store.tick().enqueued == 1


def test_run_now_is_a_tick_of_its_own(store, clock):
    """Of a paused one too; twice in a millisecond; the next one comes as it would."""
    put(store)
    store.pause_schedule("poll")
    first, second = store.run_now("poll"), store.run_now("poll")
    store.resume_schedule("poll")
    ticks = store.ticks("poll")
    now_ms = clock.utc_ms()
    assert [(one.job_id, one.nominal_ms) for one in ticks] == [
        (second, now_ms + 1),
        (first, now_ms),
    ]
    clock.advance(60)
    assert store.tick().skipped == 1


def test_a_span_is_back_filled_one_by_one(store, clock):
    """But for the times that have a tick; counted first, if that is wanted."""
    put(store)
    clock.advance(60)
    store.tick()
    now_ms = clock.utc_ms()
    span = (now_ms - 3 * MINUTE_MS, now_ms)
    assert store.backfill("poll", *span, dry_run=True) == 3
    assert len(store.ticks("poll")) == 1
    assert store.backfill("poll", *span) == 3
    assert store.backfill("poll", *span) == 0
    assert store.tick().enqueued == 0
    seen = []
    for more in (1, 1, 1, 0):
        seen.append(run_one(store).schedule)
        assert store.tick().enqueued == more
    assert [one.nominal_ms for one in seen[1:]] == [
        now_ms - minutes * MINUTE_MS for minutes in (3, 2, 1)
    ]
    assert [one.backfilled for one in seen] == [False, True, True, True]


def test_what_cannot_be_back_filled_is_refused(store, clock):
    """Too much, the future, and what has no times by itself, or none any more."""
    put(store, "a")
    put(store, "b", rule=Rule(every_ms=MINUTE_MS, from_end=True))
    begin(store, "r", "v")
    publish(store, "r", "d")
    publish(store, "r")
    now_ms = clock.utc_ms()
    for name, span, why in [
        ("a", (now_ms - DAY_MS, now_ms), "more than 1,000"),
        ("a", (now_ms - 1, now_ms + 1), "a span of the past"),
        ("a", (now_ms, now_ms - 1), "a span of the past"),
        ("b", (now_ms - 1, now_ms), 'from_="end"'),
        ("c", (now_ms - 1, now_ms), "there is no schedule 'c'"),
        ("d", (now_ms - DAY_MS, now_ms), "is retired"),
    ]:
        with pytest.raises(UsageError, match=why):
            store.backfill(name, *span)
    assert store.ticks("a") == []


def test_a_restored_store_skips_or_catches_up(store, clock):
    """All schedules but those that are paused."""
    put(store, "a", "b", "c")
    store.pause_schedule("c")
    clock.advance(3600.5)
    assert store.restart_schedules(catch_up=False) == 2
    assert (store.tick().enqueued, store.tick().missed) == (0, 0)
    clock.advance(3600)
    assert store.restart_schedules(catch_up=True) == 2
    assert store.tick().enqueued == 2


@pytest.mark.parametrize("method", ["pause_schedule", "resume_schedule", "run_now"])
def test_an_unknown_schedule_is_named(store, method):
    with pytest.raises(UsageError, match="there is no schedule 'x'"):
        getattr(store, method)("x")
