"""Encoded jobs: a store keeps the codec's name, and what it cannot read as it is."""

import contextlib

import msgspec
import pytest

from jobpool.core.formats import CODECS
from jobpool.core.jobs.job import NewJob
from jobpool.core.jobs.outcome import Outcome
from jobpool.errors import FeatureHeldBack, KeyConflict, StoreRefused, UsageError
from jobpool.store.records.operating import Filter
from support.store.storing import begin_run, ended, lease, new_job, succeeded

SECRET = b'"encoded:AAEC/w=="'
OTHER = b'"encoded:BAUG/w=="'


def encoded(payload=SECRET, **options):
    """Make a job as an application with a codec makes it."""
    return new_job(payload=payload, codec="fernet", **options)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("tenants", [["t"], ["a", "b"]])
def test_the_codec_of_a_job_is_stored_and_leased_with_it(store, count, tenants):
    """One by one, many that are alike, and many that are not."""
    jobs = [encoded(tenant=tenants[i % len(tenants)]) for i in range(count)]
    ids = [one.id for one in store.enqueue([*jobs, new_job(priority=-1)])]
    assert [store.get(one).codec for one in ids] == ["fernet"] * count + [None]
    found = {job.id: job.codec for job in store.find(Filter())}
    assert found == {**dict.fromkeys(ids[:-1], "fernet"), ids[-1]: None}
    begin_run(store)
    leases = lease(store, limit=count + 1)
    assert [(one.payload, one.codec) for one in leases] == [
        *[(SECRET, "fernet")] * count,
        (b"{}", None),
    ]


def test_a_suspect_is_leased_with_its_codec(store):
    """And a supervisor is told of it again that asks what it holds."""
    store.enqueue([encoded()])
    begin_run(store)
    (held,) = lease(store)
    assert [one.codec for one in store.leases_of("run-1")] == ["fernet"]
    lost = msgspec.structs.replace(ended(held, Outcome.LOST), suspect=True)
    store.settle([lost])
    (again,) = lease(store)
    assert (again.suspect, again.codec) == (True, "fernet")


def test_jobs_that_are_alike_share_their_codec(store):
    """They take a statement of their own."""
    ids = [one.id for one in store.enqueue([encoded(b"%d" % i) for i in range(3)])]
    assert [store.get(one).codec for one in ids] == ["fernet"] * 3
    assert [store.payload(one) for one in ids] == [b"0", b"1", b"2"]


def test_an_encoded_result_is_kept_to_the_byte(store):
    """No store looks into it."""
    store.enqueue([encoded()])
    begin_run(store)
    (granted,) = lease(store)
    store.settle([succeeded(granted, result=OTHER)])
    assert store.get(granted.id).result == OTHER


@pytest.mark.parametrize("codec", ["", "a b", "x" * 65, "é", 7])
def test_a_codec_that_is_no_name_is_refused(store, codec):
    """Nothing is stored."""
    with pytest.raises(UsageError, match="codec: expected a name"):
        store.enqueue([new_job(codec=codec)])
    assert store.count(Filter()) == 0


def test_the_holder_of_a_key_comes_with_the_refusal_of_an_encoded_job(store):
    """Only the application can tell whether they are the same."""
    (first,) = store.enqueue([encoded(key="k")])
    with pytest.raises(KeyConflict, match="encoded arguments cannot") as refused:
        store.enqueue([encoded(OTHER, key="k")])
    assert refused.value.job_id == first.id
    assert list(refused.value.encoded) == [(first.id, SECRET, "fernet", OTHER)]
    assert store.count(Filter()) == 1


def test_a_payload_that_the_application_has_compared_is_no_conflict(store):
    """The job is the existing one, whose payload stays."""
    (first,) = store.enqueue([encoded(key="k")])
    (again,) = store.enqueue([encoded(OTHER, key="k", same_payloads=(SECRET,))])
    assert (again.id, again.created) == (first.id, False)
    assert store.payload(first.id) == SECRET


def test_a_compared_payload_is_forgotten_if_its_holder_is_gone(store):
    """The job is stored with its own payload."""
    (stored,) = store.enqueue([encoded(OTHER, key="k", same_payloads=(b'{"a":1}',))])
    assert stored.created
    assert store.payload(stored.id) == OTHER


def test_twins_in_one_call_are_compared_by_the_application(store):
    """Of the first one there is no id yet."""
    with pytest.raises(KeyConflict) as refused:
        store.enqueue([encoded(key="k"), encoded(OTHER, key="k")])
    assert list(refused.value.encoded) == [(0, SECRET, "fernet", OTHER)]
    answers = store.enqueue(
        [encoded(key="k"), encoded(OTHER, key="k", same_payloads=(SECRET,))]
    )
    assert [one.created for one in answers] == [True, False]


def test_a_refused_plain_job_shows_nobody_an_encoded_payload(store):
    """It has no codec to read it with; nor does a plain holder show anything."""
    store.enqueue([encoded(key="k"), new_job(key="p")])
    for job in (new_job(key="k"), new_job(key="p", payload=b"[]")):
        with pytest.raises(KeyConflict) as refused:
            store.enqueue([job])
        assert not refused.value.encoded


def test_an_encoded_job_meets_the_plain_one_that_holds_its_key(store):
    """As when a codec is introduced while jobs wait."""
    (first,) = store.enqueue([new_job(key="k")])
    with pytest.raises(KeyConflict) as refused:
        store.enqueue([encoded(key="k")])
    assert list(refused.value.encoded) == [(first.id, b"{}", None, SECRET)]


def test_a_refusal_brings_a_bounded_amount_of_payloads(store):
    """The rest is refused in the next round."""
    big = b'"encoded:%b"' % (b"A" * 2**19)
    keys = range(8)
    for key in keys:
        store.enqueue([encoded(big, key=str(key))])
    with pytest.raises(KeyConflict) as refused:
        store.enqueue([encoded(OTHER, key=str(key)) for key in keys])
    assert 1 <= len(refused.value.encoded) < 8


def test_new_job_has_no_codec_unless_it_is_named():
    assert NewJob(kind="a", pool="cpu", payload=b"{}").codec is None


def test_encoded_jobs_wait_until_no_older_supervisor_runs(store):
    """It would hand them to a handler as they are. Plain jobs do not wait.

    The wish is remembered, for whoever reads the status, and for housekeeping.
    """
    begin_run(store, "old", format=1)
    with pytest.raises(FeatureHeldBack, match="codecs wait for"):
        store.enqueue([new_job(), encoded()])
    assert store.count(Filter()) == 0
    assert [run.id for run in store.formats().held_back_by] == ["old"]
    store.enqueue([new_job()])
    store.end_run("old")
    store.grant_format()
    assert store.formats().least == CODECS
    store.enqueue([encoded()])
    with pytest.raises(StoreRefused):
        begin_run(store, "older", format=1)


def test_what_a_transaction_asked_for_is_asked_again_if_it_is_rolled_back(store):
    """As when a supervisor's commit fails: an older run may begin after it."""
    with contextlib.suppress(ZeroDivisionError), store.transaction():
        store.enqueue([encoded()])
        store.enqueue([encoded()])
        raise ZeroDivisionError
    assert store.count(Filter()) == 0
    begin_run(store, "old", format=1)
    with pytest.raises(FeatureHeldBack):
        store.enqueue([encoded()])


def test_plain_jobs_ask_for_nothing(store):
    """So that one can go back to an older release."""
    store.enqueue([new_job()])
    assert (store.formats().least, store.formats().wanted) == (1, 1)
    begin_run(store, "old", format=1)
