"""Whatever a producer, an operator, a file or a child writes: our own error or none.

More examples: ``JOBPOOL_FUZZ_EXAMPLES=20000 scripts/test tests/property``.
"""

import contextlib
import json
import os
import re

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobpool.cli.exits import Exit
from jobpool.cli.launch import launch
from jobpool.cli.root import cli
from jobpool.client.payload.published.checker import Checker
from jobpool.core import event_lines
from jobpool.core.config.options import TOP
from jobpool.core.event_lines import human_line, json_line
from jobpool.core.events.event import Event
from jobpool.core.events.jobs import JobSucceeded
from jobpool.core.events.supervisor import Alarm
from jobpool.core.units import duration_s, size_bytes
from jobpool.errors import ArgumentsRejected, ConfigError
from jobpool.sandbox.protocol.messages import (
    Beat,
    Decoder,
    Done,
    FrameError,
    FromChild,
    FromZygote,
    ToChild,
    ToZygote,
    encode,
)
from jobpool.store import opening
from support.configuring import build, toml

HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
FUZZ = settings(
    max_examples=int(os.environ.get("JOBPOOL_FUZZ_EXAMPLES", "100")), deadline=None
)
NASTY = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "../../etc/passwd",
            "os:system",
            "__import__('os').system('id')",
            "\x1b]0;owned\x07",
            "a\nb",
            "%s%n",
            "{0.__class__}",
            "\0",
            "-" * 3,
            "--store",
            "9" * 400,
            "1e999",
            "NaN",
            "\ud800",
            "ǅ",
        ]
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NASTY, inner, max_size=3)
    ),
    max_leaves=8,
)


# -- the channel between the supervisor and a child ----------------------------------


@FUZZ
@given(st.data())
def test_a_damaged_stream_only_ever_raises_frame_error(data):
    """Bits flipped, pieces removed, doubled or moved, on every channel."""
    messages = [Beat(7, b"1", b"2"), Done(1, 7, True, b"1", 0.1, 0.1, 1, 1)]
    stream = bytearray(b"".join(map(encode, messages)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(stream)))
        end = data.draw(st.integers(at, len(stream)))
        piece = data.draw(st.sampled_from([b"", bytes(stream[at:end]) * 2, b"\xff"]))
        stream[at:end] = piece
    for expected in (FromChild, FromZygote, ToChild, ToZygote):
        with contextlib.suppress(FrameError):
            list(Decoder(expected).feed(bytes(stream)))


# -- settings ------------------------------------------------------------------------

OPTIONS = sorted(TOP)
VALUES = NASTY | st.integers() | st.floats() | st.booleans() | JSON


@FUZZ
@given(st.dictionaries(st.sampled_from(OPTIONS) | NASTY, VALUES, max_size=4))
def test_an_arbitrary_file_is_a_configuration_or_config_error(table):
    """A value of any type under a known or unknown name."""
    with contextlib.suppress(ConfigError):
        build(files=toml(as_toml(table)))


@FUZZ
@given(st.text(max_size=200) | st.from_regex(r"\[(pools|kinds)[^\n]{0,30}\n.{0,80}"))
def test_a_file_that_is_not_toml_is_config_error(text):
    """Unless it happens to be a valid configuration."""
    with contextlib.suppress(ConfigError):
        build(files=toml(text))


@FUZZ
@given(
    st.dictionaries(st.sampled_from(["size", *OPTIONS]), NASTY, max_size=3),
    st.dictionaries(
        st.sampled_from([f"JOBPOOL_{name.upper()}" for name in OPTIONS]),
        NASTY,
        max_size=3,
    ),
)
def test_arbitrary_flags_and_variables_are_settings_or_config_error(flags, env):
    """No other exception is raised."""
    with contextlib.suppress(ConfigError):
        build(flags, env=env)


@FUZZ
@given(NASTY | st.integers() | st.floats() | st.none() | st.booleans())
def test_a_quantity_is_a_number_or_config_error(value):
    """Durations and sizes, of whatever type."""
    for read in (duration_s, size_bytes):
        with contextlib.suppress(ConfigError):
            assert read(value, "what") >= 0


@FUZZ
@given(NASTY, st.sampled_from(["", "sqlite:///", "postgresql://", "sqlite:", "x://"]))
def test_a_url_names_a_store_or_is_config_error(text, scheme):
    """An error does not repeat a password."""
    try:
        opening.run_root(f"{scheme}user:hunter2@{text}")
        said = ""
    except ConfigError as exc:
        said = str(exc)
    assert "hunter2" not in said or scheme == "sqlite:///"  # There it is a file's name.


def as_toml(table):
    """Write a table as TOML; its own syntax is close to JSON's."""
    rows = []
    for name, value in table.items():
        with contextlib.suppress(UnicodeEncodeError):
            row = f"{json.dumps(name)} = {inline(value)}"
            row.encode()
            rows.append(row)
    return "\n".join(rows)


def inline(value):
    """Write a value as TOML's inline form; null is an empty table."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(k)} = {inline(v)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(inline, value)) + "]"
    if value is None:
        return "{}"
    if isinstance(value, float):
        return str(value).replace("e", "E") if value == value else "nan"  # noqa: PLR0124
    return json.dumps(value)


# -- the command line ----------------------------------------------------------------

COMMANDS = [
    *("list", "show", "status", "cancel", "retry", "release", "pause", "resume"),
    *("prune", "check", "enqueue", "reclaim", "migrate", "move", "alive", "doctor"),
]
FLAGS = [
    *("--store", "--state", "--kind", "--pool", "--limit", "--older-than", "--json"),
    *("--yes", "--dry-run", "--full", "--from", "--to", "--abandon", "--in", "--key"),
    *("--unique", "--priority", "--timeout", "--memory", "--pools", "--app"),
    *("--config", "--since", "--groups", "--lines"),
]
WORDS = st.lists(st.sampled_from(FLAGS) | NASTY, max_size=5)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Work in an empty folder, and start nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "_serve", lambda *_given, **_named: 0)


@settings(
    FUZZ,
    max_examples=FUZZ.max_examples // 3,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.sampled_from(COMMANDS) | NASTY, WORDS)
@example("list", ["--store", "\x1b[2J"])
@example("list", ["--store", "--store", "\x1b]"])
@example("list", ["\x1b]"])
@example("\x1b]", [])
@example("--pools", ["\x1b]"])
@example("--\x1b]", [])
@example("list", ["--state", "\x1b]"])
@example("list", ["--\x1b]"])
@example("enqueue", ["../../etc/passwd", "--store", "sqlite:///\0"])
def test_an_arbitrary_command_line_ends_with_a_documented_code(
    elsewhere, command, words
):
    """Never as a bug, and without a raw escape sequence on the terminal."""
    words = [word.encode("utf-8", "replace").decode() for word in (command, *words)]
    if "\0" in "".join(words):
        words = [word.replace("\0", "") for word in words]  # No shell can pass one.
    done = CliRunner().invoke(cli, words, input="")
    assert done.exit_code in {code.value for code in Exit}, (words, done.output)
    assert done.exit_code != Exit.BUG, (words, done.output)
    assert "\x1b" not in done.output


# -- what others have stored ---------------------------------------------------------


@FUZZ
@given(JSON, JSON)
@example({"$ref": "http://127.0.0.1:1/schema"}, {"a": 1})
@example({"$ref": "#/nowhere"}, {"a": 1})
@example({"$defs": [], "$ref": "#/$defs/x"}, {})
@example({"properties": {"a": {"pattern": "("}}}, {"a": "b"})
@example({"type": "no such type"}, {})
@example({"properties": []}, [1])
@example([], {})
def test_an_arbitrary_published_schema_accepts_or_rejects(schema, arguments):
    """It comes from the database: it fetches nothing and breaks nothing."""
    text = json.dumps(schema).encode("utf-8", "replace")
    with contextlib.suppress(ArgumentsRejected):
        Checker(text).by_name(json.dumps(arguments), "arguments")


@FUZZ
@given(NASTY, NASTY)
def test_an_event_is_one_harmless_line(text, host):
    """For people and for programs."""
    alarm = Alarm(at_ms=0, text=text + host)
    for line in (human_line(alarm, None), json_line(alarm)):
        assert not HIDDEN.search(line)


@FUZZ
@example("", "{", -1, None)
@example("\x7f", "\u2028", 2**63 - 1, 1e-300)
@example("x" * 4000, "cpu/0", 0, 0.5)
@example("x" * 4001, "cpu/0", 0, 0.5)
@given(NASTY, NASTY, st.integers(-(2**63), 2**63 - 1), st.none() | st.floats())
def test_an_event_with_nothing_to_shorten_has_its_ordinary_line(
    kind, slot, number, duration_s
):
    """The fast way to a JSON line writes the same as the thorough one."""
    event = JobSucceeded(
        at_ms=number, id=number, kind=kind, slot=slot, attempt=1, duration_s=duration_s
    )
    with pytest.MonkeyPatch.context() as patch:
        quick = json_line(event)
        patch.setattr(event_lines, "_flat_body", lambda _event: None)
        assert quick == json_line(event)


def test_an_event_with_only_a_time_is_a_json_object():
    """There is no trailing comma."""
    assert json.loads(json_line(Event(at_ms=0))) == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "event": "event",
    }
