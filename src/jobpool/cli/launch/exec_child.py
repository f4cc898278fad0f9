"""What `jobpool exec` does in its child: start the program, and wait for its end."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple


class End(NamedTuple):
    """How a program ended, and what it took."""

    status: int
    """As `subprocess.Popen.returncode`: below 0, a signal ended it."""
    cpu_s: float
    """Of it and of all processes that it waited for."""
    largest_bytes: int
    """Peak memory of the largest of them, or of the child that started it."""
    is_own: bool
    """Whether that is probably the child: theirs are smaller."""


def run(argv: Sequence[str], directory: str, streams: Sequence[Connection]) -> End:
    """Run a program with the caller's streams.

    Args:
        argv: the program and its words.
        directory: where it runs.
        streams: its standard input, output and error.

    Raises:
        OSError: it could not be started; ``errno`` says why.
    """
    stdin, stdout, stderr = (stream.fileno() for stream in streams)
    process = subprocess.Popen(
        argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd=directory
    )
    for stream in streams:
        # What this process holds open, a reader of the output would wait for.
        stream.close()
    _pid, status, used = os.wait4(process.pid, 0)
    # The kernel counts what the child had when it started the program as the program's.
    own_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return End(
        os.waitstatus_to_exitcode(status),
        used.ru_utime + used.ru_stime,
        used.ru_maxrss * 1024,
        used.ru_maxrss <= own_kib,
    )
