"""`Quota.permit`: where it works, what it says of an answer, and what it never does."""

import asyncio
import threading
from datetime import UTC, datetime
from email.utils import format_datetime
from http.client import HTTPMessage
from types import SimpleNamespace

import pytest

import jobpool
from jobpool import Snooze, Throttled, UsageError, testing
from jobpool.client.quotas import permit as permits
from jobpool.core.application.current import PermitReply
from jobpool.testing import Block, TakenPermit


@pytest.fixture
def jobs():
    return jobpool.JobPool("memory:")


@pytest.fixture
def stripe(jobs):
    return jobs.quota("stripe", rate="10/s", burst=20, concurrency=2)


@pytest.fixture
def vendor(jobs):
    return jobs.quota("vendor", rate="10/s", per="args.vendor_id")


@pytest.fixture
def rehearsal():
    with testing.running(tenant="acme") as rehearsal:
        rehearsal.returned = []
        rehearsal.return_permit = rehearsal.returned.append
        yield rehearsal


def handler_of(jobs, body, **options):
    @jobs.job("io", kind="shop.charge", **options)
    def charge(vendor_id: str = "nobody", cents: int = 1) -> None:
        body()

    return charge


def test_a_block_takes_a_permit_and_gives_it_back(stripe, rehearsal):
    with stripe.permit(2):
        assert rehearsal.permits == [TakenPermit("stripe", "", 2)]
        assert rehearsal.returned == []
    assert rehearsal.returned == [1]


def test_an_exception_gives_it_back(stripe, rehearsal):
    with pytest.raises(ZeroDivisionError), stripe.permit():
        raise ZeroDivisionError
    assert rehearsal.returned == [1]


def test_async_blocks_run_beside_one_another(stripe, rehearsal):
    """Each waits without holding up the event loop."""
    asked = []
    rehearsal.permit_answer = lambda n, wait_s: (
        PermitReply(granted=True)
        if len(asked) == 2 and wait_s == 0
        else asked.append(n)
    )

    async def one():
        async with stripe.permit():
            pass

    async def both():
        await asyncio.gather(one(), one())

    asyncio.run(both())
    assert asked == [1, 2]
    assert sorted(rehearsal.returned) == [1, 2]


def test_whoever_is_cancelled_while_waiting_holds_nothing(stripe, rehearsal):
    rehearsal.permit_answer = lambda n, wait_s: None

    async def waits():
        async with stripe.permit():
            raise AssertionError

    async def cancels():
        await asyncio.wait_for(waits(), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(cancels())
    assert rehearsal.returned == [1]


def test_a_soft_limit_that_ends_the_wait_leaves_nothing_held(stripe, rehearsal):
    def interrupted(n, wait_s):
        raise jobpool.SoftTimeout

    rehearsal.permit_answer = interrupted
    with pytest.raises(jobpool.SoftTimeout), stripe.permit():
        pass
    assert rehearsal.returned == [1]


def test_without_a_permit_in_time_the_job_snoozes(stripe, rehearsal):
    """Until there may be one, and never less than a second."""
    for retry_in, after in ((30, 30.0), (0.01, 1.0)):
        rehearsal.use_up(stripe, retry_in)
        with pytest.raises(Snooze, match="quota stripe had no permit") as caught:
            stripe.permit().__enter__()
        assert caught.value.after == after
        assert not isinstance(caught.value, Throttled)
    assert rehearsal.permits == []


def test_who_waits_in_vain_again_and_again_comes_back_less_often(stripe):
    """A thousand snoozes in a row end a job: here they take days."""
    total_s = 0.0
    for snoozes in range(1000):
        with testing.running(snoozes=snoozes) as rehearsal:
            rehearsal.use_up(stripe, 0)
            with pytest.raises(Snooze) as caught:
                stripe.permit().__enter__()
        total_s += caught.value.after
    assert 6 * 86400 < total_s < 7 * 86400


def test_the_wait_is_the_quotas_own_unless_it_is_given(stripe, rehearsal):
    waits = []
    ask = rehearsal.ask_permit
    rehearsal.ask_permit = lambda *given: waits.append(given[-1]) or ask(*given)
    with stripe.permit(), stripe.permit(wait="30s"):
        pass
    with stripe.permit(wait=0):
        pass
    assert waits == [None, 30.0, 0.0]


def test_what_can_never_be_granted_is_no_snooze(stripe, rehearsal):
    rehearsal.permit_answer = lambda n, wait_s: PermitReply(
        granted=False, refused="no supervisor knows it"
    )
    with pytest.raises(UsageError, match="'stripe': no supervisor knows it"):
        stripe.permit().__enter__()


def test_outside_of_a_job_nothing_is_taken(stripe):
    with pytest.raises(UsageError, match="works only inside a handler"):
        stripe.permit().__enter__()


@pytest.mark.parametrize("cost", [0, 3, 1.5, True])
def test_a_cost_that_can_never_be_had_is_refused(stripe, rehearsal, cost):
    with pytest.raises(UsageError, match="nothing is held"):
        stripe.permit(cost)


def test_a_permit_is_for_one_block(stripe, rehearsal):
    permit = stripe.permit()
    with permit:
        pass
    with pytest.raises(UsageError, match="had its block already"):
        permit.__enter__()
    assert rehearsal.permits == [TakenPermit("stripe", "", 1)]


def test_blocks_in_one_another_must_fit_the_cap(stripe, rehearsal):
    """The outer one ends only after the inner one: it would wait for itself."""
    hint = r"blocks around this one hold 2.*itself"
    with stripe.permit(), stripe.permit(), pytest.raises(UsageError, match=hint):
        stripe.permit().__enter__()
    with stripe.permit(2):
        pass
    assert len(rehearsal.permits) == 3


def test_threads_of_a_handler_may_hold_the_cap_between_them(stripe, rehearsal):
    taken = threading.Event()

    def other():
        with stripe.permit(2):
            taken.set()

    with stripe.permit():
        thread = threading.Thread(target=other)
        thread.start()
        assert taken.wait(30)
        thread.join()


def test_a_quota_that_the_job_has_a_permit_of_is_not_asked_again(jobs, stripe):
    charge = handler_of(jobs, lambda: stripe.permit().__enter__(), quotas=[stripe])
    with testing.running() as rehearsal, pytest.raises(UsageError) as caught:
        testing.run_now(charge)
    assert "named in quotas= of shop.charge" in str(caught.value)
    assert rehearsal.permits == []


def test_the_quota_of_another_application_is_refused(jobs):
    other = jobpool.JobPool("memory:").quota("theirs", concurrency=1)
    jobs.quota("own", concurrency=1)
    charge = handler_of(jobs, lambda: other.permit().__enter__())
    with testing.running(), pytest.raises(UsageError, match="another JobPool"):
        testing.run_now(charge)


def test_a_bucket_is_the_running_jobs_own_unless_it_is_given(jobs, vendor):
    fair = jobs.quota("fair", concurrency=5, per="tenant")

    def body():
        for quota, value in ((vendor, None), (vendor, 17), (fair, None), (fair, "b")):
            with quota.permit(value=value):
                pass

    charge = handler_of(jobs, body)
    with testing.running(tenant="acme") as rehearsal:
        testing.run_now(charge, "visa")
        testing.run_now(charge)
    assert [(one.quota, one.value) for one in rehearsal.permits] == [
        *(("vendor", "visa"), ("vendor", "17"), ("fair", "acme"), ("fair", "b")),
        *(("vendor", "nobody"), ("vendor", "17"), ("fair", "acme"), ("fair", "b")),
    ]


def test_an_argument_that_the_job_does_not_have_is_refused(jobs):
    region = jobs.quota("region", concurrency=1, per="args.region")
    charge = handler_of(jobs, lambda: region.permit().__enter__())
    with testing.running(), pytest.raises(UsageError) as caught:
        testing.run_now(charge)
    assert str(caught.value) == (
        "quota 'region' counts by args.region, but shop.charge has no argument "
        "'region'; say which bucket, such as permit(value=...)"
    )


def test_a_hook_may_take_permits(jobs, stripe, rehearsal):
    @jobs.on_dead
    def tell(job):
        with stripe.permit():
            pass

    payload = b'{"job":{"id":1,"kind":"a","pool":"io","state":"dead"}}'
    jobs.invoke("jobpool:on_dead", payload, 1000)
    assert rehearsal.permits == [TakenPermit("stripe", "", 1)]


def answered(stripe, status, headers=None):
    with stripe.permit() as permit:
        permit.answered(status, headers)


@pytest.mark.parametrize("status", [200, 302, 404, 500, 503])
def test_other_answers_change_nothing(stripe, rehearsal, status):
    answered(stripe, status, {"X-RateLimit-Remaining": "0"})
    assert rehearsal.blocks == []


def test_a_429_holds_everybody_back_and_the_job_snoozes(stripe, rehearsal, monkeypatch):
    message = HTTPMessage()
    message["Retry-After"] = "30"
    now_s = 1_800_000_000.0
    monkeypatch.setattr(permits, "time", SimpleNamespace(time=lambda: now_s))
    date = format_datetime(datetime.fromtimestamp(now_s + 40, UTC))
    for headers, status, after_s in (
        ({"retry-after": "7"}, 429, 7.0),
        ({"Retry-After": "7"}, 503, 7.0),
        (message, 429, 30.0),
        ({"X-RateLimit-Reset": "12"}, 429, 12.0),
        (None, 429, 5.0),
        ({"Retry-After": "999999999"}, 429, 86400.0),
        ({"Retry-After": "0"}, 429, 1.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 503, 1.0),
    ):
        with pytest.raises(Throttled, match=f"stripe answered {status}") as caught:
            answered(stripe, status, headers)
        assert (caught.value.quota, caught.value.value) == ("stripe", "")
        assert caught.value.after == after_s
        assert rehearsal.blocks.pop() == Block("stripe", "", after_s)
    with pytest.raises(Throttled) as caught:
        answered(stripe, 429, {"Retry-After": date})
    assert caught.value.after == 40
    assert len(rehearsal.returned) == len(rehearsal.permits)


def test_the_bucket_of_an_answer_is_that_of_its_permit(vendor, rehearsal):
    with pytest.raises(Throttled) as caught, vendor.permit(value=17) as permit:
        permit.answered(429, {"Retry-After": "3"})
    assert (caught.value.quota, caught.value.value) == ("vendor", "17")
    assert rehearsal.blocks == [Block("vendor", "17", 3.0)]


def test_a_job_that_has_its_permit_since_it_began_tells_its_answers_too(jobs):
    """There is no permit() then to tell it."""
    vendor = jobs.quota("vendor", rate="10/s", per="args.vendor_id")
    charge = handler_of(
        jobs, lambda: vendor.answered(429, {"Retry-After": "3"}), quotas=[vendor]
    )
    with testing.running() as rehearsal, pytest.raises(Throttled) as caught:
        testing.run_now(charge, "visa")
    assert (caught.value.quota, caught.value.value) == ("vendor", "visa")
    assert rehearsal.blocks == [Block("vendor", "visa", 3.0)]
    with testing.running() as rehearsal:
        vendor.answered(200)
        vendor.answered(500)
    assert rehearsal.blocks == []
    with pytest.raises(UsageError, match="works only inside a handler"):
        vendor.answered(429)


def test_an_answer_to_nothing_is_refused(stripe, rehearsal):
    with pytest.raises(UsageError, match="was not taken"):
        stripe.permit().answered(429)
    assert rehearsal.blocks == []


def test_an_answer_may_be_told_after_the_block(stripe, rehearsal):
    with stripe.permit() as permit:
        pass
    with pytest.raises(Throttled):
        permit.answered(429)


def test_throttled_by_hand_means_the_running_jobs_bucket(jobs, vendor):
    def body():
        raise Throttled(vendor, after="30s")

    charge = handler_of(jobs, body)
    with testing.running(), pytest.raises(Throttled) as caught:
        testing.run_now(charge, "visa")
    assert (caught.value.quota, caught.value.value) == ("vendor", "visa")
    assert caught.value.after == "30s"
    assert str(caught.value) == "throttled by vendor for 30s"


def test_throttled_can_be_raised_where_no_job_runs(vendor):
    """As when a test calls a helper of the handler's by itself."""
    assert Throttled(vendor, 3).value == ""
    assert Throttled(vendor, 3, value=17).value == "17"
