"""Starts a host: a separate process that is not the caller's child."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from jobpool.executor.host import launcher

_FIRST_FD = 3
_ROOT = str(Path(__file__).parents[__name__.count(".")])
"""The directory that jobpool is imported from."""


def start_host() -> socket.socket:
    """Start a host and return the caller's end of its socket.

    The caller is left without a child: the one that it has for a moment is reaped
    before this returns.

    Raises:
        OSError: no process, memory or descriptor for it.
    """
    ours, theirs = _socket_pair()
    path = [entry for entry in sys.path if Path(entry).is_absolute()]
    try:
        fd = theirs.fileno()
        with theirs:
            done = subprocess.run(
                [
                    sys.executable,
                    # As multiprocessing does: -O, -X and -W apply to children as well.
                    *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined] # noqa: SLF001 - no public way
                    "-P",
                    launcher.__file__,
                    str(fd),
                    os.pathsep.join([*path, _ROOT]),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(fd,),
                start_new_session=True,
                check=False,
            )
    except BaseException:
        ours.close()
        raise
    if done.returncode:
        ours.close()
        raise OSError(
            f"the executor's host could not be started: {sys.executable} ended with "
            f"{done.returncode}"
        )
    return ours


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    """Make a socket pair, neither end being descriptor 0, 1 or 2.

    A caller may have closed its own: what it prints must not reach the host.
    """
    low: list[socket.socket] = []
    try:
        while True:
            ours, theirs = socket.socketpair()
            if min(ours.fileno(), theirs.fileno()) >= _FIRST_FD:
                return ours, theirs
            low += (ours, theirs)
    finally:
        for end in low:
            end.close()
