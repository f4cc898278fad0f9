"""A terminal in which a command runs, for tests of keys and of what is left behind."""

import codecs
import contextlib
import os
import pty
import re
import signal
import sys
import termios

from support.waiting import wait_until

_WITHIN_S = 60.0
LEFT = "\x1b[?25h\x1b[?1049l"
"""What gives a terminal back: its cursor, and the screen that it had before."""


class Screen:
    """A command in a terminal of its own, 100 by 30."""

    def __init__(self, folder, arguments, script="exec {}"):
        held, go = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.close(go)
            os.read(held, 1)
            environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
            environ |= {"LINES": "30", "LANG": "C.UTF-8"}
            os.chdir(folder)
            command = script.format(f"{sys.executable} -m jobpool {arguments}")
            os.execve("/bin/bash", ["bash", "-c", command], environ)
        os.close(held)
        os.set_blocking(self.fd, False)
        self.before = termios.tcgetattr(self.fd)
        """What the terminal is like before the command has begun."""
        os.close(go)
        self.told = ""
        self.is_reaped = False
        # A letter may come in two parts.
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def read(self):
        if self.fd is None:
            return self.told
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self.fd, 65536):
                self.told += self._decode(data)
        return self.told

    def until(self, words):
        """Wait until the terminal has been told a text, from here on.

        What follows it is kept: it may have come at the same time.
        """
        found = wait_until(lambda: re.search(words, self.read()), _WITHIN_S, words)
        self.told = self.told[found.end() :]

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def hang_up(self):
        """Close the terminal, as a window is closed."""
        os.close(self.fd)
        self.fd = None

    def exit_code(self):
        def ended():
            self.read()  # else it waits for room
            return os.waitpid(self.pid, os.WNOHANG)

        done = wait_until(lambda: (done := ended())[0] and done, _WITHIN_S, "its end")
        self.is_reaped = True
        self.read()  # what it has told last
        return os.waitstatus_to_exitcode(done[1])


@contextlib.contextmanager
def shown(*given):
    """Run a command in a terminal; it is killed if it has not ended."""
    screen = Screen(*given)
    try:
        yield screen
    finally:
        if not screen.is_reaped:  # else its pid may be another process's
            os.kill(screen.pid, signal.SIGKILL)
            os.waitpid(screen.pid, 0)
        if screen.fd is not None:
            os.close(screen.fd)
