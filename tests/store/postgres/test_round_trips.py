"""What is sent to PostgreSQL: how often a call waits, and for what.

Each round trip is a wait, and a commit that stores something waits for the disk. The
protocol itself is counted, as libpq traces it: a Sync asks for an answer.
"""

import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from jobpool.core.rules.admission import Admission
from jobpool.errors import QueueFull
from jobpool.store.postgres import store as postgres_store
from jobpool.store.postgres.store import WAKES_AT_ONCE
from jobpool.store.records.operating import Filter
from support.store.flows import settle_all, step, store_flow
from support.store.storing import KINDS, begin_run, lease, new_job

TRIPS_MAX = 3
"""For a lease or an enqueue: begin and read; change; commit."""
HOP_TRIPS_MAX = 12
"""Of a lease that folds, after a renewal."""
AFTER_A_CHECK_S = 0.2
"""A check of the queue's depth is valid for less."""


@contextmanager
def traced(store, path):
    """Record what the store's connection sends; gives a list of lines, at the end."""
    lines = []
    connection = store._server._session.connection.pgconn
    with path.open("w") as file:
        connection.trace(file.fileno())
        yield lines
        connection.untrace()
    lines += path.read_text().splitlines()


def trips(lines):
    return sum("\tSync" in line for line in lines)


def completed(lines):
    """Return the commands that the server has completed, in order."""
    return [
        line.split('"')[1].split()[0]
        for line in lines
        if line.split("\t")[1:2] == ["B"] and "CommandComplete" in line
    ]


@pytest.fixture
def queue(store_factory):
    store = store_factory()
    begin_run(store)
    for _ in range(6):  # psycopg prepares a statement when it has come five times
        store.enqueue([new_job()])
        store.lease("run-1", {"cpu": 4}, KINDS)
        store.lease("run-1", {"cpu": 4}, KINDS)
    return store


def test_a_lease_that_finds_nothing_commits_nothing(queue, tmp_path):
    """An idle supervisor does not wait for the disk, nor can its commit be in doubt."""
    with traced(queue, tmp_path / "trace") as lines:
        assert queue.lease("run-1", {"cpu": 4}, KINDS).leases == ()
    assert completed(lines)[-1] == "ROLLBACK"
    assert "COMMIT" not in completed(lines)
    assert trips(lines) <= TRIPS_MAX


def test_a_lease_is_committed_in_three_trips(queue, tmp_path):
    queue.enqueue([new_job()])
    with traced(queue, tmp_path / "trace") as lines:
        assert len(queue.lease("run-1", {"cpu": 4}, KINDS).leases) == 1
    assert completed(lines)[-1] == "COMMIT"
    assert trips(lines) == TRIPS_MAX


@pytest.mark.parametrize("pause_s", [0.0, AFTER_A_CHECK_S])
def test_one_job_is_stored_in_two_trips(queue, tmp_path, pause_s):
    """Also when the depth of the queue has to be checked anew."""
    time.sleep(pause_s)  # the check's age is by the real clock
    with traced(queue, tmp_path / "trace") as lines:
        queue.enqueue([new_job()])
    assert completed(lines)[-1] == "COMMIT"
    assert trips(lines) == TRIPS_MAX - 1


def test_a_wake_up_goes_out_with_the_commit(queue, tmp_path):
    """It costs no trip of its own and is no part of the transaction."""
    with traced(queue, tmp_path / "trace") as lines:
        queue.enqueue([new_job()], wakes=True)
    assert completed(lines)[-2:] == ["COMMIT", "NOTIFY"]
    assert trips(lines) == TRIPS_MAX - 1


def test_wake_ups_are_few_however_many_jobs_come(queue, tmp_path, monkeypatch):
    """A NOTIFY makes all commits of the database queue: most jobs come without one."""
    # All come at one moment, however long it takes.
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(postgres_store, "time", clock)
    with traced(queue, tmp_path / "trace") as lines:
        for _ in range(3 * WAKES_AT_ONCE):
            queue.enqueue([new_job()], wakes=True)
    done = completed(lines)
    assert done.count("COMMIT") == 3 * WAKES_AT_ONCE
    assert done.count("NOTIFY") == WAKES_AT_ONCE


def test_a_failed_wake_up_does_not_undo_the_enqueue(queue, monkeypatch):
    """It is a hint only: the job is stored, and supervisors poll."""
    wire = queue._server._session._wire
    monkeypatch.setattr(wire, "_queries", {**wire._queries, "wake": "SELECT 1 / 0"})
    before = queue.count(Filter())
    (made,) = queue.enqueue([new_job()], wakes=True)
    assert made.created
    assert queue.count(Filter()) == before + 1


def test_a_late_depth_check_still_refuses_the_job(store_factory, monkeypatch):
    """The job that went along with the check is not stored."""
    store = store_factory(admission=Admission(depth_max=3))
    store.enqueue([new_job()] * 3)
    monkeypatch.setattr(store._depth, "_was_wide", True)
    assert store._depth.may_check_late(1)
    with pytest.raises(QueueFull, match="holds 3 unfinished jobs of at most 3"):
        store.enqueue([new_job()])
    assert store.count(Filter()) == 3


def test_the_next_step_of_a_flow_is_leased_in_few_trips(queue, tmp_path):
    """What a fold writes goes along with what it reads next."""
    settle_all(queue)
    store_flow(queue, step(0), *(step(n, n - 1) for n in range(1, 9)))
    assert [settle_all(queue) for _ in range(7)] == [[n] for n in range(7)]
    with traced(queue, tmp_path / "trace") as lines:
        (leased,) = lease(queue)
    assert queue.flow_of(leased.id).number == 7
    assert completed(lines)[-1] == "COMMIT"
    assert trips(lines) <= HOP_TRIPS_MAX
