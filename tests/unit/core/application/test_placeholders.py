"""Placeholders: what stands for results in a payload is found, and filled in."""

import json

import pytest

from jobpool.core.application.placeholders import (
    MARKER,
    NoResult,
    filled,
    placeholder,
    steps_in,
)

ONE = placeholder(3, many=False)
MANY = placeholder(1, many=True)


def packed(value):
    return json.dumps(value).encode()


def test_a_placeholder_may_stand_wherever_a_value_may():
    payload = packed({"a": ONE, "b": [1, {"c": [ONE, 2.5]}], "d": {"e": MANY}})
    results = {3: [b'{"x":null}'], 1: [b"1", b'"two"']}
    assert steps_in(payload) == (1, 3)
    assert json.loads(filled(payload, results)) == {
        "a": {"x": None},
        "b": [1, {"c": [{"x": None}, 2.5]}],
        "d": {"e": [1, "two"]},
    }


def test_a_payload_without_placeholders_is_the_same_bytes():
    payload = b'{ "a" : 1.50 }'
    assert steps_in(payload) == ()
    assert filled(payload, {}) is payload


def test_a_list_of_no_results_is_empty_and_a_single_one_is_missed():
    assert filled(packed({"a": MANY}), {}) == b'{"a":[]}'
    with pytest.raises(NoResult, match=r"step 3 .* skipped"):
        filled(packed({"a": ONE}), {1: [b"1"]})


def test_what_a_result_holds_is_never_taken_for_a_placeholder():
    """A handler that returns such an object cannot read another step's results."""
    result = packed({"a": MANY})
    payload = filled(packed({"x": ONE}), {3: [result], 1: [b'"secret"']})
    assert json.loads(payload) == {"x": {"a": MANY}}


@pytest.mark.parametrize("other", [True, 1.0, "3", None, [], [1, 2], {"n": 3}])
def test_an_object_that_is_no_placeholder_stays_as_it_is(other):
    payload = packed({"a": {MARKER: other}, "b": {MARKER: 3, "c": ONE}})
    assert steps_in(payload) == (3,)
    assert json.loads(filled(payload, {3: [b"7"]})) == {
        "a": {MARKER: other},
        "b": {MARKER: 3, "c": 7},
    }


@pytest.mark.parametrize("bad", [b'{"$jobpool.step": 3', b'\xff"$jobpool.step"'])
def test_a_payload_that_is_not_json_needs_nothing(bad):
    assert steps_in(bad) == ()
