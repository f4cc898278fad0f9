"""Arguments in an editor: read back exactly, opened again, never lost."""

import json
import re
import stat
from pathlib import Path

import click
import pytest

from jobpool.cli.jobs.arguments import editing
from jobpool.cli.jobs.arguments.editing import edit_until, editable, read_edited
from jobpool.errors import ArgumentsRejected, UsageError

BIG = b'{"n":1180591620717411303424,"x":1.0}'
TEXT = '{"a": 1}\n'


@pytest.fixture
def editor(monkeypatch):
    """An editor that writes one text after the other; None: it is left unsaved."""
    shown, written = [], []

    def edit(text, extension):
        assert extension == ".json"
        shown.append(text)
        made = written.pop(0)
        return made(text) if callable(made) else made

    monkeypatch.setattr(click, "edit", edit)

    def leaves(*texts):
        written[:] = texts
        return shown

    return leaves


@pytest.fixture
def answers(monkeypatch):
    """A terminal, and what is said to "Edit it again?"."""
    given = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr(editing, "_again", lambda: given.pop(0))
    return given


def accept(text):
    if "bad" in text:
        raise ArgumentsRejected("argument 'a': expected integer")
    return text


@pytest.mark.parametrize("payloads", [{7: BIG}, {7: BIG, 8: b'{"a":[]}'}])
def test_a_text_that_nobody_touches_means_the_same(payloads):
    """Numbers of any size as well, of one job and of several."""
    texts = read_edited(editable(payloads), payloads)
    assert {job_id: json.loads(text) for job_id, text in texts.items()} == {
        job_id: json.loads(payload) for job_id, payload in payloads.items()
    }


def test_jobs_that_are_deleted_from_the_text_are_left_out():
    """What is added, or is no object, is an error."""
    payloads = {7: b"{}", 8: b"{}"}
    assert read_edited('{"8": {"a":1}}', payloads) == {8: '{"a":1}'}
    with pytest.raises(ArgumentsRejected, match="'9' is the id of none"):
        read_edited('{"9": {}}', payloads)
    with pytest.raises(ArgumentsRejected, match="a JSON object with the arguments"):
        read_edited("[]", payloads)


def test_a_refused_text_is_opened_again_with_the_error_above_it(editor, answers):
    """Until it is accepted; the error is no part of the text."""
    answers += [True, True]
    shown = editor("bad", lambda text: f"{text}, worse", lambda _: "# a note\ngood")
    assert edit_until(TEXT, accept) == "good"
    assert shown == [
        TEXT,
        "# argument 'a': expected integer\nbad",
        "# argument 'a': expected integer\nbad, worse",
    ]


@pytest.mark.parametrize("saved", [None, TEXT, f"# only a comment\n{TEXT}"])
def test_an_unchanged_text_ends_it(editor, saved):
    """Whether it was saved or not."""
    editor(saved)
    with pytest.raises(UsageError, match="nothing was changed in the editor"):
        edit_until(TEXT, accept)


def test_what_was_written_is_kept_if_it_is_given_up(editor, answers):
    """In a file that nobody else may read; so too where nobody can be asked."""
    editor("bad")
    answers.append(False)
    with pytest.raises(UsageError, match="nothing was replayed; what you wrote") as it:
        edit_until(TEXT, accept)
    kept = Path(re.search(r"is in (\S+)$", str(it.value))[1])
    assert kept.read_text() == "bad"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.unlink()
