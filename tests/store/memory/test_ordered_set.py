"""Ordered sets of jobs: the smallest is found fast, and removed members are gone."""

from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.jobs.job import PRIORITY_MAX, PRIORITY_MIN, TIME_MAX_MS
from jobpool.store.memory.tables.ordered_set import (
    RankSet,
    id_of,
    oldest_ms,
    rank_by_priority,
    rank_by_time,
    time_of,
)
from jobpool.store.statements.validation import ID_MAX

PRIORITIES = st.integers(PRIORITY_MIN, PRIORITY_MAX)
MOMENTS = st.integers(0, TIME_MAX_MS)
IDS = st.integers(1, ID_MAX)


@given(st.lists(st.tuples(PRIORITIES, MOMENTS, IDS), min_size=1))
def test_ranks_by_priority_order_as_the_database_does(jobs):
    """Higher priority first, then the earlier time, then the lower id."""
    ranks = sorted(rank_by_priority(*job) for job in jobs)
    wanted = sorted(jobs, key=lambda job: (-job[0], job[1], job[2]))
    assert ranks == [rank_by_priority(*job) for job in wanted]
    assert [id_of(rank) for rank in ranks] == [job[2] for job in wanted]
    assert oldest_ms(ranks) == min(job[1] for job in jobs)


@given(st.lists(st.tuples(MOMENTS, IDS)))
def test_ranks_order_by_time_then_id(jobs):
    """And both can be computed from the rank."""
    ranks = sorted(rank_by_time(*job) for job in jobs)
    assert [(time_of(rank), id_of(rank)) for rank in ranks] == sorted(jobs)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=400))
def test_a_rank_set_yields_its_members_in_order(changes):
    """Whatever was added and removed before, any number of times."""
    ranks, model = RankSet(), set()
    for is_added, rank in changes:
        if is_added and rank not in model:
            ranks.add(rank)
            model.add(rank)
        elif not is_added:
            ranks.discard(rank)
            model.discard(rank)
        assert len(ranks) == len(model)
        assert list(ranks.lowest(3)) == sorted(model)[:3]
        assert ranks.first() == min(model, default=None)
    assert set(ranks) == model
    assert list(ranks.lowest(10**9)) == sorted(model)


def test_removed_members_do_not_pile_up():
    """From either end: the heap stays in proportion to its members."""
    ranks = RankSet()
    for rank in range(5000):
        ranks.add(rank)
    for rank in range(4990):
        ranks.discard(4999 - rank)
        assert len(ranks._heap) <= 2 * len(ranks) + 64
    for rank in range(10_000, 20_000):
        ranks.add(rank)
        ranks.discard(rank)
        assert len(ranks._heap) <= 2 * len(ranks) + 64
    assert list(ranks.lowest(20)) == list(range(10))
