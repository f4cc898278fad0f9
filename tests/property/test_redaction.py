"""Whatever arguments and paths there are: what stands at a path is shown nowhere."""

import json

from hypothesis import given
from hypothesis import strategies as st

from jobpool.core.application.redaction import (
    HIDDEN,
    SECRET_CHARS_MIN,
    hidden,
    scrubbed,
    scrubbed_json,
    secrets_in,
)

NAMES = st.sampled_from("abc")
LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False)),
    st.text(max_size=12),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner),
    max_leaves=12,
)
PATHS = st.lists(
    st.lists(NAMES, min_size=1, max_size=3).map(".".join), min_size=1, max_size=3
)


def at(value, names):
    """Return what stands at a path, by another way than the code under test."""
    if not names:
        return [value]
    if isinstance(value, list):
        return [found for one in value for found in at(one, names)]
    if isinstance(value, dict) and names[0] in value:
        return at(value[names[0]], names[1:])
    return []


@given(VALUES, PATHS)
def test_what_stands_at_a_path_is_hidden_and_nothing_else_is(value, paths):
    """Unless a shorter path has hidden what it stands in."""
    shown = hidden(value, paths)
    for path in paths:
        names = path.split(".")
        assert all(one == HIDDEN for one in at(shown, names))
        if not any(at(value, one.split(".")) for one in paths):
            assert shown == value


@given(VALUES, PATHS)
def test_no_text_has_what_stands_at_a_path(value, paths):
    """As Python or JSON write it; and no JSON value has it in any place."""
    secrets = secrets_in(value, paths)
    found = [one for path in paths for one in at(value, path.split("."))]
    for one in found:
        if isinstance(one, str) and len(one) >= SECRET_CHARS_MIN:
            for text in (one, repr(one), json.dumps(one), f"x{one}x"):
                assert one not in scrubbed(text, secrets).replace(HIDDEN, "")
    clean = scrubbed_json(value, secrets)
    assert not any(secret in _leaves(clean) for secret in secrets)


def _leaves(value):
    """Return the texts of all that a JSON value holds."""
    if isinstance(value, dict):
        return {*value, *(leaf for one in value.values() for leaf in _leaves(one))}
    if isinstance(value, list):
        return {leaf for one in value for leaf in _leaves(one)}
    if value is None or isinstance(value, bool):
        return set()
    return {str(value)} - {HIDDEN}
