"""Which lane and which buckets a job belongs to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.rules.quotas.definition import Need, Quota
from jobpool.core.rules.quotas.lanes import (
    VALUE_MAX_CHARS,
    bucket_id,
    counted_value,
    lane_id,
    values_of,
)
from jobpool.errors import UsageError

ID_MAX = 2**63 - 1


def test_ids_never_change():
    """They are stored, by clients of one release and supervisors of another."""
    values = {"b": "2", "a": "1"}
    assert lane_id("io", "shop.charge", 5, "acme", values) == 3141261273126841755
    assert bucket_id("stripe", "") == 7776598178250356354


@given(st.text(), st.text(), st.integers(-100, 100), st.none() | st.text(), st.data())
def test_a_lane_is_one_of_what_holds_its_jobs_back(pool, kind, priority, tenant, data):
    """The order of values says nothing; each part does; it fits the column."""
    values = data.draw(st.dictionaries(st.text(), st.text(), max_size=3))
    found = lane_id(pool, kind, priority, tenant, values)
    assert 1 <= found <= ID_MAX
    backwards = dict(reversed(list(values.items())))
    assert lane_id(pool, kind, priority, tenant, backwards) == found
    others = [
        lane_id(pool + "x", kind, priority, tenant, values),
        lane_id(pool, kind + "x", priority, tenant, values),
        lane_id(pool, kind, priority + 1, tenant, values),
        lane_id(pool, kind, priority, (tenant or "") + "x", values),
        lane_id(pool, kind, priority, tenant, values | {"": "another"}),
    ]
    assert found not in others or values.get("") == "another"


def test_no_tenant_is_another_lane_than_an_empty_one():
    assert lane_id("io", "k", 0, None, {}) != lane_id("io", "k", 0, "", {})


@given(st.text(), st.text())
def test_buckets_of_other_values_are_other_buckets(one, other):
    assert 1 <= bucket_id("q", one) <= ID_MAX
    assert (bucket_id("q", one) == bucket_id("q", other)) == (one == other)
    assert bucket_id("q" + one, other) != bucket_id("q", one + other) or not one


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("acme", "acme"),
        (7, "7"),
        (-7, "-7"),
        (True, "true"),
        (False, "false"),
        ("a\0b", "a\ufffdb"),
        ("\ud800", "?"),
    ],
)
def test_values_are_counted_as_text(value, text):
    assert counted_value(value) == text


@pytest.mark.parametrize("value", [1.5, b"x", [1], {"a": 1}, object()])
def test_values_of_other_types_are_refused(value):
    with pytest.raises(UsageError, match=r"argument x is of type .*Nothing was enq"):
        counted_value(value, "argument x")


@given(st.text(min_size=190, max_size=230), st.text(max_size=30))
def test_long_values_are_cut_and_stay_apart(text, more):
    found = counted_value(text)
    assert len(found) <= VALUE_MAX_CHARS
    if len(text) > VALUE_MAX_CHARS and more:
        assert counted_value(text + more) != found


QUOTAS = {
    "vendor": Quota(name="vendor", per="args.order.vendor"),
    "customer": Quota(name="customer", per="args.customer"),
    "fair": Quota(name="fair", per="tenant"),
    "stripe": Quota(name="stripe"),
}


def test_a_job_counts_by_what_its_kinds_quotas_name():
    needs = [Need("vendor"), Need("customer", 2), Need("fair"), Need("stripe")]
    arguments = {"order": {"vendor": 7, "cents": 3}, "customer": "x", "other": 1}
    assert values_of(needs, QUOTAS, arguments) == {"order.vendor": "7", "customer": "x"}
    assert values_of([Need("stripe"), Need("gone")], QUOTAS, arguments) == {}


@pytest.mark.parametrize(
    "arguments", [{}, {"order": None}, {"order": {}}, {"order": 5}]
)
def test_an_argument_that_is_not_there_counts_as_none(arguments):
    assert values_of([Need("vendor")], QUOTAS, arguments) == {"order.vendor": ""}


def test_a_value_that_cannot_be_counted_by_names_its_argument():
    with pytest.raises(UsageError, match=r"argument 'order.vendor' is of type list"):
        values_of([Need("vendor")], QUOTAS, {"order": {"vendor": []}})
