"""The standard streams of a child: restored after each attempt, and read out.

Most attempts write nothing and leave the streams alone, which their positions usually
show: stdout and stderr are copies of the capture's descriptor and share its position.
It is set where no other file's is, read through both, and set back. It does not affect
where they write: the capture appends, unless a handler has changed that.
"""

from __future__ import annotations

import io
import os
import sys
from fcntl import F_GETFL, F_SETFL, fcntl  # before an application can replace it

from jobpool.sandbox.confinement import setup
from jobpool.sandbox.protocol.messages import OUTPUT_MAX_BYTES
from jobpool.sandbox.system.capture import read_tail
from jobpool.sandbox.system.own_fds import identity_of, require

_FAR = 1 << 62
"""A position that no file has by chance."""


class Streams:
    """The streams that every attempt begins with.

    Args:
        output_fd: the capture that stdout and stderr go to.
    """

    def __init__(self, output_fd: int) -> None:
        self._output_fd = output_fd
        self._output_flags = fcntl(output_fd, F_GETFL)
        self._capture, self._input = identity_of(output_fd), identity_of(0)
        self._streams = (sys.stdin, sys.stdout, sys.stderr)

    def are_untouched(self) -> bool:
        """Say whether nothing was written and no stream was replaced.

        The input is checked as well: a file object closes it in C, which is not noted.
        """
        streams = sys.stdin, sys.stdout, sys.stderr
        if streams != self._streams or any(map(_is_closed, streams)):
            return False
        return (
            not _flush(sys.stdout)
            and not _flush(sys.stderr)
            and identity_of(0) == self._input
            and self._are_in_place()
            and not os.lseek(self._output_fd, 0, os.SEEK_END)
        )

    def take_output(self) -> bytes:
        """Restore the streams, and take what was written since the last attempt.

        Raises:
            OSError: the capture is not accessible any more.
        """
        require(self._output_fd, self._capture)
        if (sys.stdin, sys.stdout, sys.stderr) != self._streams:
            self._flush_both()
            sys.stdin, sys.stdout, sys.stderr = self._streams
        if identity_of(0) != self._input:
            setup.point_input()
        self._reopen_closed()
        self._flush_both()
        if not self._are_in_place():
            setup.point_output(self._output_fd)
        if fcntl(self._output_fd, F_GETFL) != self._output_flags:
            fcntl(self._output_fd, F_SETFL, self._output_flags)
        if not os.lseek(self._output_fd, 0, os.SEEK_END):
            return b""
        output = read_tail(self._output_fd, OUTPUT_MAX_BYTES)
        os.ftruncate(self._output_fd, 0)
        return output

    def _flush_both(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if problem := _flush(stream):
                # Not to stderr: its descriptor may be a file of the handler's.
                text = f"jobpool: a stream could not be flushed: {problem}\n"
                os.write(self._output_fd, text.encode())

    def _are_in_place(self) -> bool:
        """Say whether stdout and stderr are copies of the capture's descriptor."""
        try:
            os.lseek(self._output_fd, _FAR, os.SEEK_SET)
            at = os.lseek(1, 0, os.SEEK_CUR), os.lseek(2, 0, os.SEEK_CUR)
        except OSError:
            return False  # the handler closed one of them, or replaced it by a pipe
        return at == (_FAR, _FAR)

    def _reopen_closed(self) -> None:
        """Reopen the streams that the handler closed."""
        stdin, stdout, stderr = self._streams
        if not (_is_closed(stdin) or _is_closed(stdout) or _is_closed(stderr)):
            return
        setup.point_output(self._output_fd)
        if _is_closed(stdin):
            stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 - lives on
        if _is_closed(stdout):
            stdout = _writer(1)
        if _is_closed(stderr):
            stderr = _writer(2)
        self._streams = (stdin, stdout, stderr)
        sys.stdin, sys.stdout, sys.stderr = self._streams


def _is_closed(stream: object) -> bool:
    return bool(getattr(stream, "closed", False))


def _flush(stream: object) -> str:
    """Write out what a stream holds; say why that failed."""
    try:
        stream.flush()  # type: ignore[attr-defined]
    except Exception as exc:  # noqa: BLE001 - a handler's own stream may do anything
        return repr(exc)
    return ""


def _writer(fd: int) -> io.TextIOWrapper:
    return open(
        fd, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
