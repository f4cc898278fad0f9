"""What type checkers see of the public API; checked by mypy and pyright, never run.

Each wrong line carries the mark of both: a mark too many is an error as well.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from http.client import HTTPMessage
from typing import Any, assert_type

from jobpool import (
    Call,
    DeadJob,
    Enqueuing,
    FlowRun,
    Job,
    JobPool,
    Permit,
    Quota,
    Retry,
    SoftTimeout,
    Step,
    Throttled,
    current,
)
from jobpool.core.jobs.flow import FlowState
from jobpool.core.jobs.job import Attempt, JobState
from jobpool.integrations import flask, sentry
from jobpool.integrations.fernet import FernetCodec

jobs = JobPool()
sentry.connect(jobs)
sentry.connect("jobs")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def staff() -> flask.Principal | None:
    return flask.Principal(who="ann", role=flask.Role.VIEWER, origin="the shop")


flask.dashboard("sqlite:///shop.db", staff, trace_link="https://tempo/{trace_id}")
flask.dashboard("sqlite:///shop.db", 1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@jobs.job(
    "cpu",
    kind="shop.thumbnail",
    timeout="30s",
    soft_timeout=timedelta(seconds=20),
    memory="512MiB",
    retry={ValueError: "never", "shop.Down": ["1s", 2.5], OSError: Retry(["1m"])},
)
def thumbnail(path: str, width: int = 256) -> str:
    return path * width


@jobs.job("io")
async def fetch(url: str) -> bytes:
    await current().complete_async(None, {"url": url})
    return url.encode()


@jobs.job("io")
def anything(number: int) -> Any:
    return number


@jobs.job("io")
def named_self(self: str, job: int) -> str:
    return self * job


class Greeter:
    async def __call__(self, name: str) -> str:
        return name


greet = jobs.job("io", kind="greet")(Greeter())


class Zip:
    name = "zip"

    def encode(self, data: bytes) -> bytes:
        return data

    def decode(self, data: bytes) -> bytes:
        return data


class Text(Zip):
    def encode(self, data: bytes) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return data.decode()


def is_encoded() -> None:
    JobPool(codec=Zip())
    JobPool(codec=FernetCodec.from_environment())
    JobPool(codec=Text())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    JobPool(codec=Zip)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(thumbnail.enqueue("a").output(), str | None)
    assert_type(thumbnail.enqueue("a").attempts(), list[Attempt])


@jobs.on_dead
@jobs.on_quarantine
def tell(job: DeadJob) -> None:
    assert_type(job.reason, str | None)


@jobs.on_child_start
def connect() -> None: ...


@jobs.around_attempt
@contextmanager
def connected() -> Generator[None, None, None]:
    yield


@jobs.on_enqueue
def has_tenant(job: Enqueuing) -> None:
    assert_type(job.tenant, str | None)
    assert_type(job.arguments, dict[str, Any])


@jobs.on_attempt_succeeded
def told(result: Any) -> None: ...


@jobs.on_attempt_failed
def failed(error: BaseException) -> None: ...


def uses() -> None:
    assert_type(thumbnail("a", width=3), str)
    assert_type(thumbnail.enqueue("a"), Job[str])
    assert_type(thumbnail.enqueue("a").result(timeout="5s"), str)
    assert_type(thumbnail.enqueue("a").state, JobState)
    assert_type(thumbnail.options(priority=5, unique="a").enqueue("a"), Job[str])
    assert_type(
        thumbnail.options(
            unique="a", unique_until="start", on_conflict="postpone", run_in="5s"
        ).enqueue("a"),
        Job[str],
    )
    assert_type(thumbnail.enqueue("a").postponed, bool)
    assert_type(fetch.enqueue("u"), Job[bytes])
    assert_type(fetch.enqueue("u").result(), bytes)
    assert_type(fetch.options(run_in=5).enqueue("u").result(), bytes)
    assert_type(greet.enqueue("you").result(), str)
    assert_type(anything.enqueue(1), Job[Any])
    assert_type(named_self.enqueue(self="a", job=1), Job[str])
    assert_type(jobs.get(1), Job[Any])
    assert_type(jobs.wait(1, 5), Job[Any])
    current().complete(None, 1)
    with suppress(SoftTimeout):
        current().heartbeat(progress=0.5)


def makes_many() -> None:
    assert_type(thumbnail.call("a", width=3), Call[str])
    assert_type(fetch.call("u"), Call[bytes])
    assert_type(fetch.options(key="k").call("u"), Call[bytes])
    assert_type(jobs.enqueue_many(thumbnail, [{"path": "a"}]), int)
    assert_type(jobs.enqueue_many(thumbnail.call(p) for p in "abc"), int)
    jobs.enqueue_many([thumbnail.call("a"), fetch.options(key="k").call("u")])
    assert_type(jobs.replay(17, fetch.call("u")), Job[bytes])


@jobs.cron("0 2 * * *", tz="Europe/Berlin", overlap="buffer_one", jitter="5m")
@jobs.job("cpu", kind="report.nightly")
def nightly(scope: str = "all") -> int:
    return len(scope)


stripe = jobs.quota("stripe", rate="10/s", burst=20, concurrency=8, wait="3s")
vendor = jobs.quota("vendor", rate="100/m", per="args.vendor_id", throttle_max=60)
gpu = jobs.quota("gpu", concurrency=2, scope="host")
down = jobs.quota(
    "down", breaker={"failures": 0.5, "pause": "30s"}, retry_budget={"ratio": 0.2}
)


@jobs.job("io", quotas=[vendor.cost(2), gpu], concurrency=20, retry_budget=0.2)
async def charge(vendor_id: str, cents: int) -> str:
    assert_type(stripe, Quota)
    with stripe.permit() as permit:
        assert_type(permit, Permit)
        permit.answered(200)
        permit.answered(429, {"Retry-After": "3"})
        permit.answered(429, HTTPMessage())
        permit.failed()
    vendor.answered(503, HTTPMessage(), value=vendor_id)
    vendor.failed(value=17)
    async with vendor.permit(2, wait="1s", value=17) as permit:
        assert_type(permit, Permit)
    if cents:
        return vendor_id
    raise Throttled(vendor, after="30s", value=vendor_id)


def quotas() -> None:
    assert_type(charge.enqueue("visa", 5), Job[str])
    assert_type(stripe.name, str)
    assert_type(jobs.quotas.set("stripe", rate="5/s", duration="2h"), bool)
    assert_type(jobs.quotas.reset("stripe", note="why"), bool)
    for one in jobs.quotas.list():
        assert_type(one.rate, str | None)
        assert_type(one.set_until, datetime | None)
    for bucket in jobs.quotas.buckets("stripe", 5):
        assert_type(bucket.free, int | None)
    assert_type(jobs.tenants.set("acme", concurrency=10), bool)
    assert_type(jobs.tenants.remove("acme"), bool)
    for rule in jobs.tenants.list():
        assert_type(rule.concurrency, int | None)
    assert_type(jobs.pause(quota="stripe", duration="10m"), bool)
    assert_type(jobs.resume(tenant="acme"), bool)


def schedules() -> None:
    assert_type(nightly("all"), int)
    jobs.schedule("fetch", fetch.call("u"), every="30s", missed="skip")
    call = thumbnail.options(priority=-5).call("a")
    assert_type(jobs.schedules.put("a", call, every="1h", from_="end"), bool)
    assert_type(jobs.schedules.next("a", 20), tuple[datetime, ...])
    assert_type(jobs.schedules.run("a"), Job[Any])
    for one in jobs.schedules.list():
        assert_type(one.next, tuple[datetime, ...])
        assert_type(one.paused_until, datetime | None)
    if tick := current().schedule:
        assert_type(tick.at, datetime)
        assert_type(tick.late, timedelta)


@jobs.job("cpu")
def total_of(sizes: list[str], day: str) -> int:
    for size in current().results(thumbnail):
        assert_type(size, str)
    for page in current().results(fetch):
        assert_type(page, bytes)
    for member, value in current().results():
        assert_type(member.kind, str)
        assert_type(value, Any)
    assert_type(current().flow.add_many(thumbnail.call(one) for one in "ab"), int)
    current().flow.add(thumbnail)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    current().results("thumbnail")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    return len(sizes) + len(day)


@jobs.job("cpu")
async def resize(data: bytes, width: int, quality: int = 80) -> str:
    return str(len(data) * width * quality)


def flows() -> None:
    flow = jobs.flow("report", key="k", tenant="acme", priority=-5, failure="continue")
    parts = flow.add_many(thumbnail.call(path) for path in "abc")
    assert_type(parts, Step[list[str]])
    total = flow.add(total_of.call(parts.value, "2026-01-01"), after=parts)
    assert_type(total, Step[int])
    assert_type(total.value, int)
    page = flow.add(fetch.options(priority=5).call("u"), when="failed", after=[total])
    assert_type(page, Step[bytes])
    assert_type(flow.wait_for("approval", after=[parts, page], timeout="7d"), Step[Any])
    assert_type(flow.on_failure(thumbnail.call("a")), Step[str])
    row = flow.add(jobs.chain(fetch.call("u")).then(resize.rest(width=64)), after=page)
    assert_type(row, Step[str])
    whole = flow.add(jobs.flow("inner"), after=[parts, row], when="finished", name="x")
    assert_type(whole, Step[Any])
    assert_type(flow.add(thumbnail.call(row.value), after=whole), Step[str])
    run = flow.enqueue()
    assert_type(run, FlowRun[Any])
    assert_type(run.ref, str)
    assert_type(run.state, FlowState)
    assert_type(run.wait("5s"), FlowState)
    assert_type(run.progress.total, int)
    assert_type(run.result(total, timeout=5), int)
    assert_type(run.result(parts), list[str])
    assert_type(run.result(), Any)
    for thumb in run.results(thumbnail):
        assert_type(thumb, str)
    for job, value in run.results():
        assert_type(job, Job[Any])
        assert_type(value, Any)
    assert_type(jobs.get_flow(run.ref), FlowRun[Any])


def chains() -> None:
    chain = jobs.chain(fetch.call("u")).then(resize.rest(width=64))
    run = chain.then(thumbnail.options(priority=5).rest()).enqueue()
    assert_type(run, FlowRun[str])
    assert_type(run.result(), str)
    assert_type(jobs.chain(fetch.call("u")).enqueue().result(timeout="5s"), bytes)


def is_wrong_of_flows() -> None:
    jobs.flow("report", priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flow = jobs.flow("report", failure="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    parts = flow.add_many(thumbnail.call(path) for path in "abc")
    total = flow.add(total_of.call(parts.value, "a"))
    flow.add(thumbnail)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flow.add(thumbnail.call(total.value))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flow.add(total_of.call(total.value, "a"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flow.add(thumbnail.call("a"), after="parts")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flow.add(thumbnail.call("a"), after=parts, when="dead")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    row = flow.add(jobs.chain(fetch.call("u")))
    flow.add(thumbnail.call(row.value))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flow.add_many(thumbnail.call("a"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    flow.on_success(thumbnail.call("a"), after=parts)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    flow.wait_for("approval", timeout=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    text: str = flow.enqueue().result(total)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    flow.enqueue().results(parts)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    jobs.chain(fetch.call("u")).then(total_of.rest(day="a"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.chain(thumbnail.call("u")).then(thumbnail.rest(width="a"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.chain(thumbnail.call("u")).then(thumbnail.call("a"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    number: int = jobs.chain(fetch.call("u")).enqueue().result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    del text, number


async def uses_async() -> None:
    job = await thumbnail.options(connection=None).enqueue_async("a", width=3)
    assert_type(job, Job[str])
    assert_type(await fetch.enqueue_async("u"), Job[bytes])
    assert_type(await jobs.flow("report").enqueue_async(), FlowRun[Any])
    assert_type(await jobs.chain(fetch.call("u")).enqueue_async(), FlowRun[bytes])
    assert_type(await fetch("u"), bytes)


def is_wrong_of_quotas() -> None:
    jobs.quota("a", rate=10)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    thumbnail.options(unique="a", on_conflict="overwrite")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.quota("a", scope="pool")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.quota("a", limit=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    jobs.job("io", rate_limit="10/s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.quota("a", breaker=0.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.job("io", quotas=["stripe"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    jobs.job("io", quotas=stripe)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.job("io", concurrency="2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stripe.permit(value=[1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stripe.permit().answered("429")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stripe.permit().answered(429, "3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    raise Throttled("stripe", after="30s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def is_wrong() -> None:
    thumbnail.enqueue(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    thumbnail.enqueue("a", heigth=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    thumbnail.options(priority=1).enqueue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    thumbnail.options(prio=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    thumbnail.options(priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    thumbnail.enqueue("a").result(timeout=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    number: int = thumbnail.enqueue("a").result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    fetch.enqueue(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    number = fetch.enqueue("u").result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    anything.enqueue("a")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    thumbnail.call(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.enqueue_many(thumbnail.call(n) for n in range(3))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.enqueue_many(thumbnail)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    jobs.enqueue_many(thumbnail, [5])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    jobs.replay(17, thumbnail)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.schedule("a", thumbnail, every="1h")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.schedule("a", thumbnail.call(5), every="1h")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.quotas.set("stripe", rate=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.quotas.set("stripe", limit=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    jobs.tenants.set("acme", 10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    jobs.schedules.put("a", fetch.call("u"), evry="1h")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    jobs.schedules.put("a", fetch.call("u"), overlap="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.schedules.backfill("a", "2026-01-01", 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.get(b"1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    jobs.job("cpu", timout=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    del number


@jobs.cron("@daily")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def is_no_handler() -> None: ...


@jobs.job  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def has_no_pool() -> None: ...


@jobs.on_dead  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def takes_two(job: DeadJob, other: int) -> None: ...


@jobs.around_attempt  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def is_no_context() -> Iterator[None]:
    yield


@jobs.on_enqueue  # type: ignore[type-var]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def wants_two(job: Enqueuing, other: int) -> None: ...


async def is_wrong_async() -> None:
    await thumbnail.enqueue_async(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await fetch.enqueue_async(5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


pdf = jobs.command(
    "pdf", ["pandoc", "{src}"], pool="cpu", exit_codes={65: "dead"}, timeout="1m"
)
assert_type(pdf.enqueue("a").result(), str)
jobs.command("ps", ["ps"], pool="cpu", time_limit=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
jobs.command("ps", "ps aux", pool=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
