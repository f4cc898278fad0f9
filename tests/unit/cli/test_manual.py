"""`jobpool manual`: listed, shown, searched; plain text when not on a terminal."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from jobpool.cli.diagnose.manual import rendered
from jobpool.cli.exits import Exit
from jobpool.cli.root import cli
from jobpool.manual import pages

COLOUR = "\x1b["


def run(*words):
    return CliRunner().invoke(cli, ["manual", *words])


def test_the_list_has_every_page_below_its_group():
    """Topic and one line each."""
    answer = run()
    assert answer.exit_code == Exit.OK
    for entry in pages.entries():
        group = answer.output.index(f"{entry.group.upper()}\n")
        line = f"\n  {entry.topic} "
        assert group < answer.output.index(line)
        assert entry.summary in answer.output
    assert COLOUR not in answer.output


@pytest.mark.parametrize("name", ["roles.sql", "postgres/roles.sql"])
def test_a_ready_made_file_is_printed_as_it_is(name):
    """So that psql can read it: whoever has installed a wheel has no repository."""
    answer = run("--file", name)
    assert answer.exit_code == Exit.OK
    assert answer.output == pages.ready_made()["postgres/roles.sql"].read_text()
    assert "CREATE ROLE" in answer.output


def test_an_unknown_file_is_refused_with_those_that_there_are():
    answer = run("--file", "grants.sql")
    assert answer.exit_code == Exit.USAGE
    for name in pages.ready_made():
        assert name in answer.output


def test_a_page_is_plain_text_in_a_pipe():
    """As it is in the file, so that grep, an editor and a program can read it."""
    answer = run("start")
    assert answer.exit_code == Exit.OK
    assert answer.output == pages.text_of("start")
    assert "<!--" not in answer.output


def test_every_page_can_be_shown():
    """Rendered as well, in a narrow terminal as well: only code is wider."""
    for entry in pages.entries():
        text = pages.text_of(entry.topic)
        title = text.splitlines()[0].removeprefix("# ")
        shown = re.sub(r"\x1b\[[\d;]*m", "", rendered(text, 60))
        assert title.replace("`", "").split()[0] in shown
        wide = {line for line in shown.splitlines() if len(line) > 60}
        code = re.findall(r"^```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert wide <= {line for block in code for line in block.splitlines()}


def test_code_keeps_its_lines_on_a_narrow_terminal():
    """A copied block runs: the terminal folds lines, the page does not."""
    line = (
        'webhook.enqueue("http://127.0.0.1:9/hook", "ready")  # no answer comes there'
    )
    shown = rendered(f"# A page\n\nAnswer.\n\n```python\n{line}\n```\n", 40)
    assert line in re.sub(r"\x1b\[[\d;]*m", "", shown).splitlines()


def test_the_index_is_the_list():
    """The index is the file's name, and what people type."""
    assert run("index").output == run().output


def test_a_terminal_gets_a_rendered_page(tmp_path):
    """Through less, in colours, without Markdown's signs.

    A short page stays on screen.
    """
    less = tmp_path / "less"
    less.write_text('#!/bin/sh\necho "LESS=$LESS"\ncat\n')
    less.chmod(0o700)
    surroundings = os.environ | {"PAGER": str(less), "TERM": "xterm"}
    surroundings.pop("LESS", None)
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [sys.executable, "-m", "jobpool", "manual", "start"],
            stdin=slave,
            stdout=slave,
            stderr=subprocess.STDOUT,
            env=surroundings,
        )
        os.close(slave)
        seen = b""
        while part := read(screen):
            seen += part
        assert process.wait(30) == Exit.OK
    shown = seen.decode()
    assert shown.startswith("LESS=-FRX\r\n")
    assert COLOUR in shown
    assert "jobs.py" in shown
    assert "```" not in shown


def read(screen):
    """Return a terminal's output; nothing once no process has it open."""
    try:
        return screen.read(65536)
    except OSError:
        return b""


def test_a_link_becomes_the_command_that_follows_it():
    """A terminal has no links; a section of the same page is near."""
    shown = rendered(
        "See [the rules](retries.md#budgets), [pools](pools.md), [x](#x).", 80
    )
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown).strip()
    assert plain == "See the rules (jobpool manual retries), pools, x."


def test_a_misspelt_page_is_answered_with_the_nearest():
    """With all pages, if none is similar."""
    answer = run("strat")
    assert answer.exit_code == Exit.USAGE
    assert "no page 'strat'; did you mean 'start'? (to search all" in answer.output
    assert "expected one of " in run("zzzzz").output
    assert run("../../errors").exit_code == Exit.USAGE


def test_several_words_name_no_page():
    """The error says how to search for them."""
    answer = run("soft", "limit")
    assert answer.exit_code == Exit.USAGE
    assert "jobpool manual --search soft limit" in answer.output


def test_a_search_finds_page_heading_and_line():
    """Lines with all the words, in any order and case."""
    answer = run("--search", "RULES", "retries")
    assert answer.exit_code == Exit.OK
    assert "start: Run\n" in answer.output
    (line,) = [one for one in answer.output.splitlines() if "has all the rules" in one]
    number, text = line.split(maxsplit=1)
    assert pages.text_of("start").splitlines()[int(number) - 1] == text


def test_a_comment_in_code_is_not_a_heading():
    """A match in a block belongs to the section above it."""
    (hit,) = [hit for hit in pages.search("# jobs.py") if hit.topic == "start"]
    assert hit.heading == "Write handlers"


def test_a_search_without_words_is_refused():
    """And a search without a match fails."""
    assert run("--search").exit_code == Exit.USAGE
    answer = run("--search", "zzz", "qqq")
    assert answer.exit_code == Exit.FAILED
    assert "no line of the manual contains all of 'zzz qqq'" in answer.output


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ((), {"group", "topic", "summary"}),
        (("start",), {"topic", "text"}),
        (("--search", "rules"), {"topic", "heading", "number", "line"}),
    ],
)
def test_json_is_one_object_a_line(words, fields):
    """For the list, a page and a search alike."""
    answer = run(*words, "--json")
    assert answer.exit_code == Exit.OK
    assert {frozenset(json.loads(one)) for one in answer.output.splitlines()} == {
        frozenset(fields)
    }
