"""Grouped methods: one commit for all, and none for a part."""

import threading

import pytest

from jobpool.errors import KeyConflict, UsageError
from jobpool.store.records.operating import Filter
from support.store.storing import begin_run, lease_one, new_job, succeeded

EVERYTHING = Filter()


def fail_in_transaction(store):
    """Store a job in a transaction that then fails."""
    with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012 - both lines are the case
        store.enqueue([new_job()])
        raise ZeroDivisionError


def test_methods_in_a_transaction_commit_together(store_factory):
    """Others see nothing of it before its end."""
    mine, other = store_factory(), store_factory()
    begin_run(mine)
    with mine.transaction():
        mine.enqueue([new_job(), new_job()])
        mine.settle([succeeded(lease_one(mine))])
        assert mine.count(EVERYTHING) == 2
        assert other.count(EVERYTHING) == 0
    assert other.count(EVERYTHING) == 2


def test_an_exception_undoes_the_whole_transaction(store):
    """Whatever was raised."""
    fail_in_transaction(store)
    assert store.count(EVERYTHING) == 0
    store.enqueue([new_job()])
    assert store.count(EVERYTHING) == 1


def test_a_method_that_raises_undoes_only_itself(store):
    """Its error may be caught in the transaction."""
    with store.transaction():
        store.enqueue([new_job(key="k")])
        with pytest.raises(KeyConflict):
            store.enqueue([new_job()] * 1500 + [new_job(key="k", payload=b"2")])
        store.enqueue([new_job()])
    assert store.count(EVERYTHING) == 2


def test_transactions_nest(store):
    """The outermost commits; an inner one may be undone by itself."""
    with store.transaction():
        with store.transaction():
            store.enqueue([new_job()])
        fail_in_transaction(store)
    assert store.count(EVERYTHING) == 1


def test_threads_take_turns(store):
    """Threads may share one store object: no job is lost or in another's batch."""
    errors = []

    def produce():
        try:
            for _ in range(20):
                with store.transaction():
                    store.enqueue([new_job()])
                    store.enqueue([new_job()])
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.count(EVERYTHING) == 160


def test_a_closed_store_says_so(store_factory):
    """Closing twice is allowed; using it is not."""
    store = store_factory()
    store.close()
    store.close()
    with pytest.raises(UsageError, match="is closed"):
        store.enqueue([new_job()])
    with pytest.raises(UsageError, match="is closed"):
        store.count(EVERYTHING)
