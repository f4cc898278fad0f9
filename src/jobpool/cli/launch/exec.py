"""`jobpool exec`: run one program now, under the protection that a job has."""

from __future__ import annotations

import os
import signal
import sys
import time
from enum import IntEnum
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from jobpool.cli.exits import Exit
from jobpool.cli.launch.exec_child import End, run
from jobpool.core.safe_text import message_line
from jobpool.core.units import show_duration, show_size
from jobpool.errors import JobDied, JobOutOfMemory, JobTimedOut
from jobpool.executor.caller.death_errors import signal_name
from jobpool.executor.executor import Executor

_SIGNALED = 128
"""As shells do: added to the number of the signal that ended the program."""


class Status(IntEnum):
    """Exit codes beside the program's own, as `timeout`, `env` and shells have them."""

    TIMED_OUT = 124
    NOT_STARTED = 126
    NOT_FOUND = 127
    OUT_OF_MEMORY = _SIGNALED + signal.SIGKILL
    TERMINATED = _SIGNALED + signal.SIGTERM


@click.command(
    name="exec",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="Kill its process tree over this much resident memory, such as 512MiB.",
)
@click.option(
    "--timeout",
    metavar="TIME",
    help="Kill its process tree after this long, such as 1m.",
)
@click.option("--quiet", "-q", is_flag=True, help="Say nothing unless it is killed.")
@click.argument("argv", metavar="PROGRAM [WORDS]...", nargs=-1, required=True)
def exec_(
    *, memory: str | None, timeout: str | None, quiet: bool, argv: tuple[str, ...]
) -> None:
    r"""Run one program now, under a time and a memory limit.

    It runs as a job does, in a child, with the input and output that you give it, but
    without a queue: nothing is stored, and nothing runs again. When it ends, so does
    all that it has started.

    \b
      jobpool exec --memory 512MiB --timeout 1m -- pandoc book.md -o book.pdf

    The exit code is the program's own, or 128 and the signal's number. It is 124 if the
    time limit ended it, 137 if the memory limit did, 127 if there is no such program,
    and 126 if it cannot be started.
    """
    executor = Executor(1, timeout=timeout, memory=memory)
    signal.signal(signal.SIGTERM, _terminated)
    begun_s = time.monotonic()
    try:
        streams = [_lent(fd) for fd in range(3)]
        end = executor.submit(run, argv, str(Path.cwd()), streams).result()
    except KeyboardInterrupt:
        _end_at_once(Exit.INTERRUPTED, "interrupted")
    except JobDied as death:
        _say(f"{argv[0]} was ended: {_first_line(death)}")
        raise SystemExit(_status_of(death)) from None
    except OSError as exc:
        _say(f"{argv[0]} was not started: {exc.strerror or exc}")
        is_missing = isinstance(exc, FileNotFoundError)
        raise SystemExit(
            Status.NOT_FOUND if is_missing else Status.NOT_STARTED
        ) from None
    if not quiet:
        _say(_told(argv[0], end, time.monotonic() - begun_s))
    raise SystemExit(end.status if end.status >= 0 else _SIGNALED - end.status)


def _lent(fd: int) -> Connection:
    """Return a stream of this process in a form that an executor sends to a child."""
    return Connection(os.dup(fd), readable=fd == 0, writable=fd != 0)


def _status_of(death: JobDied) -> int:
    if isinstance(death, JobTimedOut):
        return Status.TIMED_OUT
    if isinstance(death, JobOutOfMemory):
        return Status.OUT_OF_MEMORY
    return Exit.FAILED


def _first_line(death: JobDied) -> str:
    return message_line(str(death).partition("\n")[0])


def _told(program: str, end: End, took_s: float) -> str:
    how = "ended"
    if end.status < 0:
        how = f"was ended by {signal_name(-end.status)}"
    elif end.status > 0:
        how = f"ended with exit status {end.status}"
    return (
        f"{program} {how} after {show_duration(round(took_s, 3))}; "
        f"{show_duration(round(end.cpu_s, 3))} of CPU, its largest process took "
        f"{'less than ' if end.is_own else ''}{show_size(end.largest_bytes)}"
    )


def _say(text: str) -> None:
    click.echo(f"jobpool: {text}", err=True)


def _terminated(_signum: int, _frame: FrameType | None) -> NoReturn:
    _end_at_once(Status.TERMINATED, "terminated")


def _end_at_once(status: int, how: str) -> NoReturn:
    """End now: whatever runs for this process ends with it."""
    _say(f"{how}; the program and all that it has started are ended")
    sys.stderr.flush()
    os._exit(status)
