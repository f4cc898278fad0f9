"""A zygote's process, forked early so that it starts beside the supervisor.

Theory of operation. A program that is going to be a supervisor imports what a zygote
needs, forks while nothing else is loaded, and continues with its own imports. The
forked process waits for its environment; then it is the first zygote. Every other
zygote is started fresh (`handles.zygote`). This one holds nothing of the supervisor's
either: it did not exist yet.
"""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence

import msgspec

from jobpool.sandbox.zygote.process import ZygoteProcess

_FDS_MAX = 2**20
_LENGTH_BYTES = 8
_STDERR = 2
_waiting: list[Preforked] = []


class Preforked(ZygoteProcess):
    """The preforked process."""

    def begin(self, environment: Mapping[bytes, bytes]) -> None:
        """Make it a zygote in this environment.

        Raises:
            OSError: it is gone.
        """
        data = msgspec.msgpack.encode(environment)
        self.control.sendall(len(data).to_bytes(_LENGTH_BYTES, "little") + data)


def prefork(modules: Sequence[str]) -> None:
    """Fork a future zygote; `take` returns it.

    This process must have one thread, and nothing that its copy should not have. The
    copy keeps only the standard descriptors.

    Args:
        modules: what the copy imports meanwhile.

    Raises:
        OSError: no process, memory or descriptor.
    """
    # Not before: a supervisor whose zygotes are all started fresh imports less.
    from jobpool.sandbox.confinement import seccomp  # noqa: PLC0415
    from jobpool.sandbox.zygote.zygote import zygote_main  # noqa: PLC0415

    parent = os.getpid()
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if not pid:
        _wait(theirs, modules, seccomp.prepare)
        zygote_main(theirs, parent)
    theirs.close()
    _waiting.append(Preforked(pid, ours))


def take() -> Preforked | None:
    """Return the preforked process, once; None: there is none."""
    return _waiting.pop() if _waiting else None


def _wait(
    control: socket.socket, modules: Sequence[str], prepare: Callable[[], object]
) -> None:
    """Import and prepare, then wait for the environment, in the copy."""
    try:
        kept = control.fileno()
        os.closerange(_STDERR + 1, kept)
        os.closerange(kept + 1, _FDS_MAX)
        for module in modules:
            importlib.import_module(module)
        prepare()
        size = int.from_bytes(_read(control, _LENGTH_BYTES), "little")
        environment = msgspec.msgpack.decode(
            _read(control, size), type=dict[bytes, bytes]
        )
    except BaseException:  # noqa: BLE001 - nothing may run after it
        os._exit(1)
    os.environb.clear()
    os.environb.update(environment)


def _read(control: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = control.recv(size - len(data))
        if not part:
            os._exit(0)  # it is not needed any more
        data += part
    return data
