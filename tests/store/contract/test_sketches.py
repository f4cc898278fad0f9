"""What attempts have used, by kind and week: counts are added, and old weeks go."""

import threading

import pytest

from jobpool.core.rules.usage.sketch import WEEK_MS, WEEKS_KEPT, Measure, week_of
from jobpool.errors import StoreError
from jobpool.store.records.reading import SketchRow

WEEK_S = WEEK_MS / 1000


def row(kind="shop.report", *, bucket=300, attempts=1, censored=0, **facts):
    given = {"pool": "cpu", "measure": Measure.MEMORY, **facts}
    return SketchRow(
        kind=kind, bucket=bucket, attempts=attempts, censored=censored, **given
    )


def facts(rows):
    return [
        (one.kind, one.pool, one.measure, one.bucket, one.attempts, one.censored)
        for one in rows
    ]


def test_counts_of_a_bucket_are_added_up(store, clock):
    store.add_sketches([row(attempts=3, censored=1), row(bucket=301)])
    store.add_sketches([row(attempts=4), row(measure=Measure.DURATION)])
    found = store.sketches()
    assert facts(found) == [
        ("shop.report", "cpu", Measure.DURATION, 300, 1, 0),
        ("shop.report", "cpu", Measure.MEMORY, 300, 7, 1),
        ("shop.report", "cpu", Measure.MEMORY, 301, 1, 0),
    ]
    assert {one.week for one in found} == {week_of(clock.utc_ms())}


def test_kinds_and_pools_are_apart(store):
    store.add_sketches([row("b"), row("a", pool="io"), row("a", pool="cpu")])
    assert [(one.kind, one.pool) for one in store.sketches()] == [
        ("a", "cpu"),
        ("a", "io"),
        ("b", "cpu"),
    ]
    assert [one.pool for one in store.sketches("a")] == ["cpu", "io"]
    assert store.sketches("a\0") == store.sketches("unknown") == []


def test_nothing_to_add_is_no_transaction(store):
    store.add_sketches([])
    assert store.sketches() == []


def test_weeks_are_apart_and_the_oldest_go(store, clock):
    """By the store's clock; eight weeks before the present one are kept."""
    first = week_of(clock.utc_ms())
    for _ in range(WEEKS_KEPT + 3):
        store.add_sketches([row(week=7)])
        clock.advance(WEEK_S)
    weeks = [one.week for one in store.sketches()]
    last = first + WEEKS_KEPT + 2
    assert weeks == list(range(last - WEEKS_KEPT, last + 1))


def test_a_transaction_that_fails_adds_nothing(store):
    store.add_sketches([row()])

    def fail():
        with store.transaction():
            store.add_sketches([row(attempts=5), row("other")])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert facts(store.sketches()) == facts([row()])


def test_many_supervisors_at_once_lose_no_count_and_block_each_other_never(
    store_factory,
):
    """Each adds the same rows in an order of its own."""
    rows = [row(f"kind.{number}", bucket=number) for number in range(40)]
    first = store_factory()
    stores = [store_factory() for _ in range(3)]
    errors = []

    def add(place):
        own = stores[place]
        turned = [*rows[place * 13 :], *rows[: place * 13]]
        try:
            for _ in range(15):
                own.add_sketches(turned)
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=add, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert {one.attempts for one in first.sketches()} == {45}
    assert len(first.sketches()) == 40


def test_no_count_is_too_large_to_be_added_to(store):
    """However large it has become: what attempts use now is counted all the same."""
    for _ in range(3):
        store.add_sketches([row(attempts=2**53, censored=2**53)])
    (found,) = store.sketches()
    assert found.attempts >= 2**53
    assert found.censored == found.attempts
