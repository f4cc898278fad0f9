"""Untrusted text, as it is printed."""

import pytest

from jobpool.core import safe_text
from jobpool.core.safe_text import unstated_error


def test_lines_and_texts_are_cut_and_marked():
    """A line keeps its beginning, a text its end."""
    assert safe_text.one_line("a" * 2000) == "a" * 2000
    assert safe_text.one_line("a" * 2001) == "a" * 2000 + "… [1 more characters]"
    assert safe_text.lines("b" * 100_000) == "b" * 100_000
    head = "[2 characters before this left out]\n"
    assert safe_text.lines("xy" + "b" * 100_000) == head + "b" * 100_000


@pytest.mark.parametrize(
    ("char", "shown", "in_json"),
    [
        ("\n", r"\n", r"\u000a"),
        ("\r", r"\r", r"\u000d"),
        ("\t", r"\t", r"\u0009"),
        ("\x1b", r"\x1b", r"\u001b"),
        ("\xad", r"\xad", r"\u00ad"),
        ("\u202e", r"\u202e", r"\u202e"),
        ("\u115f", r"\u115f", r"\u115f"),
        ("\u206f", r"\u206f", r"\u206f"),
        ("\u3164", r"\u3164", r"\u3164"),
        ("\ufffb", r"\ufffb", r"\ufffb"),
        ("\ufeff", r"\ufeff", r"\ufeff"),
        ("\ud800", r"\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041", r"\udb40\udc41"),
    ],
)
def test_invisible_characters_are_shown(char, shown, in_json):
    """As Python writes it; in JSON as JSON does."""
    assert safe_text.one_line(f"a{char}b") == f"a{shown}b"
    assert safe_text.json_text(f"a{char}b") == f"a{in_json}b"
    visible = char if char in "\n\t" else shown
    assert safe_text.lines(f"a{char}b") == f"a{visible}b"


def test_line_breaks_of_other_systems_are_understood():
    """CR LF is one break; a lone CR would hide what is before it."""
    assert safe_text.lines("a\r\nb\rc") == "a\nb\\rc"
    assert safe_text.whole("a\ud800b") == "a\ufffd\ufffd\ufffdb"


@pytest.mark.parametrize(
    ("reason", "error", "unsaid"),
    [
        ("raised ValueError: no\\nanswer; failure 5 of 5", "no\nanswer\n", ""),
        ("raised ValueError; failure 5 of 5", "no answer", "ValueError: no answer"),
        ("raised ValueError: xx… [3 more characters]", "xxxxx", "ValueError: xxxxx"),
        ("ended by its soft time limit", "", ""),
        (None, "no answer", "ValueError: no answer"),
    ],
)
def test_an_error_is_shown_once(reason, error, unsaid):
    """Beside its reason only if that was cut, or is an older version's."""
    assert unstated_error(reason, "ValueError", error) == unsaid
    assert unstated_error(None, None, None) == ""
