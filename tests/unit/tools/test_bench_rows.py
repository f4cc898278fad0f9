"""scripts/bench fills a store with millions of rows as if jobs had left them."""

import sys
from contextlib import closing
from pathlib import Path

import pytest

from jobpool.core.clock import SystemClock
from jobpool.core.jobs.job import JobState
from jobpool.store.opening import open_store
from jobpool.store.records.operating import Filter
from support.lively.fill import fill
from support.postgres.server import server
from support.store.new_file import place_new_file
from support.store.storing import ManualClock

sys.path.append(str(Path(__file__).parents[3] / "scripts" / "lib"))
from bench.rows import PATTERN, SHARES, multiply, opened

ROWS = 2 * PATTERN


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        place_new_file(tmp_path / "jobs.db")
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    url = server().store_url()
    yield url
    server().drop(url)


def test_copied_rows_are_found_like_those_that_jobs_have_left(url):
    """In all states, with arguments and attempts, and by the same indexes."""
    now_ms = SystemClock().utc_ms()
    clock = ManualClock(now_ms - 1_202_200)
    with closing(open_store(url, clock=clock)) as store:
        fill(store, clock, hours=1 / 3, share=0.2)
        before = {
            state: len(store.find(Filter(states=(state,)), 10_000))
            for state in JobState
        }
    with opened(url) as database:
        indexes = sorted(database.indexes("jobs"))
    multiply(url, ROWS, now_ms)
    with opened(url) as database:
        assert sorted(database.indexes("jobs")) == indexes
    with closing(open_store(url, create=False)) as store:
        for state, share in SHARES.items():
            found = store.find(Filter(states=(JobState(state),)), 10_000)
            assert len(found) == before[state] + share * ROWS / PATTERN
        (dead,) = store.find(Filter(states=(JobState.DEAD,)), 1)
        assert store.payload(dead.id)
        assert store.attempts(dead.id)
        assert store.tenants()
