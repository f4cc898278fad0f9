"""Whatever is accepted arrives as it was sent; everything else gets a clear error."""

import contextlib
import datetime as dt
import uuid

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jobpool.client.payload.arguments import Arguments
from jobpool.errors import ArgumentsRejected, GiveUp

MIB = 2**20
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.datetimes()
    | st.uuids()
    | st.decimals(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers() | st.binary(), inner)
        | st.sets(st.integers())
    ),
    max_leaves=10,
)


class Box(msgspec.Struct):
    id: uuid.UUID
    at: dt.datetime
    raw: bytes
    share: float | None = None


def untyped(value, *rest, other=None, **more): ...
def typed(box: Box, *rest: Box, other: Box | None = None, **more: Box): ...


def sent(function, args, kwargs):
    """Return the call as it arrives."""
    arguments = Arguments(function, "k")
    payload = arguments.encode_call(args, kwargs, MIB)
    arrived_args, arrived_kwargs = arguments.decode(payload)
    bound = arguments._signature.bind(*arrived_args, **arrived_kwargs)
    return bound.args, bound.kwargs


BOX = st.builds(
    Box,
    id=st.uuids(),
    at=st.datetimes(timezones=st.just(dt.UTC)),
    raw=st.binary(),
    share=st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
NAME = st.text(st.characters(categories=["Ll"]), min_size=1).filter(
    lambda name: name not in {"value", "box", "rest", "other"}
)


@given(st.lists(PLAIN, min_size=1), st.dictionaries(NAME, PLAIN))
def test_plain_values_arrive_equal(args, kwargs):
    """JSON is lossless for the values that it can represent."""
    assert sent(untyped, tuple(args), kwargs) == (tuple(args), kwargs)


@given(st.lists(BOX, min_size=1), st.dictionaries(NAME, BOX))
def test_annotated_values_arrive_equal_and_typed(args, kwargs):
    """The annotation restores them wherever they appear."""
    assert sent(typed, tuple(args), kwargs) == (tuple(args), kwargs)


def as_lists(value):
    """Return *value* with tuples as lists: JSON has one kind of sequence."""
    if isinstance(value, (list, tuple)):
        return [as_lists(one) for one in value]
    if isinstance(value, dict):
        return {key: as_lists(one) for key, one in value.items()}
    return value


@given(ANYTHING)
def test_an_untyped_value_arrives_equal_or_is_refused(value):
    """Only a tuple is changed on the way: it arrives as a list."""
    try:
        (arrived,), _ = sent(untyped, (value,), {})
    except ArgumentsRejected:
        return
    assert as_lists(value) == arrived


@given(st.binary())
def test_garbage_arguments_only_raise_give_up(payload):
    """A row written by hand cannot break the child."""
    with contextlib.suppress(GiveUp):
        Arguments(typed, "k").decode(payload)
