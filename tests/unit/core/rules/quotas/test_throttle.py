"""What a service says about when to come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.quotas.throttle import (
    THROTTLED_MAX_S,
    THROTTLES_MAX,
    is_refused,
    retry_after_s,
)

NOW_S = 1_800_000_000.0  # Fri, 15 Jan 2027 08:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Content-Type": "text/html"}, None),
        ({"Retry-After": "120"}, 120),
        ({"retry-after": " 0 "}, 0),
        ({"RETRY-AFTER": "1.5"}, 1.5),
        ({"Retry-After": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30),
        ({"Retry-After": "Friday, 15-Jan-27 08:00:30 GMT"}, 30),
        ({"Retry-After": "Fri Jan 15 08:00:30 2027"}, 30),
        ({"Retry-After": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0),
        ({"Retry-After": "Fri, 15 Jan 2027 10:01:00 +0200"}, 60),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-5"}, None),
        ({"X-RateLimit-Reset": "1800000090"}, 90),
        ({"X-RateLimit-Reset": "1800000090000"}, 90),
        ({"X-RateLimit-Reset": "1799999990"}, 0),
        ({"X-RateLimit-Reset": "45"}, 45),
        ({"RateLimit-Reset": "45"}, 45),
        ({"RateLimit-Reset": "45;w=60, 900"}, 45),
        ({"Retry-After": "7", "X-RateLimit-Reset": "45"}, 7),
        ({"Retry-After": "soon", "X-RateLimit-Reset": "45"}, 45),
    ],
)
def test_both_forms_of_both_headers_are_read(headers, seconds):
    assert retry_after_s(headers, NOW_S) == seconds


@given(st.text(max_size=60), st.text(max_size=60))
def test_no_text_of_a_service_raises(after, reset):
    """It is another's; what cannot be read says nothing."""
    found = retry_after_s({"Retry-After": after, "X-RateLimit-Reset": reset}, NOW_S)
    assert found is None or found >= 0


@pytest.mark.parametrize(
    "date",
    ["Fri, 99 Foo 2027 99:99:99 GMT", "Fri, 15 Jan 99999 08:00:30 GMT", "1 Jan 0 0:0"],
)
def test_dates_that_do_not_exist_say_nothing_or_the_past(date):
    assert (retry_after_s({"Retry-After": date}, NOW_S) or 0) >= 0


@pytest.mark.parametrize("differs_s", [-3600, 3600])
@pytest.mark.parametrize(
    "said",
    [
        {"Retry-After": "Fri, 15 Jan 2027 08:00:30 GMT"},
        {"X-RateLimit-Reset": f"{NOW_S + 30:.0f}"},
    ],
)
def test_a_time_of_a_service_is_by_its_own_clock(said, differs_s):
    """Which its answer's Date tells; one that is no date tells nothing."""
    dated = {**said, "date": "Fri, 15 Jan 2027 08:00:00 GMT"}
    assert retry_after_s(dated, NOW_S + differs_s) == 30
    assert retry_after_s({**said, "Date": "today"}, NOW_S) == 30


def test_a_job_is_throttled_so_often_and_so_long():
    assert not is_refused(THROTTLES_MAX, THROTTLED_MAX_S - 1)
    assert is_refused(THROTTLES_MAX + 1, 0)
    assert is_refused(1, THROTTLED_MAX_S)
