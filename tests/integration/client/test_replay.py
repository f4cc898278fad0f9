"""`JobPool.replay`: a call in the place of a job that has ended."""

import contextlib

import pytest

from jobpool import JobNotFound, JobPool, UsageError
from jobpool.core.rules.policy import Policy
from jobpool.store.opening import open_store
from jobpool.store.records.operating import AuditFilter, Filter
from support.store.storing import begin_run, ended


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def jobs(url):
    pool = JobPool(url)
    yield pool
    pool.close()


@pytest.fixture
def pay(jobs):
    @jobs.job("io", kind="shop.pay")
    def pay(amount: int, **marks: str) -> int: ...

    return pay


@pytest.fixture
def store(url, pay):
    store = open_store(url)
    begin_run(store)
    yield store
    store.close()


def dead(store, handler):
    """Enqueue a call whose only attempt has failed."""
    job = handler.options(key="order-7", priority=3, max_attempts=1).enqueue(12, to="a")
    (granted,) = store.lease("run-1", {"io": 1}, {"io": ["shop.pay"]}).leases
    store.settle([ended(granted, policy=Policy(max_attempts=1))])
    return job


def test_a_job_is_replaced_by_a_call(store, jobs, pay):
    """The new job has its options, and its result the type of the call."""
    old = dead(store, pay)
    new = jobs.replay(old.id, pay.call(1200, to="b"), note="cents")
    assert (new.kind, new.created, new.info().replays) == ("shop.pay", True, old.id)
    assert (new.info().key, new.info().priority) == ("order-7", 3)
    assert old.info().replaced_by == new.id
    assert store.payload(new.id) == b'{"amount":1200,"to":"b"}'
    (row,) = store.audits(AuditFilter())
    assert (row.action, row.changed, row.note) == ("replay", "/amount, /*", "cents")
    assert not jobs.retry(old.id)


class Reversed:
    """A codec, which anybody could undo."""

    def __init__(self, name):
        self.name = name

    def encode(self, data):
        return data[::-1]

    decode = encode


@pytest.mark.parametrize(
    ("name", "changed"), [("reversed", "/amount, /*"), ("other", "/*")]
)
def test_encoded_arguments_are_replaced_by_encoded_ones(url, store, name, changed):
    """What was changed is told by who can decode both; else, that it is unknown."""
    ids = []
    for number, codec in enumerate(("reversed", name)):
        with contextlib.closing(JobPool(url, codec=Reversed(codec))) as jobs:

            @jobs.job("io", kind="shop.pay")
            def pay(amount: int, **marks: str) -> int: ...

            if number == 0:
                ids.append(dead(store, pay).id)
            else:
                ids.append(jobs.replay(ids[0], pay.call(1200, to="b")).id)
                assert jobs.get(ids[1]).arguments() == {"amount": 1200, "to": "b"}
    assert store.get(ids[1]).codec == name
    assert b"1200" not in store.payload(ids[1])
    assert store.audits(AuditFilter())[0].changed == changed


def test_what_cannot_be_replaced_is_refused_with_the_reason(store, jobs, pay):
    """Nothing is stored, and the old job stays as it was."""
    waiting = pay.options(run_in="1h").enqueue(1)
    old = dead(store, pay)
    for job_id, call, said in (
        (waiting.id, pay.call(2), "is pending; only dead"),
        (old.id, pay.call(12, to="a"), "would be the same"),
        (old.id, pay.options(priority=5).call(2), "without options of its own"),
        (old.id, JobPool().job("io", kind="other")(print).call(), "of this JobPool"),
        (old.id, pay, "expected a call, such as"),
        ("1", pay.call(2), "expected a whole number"),
    ):
        with pytest.raises(UsageError, match=said):
            jobs.replay(job_id, call)
    with pytest.raises(JobNotFound):
        jobs.replay(99, pay.call(2))
    assert store.count(Filter()) == 2
    assert old.info().replaced_by is None
    new = jobs.replay(old.id, pay.call(2))
    with pytest.raises(UsageError, match=f"was replaced by job {new.id}"):
        jobs.replay(old.id, pay.call(3))
