"""Two who replace the same job at once."""

import pytest

from jobpool.core.rules.policy import Policy
from jobpool.store.records.operating import Filter, Replay
from support.postgres.patient_locks import patient_locks
from support.postgres.server import server
from support.store.storing import ended, lease_one, new_job
from support.waiting import in_thread, wait_until

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND application_name = 'jobpool'
"""


@pytest.fixture(scope="module", autouse=True)
def _locks_are_waited_for():
    with patient_locks():
        yield


def test_one_of_two_replays_at_once_is_made(store, store_factory):
    """The other waits for the first one's commit, and sees it."""
    (old,) = store.enqueue([new_job(key="order-7")])
    store.settle([ended(lease_one(store), policy=Policy(max_attempts=1))])
    replay = Replay(job_id=old.id, new=new_job(key="order-7", payload=b'{"n":1}'))
    second = store_factory()
    with server().connect() as monitor, store.transaction():
        (made,) = store.replay([replay])
        answers = in_thread(lambda: second.replay([replay]))
        wait_until(lambda: monitor.execute(WAITING).fetchone()[0], 60, "it waits")
        assert answers == []
    wait_until(lambda: answers, 60, "the second answer")
    assert answers == [[None]]
    assert store.get(made).key == "order-7"
    assert store.count(Filter()) == 2
