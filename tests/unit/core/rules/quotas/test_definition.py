"""What can be declared, and what is refused with which words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.quotas.definition import (
    Need,
    Quota,
    check_name,
    check_need,
    check_quota,
)
from jobpool.core.rules.quotas.rate import Rate, parse_rate
from jobpool.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "rate", "shown"),
    [
        ("10/s", Rate(10, 1), "10/s"),
        ("100/m", Rate(100, 60), "100/m"),
        ("5/h", Rate(5, 3600), "5/h"),
        ("1000/d", Rate(1000, 86400), "1000/d"),
        ("3/10s", Rate(3, 10), "3/10s"),
        ("0.5/s", Rate(0.5, 1), "0.5/s"),
        (" 7 / 90s ", Rate(7, 90), "7/90s"),
        ("2/500ms", Rate(2, 0.5), "2/500ms"),
        ("1/1s", Rate(1, 1), "1/s"),
        ("1/36h", Rate(1, 129600), "1/129600s"),
    ],
)
def test_rates_are_read_and_shown(text, rate, shown):
    assert parse_rate(text) == rate
    assert str(rate) == shown


@given(
    st.integers(1, 9_999_999), st.integers(1, 9999), st.sampled_from(["s", "m", "h"])
)
def test_a_rate_reads_as_it_is_shown(permits, count, unit):
    seconds = count * {"s": 1, "m": 60, "h": 3600}[unit]
    rate = Rate(permits, seconds)
    if rate.per_second <= 100_000 and len(str(seconds)) <= 6:
        assert parse_rate(str(rate)) == rate


@pytest.mark.parametrize("text", ["", "10", "10/", "/s", "10/w", "-1/s", "1e3/s", 10])
def test_what_is_no_rate_is_refused_with_examples(text):
    with pytest.raises(ConfigError, match=r'stripe: .* is not a rate; .*"3/10s"'):
        parse_rate(text, "stripe")


@pytest.mark.parametrize("text", ["0/s", "5/0s", "200000/s"])
def test_rates_out_of_range_are_refused(text):
    with pytest.raises(ConfigError, match=r"out of range; expected more than nothing"):
        parse_rate(text)


@pytest.mark.parametrize("name", ["", "a b", "kind:x", "tenant", "x" * 101, "ü", None])
def test_names_that_mean_something_else_are_refused(name):
    with pytest.raises(ConfigError, match="is no name for a quota"):
        check_name(name)


def test_a_good_quota_is_returned_as_it_is():
    quota = Quota(name="a.B-c_9", rate=Rate(10, 1), burst=20, concurrency=8)
    assert check_quota(quota) is quota
    assert check_quota(Quota(name="kind:shop.charge", concurrency=1))
    assert check_quota(Quota(name="x", per="args.order.vendor_id"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"burst": 5}, "burst 5 without a rate says nothing"),
        ({"concurrency": 0}, r"concurrency=0 is out of range; expected 1 to 1,000,000"),
        ({"concurrency": True}, "concurrency=True is out of range"),
        ({"rate": Rate(1, 1), "burst": 0}, "burst=0 is out of range"),
        ({"rate": Rate(1, 86400), "burst": 1000}, r"would take 1000d00h to be full"),
        ({"per": "vendor_id"}, r"per='vendor_id' cannot be counted by; .*args.vendor"),
        ({"per": "args."}, "cannot be counted by"),
        ({"host_only": True, "per": "tenant"}, 'scope="host" together with per'),
        ({"host_only": True, "rate": Rate(1, 1)}, 'scope="host" has no rate'),
    ],
)
def test_quotas_that_cannot_be_kept_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=f"quota 'x': .*{message}"):
        check_quota(Quota(name="x", **wrong))


def test_a_cost_must_be_had_at_once():
    quota = Quota(name="x", rate=Rate(10, 1), concurrency=12)
    assert check_need(quota, 10, "shop.charge") == Need("x", 10)
    with pytest.raises(ConfigError, match=r"shop.charge: a cost of 11 .* burst is 10"):
        check_need(quota, 11, "shop.charge")
    with pytest.raises(ConfigError, match=r"a cost of 13 .* concurrency is 12"):
        check_need(quota, 13, "shop.charge")


@pytest.mark.parametrize("cost", [0, -1, True, 1.5, "2", None])
def test_a_cost_is_a_number_from_one(cost):
    with pytest.raises(ConfigError, match="out of range; expected a whole number"):
        check_need(Quota(name="x", concurrency=5), cost, "shop.charge")
