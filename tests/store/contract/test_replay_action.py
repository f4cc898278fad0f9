"""The action that replaces jobs: what passes on, what is refused, what is on record."""

import json

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.rules.policy import Policy
from jobpool.errors import ArgumentsRejected
from jobpool.operations.arguments.replay import Replacement, Replay, successor
from jobpool.operations.jobs import Cancel, Retry
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal, Role
from jobpool.operations.selection import Selection
from jobpool.operations.trail.entries import entries
from jobpool.store.records.operating import AuditFilter, Filter
from support.store.storing import ended, lease, new_job

ENGINES = ["memory"]  # what a store decides is in test_replay.py
ANN = Principal(who="ann", role=Role.OPERATOR, origin="a test")
EVERYTHING = AuditFilter()
KIND = "shop.thumbnail"


def dead(store, *jobs):
    ids = [one.id for one in store.enqueue(jobs)]
    ends = [ended(one, policy=Policy(max_attempts=1)) for one in lease(store)]
    store.settle(ends)
    assert {store.get(job_id).state for job_id in ids} == {JobState.DEAD}
    return ids


def replay(meant, path="/n", **more):
    """The action, with a repair that looks at the old arguments."""

    def replace(job, payload):
        if payload == b'{"n":"x"}':
            raise ArgumentsRejected("argument 'n': expected integer")
        new = successor(job, kind=job.kind, pool="io", payload=b'{"n":1}')
        return Replacement(new, (path,))

    return Replay(jobs=meant, replace=replace, **more)


def by_ids(*ids):
    return Selection(ids=ids)


def test_a_new_job_has_what_the_old_one_had(store):
    """Its key and all of its options; the kind and the pool are the caller's."""
    options = {
        "priority": 5,
        "key": "order-7",
        "unique": "nightly",
        "tenant": "acme",
        "max_attempts": 1,
        "timeout_s": 7.5,
        "memory_bytes": 2**20,
    }
    (old_id,) = dead(store, new_job(**options, expires_in_ms=60_000))
    done = operate(store, ANN, replay(by_ids(old_id)))
    new = store.get(done.replaced_by[old_id])
    assert {name: getattr(new, name) for name in options} == options
    assert (new.kind, new.pool, new.expires_at_ms) == (KIND, "io", None)
    assert (new.attempt, new.failures) == (0, 0)


def test_a_bulk_is_one_row_with_the_paths_that_were_changed(store, monkeypatch):
    """However many batches it took; it names old and new jobs, and no values."""
    monkeypatch.setattr("jobpool.operations.arguments.replay._BATCH", 2)
    ids = dead(store, *[new_job(payload=b'{"n":"4111"}')] * 5)
    meant = Selection(which=Filter(kind=KIND), shown=("dead",))
    action = replay(meant, kind_to=KIND, note="the cents")
    done = operate(store, ANN, action)
    assert (done.jobs, done.matched, done.refused) == (5, 5, [])
    (row,) = store.audits(EVERYTHING)
    made = list(done.replaced_by.values())
    assert json.loads(row.target) == {
        "kind": KIND,
        "states": ["dead"],
        "kind_to": KIND,
        "ids": f"{ids[0]}-{ids[-1]}",
        "new_ids": f"{made[0]}-{made[-1]}",
    }
    assert (row.action, row.jobs, row.changed) == ("replay", 5, "/n")
    assert "4111" not in repr(row)
    for job_id in (ids[2], made[2]):
        (entry,) = entries(store, EVERYTHING, job_id)
        assert entry.is_certain


def test_only_what_was_looked_at_is_replaced(store):
    """Not what the filter finds since then, nor what has changed meanwhile."""
    first, second = dead(store, new_job(), new_job())
    meant = Selection(which=Filter(kind=KIND), shown=("dead",))
    action = replay(meant, chosen=(first, second))
    store.revive([second], [JobState.DEAD])
    (later,) = store.enqueue([new_job()])
    store.cancel([later.id])
    done = operate(store, ANN, action)
    assert list(done.replaced_by) == [first]
    assert done.refused == [f"job {second} is runnable meanwhile"]
    (row,) = store.audits(EVERYTHING)
    assert json.loads(row.target)["kind"] == KIND


def test_paths_in_a_row_are_bounded(store):
    """Then it says that there were more."""
    ids = dead(store, *[new_job()] * 60)
    paths = iter(range(60))
    action = replay(by_ids(*ids))

    def replace(job, payload):
        made = action.replace(job, payload)
        return made._replace(changed=(f"/{next(paths)}",))

    operate(store, ANN, Replay(jobs=by_ids(*ids), replace=replace))
    (row,) = store.audits(EVERYTHING)
    assert row.changed.endswith("/49, …")


def test_what_cannot_be_replaced_is_named_and_the_rest_is_done(store):
    """With the reason for each; a job that was replaced says by which."""
    good, again, bad = dead(store, new_job(), new_job(), new_job(payload=b'{"n":"x"}'))
    first = operate(store, ANN, replay(by_ids(again))).replaced_by[again]
    (waiting,) = store.enqueue([new_job(delay_ms=60_000)])
    done = operate(store, ANN, replay(by_ids(again, bad, waiting.id, 999, good)))
    assert list(done.replaced_by) == [good]
    states = "dead, quarantined, canceled, succeeded"
    assert done.refused == [
        f"job {again} was replaced by job {first} and stays as it is",
        (
            f"job {waiting.id} is pending; only {states} jobs can be replayed "
            "(cancel it first)"
        ),
        f"there is no job 999 in {store.url}",
        f"job {bad}: argument 'n': expected integer",
    ]


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (lambda s, job_id: s.revive([job_id], [JobState.DEAD]), "is runnable again"),
        (
            lambda s, job_id: operate(s, ANN, replay(by_ids(job_id))),
            "was replaced by job 2 meanwhile",
        ),
        (lambda s, _: s.enqueue([new_job(unique="u")]), "has its unique text"),
    ],
)
def test_what_happens_meanwhile_is_said(store, meanwhile, said):
    """The store has the last word, and the job is left as it is."""
    (job_id,) = dead(store, new_job(unique="u"))
    action = replay(by_ids(job_id))

    def replace(job, payload):
        meanwhile(store, job.id)
        return action.replace(job, payload)

    done = operate(store, ANN, Replay(jobs=by_ids(job_id), replace=replace))
    assert done.replaced_by == {}
    (remark,) = done.refused
    assert said in remark


def test_a_filter_spares_what_was_replaced(store):
    """A retry of all that is dead does not run the broken arguments again."""
    old_id, other = dead(store, new_job(), new_job())
    operate(store, ANN, replay(by_ids(old_id)))
    everything = Selection(which=Filter(kind=KIND))
    done = operate(store, ANN, Retry(jobs=everything))
    assert (done.jobs, done.matched) == (1, 1)
    assert store.get(other).state is JobState.RUNNABLE
    done = operate(store, ANN, Retry(jobs=by_ids(old_id)))
    assert done.refused == [f"job {old_id} was replaced by job 3 and stays as it is"]
    assert Cancel(jobs=everything).select(store).ids == [other, 3]
