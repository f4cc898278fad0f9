"""A zygote's process, as its parent sees it."""

from __future__ import annotations

import os
import socket


class ZygoteProcess:
    """A child of this process that is or will be a zygote.

    Attributes:
        pid: its process id.
        control: the socket to it.
    """

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control
        self._status: int | None = None

    @property
    def exitcode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                return None  # somebody else has reaped it: nobody knows
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status
