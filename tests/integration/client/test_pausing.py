"""Pauses from Python: what `jobpool pause` and `resume` do, as this process's user."""

import pytest

from jobpool import JobPool, UsageError
from jobpool.store.opening import open_store
from jobpool.store.records.operating import AuditFilter


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def store(url):
    store = open_store(url)
    yield store
    store.close()


@pytest.fixture
def jobs(url, store):
    jobs = JobPool(url)
    yield jobs
    jobs.close()


def test_a_pause_has_an_end_and_a_reason_and_is_on_record(jobs, store):
    """Said again without anything new, it changes nothing and has no row."""
    assert jobs.pause(pool="io", duration="10m", note="vendor down")
    (pause,) = store.pauses()
    assert (pause.what, pause.name, pause.note) == ("pool", "io", "vendor down")
    assert pause.until_ms - pause.since_ms == 600_000
    assert jobs.pause(kind="shop.pay")
    assert not jobs.pause(kind="shop.pay")
    assert jobs.resume(pool="io", note="it is back")
    assert not jobs.resume(pool="io")
    assert store.paused() == [("kind", "shop.pay")]
    rows = store.audits(AuditFilter())
    assert [(row.action, row.note) for row in rows] == [
        ("resume", "it is back"),
        ("pause", None),
        ("pause", "vendor down"),
    ]
    assert {row.who for row in rows} == {pause.who}


@pytest.mark.parametrize(
    "given",
    [{}, {"pool": "a", "kind": "b"}, *({"pool": "a", "duration": d} for d in (0, "x"))],
)
def test_a_pause_that_makes_no_sense_is_refused(jobs, store, given):
    """Nothing is paused, and nothing written down."""
    with pytest.raises(UsageError):
        jobs.pause(**given)
    assert store.paused() == []
    assert store.audits(AuditFilter()) == []
