"""A terminal's keys and size, and what puts it back as it was.

Theory of operation. The terminal sends each key at once and echoes none; Ctrl-C and
Ctrl-Z still are signals. A pipe wakes who waits for keys: signals write to it, and so
does any thread that has news. A key may be several bytes, which may come in parts: an
escape that nothing follows within a moment is the key of that name.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from jobpool.cli.terminal.gone import forget_stdout

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
"""Another screen, without a cursor, empty."""
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_ESCAPE_S = 0.05
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~]|)")
_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\x1b[7~": "home",
    "\x1b[8~": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[Z": "back tab",
    "\x1b": "escape",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}


def keys_in(text: str) -> Iterator[str]:
    """Yield the keys in what a terminal has sent; unknown sequences are none."""
    at = 0
    while at < len(text):
        found = _SEQUENCE.match(text, at)
        one = found[0] if found else text[at]
        at += len(one)
        one = one.replace("\x1bO", "\x1b[", 1)  # cursor keys in application mode
        name = _NAMES.get(one, one)
        is_known = len(name) > 1 or name.isprintable()
        if is_known and not name.startswith("\x1b"):
            yield name


class Terminal:
    """Takes the terminal over, and gives it back when left.

    Its input and output are those of this process; both are terminals.
    """

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        os.set_blocking(self._woken, False)
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._wakeup = -1
        self._is_suspending = False
        self.is_ended = False
        """Somebody has asked this process to end."""
        self.is_new = True
        """The screen has nothing on it that was drawn before."""

    def __enter__(self) -> Self:
        """Take the terminal over."""
        self._wakeup = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGWINCH, signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, self._on_signal)
        self._take()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it back."""
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)

    def wake(self) -> None:
        """Have `keys` return; any thread may call it."""
        with suppress(BlockingIOError):  # it is full of reasons to wake already
            os.write(self._waker, b"\0")

    def keys(self, wait_s: float) -> list[str]:
        """Return keys that were pressed; after so long, or once woken, perhaps none."""
        readable, _, _ = select.select([self._input, self._woken], [], [], wait_s)
        if self._woken in readable:
            os.read(self._woken, 4096)
        if self._is_suspending:
            self._suspend()
        if self._input not in readable:
            return []
        text = self._read()
        while text.endswith("\x1b") or re.search(r"\x1b\[[0-?]*$", text):
            more, _, _ = select.select([self._input], [], [], _ESCAPE_S)
            if not more:
                break
            text += self._read()
        return list(keys_in(text))

    def write(self, text: str) -> None:
        """Write to the screen; nothing, once it is gone."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BlockingIOError:  # it stands still: it may still be given back
            self.is_ended = True
        except OSError:
            self.is_ended = True
            forget_stdout()  # what is still in its buffer would fail again at the end

    def _read(self) -> str:
        try:
            data = os.read(self._input, 4096)
        except OSError:
            data = b""
        if not data:
            self.is_ended = True  # the terminal is gone
        return self._decoder.decode(data)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGTSTP:
            self._is_suspending = True
        elif number == signal.SIGWINCH:
            self.is_new = True
        else:
            self.is_ended = True

    def _take(self) -> None:
        # Windows has none, and no terminal of this kind: `need_terminal` refuses.
        import termios  # noqa: PLC0415 - see above
        import tty  # noqa: PLC0415 - see above

        self._before = termios.tcgetattr(self._input)
        tty.setcbreak(self._input, termios.TCSADRAIN)
        self.write(_ENTER)
        self.is_new = True

    def _give_back(self) -> None:
        self.write(_LEAVE)
        import termios  # noqa: PLC0415 - see `__enter__`

        with suppress(termios.error):  # it is gone
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def _suspend(self) -> None:
        """Stop as any program does at Ctrl-Z, and go on when told to."""
        self._is_suspending = False
        self._give_back()
        ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, ours)
        self._take()
