"""What differs between arguments, and what of it the audit trail may say."""

import json

import msgspec
import pytest

from jobpool.operations.arguments.changes import (
    MISSING,
    changed_paths,
    differences,
    trail_path,
)


class Item(msgspec.Struct):
    price: int
    options: dict[str, int] = {}


class Node(msgspec.Struct):
    below: "Node | None" = None


(_, DEFINITIONS) = msgspec.json.schema_components(
    [Item, Node], ref_template="#/$defs/{name}"
)
SCHEMA = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
        "pair": {"type": "array", "prefixItems": [{"$ref": "#/$defs/Item"}]},
        "by_mail": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Item"}},
        "tree": {"$ref": "#/$defs/Node"},
        "a/b": {},
    },
    "additionalProperties": False,
    "$defs": DEFINITIONS,
}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": True}, [("/a", 1, True)]),
        ({"a": 1}, {"a": 1.0}, [("/a", 1, 1.0)]),
        ({"a": None}, {}, [("/a", None, MISSING)]),
        ({}, {"b": 2}, [("/b", MISSING, 2)]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, [("/a/1/b", 2, 3)]),
        ({"a": [1, 2]}, {"a": [2]}, [("/a", [1, 2], [2])]),
        ({"a/b~": [1]}, {"a/b~": {}}, [("/a~1b~0", [1], {})]),
        ([], {}, [("", [], {})]),
    ],
)
def test_differences_are_found_as_deep_inside_as_possible(before, after, found):
    """Also between numbers that Python takes to be equal."""
    assert [(d.path, d.before, d.after) for d in differences(before, after)] == found


@pytest.mark.parametrize(
    ("steps", "path"),
    [
        (["items", 3, "price"], "/items/3/price"),
        (["items", 3, "options", "red"], "/items/3/options/*"),
        (["pair", 0, "price"], "/pair/0/price"),
        (["pair", 1, "price"], "/pair/1/*"),
        (["by_mail", "ann@example.org", "price"], "/by_mail/*/price"),
        (["tree", "below", "below", "ann"], "/tree/below/below/*"),
        (["colour"], "/colour"),
        (["colour", "ann"], "/colour/*"),
        (["n" * 200], "/" + "n" * 100),
        (["a/b"], "/a~1b"),
    ],
)
def test_the_trail_has_names_of_the_code_and_no_keys_of_data(steps, path):
    """Arguments and declared fields by name; a mapping's keys are somebody's data."""
    assert trail_path(steps, SCHEMA) == path


@pytest.mark.parametrize("schema", [{}, True, None, {"$ref": "#/$defs/Gone"}, [1]])
def test_where_any_name_is_taken_names_are_data(schema):
    """So with ``**fields``; and a schema that is none says nothing either."""
    assert trail_path(["ann", 2], schema) == "/*/2"


def test_a_schema_that_refers_to_itself_ends():
    """Somebody else may have written it."""
    endless = {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}}
    assert trail_path(["a"], endless) == "/*"


def test_arguments_that_cannot_be_read_have_changed():
    """All of them, and each path is named once."""
    schema = json.dumps(SCHEMA).encode()
    assert changed_paths(b"\xff", b"{}", schema) == ("/*",)
    before, after = b'{"by_mail":{"a":1,"b":2}}', b'{"by_mail":{}}'
    assert changed_paths(before, after, schema) == ("/by_mail/*",)
