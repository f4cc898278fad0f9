"""status --watch: the same again and again, for people and for programs."""

import json
import os
import signal
import subprocess
import sys

import pytest

from support.site.terminal import LEFT, shown
from support.store.cli_store import enqueue, run, stored

WATCH = "status --watch --every 100ms"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path):
    store = stored(tmp_path)
    yield store
    store.close()


def test_it_shows_what_has_changed_until_q(tmp_path, store):
    """And leaves the terminal as it was."""
    enqueue(store, 3)
    with shown(tmp_path, WATCH) as screen:
        screen.until(r"cpu +0 +3 ")
        enqueue(store, 4)
        screen.until(r"cpu +0 +7 ")
        screen.press("q")
        assert screen.exit_code() == 0
        assert screen.told.endswith(LEFT)


def test_what_has_no_room_is_counted(tmp_path, store):
    """The last line says how many lines there are more."""
    for number in range(40):
        enqueue(store, kind=f"nobody.knows.{number}", pool=f"pool-{number}")
    with shown(tmp_path, WATCH) as screen:
        screen.until(r"… \d+ more lines")
        os.kill(screen.pid, signal.SIGINT)
        assert screen.exit_code() == 130
        assert screen.told.endswith(LEFT)


def test_programs_get_a_line_each_time(tmp_path, store):
    """Without a terminal, at once and not when a buffer is full."""
    enqueue(store, 3)
    command = [sys.executable, "-m", "jobpool", *WATCH.split(), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path) as watching:
        first = json.loads(watching.stdout.readline())
        enqueue(store, 1)
        while (later := json.loads(watching.stdout.readline())) == first:
            pass
        watching.terminate()
    assert first["pools"]["cpu"]["runnable"] in {3, 4}
    assert later["store"] == first["store"]


def test_without_a_terminal_it_says_what_to_do(store):
    """Nothing is painted where nobody sees it; --every belongs to --watch."""
    del store
    refused = run("status", "--watch")
    assert refused.exit_code == 2
    assert "--json" in refused.output
    refused = run("status", "--every", "5s")
    assert refused.exit_code == 2
    assert "--watch" in refused.output


def test_a_bulk_that_lasts_shows_how_far_it_is(tmp_path, store):
    """On a terminal, after a second; the report stands where the bar was."""
    enqueue(store, 80)
    with shown(tmp_path, "cancel --pool cpu --rate 40/s") as screen:
        screen.until(r"cancel.* of 80 ")
        assert screen.exit_code() == 0
        assert "80 of 80 jobs canceled" in screen.told
