"""Producers: what is accepted, in what order, and what is refused as a whole."""

import msgspec
import pytest

from jobpool.core.jobs.job import TIME_MAX_MS, JobState
from jobpool.core.rules.admission import Admission
from jobpool.errors import KeyConflict, QueueFull, UsageError
from jobpool.store.records.operating import Filter
from support.store.storing import begin_run, lease, lease_one, new_job, succeeded

EVERYTHING = Filter()


def test_ids_grow_in_the_order_asked(store):
    """Answers come in the order of the jobs, and ids with them."""
    answers = store.enqueue([new_job(payload=b"%d" % i) for i in range(2500)])
    ids = [answer.id for answer in answers]
    assert ids == sorted(ids)
    assert len(set(ids)) == 2500
    assert [store.payload(job_id) for job_id in ids[::499]] == [
        b"%d" % i for i in range(0, 2500, 499)
    ]


def test_jobs_that_are_alike_are_stored_like_any_others(store):
    """Except for its payload, each is as it would be beside a different job."""
    options = {
        "priority": 7,
        "delay_ms": 5000,
        "expires_in_ms": 9000,
        "tenant": "t",
        "max_attempts": 2,
        "timeout_s": 1.5,
        "memory_bytes": 2**31,
    }
    alike = [new_job(payload=b"%d" % i, **options) for i in range(3)]
    answers = [*store.enqueue(alike), *store.enqueue([*alike, new_job()])][:6]
    assert [store.payload(answer.id) for answer in answers] == [b"0", b"1", b"2"] * 2
    stored = [msgspec.structs.replace(store.get(a.id), id=0, ref="") for a in answers]
    assert stored == stored[:1] * 6
    assert {answer.state for answer in answers} == {JobState.PENDING}


def test_an_empty_batch_stores_nothing(store):
    """An empty batch is an empty answer."""
    assert store.enqueue([]) == []


def test_a_job_reads_back_as_it_was_given(store, clock):
    """Every option of a new job is on the stored one."""
    (answer,) = store.enqueue(
        [
            new_job(
                priority=7,
                delay_ms=5000,
                expires_in_ms=9000,
                key="k",
                unique="u",
                tenant="t",
                max_attempts=2,
                timeout_s=30,
                memory_bytes=2**20,
            )
        ]
    )
    job = store.get(answer.id)
    now_ms = clock.utc_ms()
    assert answer.created
    assert (job.kind, job.pool, job.state) == ("shop.thumbnail", "cpu", "pending")
    assert (job.priority, job.key, job.unique, job.tenant) == (7, "k", "u", "t")
    assert (job.max_attempts, job.timeout_s, job.memory_bytes) == (2, 30.0, 2**20)
    assert (job.created_at_ms, job.run_at_ms) == (now_ms, now_ms + 5000)
    assert job.expires_at_ms == now_ms + 9000
    assert (job.attempt, job.outcome, job.result) == (0, None, None)
    assert store.payload(job.id) == b"{}"


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ({}, JobState.RUNNABLE),
        ({"delay_ms": 1}, JobState.PENDING),
        ({"run_at_ms": 5}, JobState.RUNNABLE),
        ({"run_at_ms": TIME_MAX_MS, "delay_ms": 3}, JobState.PENDING),
    ],
)
def test_state_follows_the_time_to_run(store, options, state):
    """A due job is runnable; a given time takes precedence over a delay."""
    (answer,) = store.enqueue([new_job(**options)])
    assert answer.state is state
    assert store.get(answer.id).state is state


@pytest.mark.parametrize(
    "payload", [b"", b"\0\xff\xfe", '{"é":"\U0001f600"}'.encode(), b"x" * 2**20]
)
def test_payloads_are_opaque_bytes(store, payload):
    """Whatever the bytes are, they come back the same, in a lease as well."""
    (answer,) = store.enqueue([new_job(payload=payload)])
    assert store.payload(answer.id) == payload
    assert lease_one(store).payload == payload


@pytest.mark.parametrize(
    "spoilt",
    [
        {"kind": ""},
        {"kind": "no spaces"},
        {"kind": "nul\0"},
        {"kind": None},
        {"pool": "CPU"},
        {"pool": b"cpu"},
        {"payload": "text"},
        {"payload": None},
        {"priority": 32768},
        {"priority": -32769},
        {"priority": 1.5},
        {"priority": True},
        {"delay_ms": -1},
        {"delay_ms": float("nan")},
        {"delay_ms": TIME_MAX_MS},
        {"run_at_ms": -1},
        {"run_at_ms": TIME_MAX_MS + 1},
        {"run_at_ms": float("inf")},
        {"expires_in_ms": 0},
        {"expires_in_ms": -5},
        {"expires_in_ms": TIME_MAX_MS},
        {"key": ""},
        {"key": "k" * 256},
        {"unique": "\ud800"},
        {"tenant": "a\0b"},
        {"tenant": 5},
        {"max_attempts": 0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"timeout_s": 0},
        {"timeout_s": "30s"},
        {"memory_bytes": 0},
        {"memory_bytes": 2**63},
    ],
    ids=str,
)
def test_one_bad_job_refuses_the_batch(store, spoilt):
    """The error names the field and the job, and nothing was stored."""
    (field,) = spoilt
    with pytest.raises(UsageError, match=f"job 1 of 3: {field}") as refused:
        store.enqueue([new_job(), new_job(**spoilt), new_job()])
    assert "nothing was enqueued" in str(refused.value)
    assert store.count(EVERYTHING) == 0


def test_the_same_key_returns_the_same_job(store):
    """A key is idempotent until the job is pruned, however the job ends."""
    (first,) = store.enqueue([new_job(key="order-1")])
    store.settle([succeeded(lease_one(store))])
    (again,) = store.enqueue([new_job(key="order-1")])
    assert (again.id, again.created, again.state) == (first.id, False, "succeeded")
    assert store.count(EVERYTHING) == 1


def test_a_key_belongs_to_its_kind(store):
    """Another kind may use the same key."""
    answers = store.enqueue([new_job(key="k"), new_job(kind="shop.resize", key="k")])
    assert [answer.created for answer in answers] == [True, True]


def test_other_arguments_under_a_key_are_a_conflict(store):
    """The conflict names the job that holds the key; the batch is not stored."""
    (first,) = store.enqueue([new_job(key="k", payload=b'{"secret":1}')])
    with pytest.raises(KeyConflict) as refused:
        store.enqueue([new_job(), new_job(key="k", payload=b'{"secret":2}')])
    assert refused.value.job_id == first.id
    assert "secret" not in str(refused.value)
    assert store.count(EVERYTHING) == 1


def test_a_conflict_in_a_later_chunk_undoes_the_earlier_ones(store):
    """However large a call is, it is one transaction."""
    jobs = [new_job() for _ in range(3000)]
    jobs += [new_job(key="k", payload=b"1"), new_job(key="k", payload=b"2")]
    with pytest.raises(KeyConflict):
        store.enqueue(jobs)
    assert store.count(EVERYTHING) == 0


def test_at_most_one_unfinished_job_has_a_unique_text(store):
    """It is returned instead, until it has finished."""
    (first,) = store.enqueue([new_job(unique="cat")])
    granted = lease_one(store)
    (again,) = store.enqueue([new_job(unique="cat", payload=b'{"other":1}')])
    assert (again.id, again.created, again.state) == (first.id, False, "leased")
    store.settle([succeeded(granted)])
    (fresh,) = store.enqueue([new_job(unique="cat")])
    assert fresh.created
    assert fresh.id > first.id


def test_duplicates_in_one_batch_count_as_if_enqueued_in_turn(store):
    """Keys and unique texts also apply between jobs of the same call."""
    answers = store.enqueue(
        [
            new_job(key="k"),
            new_job(key="k"),
            new_job(unique="u"),
            new_job(unique="u", payload=b"2"),
            new_job(key="k", unique="u"),
            new_job(key="l", unique="v"),
            new_job(unique="v"),
        ]
    )
    a, b, c, d, e, f, g = (answer.id for answer in answers)
    created = [answer.created for answer in answers]
    assert created == [True, False, True, False, False, True, False]
    assert (a, c, f) == (b, d, g)
    assert e == a  # The key is checked first.
    assert store.count(EVERYTHING) == 3


def test_a_full_queue_refuses_exactly_beyond_its_limit(store_factory):
    """The limit counts unfinished jobs; finished ones make room again."""
    store = store_factory(admission=Admission(depth_max=5))
    begin_run(store)
    store.enqueue([new_job()] * 3)
    with pytest.raises(QueueFull, match="3 unfinished jobs of at most 5"):
        store.enqueue([new_job()] * 3)
    store.enqueue([new_job(delay_ms=1)] * 2)
    granted = lease(store, limit=2)
    with pytest.raises(QueueFull):
        store.enqueue([new_job()])
    store.settle([succeeded(one) for one in granted])
    store.enqueue([new_job()] * 2)
    with pytest.raises(QueueFull):
        store.enqueue([new_job()])
    assert store.count(EVERYTHING) == 7


def test_an_existing_job_needs_no_room(store_factory):
    """A key in use is answered although the queue is full."""
    store = store_factory(admission=Admission(depth_max=1))
    (first,) = store.enqueue([new_job(key="k")])
    (again,) = store.enqueue([new_job(key="k")])
    assert again.id == first.id


def test_clients_with_their_own_limits_share_the_count(store_factory):
    """Each limit applies to the jobs of all clients."""
    small, large = (
        store_factory(admission=Admission(depth_max=2)),
        store_factory(admission=Admission(depth_max=10)),
    )
    large.enqueue([new_job()] * 4)
    with pytest.raises(QueueFull):
        small.enqueue([new_job()])
    large.enqueue([new_job()] * 6)
    with pytest.raises(QueueFull):
        large.enqueue([new_job()])


def test_revived_jobs_take_their_room_again(store_factory):
    """However the depth is counted: later jobs meet the limit exactly."""
    store = store_factory(admission=Admission(depth_max=2))
    old = [one.id for one in store.enqueue([new_job()] * 2)]
    store.cancel(old)
    store.enqueue([new_job()])  # The old ones' room is found again.
    assert store.revive(old, [JobState.CANCELED]) == 2
    with pytest.raises(QueueFull):
        store.enqueue([new_job()])
    store.cancel(old[:1])
    with pytest.raises(QueueFull):
        store.enqueue([new_job()])
    store.cancel(old[1:])
    assert store.enqueue([new_job()])[0].created
