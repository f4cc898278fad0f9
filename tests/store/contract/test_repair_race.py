"""Two supervisors find one damaged row: the second one is not ended by it."""

import sqlite3
from contextlib import closing

import pytest

from jobpool.core.jobs.job import JobState
from jobpool.store.operations.repair import TRIES
from jobpool.store.records.jobs import Receipt
from jobpool.store.statements.integrity import RowRefused
from support.postgres.server import query_of, server
from support.store.storing import (
    KINDS,
    begin_run,
    ended,
    handed_back,
    lease_one,
    new_job,
    succeeded,
)

ENGINES = ["sqlite", "postgres"]
RULES = """
SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = '{}.jobs'::regclass AND contype = 'c'
"""


def spoil(url, job_id, changes):
    """Write what the table's constraints forbid, and leave them in force."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as hand, hand:
            hand.execute("PRAGMA ignore_check_constraints = ON")
            hand.execute(f"UPDATE jobpool_jobs SET {changes} WHERE id = {job_id}")  # noqa: S608 - the tests' own
        return
    schema = query_of(url)["schema"]
    with server().connect() as hand:
        rules = hand.execute(RULES.format(schema)).fetchall()
        for name, _ in rules:
            hand.execute(f"ALTER TABLE {schema}.jobs DROP CONSTRAINT {name}")
        hand.execute(f"UPDATE {schema}.jobs SET {changes} WHERE id = {job_id}")  # noqa: S608 - the tests' own
        for name, rule in rules:
            hand.execute(
                f"ALTER TABLE {schema}.jobs ADD CONSTRAINT {name} {rule} NOT VALID"
            )


@pytest.fixture
def pair(store_factory):
    """Two supervisors, each with its own run."""
    stores = store_factory(), store_factory()
    for store, run_id in zip(stores, ("a", "b"), strict=True):
        begin_run(store, run_id)
    return stores


def when_refused(monkeypatch, store, name, *, act):
    """Let another supervisor act when a store's method is first refused."""
    real, calls = getattr(store, name), []

    def with_company(*args, **options):
        calls.append(name)
        try:
            return real(*args, **options)
        except RowRefused:
            if len(calls) == 1:
                act()
            raise

    monkeypatch.setattr(store, name, with_company)
    return calls


def test_a_row_already_repaired_by_another_refuses_no_lease(
    pair, store_url, monkeypatch
):
    """No damaged row is left to find: it is only tried again."""
    first, second = pair
    spoilt, _, sound = first.enqueue([new_job(priority=1), new_job(), new_job()])
    spoil(store_url, spoilt.id, "finished_at_ms = 5")
    calls = when_refused(
        monkeypatch, first, "_lease", act=lambda: second.lease("b", {"cpu": 1}, KINDS)
    )
    granted = first.lease("a", {"cpu": 2}, KINDS).leases
    assert (len(calls), [one.id for one in granted]) == (2, [sound.id])
    assert first.get(spoilt.id).state is JobState.DEAD


def refuse_once(monkeypatch, store):
    """Refuse the first settlement, as if a row stood in its way."""
    settle, calls = store._settle, []

    def refused_once(settlements):
        calls.append(settlements)
        if len(calls) == 1:
            raise RowRefused("a row stands in the way")
        return settle(settlements)

    monkeypatch.setattr(store, "_settle", refused_once)
    return calls


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (succeeded, JobState.SUCCEEDED),
        (ended, JobState.DEAD),
        (handed_back, JobState.DEAD),
    ],
)
def test_a_damaged_job_that_succeeds_has_succeeded(
    pair, store_url, monkeypatch, end, state
):
    """Only a job that would be tried again is set aside: its fields are unknown."""
    first, _ = pair
    first.enqueue([new_job()])
    held = lease_one(first, "a")
    spoil(store_url, held.id, "reset_attempt = -1")
    refuse_once(monkeypatch, first)
    assert first.settle([end(held)]) == [Receipt.ACCEPTED]
    job = first.get(held.id)
    assert job.state is state
    assert ("cannot be read (reset_attempt" in (job.reason or "")) is (
        state is JobState.DEAD
    )


def test_a_row_already_repaired_by_another_refuses_no_end(pair, monkeypatch):
    """The end that was refused is written."""
    first, _ = pair
    first.enqueue([new_job()])
    held = lease_one(first, "a")
    calls = refuse_once(monkeypatch, first)
    assert first.settle([ended(held)]) == [Receipt.ACCEPTED]
    assert (len(calls), first.get(held.id).failures) == (2, 1)


@pytest.mark.parametrize("method", ["_lease", "_settle"])
def test_a_refusal_without_a_damaged_row_is_not_retried_forever(
    pair, monkeypatch, method
):
    """If no row is ever found, an error says so after a few tries."""
    first, _ = pair
    first.enqueue([new_job()])
    end = ended(lease_one(first, "a"))

    def refuse(*_args, **_options):
        raise RowRefused("for no reason")

    monkeypatch.setattr(first, method, refuse)
    calls = when_refused(monkeypatch, first, method, act=lambda: None)
    act = {
        "_lease": lambda: first.lease("a", {"cpu": 1}, KINDS),
        "_settle": lambda: first.settle([end]),
    }[method]
    with pytest.raises(RowRefused):
        act()
    assert len(calls) == TRIES
