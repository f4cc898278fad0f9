"""Untrusted text made harmless, and records as the objects that programs read."""

import re
from io import StringIO

import pytest
from rich.console import Console

from jobpool.cli import output
from jobpool.cli.launch.progress_bar import BurstBar
from jobpool.cli.output import print_rows, tick_object
from jobpool.core.events.jobs import JobEnded, JobSucceeded
from jobpool.core.jobs.job import JobState
from jobpool.core.jobs.outcome import Outcome
from jobpool.core.safe_text import lines, one_line
from jobpool.store.records.schedules import JobTick
from jobpool.words.figures import ago
from jobpool.words.jobs.values import decoded
from jobpool.words.schedules import tick_words


def test_lines_keep_breaks_and_nothing_else_of_control():
    """Output keeps its shape; escapes, nulls and carriage returns are shown."""
    assert lines("a\r\n\tb\x1b[0m\rc\x00\x9b") == "a\n\tb\\x1b[0m\\rc\\x00\\x9b"


def test_long_texts_are_cut_and_marked():
    """One line keeps its head, output its tail; both say what is missing."""
    assert one_line("x" * 30, 10) == "x" * 10 + "… [20 more characters]"
    assert lines("a" * 20 + "b" * 10, 10) == (
        "[20 characters before this left out]\n" + "b" * 10
    )


def test_a_text_of_exactly_the_limit_is_whole():
    """Nothing is missing, so nothing says so."""
    assert one_line("x" * 10, 10) == lines("x" * 10, 10) == "x" * 10


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x202E])
def test_no_control_character_survives_in_one_line(code):
    """Each of them, one by one."""
    assert re.fullmatch(r"a\\(x..|u....|n|r|t)b", one_line(f"a{chr(code)}b"))


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (None, None),
        (b"null", None),
        (b'{"a": [1]}', {"a": [1]}),
        (b"\xff", "\ufffd"),
        (b"[" * 10_000, "[" * 10_000),
        (b"", ""),
    ],
)
def test_stored_json_is_decoded_and_garbage_is_text(stored, shown):
    """A row written by hand never stops a listing."""
    assert decoded(stored) == shown


def test_ages_are_shown_for_past_and_future():
    """The future is "in", the past is "ago"."""
    assert ago(None, 5) is None
    assert ago(0, 2000) == "2s ago"
    assert ago(60_000, 0) == "in 1m00s"


def test_burst_counts_only_jobs_that_it_will_not_try_again():
    """A job that is retried at once is not done; the total grows if necessary."""
    bar = BurstBar(2)
    done = JobSucceeded(at_ms=0, id=1, kind="k", slot="cpu/0", attempt=1)
    ended = {"at_ms": 0, "id": 1, "kind": "k", "slot": "cpu/0", "attempt": 1}
    again = JobEnded(outcome=Outcome.FAILED, state=JobState.PENDING, **ended)
    later = JobEnded(
        outcome=Outcome.FAILED, state=JobState.PENDING, delay_s=30.0, **ended
    )
    dead = JobEnded(outcome=Outcome.FAILED, state=JobState.DEAD, **ended)
    (task,) = bar._progress.tasks
    seen = []
    for event in (again, done, later, dead):
        bar.observe(event)
        seen.append((task.completed, task.total))
    assert seen == [(0, 2), (1, 2), (2, 2), (3, 3)]


ROW = (
    12,
    "quarantined",
    "shop.images.thumbnails.render",
    "cpu",
    "raised E: " + "é" * 99,
)
HEADINGS = ("ID", "STATE", "KIND", "POOL", "REASON")


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (60, ["ID", "STATE", "KIND", "REASON"]),
        (80, ["ID", "STATE", "KIND", "POOL", "REASON"]),
        (200, ["ID", "STATE", "KIND", "POOL", "REASON"]),
    ],
)
def test_a_row_fits_any_terminal(monkeypatch, width, headings):
    """The last column gets the remaining width; what does not fit is cut."""
    screen = Console(
        width=width, force_terminal=True, color_system=None, file=StringIO()
    )
    monkeypatch.setattr(output, "console", lambda: screen)
    output.print_rows(HEADINGS, [ROW, ROW], right=("ID",), spare=("POOL",))
    head, *lines = screen.file.getvalue().splitlines()
    assert head.split() == headings
    assert len(lines) == 2
    assert all(len(line) <= width for line in lines)
    assert ("render" in lines[0]) is (width == 200)


@pytest.mark.parametrize(("width", "is_whole"), [(61, False), (62, True)])
def test_nothing_is_cut_or_left_out_for_room_that_nobody_needs(
    monkeypatch, width, is_whole
):
    """A last column that is nearly empty leaves its room to the others."""
    screen = Console(
        width=width, force_terminal=True, color_system=None, file=StringIO()
    )
    monkeypatch.setattr(output, "console", lambda: screen)
    row = (*ROW[:-1], "raised E")
    output.print_rows(HEADINGS, [row], right=("ID",), spare=("POOL",))
    head, line = screen.file.getvalue().splitlines()
    assert head.split() == list(HEADINGS)
    assert (ROW[2] in line) is is_whole
    assert line.rstrip().endswith("raised E")


def test_rows_for_programs_are_whole(capsys):
    """In a pipe no name is cut; an empty table is a heading."""
    output.print_rows(HEADINGS, [ROW], right=("ID",), spare=("POOL",))
    line = capsys.readouterr().out.splitlines()[1]
    assert re.split(" {2,}", line) == [str(value) for value in ROW]
    output.print_rows(HEADINGS, [], right=(), spare=("POOL",))
    assert capsys.readouterr().out.split() == list(HEADINGS)


def test_a_tick_in_a_zone_that_this_host_does_not_know_is_shown_in_utc():
    """A job can be shown everywhere."""
    tick = JobTick("nightly", 1_709_325_000_000, "Mars/Base")
    assert tick_words(tick) == "nightly, 2024-03-01 20:30Z"
    assert tick_object(tick)["local"] == "2024-03-01T20:30:00+00:00"


def test_a_last_column_of_numbers_is_aligned_as_the_others(capsys):
    """The oldest age of a pool stands below its heading's end."""
    print_rows(("POOL", "OLDEST"), [("io", "5s")], right=("OLDEST",), spare=())
    assert capsys.readouterr().out == "POOL  OLDEST\nio        5s\n"
