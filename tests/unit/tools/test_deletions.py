"""Deletions: the history check finds each wrong one."""

from __future__ import annotations

from support.store.deletions import wrong_deletions
from support.store.history import (
    Called,
    Deleted,
    Granted,
    History,
    Keeping,
    Record,
    Settled,
)

KEEPING = Keeping(kept_s={"succeeded": 10.0, "dead": 30.0}, store_ms=25_000, late_s=5.0)


def called(job: int = 1, *, created: bool = True) -> Called:
    """Return a call under one key that was stored."""
    return Called(at_s=0.0, call="c", answer="stored", job=job, created=created)


def ended(state: str = "succeeded", store_ms: int = 1_000) -> Settled:
    """Return the end of the job."""
    return Settled(
        at_s=1.0,
        by="a",
        job=1,
        token=1,
        receipt="accepted",
        outcome="succeeded" if state == "succeeded" else "failed",
        state=state,
        changed=True,
        store_ms=store_ms,
    )


def deleted(store_ms: int) -> Deleted:
    """Return its deletion."""
    return Deleted(at_s=2.0, job=1, store_ms=store_ms)


def broken(*records: Record, keeping: Keeping | None = KEEPING) -> list[str]:
    """Return the invariants that a history breaks."""
    history = History(shared=False, records=list(records), keeping=keeping)
    return [rule for rule, _, _ in wrong_deletions(history)]


def test_a_finished_job_is_deleted_in_its_time() -> None:
    """I1: not before; I14: and not much later."""
    assert broken(called(), ended(), deleted(11_000)) == []
    assert broken(called(), ended(), deleted(10_999)) == ["I1"]
    assert broken(called(), ended("dead"), deleted(11_000)) == ["I1"]
    assert broken(called(), ended()) == ["I14"]
    assert broken(called(), ended(store_ms=10_000)) == []
    assert broken(called(), ended(), keeping=None) == []


def test_an_unfinished_job_is_not_deleted() -> None:
    """I1: nor does anything happen to it afterwards."""
    grant = Granted(at_s=3.0, run="a", job=1, token=1, attempt=1)
    assert broken(called(), deleted(11_000)) == ["I1"]
    assert broken(called(), ended("pending"), deleted(11_000)) == ["I1"]
    assert broken(called(), ended(), deleted(11_000), grant) == ["I1"]


def test_a_key_stands_for_its_job_until_the_deletion() -> None:
    """I2: the same call makes another one only then."""
    gone = (called(), ended(), deleted(11_000))
    assert broken(*gone, called(2)) == []
    assert broken(called(), ended(store_ms=10_000), called(2)) == ["I2"]
    assert broken(called(), ended(store_ms=10_000), called(created=False)) == []
