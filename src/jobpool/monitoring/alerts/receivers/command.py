"""A program that gets each message on its standard input."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import IO, cast

from jobpool.core.safe_text import one_line
from jobpool.monitoring.alerts.receivers.receiver import NotTaken
from jobpool.sandbox.system.spared import spared

LIMIT_S = 30.0
_SAID_MAX = 300
"""Bytes of its output that are kept, the first; others are read and dropped."""
_READ_MAX = 65536


class Command:
    """Runs a program for each message; exit code 0: it has it.

    Args:
        words: the program and its arguments.
        limit_s: it is killed, with all that it has started, after so long.
    """

    def __init__(self, words: Sequence[str], *, limit_s: float = LIMIT_S) -> None:
        self._words = tuple(words)
        self._limit_s = limit_s

    @property
    def place(self) -> str:
        """See `Receiver.place`: arguments may be secrets."""
        return self._words[0]

    def send(self, name: str, body: bytes) -> str:
        """See `Receiver.send`."""
        del name
        with contextlib.ExitStack() as running:
            try:
                given = running.enter_context(_in_memory(body))

                def start() -> subprocess.Popen[bytes]:
                    return subprocess.Popen(
                        self._words,
                        stdin=given,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                        bufsize=0,
                        start_new_session=True,
                    )

                process = running.enter_context(spared(start))
            except OSError as exc:
                why = f"{exc.strerror}; not started"
                raise NotTaken(f"{self.place}: {why}") from exc
            said = self._await(process).decode("utf-8", "replace")
        if process.returncode == 0:
            return "exit code 0"
        how = f"exit code {process.returncode}"
        if process.returncode < 0:
            how = f"signal {-process.returncode}"
        tail = one_line(said.strip(), _SAID_MAX)
        raise NotTaken(f"{self.place}: {how}{': ' if tail else ''}{tail}")

    def _await(self, process: subprocess.Popen[bytes]) -> bytes:
        """Wait for its end; return the first of what it has said.

        The end of its output is not waited for: what it has started may never end.

        Raises:
            NotTaken: it took too long, and was killed with what it has started.
        """
        until_s = time.monotonic() + self._limit_s
        said = bytearray()
        with contextlib.ExitStack() as opened:
            output = opened.enter_context(cast("IO[bytes]", process.stdout))
            os.set_blocking(output.fileno(), False)
            try:
                end = os.pidfd_open(process.pid)
            except OSError as exc:  # no descriptor is free
                raise self._killed(process, str(exc.strerror)) from exc
            opened.callback(os.close, end)
            news = select.poll()
            news.register(output, select.POLLIN)
            news.register(end, select.POLLIN)
            while process.poll() is None:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    why = f"did not end within {self._limit_s:g} s"
                    raise self._killed(process, why)
                ready = {fd for fd, _ in news.poll(left_s * 1000)}
                if output.fileno() in ready and not _read(output.fileno(), said):
                    news.unregister(output)
            _read(output.fileno(), said)
        return bytes(said)

    def _killed(self, process: subprocess.Popen[bytes], why: str) -> NotTaken:
        """Kill it with what it has started; return what to raise."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return NotTaken(f"{self.place}: {why}; killed")


def _in_memory(body: bytes) -> IO[bytes]:
    """Return an open file of a message; on no disk, which may be what is full."""
    given = os.fdopen(os.memfd_create("jobpool-alert"), "w+b")
    given.write(body)
    given.seek(0)
    return given


def _read(output: int, said: bytearray) -> bool:
    """Read what is there, and keep the first of all; False: there will be no more."""
    try:
        more = os.read(output, _READ_MAX)
    except BlockingIOError:
        return True
    said += more[: _SAID_MAX - len(said)]
    return bool(more)
