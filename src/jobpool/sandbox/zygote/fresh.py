"""A zygote's process, started by exec, so that nothing of its parent's is in it.

Theory of operation. The parent leaves its module path and its arguments in the socket
before the process exists. The new interpreter takes them from there, since without the
path it may not find jobpool. multiprocess would do the same, but start a process of its
own beside the zygote, and be imported by all three.

It keeps the standard descriptors and the socket. Signals are blocked until the zygote
has its own session, so that a terminal's Ctrl-C does not hit it before.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from jobpool.sandbox.zygote.process import ZygoteProcess

_STDERR = 2
_FDS_MAX = 2**20
_BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
_CODE = (
    "import gc, marshal, os, sys; gc.disable(); "
    "sys.path[:], sys.argv[:], needs = marshal.loads(os.read({control}, {size})); "
    "from jobpool.sandbox.zygote import fresh; fresh.begin({control}, {parent}, needs)"
)


def start_fresh(
    environment: Mapping[bytes, bytes], needs: Sequence[str] = ()
) -> ZygoteProcess:
    """Start a zygote in this environment.

    Args:
        environment: all its variables.
        needs: modules that applications need, to be imported before one is.

    Raises:
        OSError: no process, memory or descriptor; nothing was started.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            size = _leave(ours, marshal.dumps((*given(), tuple(needs))))
            # A copy onto itself would be closed at the exec.
            control = _STDERR + 1 + (theirs.fileno() == _STDERR + 1)
            code = _CODE.format(control=control, size=size, parent=os.getpid())
            flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
            pid = os.posix_spawn(
                sys.executable,
                (sys.executable, *flags, "-c", code),
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), control)],
                setsigmask=_BLOCKED,
                setsigdef=(signal.SIGCHLD,),  # ignored, it would take all exit codes
            )
        except BaseException:
            ours.close()
            raise
    return ZygoteProcess(pid, ours)


def given() -> tuple[list[str], list[str]]:
    """Return what one would be started with now: the module path and the arguments."""
    return _module_path(), list(sys.argv)


def begin(control: int, parent: int, needs: Sequence[str]) -> NoReturn:
    """Be a zygote, in the new process."""
    os.closerange(_STDERR + 1, control)
    os.closerange(control + 1, _FDS_MAX)
    from jobpool.sandbox.zygote.zygote import zygote_main  # noqa: PLC0415 - only here

    gc.enable()  # until here nothing was garbage: imports keep what they make
    zygote_main(socket.socket(fileno=control), parent, needs)


def _module_path() -> list[str]:
    """Return where modules are sought; "" is this directory, not the zygote's."""
    try:
        here = os.getcwd()  # noqa: PTH109 - a text
    except FileNotFoundError:
        here = ""
    entries: Sequence[object] = sys.path  # what is no text is not looked at
    return [entry or here for entry in entries if isinstance(entry, str)]


def _leave(ours: socket.socket, data: bytes) -> int:
    """Leave data for the new process; return its size.

    Raises:
        OSError: the socket does not hold that much.
    """
    ours.setblocking(False)
    sent = ours.send(data)
    if sent < len(data):
        raise OSError(
            errno.ENOBUFS,
            f"the module path and the program's arguments take {len(data):,} bytes, "
            f"of which its socket holds {sent:,}; shorten PYTHONPATH",
        )
    return sent
