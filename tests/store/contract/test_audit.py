"""What people do, and the trail of it: both are committed together, or neither is."""

import json
from types import SimpleNamespace

import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState, NewJob
from jobpool.core.rules.policy import Policy
from jobpool.errors import Forbidden, StoreUnavailable, UsageError
from jobpool.operations import operate as operating
from jobpool.operations.action import Done
from jobpool.operations.arguments.replay import Replacement, Replay, successor
from jobpool.operations.jobs import Cancel, Release, Retry
from jobpool.operations.operate import LEAST_ROLE, NOTE_MAX, REFUSALS_MAX, operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.queue import Enqueue, Pause, Prune, Reclaim, Resume
from jobpool.operations.selection import Selection
from jobpool.store.records.operating import AuditEntry, AuditFilter, Filter
from support.store.storing import ended, lease, lease_one, new_job, succeeded

ADMIN = Principal(who="ann", role=Role.ADMIN, origin="a test")
VIEWER = Principal(who="vic", role=Role.VIEWER, origin="the web, 10.0.0.7")
EVERYTHING = AuditFilter()
DAY_S = 86400


def entry(**fields):
    given = {"who": "ann", "role": "admin", "origin": "here", "action": "cancel"}
    return AuditEntry(**{"target": "{}", **given, **fields})


def by_ids(*ids):
    return Selection(ids=ids)


def by_kind(kind="shop.thumbnail", *states):
    return Selection(which=Filter(kind=kind), shown=states)


def some(store, count, **options):
    return [one.id for one in store.enqueue([new_job(**options)] * count)]


def snapshot(store):
    """What an action may change, and the trail."""
    return (
        store.find(Filter()),
        store.paused(),
        store.breakers(),
        store.audits(EVERYTHING),
    )


# -- the store's part ----------------------------------------------------------------


def test_a_row_is_what_was_written(store, clock):
    """With the moment by the store's clock; texts that cannot be stored are mended."""
    told = entry(jobs=3, changed="/a, /b", note="why\0 \ud800")
    audit_id = store.audit(told)
    (row,) = store.audits(EVERYTHING)
    assert (row.id, row.at_ms, row.jobs) == (audit_id, clock.utc_ms(), 3)
    assert (row.who, row.role, row.origin) == ("ann", "admin", "here")
    assert (row.action, row.target, row.changed) == ("cancel", "{}", "/a, /b")
    assert row.note.startswith("why")


def test_a_row_that_goes_on_keeps_its_beginning(store, clock):
    """Target and count are of now; one that was deleted meanwhile is written anew."""
    first = store.audit(entry(jobs=1))
    begun_ms = clock.utc_ms()
    clock.advance(5)
    assert store.audit(entry(jobs=2, target='{"ids":"1-2"}'), first) == first
    (row,) = store.audits(EVERYTHING)
    assert (row.at_ms, row.jobs, row.target) == (begun_ms, 2, '{"ids":"1-2"}')
    gone = first + 99
    other = store.audit(entry(jobs=7), gone)
    assert [one.jobs for one in store.audits(EVERYTHING)] == [7, 2]
    assert other != first


def test_rows_are_found(store, clock):
    """By time, name and action; newest first, and a page at a time."""
    for number, (who, action) in enumerate(
        [("ann", "cancel"), ("root (sudo by ann)", "retry"), ("bob", "retry")]
    ):
        store.audit(entry(who=who, action=action, jobs=number))
        clock.advance(10)

    def found(*args, **conditions):
        return [one.jobs for one in store.audits(AuditFilter(**conditions), *args)]

    assert found() == [2, 1, 0]
    assert found(who="ann") == [1, 0]
    assert found(who="%") == []
    assert found(action="retry") == [2, 1]
    assert found(action="retry", who="bob") == [2]
    assert found(since_ms=clock.utc_ms() - 20_000) == [2, 1]
    assert found(2) == [2, 1]
    oldest = store.audits(EVERYTHING)[1].id
    assert found(100, oldest) == [0]


def test_the_trail_has_a_retention_of_its_own(store, clock):
    """Bounded at each call; None: for ever. Jobs are counted, rows are not."""
    for number in range(5):
        store.audit(entry(jobs=number))
        clock.advance(1)
    assert store.prune(Retention(audit_s=None)) == 0
    assert store.prune(Retention(audit_s=2.5), limit=1) == 0
    assert [one.jobs for one in store.audits(EVERYTHING)] == [4, 3, 2, 1]
    assert store.prune(Retention(audit_s=2.5)) == 0
    assert [one.jobs for one in store.audits(EVERYTHING)] == [4, 3]
    clock.advance(365 * DAY_S)
    store.prune(Retention())
    assert store.audits(EVERYTHING) == []


# -- together or not at all -----------------------------------------------------------


def repaired(job, _payload):
    """What a replay makes of a job."""
    new = successor(job, kind=job.kind, pool=job.pool, payload=b'{"n":1}')
    return Replacement(new, ("/n",))


ACTIONS = {
    "cancel": lambda ids: Cancel(jobs=by_ids(*ids)),
    "cancel by filter": lambda _: Cancel(jobs=by_kind()),
    "retry": lambda ids: Retry(jobs=by_ids(*ids)),
    "enqueue": lambda _: Enqueue(
        kind="k", pool="p", batches=[[NewJob(kind="k", pool="p", payload=b"{}")]]
    ),
    "pause": lambda _: Pause(pool="cpu"),
    "resume": lambda _: Resume(kind="shop.resize"),
    "replay": lambda _: Replay(
        jobs=by_kind("shop.resize", "canceled"), replace=repaired
    ),
    "prune": lambda _: Prune(retention=Retention(canceled_s=0.0)),
}


@pytest.fixture
def ready(store, clock):
    """Each of the actions above changes something here."""
    store.cancel(some(store, 1, kind="shop.resize"))
    store.pause(kind="shop.resize")
    clock.advance(1)
    return some(store, 3, delay_ms=60_000)


@pytest.mark.parametrize("name", ACTIONS)
def test_a_change_is_seen_with_its_row(store, store_factory, monkeypatch, ready, name):
    """While the row is being written others see neither; then both."""
    other = store_factory()
    before, seen, audit = snapshot(other), [], store.audit

    def looked_at(*args):
        seen.append(snapshot(other))
        return audit(*args)

    monkeypatch.setattr(store, "audit", looked_at)
    assert operate(store, ADMIN, ACTIONS[name](ready)).is_made
    assert seen == [before]
    *state, trail = snapshot(other)
    assert state != list(before[:-1])
    assert [row.action for row in trail] == [name.partition(" ")[0]]


@pytest.mark.parametrize("name", ACTIONS)
def test_without_its_row_a_change_does_not_happen(store, monkeypatch, ready, name):
    """What cannot be written down is not done."""
    before = snapshot(store)

    def full(*_):
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(store, "audit", full)
    done = Done()
    with pytest.raises(StoreUnavailable):
        operate(store, ADMIN, ACTIONS[name](ready), done)
    assert snapshot(store) == before
    assert (done.jobs, done.is_made) == (0, False)


def test_a_bulk_that_breaks_off_has_a_row_of_what_it_did(store, monkeypatch):
    """One row for all its batches; an error in one leaves those before it."""
    monkeypatch.setattr("jobpool.operations.jobs._BATCH", 10)
    ids, cancel = some(store, 35), store.cancel
    calls = []

    def third_fails(batch):
        calls.append(batch)
        if len(calls) == 3:
            raise StoreUnavailable("gone")
        return cancel(batch)

    monkeypatch.setattr(store, "cancel", third_fails)
    done = Done()
    with pytest.raises(StoreUnavailable):
        operate(store, ADMIN, Cancel(jobs=by_kind()), done)
    (row,) = store.audits(EVERYTHING)
    assert (
        row.jobs == done.jobs == store.count(Filter(states=(JobState.CANCELED,))) == 20
    )
    assert json.loads(row.target)["ids"] == f"{ids[0]}-{ids[19]}"
    assert done.matched == 35


def test_a_bulk_is_one_row(store, monkeypatch):
    """Filter, count and ids, however many batches it took."""
    monkeypatch.setattr("jobpool.operations.jobs._BATCH", 10)
    ids = some(store, 35)
    store.cancel([ids[4]])
    done = operate(store, ADMIN, Cancel(jobs=by_kind(), note="  no more cats "))
    assert (done.jobs, done.matched, done.refused) == (34, 34, [])
    (row,) = store.audits(EVERYTHING)
    assert json.loads(row.target) == {
        "kind": "shop.thumbnail",
        "ids": f"{ids[0]}-{ids[3]},{ids[5]}-{ids[34]}",
    }
    assert (row.jobs, row.note) == (34, "no more cats")


def test_a_short_pause_is_one(store):
    """It does not end at the moment at which it begins: its row says it was made."""
    assert operate(store, ADMIN, Pause(pool="cpu", for_s=1e-9)).is_made
    assert store.paused() == [("pool", "cpu")]


def test_nobody_prunes_the_trail(store, clock):
    """It goes by its own age alone: not even its own row would say who did."""
    operate(store, ADMIN, Cancel(jobs=by_ids(*some(store, 1))))
    clock.advance(1)
    everything = Retention(audit_s=0.0, canceled_s=0.0)
    assert operate(store, ADMIN, Prune(retention=everything)).jobs == 1
    clock.advance(1)
    assert not operate(store, ADMIN, Prune(retention=everything)).is_made
    rows = store.audits(EVERYTHING)
    assert [row.action for row in rows] == ["prune", "cancel"]
    assert "audit" not in rows[0].target


def test_pruning_ends_beside_a_busy_supervisor(store, monkeypatch):
    """Jobs that end as fast as they are deleted do not keep it for ever."""
    calls = []

    def one_more(retention, limit):
        calls.append(limit)
        assert len(calls) < 4
        return limit if len(calls) < 2 else 1

    monkeypatch.setattr(store, "prune", one_more)
    assert operate(store, ADMIN, Prune(retention=Retention())).jobs == calls[0] + 1


def test_what_changes_nothing_has_no_row(store):
    """Nothing was done that anybody could ask about."""
    (job_id,) = some(store, 1)
    store.pause(pool="io")
    assert not operate(store, ADMIN, Retry(jobs=by_ids(job_id, 999))).is_made
    assert not operate(store, ADMIN, Cancel(jobs=by_kind("nobodys"))).is_made
    assert not operate(store, ADMIN, Pause(pool="io")).is_made
    assert not operate(store, ADMIN, Resume(pool="cpu")).is_made
    assert not operate(store, ADMIN, Prune(retention=Retention())).is_made
    assert store.audits(EVERYTHING) == []


def test_no_payload_is_in_the_trail(store):
    """Whatever is enqueued, and whichever key or tenant it has."""
    job = NewJob(
        kind="k", pool="p", payload=b'{"card":"4111"}', key="k4111", tenant="t"
    )
    operate(store, ADMIN, Enqueue(kind="k", pool="p", batches=[[job] * 1]))
    (row,) = store.audits(EVERYTHING)
    assert "4111" not in repr(row)
    assert json.loads(row.target) == {"kind": "k", "pool": "p", "ids": "1"}


def test_jobs_enqueued_by_hand_are_counted_once(store):
    """A key that exists makes no job, and alone no row."""
    job = new_job(key="once")
    told = []
    action = Enqueue(
        kind=job.kind,
        pool=job.pool,
        batches=[[job], [job, new_job()]],
        on_stored=told.extend,
    )
    done = operate(store, ADMIN, action)
    assert (done.jobs, done.matched) == (2, 3)
    assert [one.created for one in told] == [True, False, True]
    assert [row.jobs for row in store.audits(EVERYTHING)] == [2]
    again = Enqueue(kind=job.kind, pool=job.pool, batches=[[job]])
    assert not operate(store, ADMIN, again).is_made
    assert len(store.audits(EVERYTHING)) == 1


def test_what_has_another_state_by_now_is_left_alone(store, monkeypatch):
    """It was selected hours ago: it has begun since, between two batches."""
    monkeypatch.setattr("jobpool.operations.jobs._BATCH", 2)
    moved, now_s = [], [0.0]

    def move(seconds):
        now_s[0] += seconds
        if not moved:
            moved.extend(lease(store, limit=4))

    # A clock of its own: after a slow batch the real one leaves nothing to sleep for.
    clock = SimpleNamespace(sleep=move, monotonic=lambda: now_s[0])
    monkeypatch.setattr("jobpool.operations.jobs.time", clock)
    ids = some(store, 6)
    waiting = Selection(which=Filter(kind="shop.thumbnail"), shown=("runnable",))
    done = operate(store, ADMIN, Cancel(jobs=waiting, per_s=20.0))
    assert len(moved) == 4
    assert (done.jobs, done.matched) == (2, 6)
    (row,) = store.audits(EVERYTHING)
    assert json.loads(row.target)["ids"] == f"{ids[0]}-{ids[1]}"


# -- canaries -------------------------------------------------------------------------


def died(store, count, **options):
    """Have so many jobs dead."""
    ids = some(store, count, **options)
    for granted in lease(store):
        store.settle([ended(granted, policy=Policy(max_attempts=1))])
    return ids


class Hands:
    """A supervisor's part, done while somebody waits: one job at each look."""

    def __init__(self, store, *ends):
        self.store, self.ends, self.leased = store, list(ends), []

    def __call__(self, done):
        if not self.ends:
            return
        end = self.ends.pop(0)
        granted = lease_one(self.store)
        self.leased.append(granted.id)
        settled = succeeded(granted) if end else ended(granted, policy=ONE_TRY)
        self.store.settle([settled])


ONE_TRY = Policy(max_attempts=1)


def test_the_rest_waits_for_the_canaries(store, monkeypatch):
    """Until the last of them has ended, nobody else has moved."""
    monkeypatch.setattr("jobpool.operations.jobs.time.sleep", lambda _: None)
    ids = died(store, 5)
    hands = Hands(store, True, False, True)
    action = Retry(jobs=by_kind(), canary=3, stop_after=2, on_check=hands)
    done = operate(store, ADMIN, action)
    assert hands.leased == ids[:3]
    assert (done.jobs, done.failed, done.is_stopped) == (5, [ids[1]], False)
    assert done.canaries == {ids[0]: "succeeded", ids[1]: "dead", ids[2]: "succeeded"}
    assert [store.get(i).state for i in ids[3:]] == ["runnable", "runnable"]
    assert [row.jobs for row in store.audits(EVERYTHING)] == [5]


def test_failures_stop_it_at_once(store, monkeypatch):
    """The last canary is not waited for: more would learn nothing."""
    monkeypatch.setattr("jobpool.operations.jobs.time.sleep", lambda _: None)
    ids = died(store, 5)
    hands = Hands(store, False, False)
    action = Retry(jobs=by_ids(*ids), canary=3, stop_after=2, on_check=hands)
    done = operate(store, ADMIN, action)
    assert (done.jobs, done.matched, done.is_stopped) == (3, 5, True)
    assert done.failed == ids[:2]
    assert [store.get(i).state for i in ids[2:]] == ["runnable", "dead", "dead"]


def test_jobs_that_cannot_be_revived_are_no_canaries(store, monkeypatch):
    """Another job holds their unique text: they tell nothing, and others are taken."""
    monkeypatch.setattr("jobpool.operations.jobs.time.sleep", lambda _: None)
    held = died(store, 1, unique="cat")
    store.enqueue([new_job(unique="cat", delay_ms=10**6)])
    ids = died(store, 3)
    hands = Hands(store, True, True)
    done = operate(store, ADMIN, Retry(jobs=by_kind(), canary=2, on_check=hands))
    assert hands.leased == ids[:2]
    assert list(done.canaries) == ids[:2]
    assert (done.jobs, done.matched, done.is_stopped) == (3, 4, False)
    assert store.get(*held).state is JobState.DEAD
    (row,) = store.audits(EVERYTHING)
    assert json.loads(row.target)["ids"] == f"{ids[0]}-{ids[2]}"


def test_a_canary_that_is_gone_has_not_succeeded(store, clock, monkeypatch):
    """It was pruned: nobody can say how it ended."""
    monkeypatch.setattr("jobpool.operations.jobs.time.sleep", lambda _: None)
    ids = died(store, 2)

    def prune(_):
        store.cancel(ids[:1])
        clock.advance(1)
        store.prune(Retention(canceled_s=0.0))

    done = operate(store, ADMIN, Retry(jobs=by_kind(), canary=1, on_check=prune))
    assert (done.failed, done.is_stopped) == ([ids[0]], True)
    assert store.get(ids[1]).state is JobState.DEAD


def test_a_canary_that_is_canceled_has_not_succeeded(store, monkeypatch):
    """Whoever stops it sees it do harm: the rest must not follow."""
    monkeypatch.setattr("jobpool.operations.jobs.time.sleep", lambda _: None)
    ids = died(store, 2)
    action = Retry(
        jobs=by_kind(), canary=1, on_check=lambda done: store.cancel([*done.canaries])
    )
    done = operate(store, ADMIN, action)
    assert (done.failed, done.is_stopped) == ([ids[0]], True)
    assert store.get(ids[1]).state is JobState.DEAD


@pytest.mark.parametrize(("canary", "stop_after"), [(2, 0), (2, 3), (0, 1)])
def test_a_stop_that_cannot_be_is_refused(store, canary, stop_after):
    """Before anything is changed."""
    ids = died(store, 3)
    action = Retry(jobs=by_ids(*ids), canary=canary, stop_after=stop_after)
    with pytest.raises(UsageError, match="nothing was changed"):
        operate(store, ADMIN, action)
    assert {store.get(i).state for i in ids} == {JobState.DEAD}


# -- who may ---------------------------------------------------------------------------


@pytest.mark.parametrize("role", Role, ids=lambda role: role.text)
@pytest.mark.parametrize("name", ACTIONS)
def test_roles(store, ready, name, role):
    """The table decides: what is refused changes nothing, and leaves its row."""
    action = ACTIONS[name](ready)
    somebody = Principal(who="sam", role=role, origin="a test")
    *before, _ = snapshot(store)
    if role >= LEAST_ROLE[type(action)]:
        assert operate(store, somebody, action).is_made
        (row,) = store.audits(EVERYTHING)
        assert (row.action, row.role) == (action.name, role.text)
        return
    with pytest.raises(Forbidden, match=r"sam \(.*\) may not .* nothing was changed"):
        operate(store, somebody, action)
    *after, trail = snapshot(store)
    assert after == before
    (row,) = trail
    assert (row.action, row.role, row.jobs) == ("refused", role.text, 0)
    assert json.loads(row.target)["action"] == action.name


def test_refusals_do_not_fill_the_store(store, monkeypatch):
    """At most so many rows an hour for one name; others still get theirs."""
    monkeypatch.setattr(operating, "REFUSALS_MAX", 3)
    for _ in range(5):
        with pytest.raises(Forbidden):
            operate(store, VIEWER, Pause(pool="cpu"))
    assert len(store.audits(EVERYTHING)) == 3
    other = Principal(who="v", role=Role.VIEWER, origin="elsewhere")
    with pytest.raises(Forbidden):
        operate(store, other, Pause(pool="cpu"))
    assert [row.who for row in store.audits(EVERYTHING)] == ["v", *["vic"] * 3]
    assert REFUSALS_MAX == 100


@pytest.mark.parametrize("who", ["v\0", "v\ud800", "v" * 999], ids=ascii)
def test_refusals_of_any_name_are_counted(store, monkeypatch, who):
    """By the name as it is stored: else one that no database can hold has no limit."""
    monkeypatch.setattr(operating, "REFUSALS_MAX", 3)
    somebody = Principal(who=who, role=Role.VIEWER, origin=who)
    for _ in range(5):
        with pytest.raises(Forbidden):
            operate(store, somebody, Pause(pool="cpu"))
    assert len(store.audits(EVERYTHING)) == 3


def test_a_refusal_is_written_whatever_was_asked_for(store):
    """Texts of any length that no database can hold, ids without number."""
    long = "\ud800\0" * 10_000
    asked = (
        Cancel(jobs=by_kind(long, *[long] * 1000), note=None),
        Cancel(jobs=by_ids(*range(0, 10**5, 2))),
        Cancel(jobs=Selection(which=Filter(ids=tuple(range(0, 10**5, 2))))),
        Pause(pool=long),
    )
    for action in asked:
        with pytest.raises(Forbidden):
            operate(store, VIEWER, action)
    rows = store.audits(EVERYTHING)
    assert [row.action for row in rows] == ["refused"] * 4
    assert max(len(row.target) for row in rows) < 10_000
    assert [json.loads(row.target)["action"] for row in rows] == [
        "pause",
        *["cancel"] * 3,
    ]


@pytest.mark.parametrize(
    "action",
    [
        Cancel(jobs=Selection()),
        Retry(jobs=Selection(ids=(1,), which=Filter(kind="k"))),
        Release(jobs=by_ids(1), note="n" * (NOTE_MAX + 1)),
        Pause(pool="cpu", note=b"bytes"),
        Pause(),
        Resume(pool="a", kind="b"),
    ],
    ids=lambda action: action.name,
)
def test_what_makes_no_sense_changes_nothing(store, action):
    """Neither ids nor a filter, both, a note without end or text, no pool."""
    some(store, 2)
    before = snapshot(store)
    with pytest.raises(UsageError):
        operate(store, ADMIN, action)
    assert snapshot(store) == before


def test_a_run_is_reclaimed_with_its_row(store):
    """What takes the jobs back is the supervisor's; its count and the run are kept."""
    taken = []
    action = Reclaim(run="run-1", host="h", take_back=lambda: taken.append(1) or 4)
    assert operate(store, ADMIN, action).jobs == 4
    (row,) = store.audits(EVERYTHING)
    assert (row.action, row.jobs) == ("reclaim", 4)
    assert json.loads(row.target) == {"run": "run-1", "host": "h"}
    assert taken == [1]
