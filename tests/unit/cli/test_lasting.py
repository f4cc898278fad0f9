"""Bars of what lasts: they say how far it is, and are not there for what is quick."""

import contextlib
import os
import pty
import re
import sys

import click
import pytest

from jobpool.cli.terminal.lasting import lasting, words
from support.waiting import wait_until

CLEAR = "\r\x1b[2K"
PATIENCE_S = 30.0


class Screen:
    """A terminal that takes what this process prints."""

    def __init__(self):
        self.told = ""
        self._master, slave = pty.openpty()
        os.set_blocking(self._master, False)
        self.stream = os.fdopen(slave, "w", encoding="utf-8")

    def read(self):
        try:
            while data := os.read(self._master, 65536):
                self.told += data.decode()
        except BlockingIOError:
            return self.told

    def until(self, text):
        wait_until(lambda: text in self.read(), PATIENCE_S, text)

    @contextlib.contextmanager
    def lasting(self, *given, **more):
        """Have this process print here; pytest has put its own streams there."""
        with (
            contextlib.redirect_stdout(self.stream),
            contextlib.redirect_stderr(self.stream),
        ):
            with lasting(*given, **more):
                yield
            assert sys.stdout is sys.stderr is self.stream

    def close(self):
        self.stream.close()
        os.close(self._master)


@pytest.fixture
def screen(monkeypatch):
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    yield screen
    screen.close()


def test_it_says_how_far_it_is_and_is_gone_at_the_end(screen):
    """Nothing of it stays, and the cursor was never hidden."""
    state = [0, None]
    with screen.lasting("retry", lambda: tuple(state), after_s=0.0):
        screen.until("retry  ")
        state[:] = 250, 1000
        screen.until("250 of 1,000")
    text = screen.read()
    assert text.endswith(CLEAR)
    assert "\x1b[?" not in text, "no mode of the terminal was changed"


def test_what_is_printed_meanwhile_stands_above_it(screen):
    """On either stream, whole; the bar waits until a line has ended."""
    asked = []

    def count():
        asked.append(None)
        return 0, None

    with screen.lasting("retry", count, after_s=0.0):
        screen.until("retry  ")
        click.echo("one line")
        click.echo("another", err=True)
        screen.until("another")
        click.echo("half a ", nl=False)
        wanted = len(asked) + 3
        wait_until(lambda: len(asked) >= wanted, PATIENCE_S, "turns of the bar")
        assert screen.read().endswith("half a ")
        click.echo("line")
        screen.until("half a line")
        seen = len(screen.read())
        wait_until(lambda: "retry" in screen.read()[seen:], PATIENCE_S, "the bar")
    for line in ("one line", "another", "half a line"):
        assert re.search(rf"(^|\x1b\[2K|\n){line}\r\n", screen.told), line


@pytest.mark.parametrize("width", [12, 40, 200])
def test_it_is_never_wider_than_the_terminal(screen, width):
    """Or it would fill the screen with its own past."""
    import fcntl
    import struct
    import termios

    size = struct.pack("HHHH", 24, width, 0, 0)
    fcntl.ioctl(screen.stream.fileno(), termios.TIOCSWINSZ, size)
    with screen.lasting("retry", lambda: (250, 1000), after_s=0.0):
        screen.until("retry")
    drawn = re.sub(r"\x1b\[\d*m", "", screen.told).split(CLEAR)
    assert max(map(len, drawn)) < width


def test_what_is_quick_shows_nothing(screen):
    """It does not flicker."""
    with screen.lasting("retry", after_s=60.0):
        pass
    assert screen.read() == ""


def test_without_a_terminal_nothing_is_shown(capsys, screen, monkeypatch):
    """Logs hold no bars; nor does a terminal that cannot clear a line."""
    monkeypatch.setenv("TERM", "dumb")
    with screen.lasting("retry", after_s=0.0):
        assert sys.stderr is screen.stream
    monkeypatch.setenv("TERM", "xterm")
    with lasting("retry", after_s=0.0):
        click.echo("a line")
    assert capsys.readouterr() == ("a line\n", "")


def test_an_error_takes_the_bar_away(screen):
    """And goes on to who asked."""

    def interrupted():
        with screen.lasting("retry", after_s=0.0):
            screen.until("retry")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert screen.read().endswith(CLEAR)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((0, None, 3.4), "3s"),
        ((0, 500, 0.0), "0ms"),
        ((1200, None, 4.0), "1,200  300/s  4s"),
        ((250, 1000, 5.0), "250 of 1,000  50/s  15s left"),
        ((1, 10, 120.0), "1 of 10  0.5/min  18m00s left"),
        ((12, 10, 2.0), "12 of 10  6/s  0ms left"),
    ],
)
def test_words_say_how_fast_and_how_long(given, expected):
    """As far as it is known; never less than nothing."""
    assert words(*given) == expected
