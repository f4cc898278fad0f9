"""A bar on stderr while something lasts; none if it is quick, or nobody sees it.

A thread draws it by asking how far it is: what works need not report, and is not slowed
down. What is printed meanwhile goes above it. The cursor stays visible and no mode is
changed, so that whatever ends this process leaves a terminal as it was.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from jobpool.core.units import show_duration

_AFTER_S = 1.0
_EVERY_S = 0.2
_BAR = 30
_WIDTH = 80
"""Of a terminal that does not tell."""
_CLEAR = "\r\x1b[2K"
_BOLD, _GREEN, _DIM, _PLAIN = "\x1b[1m", "\x1b[32m", "\x1b[2m", "\x1b[0m"

Count = Callable[[], tuple[int, int | None]]
"""How many are done, and of how many; None: nobody knows."""


def uncounted() -> tuple[int, int | None]:
    """Say that it cannot be said how far it is."""
    return 0, None


@contextmanager
def lasting(
    what: str, count: Count = uncounted, *, after_s: float = _AFTER_S
) -> Iterator[None]:
    """Show how far something is, from when it has lasted for a while to its end.

    Args:
        what: in a word or two.
        count: may be called by another thread at any time.
        after_s: what is quicker shows nothing.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    before = sys.stdout, sys.stderr
    bar = _Bar(what, count, after_s, sys.stderr)
    sys.stdout, sys.stderr = bar.above(sys.stdout), bar.above(sys.stderr)
    bar.start()
    try:
        yield
    finally:
        bar.stop()
        sys.stdout, sys.stderr = before


class _Bar:
    """Draws until it is stopped."""

    def __init__(self, what: str, count: Count, after_s: float, out: TextIO) -> None:
        self._what = what
        self._count = count
        self._after_s = after_s
        self._out = out
        self._lock = threading.Lock()
        self._is_drawn = False
        self._is_line_open = False
        """What was printed last did not end its line: the bar waits for that."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="jobpool-bar", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take it away."""
        self._stopping.set()
        self._thread.join()
        with self._lock:
            self._clear()

    def above(self, stream: TextIO) -> TextIO:
        """Return a stream whose text stands above the bar."""
        return cast("TextIO", _Above(self, stream)) if stream.isatty() else stream

    def write(self, stream: TextIO, text: str) -> None:
        """Write to the stream that is meant."""
        with self._lock:
            self._clear()
            stream.write(text)
            stream.flush()
            if text:
                self._is_line_open = not text.endswith("\n")

    def _clear(self) -> None:
        if self._is_drawn:
            self._out.write(_CLEAR)
            self._out.flush()
            self._is_drawn = False

    def _run(self) -> None:
        began_s = time.monotonic()
        wait_s = self._after_s
        while not self._stopping.wait(wait_s):
            wait_s = _EVERY_S
            done, total = self._count()
            elapsed_s = time.monotonic() - began_s
            with self._lock:
                if self._is_line_open:
                    continue
                self._out.write(_CLEAR + self._line(done, total, elapsed_s))
                self._out.flush()
                self._is_drawn = True

    def _line(self, done: int, total: int | None, elapsed_s: float) -> str:
        """Return the bar and its words, no wider than the terminal."""
        width = os.get_terminal_size(self._out.fileno()).columns or _WIDTH
        said = words(done, total, elapsed_s)
        plain = f"{self._what}  {said}"
        room = width - 1 - len(plain) - 2
        if total is None or room < _BAR // 3:
            return plain[: width - 1]
        drawn = _drawn(done, total, min(_BAR, room), self._out.encoding)
        return f"{self._styled(_BOLD, self._what)}  {self._bar(*drawn)}  {said}"

    def _bar(self, full: str, rest: str) -> str:
        return self._styled(_GREEN, full) + self._styled(_DIM, rest)

    @staticmethod
    def _styled(style: str, text: str) -> str:
        return text if os.environ.get("NO_COLOR") else f"{style}{text}{_PLAIN}"


def _drawn(done: int, total: int, width: int, encoding: str) -> tuple[str, str]:
    """Return a bar: what is done of it, and the rest."""
    full = width * min(done, total) // max(total, 1)
    on, off = "━─" if encoding.lower().startswith("utf") else "#."
    return on * full, off * (width - full)


class _Above(io.TextIOBase):
    """A stream on the same terminal; in all else it is the one that it stands for."""

    def __init__(self, bar: _Bar, stream: TextIO) -> None:
        self._bar = bar
        self._stream = stream

    def write(self, text: str) -> int:
        self._bar.write(self._stream, text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def __getattribute__(self, name: str) -> Any:
        """Return what click asks a stream before it writes to it."""
        if name in {"encoding", "errors"}:
            return getattr(self._stream, name)
        return super().__getattribute__(name)


def words(done: int, total: int | None, elapsed_s: float) -> str:
    """Return how far it is, how fast, and how long it may still take."""
    ran = show_duration(float(int(elapsed_s)) if elapsed_s >= 1 else elapsed_s)
    if not done:
        return ran
    per_s = done / max(elapsed_s, 0.001)
    rate = f"{per_s:,.0f}/s" if per_s >= 1 else f"{per_s * 60:.2g}/min"
    if total is None:
        return f"{done:,}  {rate}  {ran}"
    left = show_duration(float(round(max(0, total - done) / per_s)))
    return f"{done:,} of {total:,}  {rate}  {left} left"
