"""ARGS-JSON against a published schema; errors name arguments and show no values."""

import json

import msgspec
import pytest

from jobpool.client.payload.published.checker import Checker, encoded
from jobpool.errors import ArgumentsRejected

Thumbnail = msgspec.defstruct(
    "Thumbnail",
    [("path", str), ("width", int, 256), ("tags", list[str], [])],
    forbid_unknown_fields=True,
)
SCHEMA = msgspec.json.encode(msgspec.json.schema(Thumbnail))
SECRET = "hunter2"


def checked(text, schema=SCHEMA):
    return Checker(schema).by_name(text, "ARGS-JSON 1")


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"path": "a"}', {"path": "a"}),
        ('["a"]', {"path": "a"}),
        ('["a", 5]', {"path": "a", "width": 5}),
        ('{"width": 5, "path": "a"}', {"path": "a", "width": 5}),
    ],
)
def test_objects_are_by_name_and_arrays_by_position(text, arguments):
    """Either way the payload has names, in the order of the signature."""
    found = checked(text)
    assert found == arguments
    assert list(found) == list(arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "arguments lack 'path'"),
        ("[]", "arguments lack 'path'"),
        (f'{{"path": "a", "{SECRET[:3]}": 1}}', "there is no argument 'hun'"),
        (f'{{"path": "a", "width": "{SECRET}"}}', "argument 'width': expected integer"),
        (f'["a", "{SECRET}"]', "argument 'width': expected integer"),
        (f'["a", 1, ["{SECRET}", 5]]', "argument 'tags.1': expected string"),
        (f'["a", 1, [], "{SECRET}"]', "4 arguments by position, expected at most 3"),
        (f'"{SECRET}"', "expected a JSON object"),
        (f"{{'{SECRET}'}}", "is not JSON"),
        ("NaN", "is not JSON"),
        ('{"path": "\\ud800"}', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("\udcff", "is not JSON"),
    ],
)
def test_a_wrong_argument_is_refused_without_showing_values(text, message):
    """The error says which argument and what was expected, never what was given."""
    with pytest.raises(ArgumentsRejected) as caught:
        checked(text)
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_kind_without_a_schema_takes_any_object():
    """A forced kind is unchecked; positional arguments mean nothing there."""
    assert checked('{"b": 1, "a": 2}', b"{}") == {"b": 1, "a": 2}
    with pytest.raises(ArgumentsRejected, match="by position need a published kind"):
        checked("[1]", b"{}")


def test_a_payload_that_is_too_large_is_refused_with_figures():
    """The limit and the size are named, and what to do instead."""
    with pytest.raises(ArgumentsRejected, match=r"2\.011KiB .* at most 1KiB") as caught:
        encoded({"path": "x" * 2048}, 1024, "ARGS-JSON 1")
    assert "x" * 20 not in str(caught.value)
    assert json.loads(encoded({"path": "x"}, 1024, "ARGS-JSON 1")) == {"path": "x"}
