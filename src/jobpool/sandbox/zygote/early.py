"""A zygote's process that is started before its supervisor has been imported.

Theory of operation. A supervisor and a zygote import for about as long as each other. A
program that is going to be a supervisor starts the first zygote before anything else,
so that both import side by side. It is started as every fresh one is, for the run that
the supervisor is going to be, and waits for its application. It is used only if what it
was started with (environment, module path, arguments) is what is asked for by then;
else it ends, as it does with the supervisor.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobpool.core.application.current import RUN_VARIABLE
from jobpool.sandbox.zygote.fresh import given, start_fresh
from jobpool.sandbox.zygote.process import ZygoteProcess

ENDING_MS = 1000
"""Longest wait for one that is killed."""


class _Early(NamedTuple):
    process: ZygoteProcess
    environment: Mapping[bytes, bytes]
    given: tuple[list[str], list[str]]
    run_id: str


_waiting: list[_Early] = []
"""One, or none."""


def start_early(needs: Sequence[str]) -> None:
    """Start one for a run to come, with all of this process's variables.

    Elsewhere than on Linux none is started: the supervisor will refuse to run.

    Args:
        needs: modules that applications need, to be imported before one is.

    Raises:
        OSError: no process, memory or descriptor; nothing was started.
    """
    if sys.platform != "linux":
        return
    run_id = new_run_id()
    environment = dict(os.environb)
    environment[RUN_VARIABLE.encode()] = run_id.encode()
    process = start_fresh(environment, needs)
    _waiting.append(_Early(process, environment, given(), run_id))


def run_id() -> str:
    """Return the run that one was started for; if there is none, that of a new one."""
    return _waiting[0].run_id if _waiting else new_run_id()


def new_run_id() -> str:
    """Return a fresh id for a run."""
    return uuid.uuid4().hex


def waiting() -> list[int]:
    """Return the pids of those that wait: one, or none."""
    return [one.process.pid for one in _waiting]


def take(environment: Mapping[bytes, bytes]) -> ZygoteProcess | None:
    """Return the one that waits, once, if it is as one that would be started now.

    Otherwise it is ended.

    Args:
        environment: what it should see.
    """
    if not _waiting:
        return None
    early = _waiting.pop()
    if (early.environment, early.given) == (environment, given()):
        return early.process
    _end(early.process)
    return None


def _end(process: ZygoteProcess) -> None:
    process.control.close()
    pidfd = os.pidfd_open(process.pid)
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        ended.poll(ENDING_MS)
    finally:
        os.close(pidfd)
    _ = process.exitcode  # reaps it
