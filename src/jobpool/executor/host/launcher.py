"""The program that becomes the host, detached from the caller.

Its first process ends at once, so that the host is not the caller's child. Arguments:
the socket's descriptor and the caller's module path. It imports nothing of jobpool
before the fork, for which the caller waits. What a zygote needs is imported first: the
zygote is forked while the host imports the rest.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import ModuleType

_STDERR = 2
_APPLICATION_NEEDS = ("jobpool.executor.wire.messages", "multiprocessing.process")


def launch(fd: int, module_path: list[str]) -> None:
    """Become the host, in a process that the caller need not reap."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")  # the caller's directory may be removed
    _take_normal_state()
    # After our own: the standard library must not be shadowed.
    sys.path += [entry for entry in module_path if entry not in sys.path]
    # The zygote's own ``__main__``, as where it is started by itself.
    sys.modules["__main__"] = ModuleType("__main__")
    from jobpool.executor.bundles import bundle  # noqa: F401, PLC0415 - after the fork
    from jobpool.sandbox.zygote.prefork import prefork  # noqa: PLC0415 - the same

    with contextlib.suppress(OSError):  # the supervisor starts one, or says why not
        prefork(_APPLICATION_NEEDS)
    from jobpool.executor.host.host import run  # noqa: PLC0415 - after both forks

    run(fd)


def _take_normal_state() -> None:
    """Reset what a program inherits: ignored and blocked signals, closed streams."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # it was closed when the interpreter began
            stream = open(fd, "w" if fd else "r", buffering=1)  # noqa: PTH123, SIM115 - for good
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


if __name__ == "__main__":
    launch(int(sys.argv[1]), sys.argv[2].split(os.pathsep))
