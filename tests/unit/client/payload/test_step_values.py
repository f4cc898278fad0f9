"""Values of a flow's steps among arguments: placeholders, and only in calls."""

import json
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from jobpool import ArgumentsRejected, JobPool, UsageError
from jobpool.client.payload.step_value import StepValue
from jobpool.core.application.placeholders import MARKER
from support.store.client_fakes import FakeStore, pool_with

FLOW = object()
ONE = StepValue(FLOW, 3, many=False)
MANY = StepValue(FLOW, 1, many=True)


@dataclass
class Part:
    day: date
    size: int


@pytest.fixture
def jobs():
    return pool_with(FakeStore())


def handler_of(jobs, function, **options):
    return jobs.job("cpu", kind="shop.pack", **options)(function)


def packed(call):
    return json.loads(call.packed.payload)


def typed(
    day: date,
    size: int,
    parts: list[Part] = (),
    /,
    *rest: int,
    note: str = "",
    **more: int,
) -> None:
    """Take all that a handler may take."""


def test_a_value_may_stand_wherever_an_argument_may(jobs):
    """Also in a dataclass, in ``*args`` and ``**kwargs``."""
    pack = handler_of(jobs, typed)
    today = date(2026, 1, 2)
    call = pack.call(today, ONE, [Part(today, ONE), Part(today, 2)], 4, ONE, x=ONE, y=5)
    assert packed(call) == {
        "day": "2026-01-02",
        "size": {MARKER: 3},
        "parts": [
            {"day": "2026-01-02", "size": {MARKER: 3}},
            {"day": "2026-01-02", "size": 2},
        ],
        "rest": [4, {MARKER: 3}],
        "x": {MARKER: 3},
        "y": 5,
    }
    assert call.needs == (ONE, ONE, ONE, ONE)


def test_the_list_of_a_steps_values_is_told_from_the_one_value(jobs):
    call = handler_of(jobs, lambda parts: None).call(parts=MANY)
    assert packed(call) == {"parts": {MARKER: [1]}}
    assert call.needs == (MANY,)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((ONE, "many"), "argument 'size'"),
        ((ONE,), "size"),
        ((ONE, 1, [{"day": date(2026, 1, 2)}]), "argument 'parts'"),
        ((ONE, 1, object()), "argument 'parts'"),
    ],
)
def test_what_is_there_is_checked_beside_what_is_not(jobs, args, said):
    with pytest.raises(ArgumentsRejected, match=said):
        handler_of(jobs, typed).call(*args)


@pytest.mark.parametrize("function", [typed, lambda _day, size: None])
def test_only_a_call_may_hold_the_value_of_a_step(jobs, function):
    pack, first = handler_of(jobs, function), date(2026, 1, 2)
    if function is not typed:
        first = "2026-01-02"
    with pytest.raises(ArgumentsRejected, match=r"give it to handler\.call"):
        pack.enqueue(first, ONE)
    call = pack.call(first, ONE)
    for use in (
        lambda: jobs.enqueue_many([call]),
        lambda: jobs.replay(1, call),
        lambda: jobs.schedules.put("nightly", call, every="1d"),
    ):
        with pytest.raises(UsageError, match="only be added to that flow"):
            use()


@pytest.mark.parametrize("data", [{MARKER: 3}, {"a": [{MARKER: "x", "b": 1}]}])
def test_data_that_looks_like_a_placeholder_is_refused(jobs, data):
    """Else a caller of an application could read results of other steps."""
    pack = handler_of(jobs, lambda first, second=None: None)
    for arguments in ((data,), (data, ONE)):
        with pytest.raises(ArgumentsRejected, match=r"has the key '\$jobpool.step'"):
            pack.call(*arguments)
    assert packed(pack.call(MARKER, [MARKER])) == {"first": MARKER, "second": [MARKER]}


def test_a_quota_counts_by_no_value_that_is_not_there(jobs):
    vendor = jobs.quota("vendor", concurrency=1, per="args.order.vendor")

    def ship(order: dict[str, Any], size: int = 1) -> None:
        """Ship."""

    ship_it = handler_of(jobs, ship, quotas=[vendor])
    with pytest.raises(ArgumentsRejected, match=r"counts by args.order.vendor"):
        ship_it.call(ONE)
    assert ship_it.call({"vendor": "ups"}, ONE).packed.quota_values == {
        "order.vendor": "ups"
    }


class Reversing:
    name = "reversing"

    def encode(self, data):
        return data[::-1]

    def decode(self, data):
        return data[::-1]


def test_placeholders_pass_through_the_codec_with_the_rest():
    jobs = JobPool(codec=Reversing())
    call = handler_of(jobs, lambda a: None).call(ONE)
    assert MARKER.encode() not in call.packed.payload
    plain = jobs._gateway.encoding.decoded(call.packed.payload, "reversing")
    assert json.loads(plain) == {"a": {MARKER: 3}}


@pytest.mark.parametrize(
    "use",
    [
        str,
        "{}".format,
        "{:>9}".format,
        lambda value: f"page {value}",
        bool,
        "%s".__mod__,
    ],
)
def test_a_value_that_is_not_there_yet_is_no_part_of_a_text(use):
    """Else the placeholder's own text would be an argument. Debuggers show it."""
    with pytest.raises(UsageError, match="the value of step 3 of a flow is not there"):
        use(ONE)
    assert repr(ONE) == "<value of step 3>"
