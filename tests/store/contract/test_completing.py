"""A handler that completes its job in its own transaction, in every database."""

import time
from contextlib import closing

import msgspec
import pytest

from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import Superseded
from jobpool.store.records.jobs import Receipt
from support.site.handler_site import FIGURES, Site
from support.store.storing import ended, handed_back, lease_one, new_job, succeeded

ENGINES = ["sqlite", "postgres"]
_replace = msgspec.structs.replace


@pytest.fixture
def site(new_store_url, clock):
    with closing(Site(new_store_url(), clock)) as site:
        yield site


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("result", [b"null", b'{"sold":1}'])
def test_a_completion_leaves_a_job_as_a_success_does(site, begun, result):
    """Nothing of an earlier failure or of its lease, and the same result."""
    mine, other = site.attempted(begun=begun), site.attempted(begun=begun)
    site.store.cancel([mine.id, other.id])
    site.complete(mine, result)
    site.store.settle([succeeded(other, None if result == b"null" else result)])
    expected = site.store.get(other.id)
    found = site.store.get(mine.id)
    # The one by the handler's clock, the other by the store's.
    assert found.finished_at_ms is not None
    figures = {name: getattr(found, name) for name in FIGURES}
    figures |= {"id": mine.id, "ref": found.ref}
    expected = _replace(expected, finished_at_ms=found.finished_at_ms, **figures)
    assert found == expected
    assert [one.error for one in site.store.attempts(mine.id)] == ["first"]
    assert site.store.leases_of("run-1") == []
    assert site.store.cancel_requests("run-1") == []


@pytest.mark.parametrize("keeps", [True, False])
def test_the_output_of_a_completed_job_is_a_success_s(site, keeps):
    """Kept if that of a success is, although its supervisor reports a failure."""
    granted = site.attempted()
    site.complete(granted)
    failure = ended(granted)
    evidence = _replace(failure.evidence, output="sold\n")
    said = _replace(failure, completed=True, evidence=evidence, keeps_output=keeps)
    assert site.store.settle([said]) == [Receipt.COMPLETED]
    kept = site.store.kept_output(granted.id)
    assert (kept.output if keeps else kept) == ("sold\n" if keeps else None)


def test_settling_a_completed_job_adds_figures_and_charges_nothing(site):
    """Whatever its supervisor reports for that end, and however often.

    Other tokens are stale.
    """
    granted, neighbour = site.attempted(), site.attempted()
    site.complete(granted)
    before = site.store.get(granted.id)
    failure = ended(granted)
    evidence = _replace(failure.evidence, reason="x", **FIGURES)
    said = _replace(failure, completed=True, evidence=evidence)
    for _ in range(2):
        assert site.store.settle([said]) == [Receipt.COMPLETED]
    assert site.store.get(granted.id) == _replace(before, **FIGURES)
    without_slot = _replace(said, evidence=_replace(evidence, slot=None))
    assert site.store.settle([without_slot]) == [Receipt.COMPLETED]
    assert site.store.get(granted.id).slot == "cpu/7"
    assert len(site.store.attempts(granted.id)) == 1
    for stale in (granted.token - 1, granted.token + 1, neighbour.token):
        assert site.store.settle([_replace(said, token=stale)]) == [Receipt.STALE]
    (left,) = site.store.leases_of("run-1")
    assert left.id == neighbour.id


def test_settling_a_completed_job_records_when_it_began(site, clock):
    """Its own transaction cannot know; until then the lease's time stands."""
    clock.now_ms = time.time_ns() // 10**6 - 10_000  # a handler's clock is the real one
    site.store.enqueue([new_job()])
    granted = lease_one(site.store)
    clock.advance(5)
    began_s, began_ms = clock.boottime_s(), clock.utc_ms()
    clock.advance(4)
    site.complete(granted)
    completed = site.store.get(granted.id)
    times = {"began_s": began_s, "ended_s": clock.boottime_s()}
    said = _replace(ended(granted), completed=True, **times)
    assert site.store.settle([said]) == [Receipt.COMPLETED]
    found = site.store.get(granted.id)
    assert completed.started_at_ms == began_ms - 5000
    assert found.started_at_ms == began_ms
    assert found.finished_at_ms == completed.finished_at_ms


def test_only_the_attempt_that_holds_the_lease_completes(site):
    """Not one whose lease was taken back, one that has completed, or another job's."""
    granted, other = site.attempted(), site.attempted()
    for wrong in (
        _replace(granted, token=granted.token + 1),
        _replace(granted, token=other.token),
        _replace(granted, id=granted.id + 10**6),
    ):
        with pytest.raises(Superseded):
            site.complete(wrong)
        site.connection.rollback()
    assert site.store.get(granted.id).state is JobState.LEASED
    assert site.store.get(other.id).state is JobState.LEASED
    site.complete(granted)
    with pytest.raises(Superseded):
        site.complete(granted)
    site.connection.rollback()
    site.store.settle([handed_back(other)])
    with pytest.raises(Superseded):
        site.complete(other)
    site.connection.rollback()
    assert site.store.get(other.id).state is JobState.RUNNABLE


def test_a_success_keeps_no_token_of_a_completion_before_it(site):
    """A job that was settled otherwise does not count as completed."""
    granted = site.attempted()
    site.store.settle([succeeded(granted)])
    assert site.store.settle([_replace(ended(granted), completed=True)]) == [
        Receipt.STALE
    ]
    assert site.store.get(granted.id).outcome is Outcome.SUCCEEDED
