"""Runs a command's program in the child of its job, and reads what it prints.

Theory of operation. The program is a process of the attempt's own tree, so that the
job's limits count it and a kill takes it along. Its standard error is the child's. Its
standard output passes through a thread, which gives it on to the child's own, so that
it is part of the evidence, and keeps the end of it as the result. The thread ends when
the output is closed: by the program's end or, if the program has left a process behind
that holds it open, `LEFT_OPEN_S` later; what that process prints then is not kept. On a
busy machine the thread may get no processor for so long: what it has not read by then,
and is there, is read without it.

If the attempt is told to stop (a soft limit), the exception leaves from the wait, and
the program is killed on the way out.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from jobpool.client.declare.commands.exit_codes import ExitCodes, Verdict
from jobpool.errors import CommandFailed, GiveUp

LEFT_OPEN_S = 1.0
_CHUNK_BYTES = 64 * 2**10
_PIPE_BYTES_MAX = 2**20
"""As much as was printed before the program's end, and not read, at most."""


def run(
    argv: Sequence[str],
    *,
    stdin: bytes | None,
    env: Mapping[str, str],
    cwd: str | None,
    exit_codes: ExitCodes,
    result_bytes: int,
) -> str:
    """Run a program to its end and return the end of its standard output.

    Args:
        argv: the program and its words.
        stdin: what it reads; None: nothing.
        env: variables that it has beside the child's own, or instead of them.
        cwd: the directory it runs in; None: the child's.
        exit_codes: what its exit status means.
        result_bytes: how much of its output is kept. What is not UTF-8 is replaced.

    Raises:
        CommandFailed: its exit status means that it failed, it was ended by a signal,
            or it could not be started.
        GiveUp: its exit status means that no attempt can succeed.
    """
    with _readable(stdin) as source:
        try:
            process = subprocess.Popen(
                argv,
                stdin=source,
                stdout=subprocess.PIPE,
                env={**os.environ, **env},
                cwd=cwd,
            )
        except (OSError, ValueError) as exc:
            raise CommandFailed(_not_started(argv[0], cwd, exc)) from None
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    tail = _Tail(process.stdout, result_bytes)
    try:
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        tail.end()
    verdict = exit_codes.verdict(status)
    if verdict is Verdict.OK:
        return tail.text()
    told = f"{argv[0]} ended with exit status {status}"
    if verdict is Verdict.DEAD:
        raise GiveUp(f"{told}, which means that it cannot succeed")
    if status >= 0:
        raise CommandFailed(told, exit_code=status)
    name = _signal_name(-status)
    raise CommandFailed(f"{argv[0]} was ended by {name}", signal=name)


class _Tail:
    """Reads the program's output as it comes, gives it on, and keeps the end of it."""

    def __init__(self, output: IO[bytes], most_bytes: int) -> None:
        self._output = output
        self._most = most_bytes
        self._kept = bytearray()
        self._is_closed = False
        self._lock = threading.Lock()
        """For what was read and is not kept yet; nobody waits for output within it."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait until the output is closed, or for `LEFT_OPEN_S`; keep what is there."""
        self._thread.join(LEFT_OPEN_S)
        if not _CAN_LOOK or not self._thread.is_alive():
            return
        taken, size = 0, self._take()
        while size and taken < _PIPE_BYTES_MAX:
            taken += size
            size = self._take()

    def text(self) -> str:
        """Return what is kept; a character whose beginning is not kept is left out."""
        data = bytes(self._kept)
        text = data.decode(errors="replace")
        return text.lstrip("\ufffd") if len(data) == self._most else text

    def _read(self) -> None:
        with self._output:
            while not self._is_closed:
                if _CAN_LOOK:
                    _has_more(self._output.fileno(), None)
                self._take()

    def _take(self) -> int:
        """Keep what is there; return how much that is."""
        with self._lock:
            if self._is_closed:
                return 0
            file = self._output.fileno()
            if _CAN_LOOK and not _has_more(file, 0):
                return 0  # somebody else was here first
            chunk = os.read(file, _CHUNK_BYTES)
            self._is_closed = not chunk
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            self._kept += chunk
            del self._kept[: -self._most]
            return len(chunk)


_CAN_LOOK = hasattr(select, "poll")
"""Whether it can be told if something is to be read: not on Windows."""


def _has_more(file: int, wait_ms: int | None) -> bool:
    """Say whether there is more to be read, or its end; wait for that, if asked to."""
    look = select.poll()
    look.register(file, select.POLLIN)
    return bool(look.poll(wait_ms))


@contextlib.contextmanager
def _readable(data: bytes | None) -> Iterator[IO[bytes] | int]:
    if data is None:
        yield subprocess.DEVNULL
        return
    # A file and not a pipe: the program may read it late, or never.
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


def _not_started(program: str, cwd: str | None, exc: Exception) -> str:
    if isinstance(exc, FileNotFoundError):
        if cwd is not None and not Path(cwd).is_dir():
            return f"{program} was not started: there is no directory {cwd}"
        return (
            f"there is no program {program!r} on this host; install it, or declare "
            "its path"
        )
    return f"{program} could not be started: {exc}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
