"""What type checkers see of the public API; checked by mypy, never run."""

from contextlib import suppress
from datetime import timedelta
from typing import Any, assert_type

from jobpool import DeadJob, Job, JobPool, Retry, SoftTimeout, current
from jobpool.core.job import JobState

jobs = JobPool()


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


@jobs.on_dead
@jobs.on_quarantine
def tell(job: DeadJob) -> None:
    assert_type(job.reason, str | None)


@jobs.on_child_start
def connect() -> None: ...


def uses() -> None:
    assert_type(thumbnail("a", width=3), str)
    assert_type(thumbnail.enqueue("a"), Job[str])
    assert_type(thumbnail.enqueue("a").result(timeout="5s"), str)
    assert_type(thumbnail.enqueue("a").state, JobState)
    assert_type(fetch.enqueue("u"), Job[bytes])
    assert_type(fetch.options(run_in=5).enqueue("u").result(), bytes)
    assert_type(thumbnail.options(priority=5, unique="a").enqueue("a"), Job[str])
    assert_type(jobs.enqueue_many(thumbnail, [{"path": "a"}]), int)
    assert_type(jobs.get(1), Job[Any])
    assert_type(jobs.wait(1, 5), Job[Any])
    thumbnail.enqueue(5)  # type: ignore[arg-type]
    thumbnail.enqueue("a", heigth=5)  # type: ignore[call-arg]
    thumbnail.options(priority=1).enqueue()  # type: ignore[call-arg]
    thumbnail.options(prio=1)  # type: ignore[call-arg]
    fetch.enqueue(5)  # type: ignore[call-overload]
    current().complete(None, 1)
    with suppress(SoftTimeout):
        current().heartbeat(progress=0.5)


async def uses_async() -> None:
    job = await thumbnail.options(connection=None).enqueue_async("a", width=3)
    assert_type(job, Job[str])
    assert_type(await fetch.enqueue_async("u"), Job[bytes])
    await thumbnail.enqueue_async(5)  # type: ignore[arg-type]
