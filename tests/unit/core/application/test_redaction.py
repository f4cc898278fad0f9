"""What is hidden: the values at a path, and what stands for them in texts."""

import base64
import json
import traceback

import msgspec
import pytest

from jobpool.core.application.redaction import (
    EVERYTHING,
    HIDDEN,
    SECRETS_MAX,
    hidden,
    redaction_in,
    scrubbed,
    scrubbed_json,
    secrets_in,
    told_of,
    with_redaction,
    without_redaction,
)
from jobpool.store.records.runs import KindRecord

SCHEMA = b'{"type":"object","properties":{"card":{"type":"string"}}}'


@pytest.mark.parametrize(
    ("value", "paths", "shown"),
    [
        ({"card": "4711", "to": "x"}, ["card"], {"card": HIDDEN, "to": "x"}),
        ({"a": {"b": {"c": 1}}}, ["a.b"], {"a": {"b": HIDDEN}}),
        ({"a": {"b": 1, "c": 2}}, ["a.b", "a.d"], {"a": {"b": HIDDEN, "c": 2}}),
        ({"a": [{"b": 1}, {"b": [2]}, 3]}, ["a.b"], {"a": [{"b": HIDDEN}] * 2 + [3]}),
        ({"a": [[{"b": 1}]]}, ["a.b"], {"a": [[{"b": HIDDEN}]]}),
        ({"a": [1, 2]}, ["a"], {"a": HIDDEN}),
        ({"a": None}, ["a"], {"a": HIDDEN}),
        ({"a": 5}, ["a.b", "b"], {"a": 5}),
        ({"a": {"a": 5}}, ["a.a", "a"], {"a": HIDDEN}),
        ([{"a": 1}], ["a"], [{"a": HIDDEN}]),
        ("text", ["a"], "text"),
    ],
)
def test_what_stands_at_a_path_is_hidden(value, paths, shown):
    """Nested, in lists and as a whole; nothing else."""
    before = json.dumps(value)
    assert hidden(value, paths) == shown
    assert json.dumps(value) == before


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        ((), {"b": 1, "c": HIDDEN}),
        (("x", 0), {"b": HIDDEN, "c": 2}),
        (("y",), HIDDEN),
        (("y", 3, "z"), HIDDEN),
        (("none",), {"b": 1, "c": 2}),
    ],
)
def test_a_part_is_hidden_as_in_its_whole(steps, shown):
    """By the names and indexes that lead to it."""
    assert hidden({"b": 1, "c": 2}, ["x.b", "y", "c"], steps) == shown


def test_texts_are_found_as_they_are_written():
    """As they are, in a repr and in JSON; numbers too; not what is too short."""
    value = {"c": [{"n": "ab'\n\u00e9"}, {"n": 471100}, {"n": ["xyz", True, None]}]}
    secrets = secrets_in(value, ["c.n", "none"])
    text = f"{value} {json.dumps(value)} {value['c'][0]['n']} at 471100"
    clean = scrubbed(text, secrets)
    for part in ("ab'", "ab\\'", "471100", "u00e9", "\u00e9"):
        assert part not in clean
    assert "xyz" in clean
    assert "True" in clean


def test_texts_are_found_in_json_of_any_library():
    """The standard one escapes what is not ASCII, others do not."""
    secrets = secrets_in({"c": 'Stra\u00dfe "7"'}, ["c"])
    text = msgspec.json.encode(['Stra\u00dfe "7"']).decode()
    assert scrubbed(text, secrets) == f'["{HIDDEN}"]'


def test_lines_are_found_where_they_are_indented():
    """As by a traceback of a group of exceptions; other lines stay as they are."""
    secret = "-- BEGIN --\n  4711\n\n0815"
    inner = ExceptionGroup("inner", [ValueError(f"bad {secret}")])
    error = ExceptionGroup("outer", [inner])
    text = "".join(traceback.format_exception(error))
    clean = scrubbed(text, secrets_in({"c": secret}, ["c"]))
    assert f"| ValueError: bad {HIDDEN}\n" in clean
    assert ("4711" in text, "4711" in clean, "0815" in clean) == (True, False, False)
    lines = "-- BEGIN --\n0815\n  4711"
    assert scrubbed(lines, [secret]) == lines


def test_a_text_with_all_lines_of_a_long_secret_is_hidden():
    """Wherever they stand: to look for them would take too long."""
    secret = "".join(f"{n:04}\n" for n in range(2000))
    text = "  " + secret.replace("\n", "\n  ")
    assert scrubbed(text, [secret]) == HIDDEN
    assert scrubbed(text[:-9], [secret]) == text[:-9]


def test_the_longest_text_goes_first():
    """Else the rest of it would stay."""
    assert scrubbed("12345678", secrets_in({"a": ["1234", "12345678"]}, ["a"])) == (
        HIDDEN
    )


def test_many_long_values_do_not_keep_a_short_one_from_being_hidden():
    """All are looked for; if they are too many, no text is shown at all."""
    for count in (SECRETS_MAX - 1, SECRETS_MAX):
        value = {"a": [f"long {n:09}" for n in range(count)], "b": "4711"}
        secrets = secrets_in(value, ["a", "b"])
        assert "4711" not in scrubbed("no bank has 4711", secrets)
        assert "4711" not in json.dumps(scrubbed_json([4711, "4711"], secrets))
    assert secrets == EVERYTHING
    assert scrubbed("", secrets) == ""


@pytest.mark.parametrize("unit", ["bytes", "characters"])
@pytest.mark.parametrize("rest", ["0815 is bad", "\ufffd1 0815 is bad", " 0815"])
def test_a_text_may_begin_in_the_midst_of_a_secret(unit, rest):
    """Where its beginning was left out; what stands there by chance stays."""
    mark = f"[12 {unit} before this left out]\n"
    clean = scrubbed(mark + rest, ["4711 0815", "715 is b"])
    assert clean.replace("\ufffd", "").startswith(f"{mark}{HIDDEN}")
    assert "0815" not in clean
    other = f"{mark}so 15 is bad"
    assert scrubbed(other, ["4711 0815", "815"]) == other


def test_json_has_no_secret_in_any_place():
    """Texts, names and numbers; other numbers and the shape stay."""
    value = {"k 4711": ["x4711x", 4711, 47110, {"b": True}, None, 1.5]}
    assert scrubbed_json(value, ["4711"]) == {
        f"k {HIDDEN}": [f"x{HIDDEN}x", HIDDEN, 47110, {"b": True}, None, 1.5]
    }


def test_a_value_without_end_is_hidden_whole():
    """Hidden rather than shown."""
    deep = []
    for _ in range(5000):
        deep = [deep]
    assert hidden({"a": deep}, ["a.b"]) == HIDDEN
    assert secrets_in({"a": deep, "b": "4711"}, ["a.b", "b"]) == EVERYTHING


def test_a_schema_tells_what_is_hidden_and_its_digest_does_not_change():
    """A supervisor that knows nothing of it has the same version of the kind."""
    said = with_redaction(SCHEMA, ["card"], ["old.kind"])
    found = redaction_in(said)
    assert (found.paths, found.aliases) == (("card",), ("old.kind",))
    assert without_redaction(said) == SCHEMA
    assert with_redaction(SCHEMA, [], ["old.kind"]) == SCHEMA
    digests = {kind_of(schema).schema_digest for schema in (SCHEMA, said)}
    assert len(digests) == 1
    assert kind_of(b'{"type":"object"}').schema_digest not in digests


def kind_of(schema):
    return KindRecord(
        kind="k",
        pool="cpu",
        schema=schema,
        timeout_s=1.0,
        memory_bytes=1,
        max_attempts=1,
        max_crashes=1,
    )


@pytest.mark.parametrize(
    "schema",
    [b"{", b'{"x-redact":{"paths":7}}', b'"x-redact"', b"[" * 5000 + b'"x-redact"'],
)
def test_a_damaged_schema_hides_nothing_and_breaks_nothing(schema):
    """Somebody has written it by hand."""
    assert redaction_in(schema) is None
    without_redaction(schema)


def test_a_hook_is_about_the_arguments_of_another():
    """It has them as base64; a damaged one is about its own."""
    inner = b'{"card":"4711"}'
    facts = {"id": 1, "kind": "k", "payload": base64.b64encode(inner).decode()}
    payload = json.dumps({"job": facts}).encode()
    assert told_of("jobpool:on_dead", payload) == ("k", inner)
    assert told_of("k", payload) == ("k", payload)
    assert told_of("jobpool:on_dead", b"{") == ("jobpool:on_dead", b"{")
