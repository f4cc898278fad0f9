"""Arguments: what is sent is what arrives, or it is refused at enqueue."""

import dataclasses
import datetime as dt
import enum
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest

from jobpool.client.payload.arguments import Arguments
from jobpool.errors import ArgumentsRejected, ConfigError, GiveUp

MIB = 2**20


class Color(enum.Enum):
    RED = "red"


class Crop(msgspec.Struct):
    width: int


@dataclasses.dataclass
class Order:
    number: int
    crop: Crop | None = None


class Node(msgspec.Struct):
    inner: list["Node"] = []


class Strange:
    pass


def encode(function, *args, **kwargs):
    return Arguments(function, "k").encode_call(args, kwargs, MIB)


def round_trip(function, *args, **kwargs):
    arguments = Arguments(function, "k")
    sent = arguments.decode(arguments.encode_call(args, kwargs, MIB))
    return arguments, sent


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def chain(depth):
    node = Node()
    for _ in range(depth - 1):
        node = Node([node])
    return node


def loop():
    value = []
    value.append(value)
    return value


def thumbnail(path: str, width: int = 256) -> str: ...
def loose(value, *, other=None): ...
def when_of(when: dt.datetime): ...
def color_of(color: Color): ...
def mode_of(mode: Literal["fast"]): ...
def crop_of(crop: Crop): ...
def raw_of(raw: bytes): ...
def maybe_of(share: float | None): ...
def anything_in(box: dict[str, Any]): ...
def path_of(path: Path): ...
def everything(first, /, second: int = 2, *more: Order, last: Color, **rest: int): ...
def node_of(node: Node): ...
def strange_of(it: Strange): ...
def bounded(n: Annotated[int, msgspec.Meta(ge=1)]): ...
def ints_of(values: list[int]): ...


NOW = dt.datetime(2026, 5, 4, 3, 2, 1, tzinfo=dt.UTC)
RICH = [
    (when_of, NOW),
    (color_of, Color.RED),
    (crop_of, Crop(3)),
    (raw_of, b"\0\xff"),
    (path_of, Path("a/b")),
    (loose, {"a": [1, 2.5, None, True, "ü"]}),
    (loose, 2**70),
    (loose, nested(60)),
    (node_of, chain(30)),
    (maybe_of, None),
]


@pytest.mark.parametrize(("function", "value"), RICH)
def test_an_argument_arrives_as_it_was_sent(function, value):
    """What the annotation names is restored in the child."""
    _, (args, kwargs) = round_trip(function, value)
    assert (value,) == (*args, *kwargs.values())
    assert type(value) is type((*args, *kwargs.values())[0])


def test_every_kind_of_parameter_reaches_its_place():
    """Positional-only, defaults, *args, keyword-only and **kwargs all travel."""
    order = Order(1, Crop(2))
    arguments, (args, kwargs) = round_trip(
        everything, 1, 3, order, order, last=Color.RED, extra=5
    )
    assert args == [1, 3, order, order]
    assert kwargs == {"last": Color.RED, "extra": 5}
    arguments._signature.bind(*args, **kwargs)


def test_defaults_are_left_out_unless_given():
    """A default may change while jobs wait."""
    assert encode(thumbnail, "a") == b'{"path":"a"}'
    assert encode(thumbnail, "a", 256) == b'{"path":"a","width":256}'


def test_a_row_without_positional_defaults_still_fills_what_precedes_the_rest():
    """``*more`` alone, written by hand, gets the defaults before it."""
    args, kwargs = Arguments(everything, "k").decode(
        b'{"first":1,"more":[{"number":4}],"last":"red"}'
    )
    assert ([1, 2, Order(4)], {"last": Color.RED}) == (args, kwargs)


def test_named_arguments_give_the_same_bytes_as_a_call():
    """Equal arguments are equal bytes, whatever their order: keys compare them."""
    arguments = Arguments(thumbnail, "k")
    expected = arguments.encode_call(("a", 1), {}, MIB)
    assert expected == arguments.encode_named({"width": 1, "path": "a"}, MIB)
    assert expected == arguments.encode_call((), {"width": 1, "path": "a"}, MIB)


REFUSED = [
    (thumbnail, (), {}, "missing a required argument: 'path'"),
    (thumbnail, ("a",), {"widht": 1}, "unexpected keyword argument 'widht'"),
    (thumbnail, ("a", "SECRET"), {}, "argument 'width': expected `int`, got `str`"),
    (thumbnail, (None,), {}, "argument 'path': expected `str`, got `null`"),
    (thumbnail, (NOW,), {}, "argument 'path': expected `str`, got `datetime`"),
    (thumbnail, (b"SECRET",), {}, "argument 'path': expected `str`, got `bytes`"),
    (thumbnail, ("SECRET\ud800",), {}, "argument 'path': .*surrogate"),
    (thumbnail, ("a", "SECRET\ud800"), {}, "argument 'width': .*surrogate"),
    (anything_in, (["SECRET\ud800"],), {}, "argument 'box': expected"),
    (anything_in, (range(3),), {}, "argument 'box': .*range"),
    (ints_of, (["SECRET\ud800"],), {}, "argument 'values': .*surrogate"),
    (thumbnail, ("a", True), {}, "argument 'width': expected `int`, got `bool`"),
    (thumbnail, ("a", 1.0), {}, "argument 'width': expected `int`, got `float`"),
    (color_of, ("SECRET",), {}, "argument 'color': not one of the values"),
    (mode_of, ("SECRET",), {}, "argument 'mode': not one of the values"),
    (crop_of, ({"width": "SECRET"},), {}, r"argument 'crop' at \.?width: expected"),
    (crop_of, (Crop("SECRET"),), {}, r"argument 'crop' at \.?width: expected"),
    (raw_of, ("SECRET",), {}, "argument 'raw': invalid base64"),
    (bounded, (0,), {}, "argument 'n': expected `int` >= 1"),
    (path_of, (7,), {}, r"argument 'path': refused by its type \(TypeError\)"),
    (maybe_of, (float("nan"),), {}, "argument 'share': nan is not a JSON number"),
    (loose, (float("nan"),), {}, "argument 'value': nan is not a JSON number"),
    (loose, ([float("-inf")],), {}, "argument 'value': -inf is not a JSON number"),
    (loose, (b"SECRET",), {}, "argument 'value': .* bytes is not a JSON value"),
    (loose, (NOW,), {}, "annotate 'value' with the type"),
    (loose, (Strange(),), {}, r"\.Strange is not a JSON value"),
    (loose, ({1: "SECRET"},), {}, "argument 'value': .*type int, not text"),
    (loose, (nested(65),), {}, "argument 'value': nested deeper than 64"),
    (loose, (loop(),), {}, "argument 'value': nested deeper than 64"),
    (loose, (10**5000,), {}, "argument 'value': .*4300 digits"),
    (node_of, (chain(40),), {}, "argument 'node': nested deeper than 64"),
    (anything_in, ({"a": b"SECRET"},), {}, "argument 'box': .*bytes"),
    (anything_in, ({"a": float("nan")},), {}, "argument 'box': nan"),
    (everything, (1,), {"last": Color.RED, "x": "SECRET"}, "argument 'x': expected"),
    (everything, (1,), {"last": Color.RED, "first": 2}, "'first' is given twice"),
    (everything, (1, 2, Order("SECRET")), {"last": Color.RED}, "argument 'more' at"),
    (strange_of, (Strange(),), {}, r"argument 'it': .*Strange has no JSON form"),
    (
        loose,
        ("x" * MIB,),
        {},
        r"1,048,588 bytes as JSON, at most 1,048,576 \(1MiB\) are allowed",
    ),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "says"), REFUSED)
def test_an_argument_that_would_not_arrive_is_refused_without_its_value(
    function, args, kwargs, says
):
    """A refusal names the argument and what was expected, never the value."""
    with pytest.raises(ArgumentsRejected, match=says) as caught:
        encode(function, *args, **kwargs)
    assert "SECRET" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"width": 1}, "missing argument 'path'"),
        ({"path": "a", "widht": 1}, "unknown argument 'widht'"),
        (["a"], "expected a dict of arguments by name, got list"),
        ({1: "a"}, "expected `str`"),
    ],
)
def test_named_arguments_are_checked_like_a_call(given, says):
    """`enqueue_many` refuses what `enqueue` refuses."""
    with pytest.raises(ArgumentsRejected, match=says):
        Arguments(thumbnail, "k").encode_named(given, MIB)


def test_the_names_of_extra_arguments_are_text():
    """The key 1 would arrive as "1"."""
    given = {"first": 1, "last": "red", 1: 5}
    with pytest.raises(ArgumentsRejected, match="expected `str`"):
        Arguments(everything, "k").encode_named(given, MIB)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"path":"\xff"}',
        b"{}",
        b'{"path":5}',
        b'{"path":"a","gone":1}',
    ],
)
def test_a_row_that_does_not_fit_gives_up(payload):
    """Rows of another version, or written by hand, are never retried."""
    with pytest.raises(GiveUp, match="stored arguments do not fit k") as caught:
        Arguments(thumbnail, "k").decode(payload)
    assert caught.value.__context__ is None


def test_the_schema_accepts_what_enqueue_accepts():
    """`jobpool enqueue` checks with the schema alone."""
    arguments = Arguments(everything, "k")
    schema = json.loads(arguments.schema)
    payload = arguments.encode_call((1, 3, Order(1)), {"last": Color.RED}, MIB)
    jsonschema.validate(json.loads(payload), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"first": 1, "last": "blue"}, schema)
    assert list(schema["properties"]) == ["first", "second", "last", "more"]
    assert sorted(schema["required"]) == ["first", "last"]


def test_the_schema_refuses_unknown_names_and_shows_defaults():
    """A misspelt name is found before a job is made."""
    schema = json.loads(Arguments(thumbnail, "k").schema)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["width"] == {"type": "integer", "default": 256}


def test_a_type_without_a_schema_allows_anything():
    """A schema that accepts anything is better than no handler."""
    schema = json.loads(Arguments(strange_of, "k").schema)
    jsonschema.validate({"it": object()}, schema)


def test_annotations_are_looked_up_at_first_use():
    """A handler may name types that its module defines further down."""
    arguments = Arguments(names_later, "k")
    with pytest.raises(ConfigError, match="outside `if TYPE_CHECKING:`"):
        arguments.encode_call((1,), {}, MIB)


def names_later(value: "NotThere"): ...  # noqa: F821 - the point of the test


def test_annotations_that_msgspec_cannot_read_are_named():
    """An ambiguous union is the application's mistake; the error names its kind."""

    def ambiguous(value: Crop | Order): ...

    with pytest.raises(ConfigError, match="parameters of k cannot be read from JSON"):
        Arguments(ambiguous, "k").encode_call((Crop(1),), {}, MIB)
