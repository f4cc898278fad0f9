"""The action: what it finds, what it refuses, and what the audit trail says after."""

import json

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.errors import Forbidden, StoreUnavailable, UsageError
from jobpool.operations.erasure import MARK, Erase, belongings
from jobpool.operations.jobs import Cancel, Retry
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.selection import Selection
from jobpool.store.memory.store import MemoryStore
from jobpool.store.records.operating import AuditEntry, AuditFilter, Filter
from support.store.storing import lease, lease_one, new_job, succeeded
from support.store.telling import lived

ADMIN = Principal(who="ann", role=Role.ADMIN, origin="a test")
TENANT = "acme"


def of_tenant(tenant=TENANT, **given):
    return Erase(jobs=Selection(which=Filter(tenant=tenant)), **given)


def of_jobs(*ids, **given):
    return Erase(jobs=Selection(ids=ids), **given)


def finished(store, count=1, **options):
    """Return the ids of jobs that have succeeded."""
    made = store.enqueue([new_job(**{"tenant": TENANT, **options})] * count)
    store.settle([succeeded(granted) for granted in lease(store, limit=count)])
    return [one.id for one in made]


def trail(store):
    return store.audits(AuditFilter())


def entry(store, note=None, **target):
    text = json.dumps(target)
    return store.audit(
        AuditEntry(
            who="ann", role="admin", origin="x", action="retry", target=text, note=note
        )
    )


def test_a_tenant_is_erased_and_another_is_not(store):
    """With one entry that does not say whose data it was."""
    ids = finished(store, 3)
    (other,) = finished(store, tenant="other")
    done = operate(store, ADMIN, of_tenant(note="ticket 7"))
    assert (done.jobs, done.matched, list(done.refused)) == (3, 3, [])
    assert all(store.get(job_id).is_erased for job_id in ids)
    assert not store.get(other).is_erased
    (row,) = trail(store)
    assert (row.action, row.jobs, row.note) == ("erase", 3, "ticket 7")
    assert json.loads(row.target) == {"tenant": MARK, "ids": "1-3"}


def test_an_erasure_again_finds_nothing(store):
    """By tenant or kind; a job that is named is erased once more, without harm."""
    ids = finished(store, 2)
    operate(store, ADMIN, of_tenant())
    by_kind = Erase(jobs=Selection(which=Filter(kind="shop.thumbnail")))
    assert operate(store, ADMIN, of_tenant()).matched == 0
    assert operate(store, ADMIN, by_kind).matched == 0
    assert operate(store, ADMIN, of_jobs(*ids)).jobs == 2


def test_jobs_that_have_not_ended_are_refused(store):
    """The message counts them, and nothing is erased."""
    (done_id,) = finished(store)
    store.enqueue([new_job(tenant=TENANT)] * 2)
    lease_one(store)
    with pytest.raises(UsageError, match=r"2 of these jobs .*1 leased.*cancel"):
        operate(store, ADMIN, of_tenant())
    assert not store.get(done_id).is_erased
    assert trail(store) == []


def test_jobs_can_be_canceled_first(store):
    """One that runs is erased by the next call, once it has ended."""
    ids = [one.id for one in store.enqueue([new_job(tenant=TENANT)] * 3)]
    granted = lease_one(store)
    done = operate(store, ADMIN, of_tenant(cancels=True))
    assert done.jobs == 2
    assert "told to stop: 1;" in done.refused[0]
    assert store.cancel_requests("run-1") == [granted.token]
    store.settle([succeeded(granted)])
    assert operate(store, ADMIN, of_tenant(cancels=True)).jobs == 1
    assert all(store.get(job_id).is_erased for job_id in ids)


def test_only_old_jobs_or_only_some_states(store, clock):
    """Then those that have not ended are not meant."""
    (old,) = finished(store)
    clock.advance(10)
    (young,) = finished(store)
    store.enqueue([new_job(tenant=TENANT)])
    before_ms = store.get(young).finished_at_ms
    assert operate(store, ADMIN, of_tenant(before_ms=before_ms)).jobs == 1
    assert (store.get(old).is_erased, store.get(young).is_erased) == (True, False)
    dead = Selection(
        which=Filter(tenant=TENANT, states=(JobState.DEAD,)), shown=("dead",)
    )
    assert operate(store, ADMIN, Erase(jobs=dead)).matched == 0


def test_an_id_that_no_job_has_is_named(store):
    """The others are erased."""
    (job_id,) = finished(store)
    done = operate(store, ADMIN, of_jobs(job_id, 999))
    assert done.jobs == 1
    assert "no job 999" in done.refused[0]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
def test_only_an_admin_erases(store, role):
    """The entry of the refusal does not name the tenant either."""
    finished(store)
    with pytest.raises(Forbidden):
        operate(store, Principal(who="vic", role=role, origin="web"), of_tenant())
    (row,) = trail(store)
    assert TENANT not in row.target


@pytest.mark.parametrize("jobs", [Selection(), Selection(ids=(1,), which=Filter())])
def test_ids_or_a_filter(store, jobs):
    """Neither none nor both."""
    with pytest.raises(UsageError, match="either ids or a filter"):
        operate(store, ADMIN, Erase(jobs=jobs))


# -- the trail ---------------------------------------------------------------------


def test_entries_about_a_tenant_no_longer_name_it(store):
    """In targets and notes; who did what, when and to which ids stays."""
    named = entry(store, "they called", tenant=TENANT, kind="k")
    noted = entry(store, f"mail from {TENANT}, urgent", kind="k")
    longer = entry(store, f"{TENANT}2 and my{TENANT}", kind="k")
    other = entry(store, "nothing", tenant="other")
    operate(store, ADMIN, of_tenant())
    rows = {row.id: row for row in trail(store)}
    assert json.loads(rows[named].target) == {"tenant": MARK, "kind": "k"}
    assert (rows[named].note, rows[named].who) == (MARK, "ann")
    assert (rows[noted].note, rows[noted].target) == (MARK, '{"kind":"k"}')
    assert rows[longer].note == f"{TENANT}2 and my{TENANT}"
    assert (rows[other].note, json.loads(rows[other].target)) == (
        "nothing",
        {"tenant": "other"},
    )


@pytest.mark.parametrize("tenant", ["shop", "io", "7", "day"])
def test_entries_about_others_stay_whatever_the_tenant_is_called(store, tenant):
    """Kinds, pools, ids and times are not one, though they may read like one."""
    target = {"kind": "shop.pay", "pool": "io", "tenant": "other", "ids": "7-9"}
    target |= {"when": "at 02:00 every day, Europe/Berlin"}
    audit_id = entry(store, "wrong bill", **target)
    operate(store, ADMIN, of_tenant(tenant))
    (row,) = (row for row in trail(store) if row.id == audit_id)
    assert (json.loads(row.target), row.note) == (target, "wrong bill")


def test_entries_that_name_an_erased_job_lose_their_words(store):
    """The note and the key; also where a wide range may hold it."""
    (job_id,) = finished(store)
    texts = [f"{job_id}", f"7,{job_id}-9", f"5-6,~{job_id}-900"]
    about = [entry(store, "Ann's card", ids=ids, key="ann") for ids in texts]
    beside = entry(store, "Bob's card", ids=f"{job_id + 1}-900", key="bob")
    operate(store, ADMIN, of_jobs(job_id))
    rows = {row.id: row for row in trail(store)}
    for place, audit_id in enumerate(about):
        assert rows[audit_id].note == MARK
        assert json.loads(rows[audit_id].target) == {"ids": texts[place], "key": MARK}
    assert rows[beside].note == "Bob's card"


def test_the_entry_of_an_earlier_erasure_keeps_its_note(store):
    """Why something was erased has to be known for long."""
    (job_id,) = finished(store)
    operate(store, ADMIN, of_jobs(job_id, note="ticket 7"))
    operate(store, ADMIN, of_jobs(job_id, note="ticket 8"))
    assert [row.note for row in trail(store)] == ["ticket 8", "ticket 7"]


def test_a_target_that_cannot_be_read_is_erased_whole(store):
    """Another program has written it: if it names a tenant, nothing of it stays."""
    audit_id = store.audit(
        AuditEntry(
            who="ann", role="admin", origin="x", action="x", target=f"of {TENANT}"
        )
    )
    operate(store, ADMIN, of_tenant())
    rows = {row.id: row for row in trail(store)}
    assert json.loads(rows[audit_id].target) == {"key": MARK}


# -- interrupted, and beside others ---------------------------------------------------


def test_an_interrupted_erasure_goes_on_where_it_was(store, monkeypatch):
    """Each step is whole; given again, the rest is erased, and the trail as well."""
    ids = finished(store, 120)
    noted = entry(store, f"for {TENANT}", tenant=TENANT)
    erase, calls = store.erase, []

    def failing(batch):
        calls.append(list(batch))
        if len(calls) == 2:
            raise StoreUnavailable("gone")
        return erase(batch)

    monkeypatch.setattr(store, "erase", failing)
    with pytest.raises(StoreUnavailable):
        operate(store, ADMIN, of_tenant())
    erased = [job_id for job_id in ids if store.get(job_id).is_erased]
    assert erased == calls[0]
    assert 0 < len(erased) < len(ids)
    assert operate(store, ADMIN, of_tenant()).jobs == len(ids) - len(erased)
    assert all(store.get(job_id).is_erased for job_id in ids)
    assert next(row for row in trail(store) if row.id == noted).note == MARK


def test_an_erased_job_is_not_acted_upon(store):
    """By id it is named; a filter passes it over."""
    job_id = lived(store, JobState.DEAD)
    store.erase([job_id])
    done = operate(store, ADMIN, Retry(jobs=Selection(ids=(job_id,))))
    assert "was erased" in done.refused[0]
    dead = Selection(which=Filter(states=(JobState.DEAD,)), shown=("dead",))
    assert operate(store, ADMIN, Retry(jobs=dead)).matched == 0
    quarantined = lived(store, JobState.QUARANTINED)
    store.erase([quarantined])
    done = operate(store, ADMIN, Cancel(jobs=Selection(ids=(quarantined,))))
    assert "was erased" in done.refused[0]


def test_belongings_of_many_are_counted_in_parts(store):
    """However many ids there are."""
    job_id = lived(store, JobState.DEAD)
    assert belongings(store, [job_id, *range(10**6, 10**6 + 2500)]).attempts == 2


def test_the_files_are_wiped_as_well(store, monkeypatch):
    """Whoever calls it; what is left is told."""
    finished(store)
    wiped = []
    monkeypatch.setattr(
        store, "wipe", lambda *, rewrite: wiped.append(rewrite) or ["still there"]
    )
    done = operate(store, ADMIN, of_tenant(rewrite=not isinstance(store, MemoryStore)))
    assert list(done.notes) == ["still there"]
    assert wiped == [not isinstance(store, MemoryStore)]
