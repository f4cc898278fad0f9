"""`enqueue_many`: calls or dicts of arguments, streamed in batches."""

import pytest

from jobpool import ArgumentsRejected, StoreUnavailable, UsageError
from support.store.client_fakes import FakeStore, InTransaction, adder, pool_with


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def jobs(store):
    return pool_with(store)


@pytest.fixture
def add(jobs):
    return adder(jobs)


def test_many_calls_are_stored_in_batches(store, jobs, add):
    """Each with its own options, in order."""
    calls = (add.options(priority=n % 2).call(n) for n in range(1500))
    assert jobs.enqueue_many(calls) == 1500
    assert store.batches == [(1000, None), (500, None)]
    assert [job.payload for job in store.jobs[:2]] == [b'{"a":0}', b'{"a":1}']
    assert [job.priority for job in store.jobs[:2]] == [0, 1]


def test_calls_that_were_made_before_do_not_count(store, jobs, add):
    """Each may have a key, unlike the items of one handler."""
    calls = [add.options(key=str(n % 2)).call(n % 2) for n in range(4)]
    assert jobs.enqueue_many(calls) == 2


def test_calls_use_their_own_connections(store, jobs, add):
    """In order, and none on another's."""
    one, other = InTransaction(), InTransaction()
    by = [one, one, other, None]
    calls = [add.options(connection=c).call(n) for n, c in enumerate(by)]
    assert jobs.enqueue_many(calls) == 4
    assert store.batches == [(2, one), (1, other), (1, None)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda add: (add,), "a handler without items"),
        (lambda add: (add.options(), None), "a handler without items"),
        (lambda add: ([{"a": 1}],), "expected calls.* got dict as item 0"),
        (lambda add: ([add],), "expected calls.* got Handler as item 0"),
        (lambda add: ("abc",), "expected a list or generator of calls"),
        (lambda add: (5,), "expected a list or generator of calls"),
        (lambda add: (add, 5), "expected a list or generator of dicts"),
        (lambda add: (add, {"a": 1}), "expected a list or generator of dicts"),
    ],
)
def test_enqueue_many_refuses_other_objects(store, jobs, add, given, said):
    """The message says what was expected."""
    with pytest.raises(UsageError, match=said):
        jobs.enqueue_many(*given(add))
    assert store.jobs == []


def test_many_jobs_are_stored_in_batches(store, jobs, add):
    """1,000 per batch, in order, from a generator that is never held whole."""
    ahead = []

    def items():
        for number in range(2500):
            ahead.append(number - len(store.jobs))
            yield {"a": number}

    assert jobs.enqueue_many(add.options(priority=3), items()) == 2500
    assert store.batches == [(1000, None), (1000, None), (500, None)]
    assert [job.payload for job in store.jobs[:2]] == [b'{"a":0}', b'{"a":1}']
    assert {job.priority for job in store.jobs} == {3}
    assert max(ahead) < 1000


def test_large_items_make_small_batches(store, jobs):
    """Memory is bounded by bytes as well."""
    handler = jobs.job("cpu", kind="k")(lambda text: None)
    assert jobs.enqueue_many(handler, [{"text": "x" * 1_000_000}] * 7) == 7
    assert store.batches == [(5, None), (2, None)]


def test_a_bad_item_is_named_and_its_batch_is_not_stored(store, jobs, add):
    """The message says which one, and how many were stored before it."""
    items = [{"a": 1}] * 1200 + [{"a": "SECRET"}] + [{"a": 1}] * 1000
    with pytest.raises(
        ArgumentsRejected, match=r"item 1200 \(the first is 0\).*1000 jobs"
    ):
        jobs.enqueue_many(add, items)
    assert len(store.jobs) == 1000


def test_a_failing_store_or_generator_says_how_many_were_stored(store, jobs, add):
    """The error itself is kept, with a note."""

    def items():
        yield from [{"a": 1}] * 1000
        store.error = StoreUnavailable("gone")
        yield from [{"a": 1}] * 1000

    with pytest.raises(StoreUnavailable) as caught:
        jobs.enqueue_many(add, items())
    assert (caught.value.__notes__) == [
        "enqueue_many: 1000 jobs had been stored before this"
    ]


def test_nothing_to_enqueue_makes_no_transaction(store, jobs, add):
    """An empty iterable makes no transaction."""
    assert jobs.enqueue_many(add, []) == 0
    assert store.batches == []


def test_many_jobs_with_one_key_are_refused(jobs, add):
    """They would all be one job."""
    with pytest.raises(UsageError, match="all items one job"):
        jobs.enqueue_many(add.options(key="k"), [{"a": 1}])


def test_enqueue_many_of_a_plain_function_is_refused(jobs):
    """The remedy is named."""
    with pytest.raises(UsageError, match="decorate the function"):
        jobs.enqueue_many(print, [{}])
