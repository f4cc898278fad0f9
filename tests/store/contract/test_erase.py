"""Erasing: nothing that anybody has brought along is left of a finished job."""

from datetime import UTC, datetime

import msgspec
import pytest

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import (
    FINISHED,
    UNFINISHED,
    JobState,
    Progress,
)
from jobpool.store.memory.store import MemoryStore
from jobpool.store.records.operating import Belongings, Replay
from support.store.storing import (
    ended,
    lease_one,
    make_waiting,
    succeeded,
)
from support.store.telling import SECRET, TELLING, lived, secret_job


def told(store, job_id):
    """Return everything that the store says of a job."""
    job = store.get(job_id)
    kept = store.kept_output(job_id)
    row = store._database.jobs[job_id] if isinstance(store, MemoryStore) else None
    return repr((job, store.payload(job_id), store.attempts(job_id), kept, row))


@pytest.mark.parametrize("state", FINISHED)
def test_an_erased_job_says_nothing_more(store, clock, state):
    """Its row stays with what statistics need; another job is untouched."""
    other = lived(store, state) if state is not JobState.CANCELED else None
    if other is not None:
        store.erase([other])
    job_id = lived(store, state)
    before = store.get(job_id)
    assert SECRET in told(store, job_id)
    clock.advance(1)
    assert store.erase([job_id, job_id, 999, 10**30]) == 1
    assert SECRET not in told(store, job_id)
    job = store.get(job_id)
    assert (job.is_erased, before.is_erased) == (True, False)
    today = datetime.fromtimestamp(clock.utc_ms() / 1000, UTC)
    assert job.reason == f"its data was erased on {today:%Y-%m-%d}"
    assert store.payload(job_id) == b""
    assert store.attempts(job_id) == []
    kept = msgspec.structs.replace(
        before,
        reason=job.reason,
        **dict.fromkeys(("key", "unique", "tenant", "error_class", "error")),
        **dict.fromkeys(("progress", "checkpoint")),
        result=b"null" if state is JobState.SUCCEEDED else None,
    )
    assert job == kept
    assert store.stats() != []


def test_an_erasure_is_of_the_jobs_that_are_named(store):
    """Others keep what they have."""
    store.erase([lived(store)])
    erased = lived(store)
    store.erase([erased])
    kept = lived(store, JobState.DEAD)
    before = told(store, kept)
    assert store.erase([erased]) == 1
    assert told(store, kept) == before


@pytest.mark.parametrize("state", UNFINISHED)
def test_a_job_that_has_not_finished_is_left_alone(store, state):
    """It still needs its arguments, and its supervisor would write more."""
    due = 60_000 if state is JobState.PENDING else 0
    (made,) = store.enqueue([secret_job(delay_ms=due)])
    if state is JobState.WAITING:
        make_waiting(store, made.id)
    if state is JobState.LEASED:
        lease_one(store)
    before = told(store, made.id)
    assert store.erase([made.id]) == 0
    assert told(store, made.id) == before


def test_an_erased_job_cannot_come_back(store):
    """Nobody knows its arguments any more."""
    for state in (JobState.DEAD, JobState.QUARANTINED, JobState.CANCELED):
        job_id = lived(store, state)
        store.erase([job_id])
        assert store.revive([job_id], list(JobState)) == 0
        assert store.get(job_id).state is state


def test_a_key_is_free_again(store):
    """As after a prune: the same key is another job."""
    job_id = lived(store)
    store.erase([job_id])
    (again,) = store.enqueue([secret_job()])
    assert again.created
    assert again.id != job_id


def test_an_erased_job_is_pruned_as_others_are(store, clock):
    """Its row goes with the retention of its state."""
    job_id = lived(store)
    store.erase([job_id])
    clock.advance(8 * 86_400)
    assert store.prune(Retention()) == 1
    assert store.get(job_id) is None


def test_an_erasure_is_of_one_piece_with_what_joins_it(store):
    """If the transaction fails, nothing was erased."""
    job_id = lived(store)
    before = told(store, job_id)
    with pytest.raises(StopIteration), store.transaction():
        next(iter(range(store.erase([job_id]) - 1)))
    assert told(store, job_id) == before


def test_the_end_of_an_old_attempt_brings_nothing_back(store):
    """A supervisor that comes back late has lost its lease."""
    (made,) = store.enqueue([secret_job()])
    granted = lease_one(store)
    store.settle([succeeded(granted)])
    store.erase([made.id])
    text = f'"{SECRET}"'.encode()
    store.settle([succeeded(granted, result=text), ended(granted, evidence=TELLING)])
    store.record(
        [Progress(granted.id, granted.token, text, text, 2**20, SECRET.encode())]
    )
    assert SECRET not in told(store, made.id)


def test_belongings_are_counted_before(store):
    """Rows of attempts, and kept output."""
    dead = lived(store, JobState.DEAD)
    assert store.belongings([dead, 999]) == Belongings(attempts=2, outputs=0)
    store.erase([dead])
    good = lived(store)
    assert store.belongings([dead, good]) == Belongings(attempts=1, outputs=1)
    store.erase([good])
    assert store.belongings([dead, good]) == Belongings(attempts=0, outputs=0)
    assert store.belongings([]) == Belongings(attempts=0, outputs=0)


def test_who_replaced_whom_is_still_known(store):
    """The rows stay linked; the job that took over is not erased with the other."""
    old = lived(store, JobState.DEAD)
    (new,) = store.replay([Replay(job_id=old, new=secret_job())])
    assert store.erase([old, new]) == 1
    assert (store.get(old).replaced_by, store.get(new).replays) == (new, old)
    assert SECRET in told(store, new)
