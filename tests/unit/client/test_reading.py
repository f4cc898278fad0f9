"""Jobs are listed, counted, waited for and read, in both forms; types come back."""

import asyncio
import datetime as dt
import decimal
import enum
import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import pydantic
import pytest

from jobpool import ArgumentsRejected, JobPool, JobUnsuccessful, UsageError, WaitTimeout
from jobpool.testing import Queue

jobs = JobPool()


class Line(pydantic.BaseModel):
    sku: str
    count: int = pydantic.Field(ge=1)


class Order(pydantic.BaseModel):
    id: uuid.UUID
    lines: list[Line]
    due: dt.datetime
    price: decimal.Decimal


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Box:
    where: Path
    colour: Colour
    made: dt.date


@jobs.job("cpu", kind="order.take")
def take(order: Order, more: list[Line] | None = None) -> Order:
    assert isinstance(order.lines[0], Line)
    assert all(isinstance(line, Line) for line in more or [])
    return order


@jobs.job("cpu", kind="box.pack")
def pack(box: Box, price: decimal.Decimal) -> tuple[Box, decimal.Decimal]:
    return box, price


@jobs.job("io", kind="may.fail", max_attempts=1)
def may_fail(how: str) -> str:
    if how == "fail":
        raise ValueError("no")
    return how


@pytest.fixture
def queue():
    with Queue() as queue:
        queue.serve(jobs)
        yield queue


ORDER = Order(
    id=uuid.UUID(int=7),
    lines=[Line(sku="a", count=2)],
    due=dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    price=decimal.Decimal("1.50"),
)


def test_a_pydantic_model_goes_through_the_queue_as_itself(queue):
    """As an argument, in a list, and as the result."""
    job = take.enqueue(ORDER, more=[Line(sku="b", count=1)])
    assert job.arguments()["order"]["price"] == "1.50"
    queue.drain(raises=True)
    assert job.result() == ORDER


def test_what_a_model_refuses_is_refused_without_its_values(queue):
    wrong = ORDER.model_dump(mode="json") | {"lines": [{"sku": "secret", "count": 0}]}
    with pytest.raises(ArgumentsRejected, match="refused by its type") as refused:
        take.enqueue(wrong)
    assert "secret" not in str(refused.value)
    with pytest.raises(ArgumentsRejected):
        take.enqueue("no model")


def test_a_models_schema_is_part_of_the_handlers_and_complete():
    """Each reference in it leads somewhere, so that others can check arguments."""
    schema = json.loads(take.spec.schema)
    text = json.dumps(schema)
    for name in ("Line",):
        assert f"#/$defs/{name}" in text
        assert schema["$defs"][name]["required"] == ["sku", "count"]
    assert text.count('"$defs"') == 1


def test_enums_dataclasses_paths_decimals_and_dates_come_back_as_themselves(queue):
    box = Box(Path("a/b"), Colour.RED, dt.date(2026, 1, 2))
    job = pack.enqueue(box, decimal.Decimal("0.10"))
    queue.drain(raises=True)
    assert job.result() == (box, decimal.Decimal("0.10"))


def test_jobs_are_listed_newest_first_by_any_condition(queue):
    first = may_fail.options(tenant="ann", key="k").enqueue("fail")
    second = may_fail.enqueue("go")
    third = take.enqueue(ORDER)
    assert jobs.list() == [third, second, first]
    assert jobs.list(limit=2) == [third, second]
    assert jobs.list(limit=2, before=second.id) == [first]
    assert jobs.list(may_fail) == jobs.list("may.fail") == [second, first]
    assert jobs.list(pool="cpu") == [third]
    assert jobs.list(tenant="ann") == jobs.list(key="k") == [first]
    assert jobs.list(may_fail, text="ann") == [first]
    since = queue.clock.utc_ms() / 1000
    queue.advance("1m")
    assert jobs.list(state="dead") == [first]
    assert jobs.list(state=["succeeded", "dead"]) == [third, second, first]
    assert jobs.list(since=since + 60) == []
    assert jobs.list(outcome="failed") == jobs.list(error_class="ValueError") == [first]
    assert jobs.list(outcome="succeeded", error_class="ValueError") == []
    assert jobs.list(since=since) == [third, second, first]
    assert jobs.list(may_fail, state="succeeded")[0].result() == "go"


def test_jobs_are_counted(queue):
    assert jobs.count() == 0
    for how in ("fail", "go", "go"):
        may_fail.enqueue(how)
    take.enqueue(ORDER)
    queue.drain()
    assert jobs.count() == 4
    assert jobs.count(may_fail) == 3
    assert jobs.count(state="succeeded", pool="io") == 2


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ({"kinds": "x"}, "no condition 'kinds'"),
        ({"state": "finished"}, "state: expected"),
        ({"state": [3]}, "state: expected"),
        ({"state": 3}, "state: expected"),
        ({"pool": 3}, "pool: expected text"),
        ({"error_class": ValueError}, "error_class: expected text"),
        ({"outcome": "dead"}, "outcome: expected one of succeeded, failed"),
        ({"outcome": ["failed"]}, "outcome: expected one of"),
        ({"since": "yesterday"}, "since"),
        ({"since": dt.datetime(2026, 1, 1)}, "time zone"),  # noqa: DTZ001 - it lacks one
        ({"limit": 0}, "limit: expected 1 to 10,000"),
        ({"limit": "all"}, "limit: expected 1 to 10,000"),
        ({"before": "x"}, "expected a whole number"),
    ],
)
def test_a_wrong_condition_is_refused(queue, which, said):
    with pytest.raises(UsageError, match=said):
        jobs.list(**which)


def test_a_kind_that_is_none_is_refused(queue):
    with pytest.raises(UsageError, match="kind: expected text"):
        jobs.list(3)


def test_everything_that_reads_or_waits_has_an_asynchronous_form(queue):
    """They wait without blocking: a job runs meanwhile on the same loop."""

    async def afternoon():
        job = await may_fail.enqueue_async("go")
        assert (await jobs.get_async(job.id)) == job
        assert await jobs.count_async(may_fail) == 1
        with pytest.raises(WaitTimeout, match="is still runnable"):
            await job.wait_async(timeout=0)
        waiting = asyncio.ensure_future(job.result_async(timeout="20s"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        queue.run_due()
        assert await waiting == "go"
        assert await job.wait_async() == "succeeded"
        assert (await job.info_async()).attempt == 1
        bad = await may_fail.enqueue_async("fail")
        queue.run_due()
        with pytest.raises(JobUnsuccessful, match="ValueError"):
            await bad.result_async()
        late = await may_fail.options(run_in="1h").enqueue_async("go")
        assert await late.cancel_async()
        assert await jobs.list_async(may_fail, state="canceled") == [late]

    asyncio.run(afternoon())


def test_a_flow_is_waited_for_asynchronously(queue):
    async def evening():
        flow = jobs.flow("two")
        step = flow.add(may_fail.call("go"))
        run = await flow.enqueue_async()
        with pytest.raises(WaitTimeout):
            await run.result_async(step, timeout=0)
        waiting = asyncio.ensure_future(run.result_async(timeout="20s"))
        await asyncio.sleep(0.01)
        queue.drain()
        assert await waiting == "go"
        assert await run.result_async(step) == "go"
        assert await run.wait_async() == "succeeded"

    asyncio.run(evening())
