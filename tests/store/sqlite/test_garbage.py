"""Rows damaged by hand: the others are leased, the damaged one is named."""

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.store.records.operating import Filter
from support.store.storing import ended, lease, lease_one, new_job

EVERYTHING = Filter()


@pytest.fixture
def spoil(by_hand):
    """Write what the CHECKs would reject, as another tool can."""

    def run(statement, *parameters):
        by_hand.execute("PRAGMA ignore_check_constraints = ON")
        changed = by_hand.execute(statement, parameters).rowcount
        assert changed == 1

    return run


SPOILT = [
    "UPDATE jobpool_jobs SET attempt = 'many' WHERE id = 2",
    "UPDATE jobpool_jobs SET failures = x'00ff' WHERE id = 2",
    "UPDATE jobpool_jobs SET crashes = 1.5 WHERE id = 2",
    "UPDATE jobpool_jobs SET timeout_s = 'soon' WHERE id = 2",
    "UPDATE jobpool_jobs SET expires_at_ms = 'never' WHERE id = 2",
    "UPDATE jobpool_jobs SET checkpoint = 'text' WHERE id = 2",
    "UPDATE jobpool_jobs SET max_attempts = 'five' WHERE id = 2",
    "UPDATE jobpool_payloads SET payload = 'text' WHERE job_id = 2",
    "UPDATE jobpool_payloads SET payload = 17 WHERE job_id = 2",
    "DELETE FROM jobpool_payloads WHERE job_id = 2",
]


@pytest.mark.parametrize("statement", SPOILT)
def test_a_row_that_cannot_be_read_stops_no_other_job(store, spoil, statement):
    """It is dead with that reason, and the call says that there may be more."""
    store.enqueue([new_job(), new_job(), new_job()])
    spoil(statement)
    assert sorted(granted.id for granted in lease(store)) == [1, 3]
    job = store.get(2)
    assert (job.state, job.supervisor) == ("dead", None)
    assert "cannot be read" in job.reason
    assert lease(store) == ()
    assert store.count(Filter(states=(JobState.DEAD,))) == 1


def test_an_encoded_row_that_is_set_aside_is_still_known_as_such(store, spoil):
    """What it holds is not taken for plain when it is put right and retried."""
    store.enqueue([new_job(), new_job(codec="fernet")])
    spoil(SPOILT[0])
    assert [granted.id for granted in lease(store)] == [1]
    assert (store.get(2).state, store.get(2).codec) == ("dead", "fernet")


def test_damaged_rows_do_not_make_an_empty_answer_look_final(store, spoil):
    """A request for one job that met a damaged one is told to ask again."""
    store.enqueue([new_job(priority=1), new_job(priority=2)])
    spoil(SPOILT[0])
    batch = store.lease("run-1", {"cpu": 1}, {"cpu": ["shop.thumbnail"]})
    assert (batch.leases, batch.next_due_in_s) == ((), 0.0)
    assert lease_one(store).id == 1


@pytest.mark.parametrize("statement", SPOILT)
def test_a_damaged_lease_does_not_stop_a_recovery(store, spoil, statement):
    """The dead run's other leases are found."""
    store.enqueue([new_job()] * 3)
    lease(store)
    spoil(statement)
    assert [granted.id for granted in store.leases_of("run-1")] == [1, 3]
    assert store.get(2).state is JobState.DEAD


def test_a_damaged_history_ends_the_job(store, spoil, clock):
    """Its policy could not be applied."""
    store.enqueue([new_job(), new_job()])
    for granted in lease(store):
        store.settle([ended(granted, Outcome.LOST)])
    spoil("UPDATE jobpool_attempts SET outcome = 'exploded' WHERE job_id = 2")
    assert [granted.id for granted in lease(store)] == [1]
    assert "cannot be read" in store.get(2).reason


def test_invalid_utf8_is_shown_and_stops_no_other_job(store, by_hand):
    """A kind that no application can know waits; a text is shown with marks."""
    store.enqueue([new_job(), new_job(key="k"), new_job()])
    by_hand.execute("UPDATE jobpool_jobs SET kind = CAST(x'ff41' AS TEXT) WHERE id = 1")
    by_hand.execute("UPDATE jobpool_jobs SET key = CAST(x'c3' AS TEXT) WHERE id = 2")
    assert [granted.id for granted in lease(store)] == [2, 3]
    assert store.get(1).kind == "\ufffdA"
    assert [row.kind for row in store.waiting()] == ["\ufffdA"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobpool_jobs SET attempt = 'many' WHERE id = 1",
        "UPDATE jobpool_jobs SET outcome = 'exploded' WHERE id = 1",
        "UPDATE jobpool_jobs SET state = 'exploded' WHERE id = 1",
        "UPDATE jobpool_jobs SET progress = 5 WHERE id = 1",
        "UPDATE jobpool_jobs SET duration_s = 'long' WHERE id = 1",
        "UPDATE jobpool_jobs SET reason = x'ff' WHERE id = 1",
    ],
)
def test_a_listing_shows_damaged_rows_as_well_as_it_can(store, spoil, statement):
    """And the others as they are."""
    store.enqueue([new_job(), new_job()])
    spoil(statement)
    spoilt, whole = store.get(1), store.get(2)
    assert (spoilt.id, spoilt.kind, spoilt.pool) == (1, "shop.thumbnail", "cpu")
    assert [job.id for job in store.find(EVERYTHING)] == [2, 1]
    assert whole.attempt == 0


def test_a_damaged_attempt_is_shown_as_well_as_it_can(store, spoil):
    """An engineer still sees the rest of it."""
    store.enqueue([new_job()])
    store.settle([ended(lease_one(store), Outcome.CRASHED)])
    spoil("UPDATE jobpool_attempts SET signal = 'nine', token = x'00'")
    (attempt,) = store.attempts(1)
    assert (attempt.outcome, attempt.signal, attempt.token) == ("crashed", None, 0)
