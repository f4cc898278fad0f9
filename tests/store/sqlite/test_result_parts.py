"""A large result is stored in parts before its end, and is whole or absent."""

import sqlite3
from contextlib import closing, suppress

import pytest

from jobpool.client.payload.results import decode_plain
from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import JobState
from jobpool.core.rules.lifecycle import hand_back
from jobpool.errors import StoreError
from jobpool.store.opening import open_store
from jobpool.store.records.jobs import Receipt
from jobpool.store.sqlite.result_parts import PART_BYTES, WHOLE_MAX_BYTES
from support.store.storing import begin_run, lease, new_job, succeeded

KEEP = Retention()
ENDS = (1, PART_BYTES - 1, PART_BYTES)
"""Bytes of a last part."""


def text(size):
    """Return JSON text of so many bytes, mostly of two-byte characters."""
    inside = "é" * ((size - 2) // 2) + "x" * (size % 2)
    found = f'"{inside}"'.encode()
    assert len(found) == size
    return found


def all_parts(store, settlement):
    """Store a result's parts as far as possible in advance; return how many."""
    count = 0
    while store.store_part(settlement):
        count += 1
    return count


@pytest.fixture
def one(store):
    store.enqueue([new_job()])
    (found,) = lease(store)
    return found


def left(database_path):
    """Return how many parts and drafts another connection sees."""
    with closing(sqlite3.connect(database_path)) as reader:
        return reader.execute(
            "SELECT (SELECT count(*) FROM jobpool_result_parts), "
            "(SELECT count(*) FROM jobpool_result_drafts)"
        ).fetchone()


@pytest.mark.parametrize("last_bytes", ENDS)
@pytest.mark.parametrize("ahead", [2, 3, 11])
def test_a_result_in_parts_is_as_it_was_returned(
    store, database_path, one, ahead, last_bytes
):
    """However many parts it has, and wherever a part splits a character."""
    end = succeeded(one, text(ahead * PART_BYTES + last_bytes))
    assert all_parts(store, end) == ahead
    assert store.get(one.id).state is JobState.LEASED
    assert store.settle([end]) == [Receipt.ACCEPTED]
    assert store.get(one.id).result == end.result
    assert left(database_path) == (ahead, 0)


@pytest.mark.parametrize("size", [2, WHOLE_MAX_BYTES - 1, WHOLE_MAX_BYTES])
def test_a_result_that_is_not_large_stays_whole(store, database_path, one, size):
    """Its commit keeps no other waiting for long."""
    end = succeeded(one, text(size))
    assert all_parts(store, end) == 0
    store.settle([end])
    assert store.get(one.id).result == end.result
    assert left(database_path) == (0, 0)


def test_parts_are_joined_in_their_order(store, database_path, one):
    """Whatever order their rows are in."""
    end = succeeded(one, text(5 * PART_BYTES))
    all_parts(store, end)
    store.settle([end])
    with closing(sqlite3.connect(database_path, isolation_level=None)) as hand:
        hand.execute("UPDATE jobpool_result_parts SET id = 100 - id")
    assert store.get(one.id).result == end.result


def test_a_draft_is_invisible(store, one):
    """A job has no result before its end, and another end's is not mixed with it."""
    all_parts(store, succeeded(one, text(4 * PART_BYTES)))
    assert store.get(one.id).result is None
    assert store.settle([hand_back(one)]) == [Receipt.ACCEPTED]
    (again,) = lease(store)
    assert again.id == one.id
    end = succeeded(again, text(3 * PART_BYTES))
    all_parts(store, end)
    assert store.settle([end]) == [Receipt.ACCEPTED]
    assert store.get(one.id).result == end.result


@pytest.mark.parametrize("result", [b"null", b"1", text(PART_BYTES)])
def test_a_small_result_after_a_draft_is_not_mixed_with_it(store, one, result):
    """What an earlier attempt left is not read as a part of it."""
    all_parts(store, succeeded(one, text(4 * PART_BYTES)))
    store.settle([hand_back(one)])
    (again,) = lease(store)
    assert not store.store_part(succeeded(again, result))
    store.settle([succeeded(again, result)])
    assert store.get(one.id).result == result


@pytest.mark.parametrize("parts", [0, 1, 3])
def test_an_urgent_end_stores_the_rest_in_one_piece(store, database_path, one, parts):
    """As a closing supervisor does; the parts are deleted with it."""
    end = succeeded(one, text(4 * PART_BYTES + 7))
    for _ in range(parts):
        assert store.store_part(end)
    assert store.settle([end]) == [Receipt.ACCEPTED]
    assert store.get(one.id).result == end.result
    assert left(database_path) == (0, 0)


def test_a_part_under_an_ended_lease_is_not_stored(store, database_path, one):
    """Settling the end reports that it is stale."""
    end = succeeded(one, text(4 * PART_BYTES))
    assert store.store_part(end)
    store.settle([hand_back(one)])
    assert not store.store_part(end)
    assert store.settle([end]) == [Receipt.STALE]
    assert store.get(one.id).result is None
    assert left(database_path) == (1, 1)


def test_pruning_deletes_drafts_of_ended_leases(store, database_path, one):
    """A draft whose lease still holds stays, and so do the parts of a result."""
    store.enqueue([new_job(), new_job()])
    held, ended = lease(store, limit=2)
    for other in (one, held, ended):
        all_parts(store, succeeded(other, text(3 * PART_BYTES)))
    store.settle([hand_back(one), succeeded(ended, text(3 * PART_BYTES))])
    store.prune(KEEP)
    assert left(database_path) == (4, 1)
    assert store.get(ended.id).result == text(3 * PART_BYTES)
    store.settle([succeeded(held, text(3 * PART_BYTES))])
    assert store.get(held.id).result == text(3 * PART_BYTES)


def test_a_pruned_job_leaves_no_part(store, database_path, one):
    """They are deleted with it, at once."""
    end = succeeded(one, text(3 * PART_BYTES))
    all_parts(store, end)
    store.settle([end])
    assert store.prune(Retention(succeeded_s=-1.0)) == 1
    assert left(database_path) == (0, 0)


def test_a_version_that_knows_no_result_parts_deletes_them_with_the_result(
    store, database_path, one
):
    """A supervisor of an older jobpool may prune while a newer one works."""
    end = succeeded(one, text(3 * PART_BYTES))
    all_parts(store, end)
    store.settle([end])
    with closing(sqlite3.connect(database_path, isolation_level=None)) as old:
        old.execute("DELETE FROM jobpool_results WHERE job_id = ?", [one.id])
    assert left(database_path) == (0, 0)


@pytest.mark.parametrize("which", ["place = 1", "1"])
def test_a_result_that_lacks_a_part_is_an_error(store, database_path, one, which):
    """It cannot be read any more, and the error says so.

    It is not shortened or null.
    """
    end = succeeded(one, text(3 * PART_BYTES))
    all_parts(store, end)
    store.settle([end])
    with closing(sqlite3.connect(database_path, isolation_level=None)) as hand:
        hand.execute(f"DELETE FROM jobpool_result_parts WHERE {which}")  # noqa: S608 - ours
    assert store.get(one.id).result == b""
    with pytest.raises(StoreError, match="is not JSON"):
        decode_plain(store.get(one.id).result)


def test_a_failed_commit_of_a_part_loses_none(store, one):
    """The next call stores the same part."""
    end = succeeded(one, text(3 * PART_BYTES))
    with suppress(ZeroDivisionError), store.transaction():
        assert store.store_part(end)
        raise ZeroDivisionError
    assert all_parts(store, end) == 2
    store.settle([end])
    assert store.get(one.id).result == end.result


def test_a_database_of_utf_16_has_results_in_one_piece(database_path):
    """Its text cannot be split into bytes that are joined again."""
    with closing(sqlite3.connect(database_path, isolation_level=None)) as hand:
        hand.execute("PRAGMA encoding = 'UTF-16le'")
        hand.execute("CREATE TABLE theirs (a)")
    with closing(open_store(f"sqlite:///{database_path}")) as store:
        begin_run(store)
        store.enqueue([new_job()])
        (one,) = lease(store)
        end = succeeded(one, text(3 * PART_BYTES + 1))
        assert not store.store_part(end)
        store.settle([end])
        assert store.get(one.id).result == end.result
        assert left(database_path) == (0, 0)
