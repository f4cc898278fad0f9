"""The client's side of a codec: what is stored, compared and read back."""

import msgspec
import pytest
from cryptography.fernet import Fernet

from jobpool import ArgumentsRejected, CodecMismatch, JobPool, KeyConflict, testing
from jobpool.client.encoding import Encoding
from jobpool.core.jobs.job import NewJob
from jobpool.errors import ArgumentsMisfit
from jobpool.integrations.fernet import FernetCodec

OLD, NEW = Fernet.generate_key(), Fernet.generate_key()


def application(*keys, **options):
    """Make a JobPool with a handler; without keys, it has no codec."""
    jobs = JobPool(codec=FernetCodec(keys) if keys else None, **options)

    @jobs.job("cpu", kind="pay")
    def pay(card: str, amount: int = 1) -> str:
        return card

    return jobs, pay


@pytest.fixture
def rehearsal():
    """A store in memory, which all applications here enqueue into."""
    with testing.running() as rehearsal:
        yield rehearsal


def stored(rehearsal):
    return rehearsal.enqueued[-1]


def test_arguments_are_stored_encoded_with_the_codecs_name(rehearsal):
    _, pay = application(NEW)
    pay.enqueue("4711")
    job = stored(rehearsal)
    assert job.codec == "fernet"
    assert b"4711" not in job.payload
    assert isinstance(msgspec.json.decode(job.payload), str)


def test_without_a_codec_nothing_is_different(rehearsal):
    _, pay = application()
    pay.enqueue("4711")
    assert stored(rehearsal).payload == b'{"card":"4711"}'
    assert stored(rehearsal).codec is None


def test_calls_and_items_are_encoded_as_well(rehearsal):
    jobs, pay = application(NEW)
    jobs.enqueue_many([pay.call("4711"), pay.options(key="k").call("4711")])
    jobs.enqueue_many(pay, [{"card": "4711"}])
    assert [job.codec for job in rehearsal.enqueued] == ["fernet"] * 3
    assert not any(b"4711" in job.payload for job in rehearsal.enqueued)


def test_the_cap_is_on_what_is_stored(rehearsal):
    _, plain = application(payload_max="1KiB")
    _, pay = application(NEW, payload_max="1KiB")
    plain.enqueue("x" * 900)
    with pytest.raises(ArgumentsRejected, match="as encoded by the codec, at most 1,0"):
        pay.enqueue("x" * 900)
    pay.enqueue("x" * 600)
    assert len(rehearsal.enqueued) == 2


def test_the_same_arguments_under_one_key_are_one_job(rehearsal):
    """Although they are encoded differently each time."""
    _, pay = application(NEW)
    first = pay.options(key="k").enqueue("4711")
    again = pay.options(key="k").enqueue("4711")
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(KeyConflict, match="with other arguments") as refused:
        pay.options(key="k").enqueue("4712")
    assert refused.value.job_id == first.id
    assert len(rehearsal.enqueued) == 1


def test_many_calls_meet_many_keys(rehearsal):
    """Those of the call itself, too."""
    jobs, pay = application(NEW)
    for key in range(3):
        pay.options(key=str(key)).enqueue("4711")
    calls = [pay.options(key=str(i % 6)).call("4711") for i in range(12)]
    assert jobs.enqueue_many(calls) == 3
    with pytest.raises(KeyConflict, match="an earlier job of this call"):
        jobs.enqueue_many([pay.options(key="new").call(card) for card in "ab"])
    assert len(rehearsal.enqueued) == 6


def test_keys_are_compared_over_a_rotation(rehearsal):
    """As long as the old key is kept; then it cannot be told, which is said."""
    _, before = application(OLD)
    _, between = application(NEW, OLD)
    _, after = application(NEW)
    first = before.options(key="k").enqueue("4711")
    assert between.options(key="k").enqueue("4711").id == first.id
    with pytest.raises(KeyConflict, match="cannot be told: the codec") as refused:
        after.options(key="k").enqueue("4711")
    assert refused.value.job_id == first.id


def test_keys_are_compared_with_plain_jobs(rehearsal):
    """From before the codec, or from a program without it."""
    _, plain = application()
    _, pay = application(NEW)
    first = plain.options(key="k").enqueue("4711")
    assert pay.options(key="k").enqueue("4711").id == first.id
    with pytest.raises(KeyConflict, match="with other arguments"):
        pay.options(key="k").enqueue("4712")


def test_one_payload_may_meet_holders_of_several_encodings():
    """As with a codec whose output does not vary, that has replaced another."""

    class Tagged:
        name = "tagged"
        tag = b"new"

        def encode(self, data):
            return self.tag + data

        def decode(self, data):
            return data[3:]

    codec = Tagged()
    jobs = JobPool(codec=codec)
    pay = jobs.job("cpu", kind="pay")(lambda card: card)
    with testing.running():
        for key, codec.tag in [("a", b"old"), ("b", b"mid")]:
            pay.options(key=key).enqueue("4711")
        codec.tag = b"new"
        calls = [pay.options(key=key).call("4711") for key in "ab"]
        assert jobs.enqueue_many(calls) == 0


def test_a_plain_job_cannot_be_compared_with_an_encoded_one(rehearsal):
    """By an application without the codec."""
    _, plain = application()
    _, pay = application(NEW)
    first = pay.options(key="k").enqueue("4711")
    with pytest.raises(KeyConflict, match="cannot be compared here") as refused:
        plain.options(key="k").enqueue("4711")
    assert refused.value.job_id == first.id
    assert not refused.value.encoded


def test_a_holder_that_changes_between_two_looks_is_compared_again():
    """Pruned, and enqueued anew by another producer."""
    encoding = Encoding(FernetCodec([NEW]))
    new = encoding.payload(b"{}", "pay", 9999)
    holders = [encoding.payload(b"{}", "pay", 9999) for _ in range(3)]
    asked = []

    def store(jobs):
        asked.append(jobs[0].same_payloads)
        if len(asked) <= len(holders):
            held = holders[len(asked) - 1]
            raise KeyConflict("held", 1, [(1, held, "fernet", new)])
        return []

    job = NewJob(kind="pay", pool="cpu", payload=new, key="k", codec="fernet")
    encoding.enqueue(store, [job])
    assert asked == [tuple(holders[:tries]) for tries in range(4)]


def test_run_now_passes_through_the_codec():
    """With all the checks of a real job."""
    _, pay = application(NEW)
    assert testing.run_now(pay, "4711") == "4711"


def hook_payload(encoding, **facts):
    record = {"id": 1, "kind": "pay", "pool": "cpu", "state": "dead", **facts}
    return msgspec.json.encode({"job": record})


def test_a_hook_gets_arguments_and_error_decoded():
    jobs, _ = application(NEW)
    seen = []
    jobs.on_dead(seen.append)
    encoding = Encoding(FernetCodec([NEW]))
    encoded = encoding.payload(b'{"card":"4711"}', "pay", 9999)
    record = hook_payload(
        encoding,
        payload=encoded,
        codec="fernet",
        error=msgspec.json.decode(encoding.payload(b"no such card", "pay", 9999)),
    )
    jobs.invoke("jobpool:on_dead", record, 99)
    assert (seen[0].arguments, seen[0].error) == ({"card": "4711"}, "no such card")
    other, _ = application(OLD)
    other.on_dead(seen.append)
    with pytest.raises(ArgumentsMisfit, match="another key"):
        other.invoke("jobpool:on_dead", record, 99)
    assert len(seen) == 1


def test_an_application_without_the_codec_is_told_so(rehearsal):
    """Its state can be read, its content cannot."""
    jobs, pay = application(NEW)
    job_id = pay.enqueue("4711").id
    plain, _ = application()
    record = msgspec.structs.replace(rehearsal.read(job_id), progress=b'"encoded:AAA="')
    with pytest.raises(CodecMismatch, match="this application has none"):
        plain._gateway.encoding.job(record)
    with pytest.raises(CodecMismatch, match="another key, or what is stored was"):
        jobs._gateway.encoding.job(record)
    assert plain.get(job_id).state == "runnable"
