"""Two who replace the same job at once."""

import threading

from jobpool.core.rules.policy import Policy
from jobpool.store.records.operating import Filter, Replay
from support.store.storing import ended, lease_one, new_job


def test_one_of_two_replays_at_once_is_made(store, store_factory):
    """The other waits for the first one's commit, and sees it."""
    (old,) = store.enqueue([new_job(key="order-7")])
    store.settle([ended(lease_one(store), policy=Policy(max_attempts=1))])
    replay = Replay(job_id=old.id, new=new_job(key="order-7", payload=b'{"n":1}'))
    second, answers = store_factory(), []
    thread = threading.Thread(target=lambda: answers.append(second.replay([replay])))
    with store.transaction():
        (made,) = store.replay([replay])
        thread.start()
        thread.join(0.2)
        assert answers == []
        assert thread.is_alive()
    thread.join(60)
    assert answers == [[None]]
    assert store.get(made).key == "order-7"
    assert store.count(Filter()) == 2
