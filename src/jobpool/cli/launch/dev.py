"""`jobpool dev`: supervisor and handlers in one process, wherever Python runs.

Theory of operation. When source files change, the process starts anew in its own place,
once the running handler has ended: a second import into the same process would leave
threads, connections and singletons of the first. Windows cannot replace a process, so
there a first one starts the second, again and again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

import click

from jobpool.cli.context import configuration_of, launch_directory
from jobpool.cli.flags import LaunchFlags, dev_flags
from jobpool.cli.launch.launch import style_of
from jobpool.cli.launch.log import Both, LogWriter, renderer
from jobpool.cli.launch.observers import reported
from jobpool.core.clock import SystemClock
from jobpool.core.config.settings import Settings
from jobpool.core.events.event import Event, Observer
from jobpool.core.events.supervisor import IsolationReduced
from jobpool.core.safe_text import lines, one_line
from jobpool.errors import AppError, ConfigError

_AGAIN = "JOBPOOL_DEV_AGAIN"
"""Set once it has started anew: from then on it waits for code that can be loaded."""
_BENEATH = "JOBPOOL_DEV_BENEATH"
"""Set in the process that another one of ours starts anew."""
_START_ANEW = 75
"""The exit code that asks for that."""
_PAGE_LINES = 20
"""Of a log that is no terminal's."""
_LOOK_EVERY_S = 0.5


@click.command()
@dev_flags
@click.option(
    "--no-reload", is_flag=True, help="Do not start anew when source files change."
)
@click.pass_obj
def dev(group: LaunchFlags, /, *, no_reload: bool, **flags: Any) -> None:
    """Run jobs in this process, on any system, while you write them.

    Nothing is isolated: handlers run here, one after the other, where a breakpoint
    stops them. Limits of time and memory are said, not enforced. Jobs are as durable as
    always, with their retries, schedules, quotas and flows.

    Ctrl-C waits for the running handler; pressed again, it interrupts it.
    """
    given = LaunchFlags(**flags).over(group)
    reloads = not (no_reload or given.burst)
    place = launch_directory()
    if reloads and sys.platform == "win32" and _BENEATH not in os.environ:
        raise click.exceptions.Exit(_again_and_again())
    code = _run(given, reloads=reloads)
    if code is None:
        _start_anew(place)
    raise click.exceptions.Exit(code)


def _run(flags: LaunchFlags, *, reloads: bool) -> int | None:
    """Run jobs until it ends; return its exit code, or None: it is to start anew."""
    from jobpool.supervisor.dev.dev import serve_here  # noqa: PLC0415 - only a start

    configuration = configuration_of(flags)
    settings, file = configuration.settings, configuration.file
    style = style_of(flags)
    render = renderer(style.form, colour=style.colour)
    stream = _own_stderr()
    log = LogWriter(stream, render, level=style.level)
    files = () if file is None else (file.path,)
    try:
        loud = Loud(log, _page_lines())
        with reported(settings, loud.observe, at_desk=True) as reporting:
            ended = serve_here(
                settings,
                observer=Both((loud, *reporting)),
                burst=flags.burst,
                watched=files if reloads else None,
            )
    except (AppError, ConfigError) as exc:
        if not (reloads and _AGAIN in os.environ):
            raise
        _await_change(exc, settings, files)
        return None
    finally:
        if log.close():  # else it still writes
            stream.close()
    return None if ended.changed else ended.exit_code


def _own_stderr() -> TextIO:
    """Open stderr once more: a handler may close or redirect what is there."""
    return open(  # noqa: PTH123 - a descriptor
        os.dup(sys.stderr.fileno()),
        "w",
        encoding=sys.stderr.encoding,
        errors=sys.stderr.errors,
    )


class Loud:
    """An observer that says, on each page of the log, that nothing is isolated.

    Args:
        log: writes events.
        page: how many events a page has.
    """

    def __init__(self, log: Observer, page: int) -> None:
        self._log = log
        self._page = page
        self._lock = threading.Lock()
        self._left = 0

    def observe(self, event: Event) -> None:
        """Pass an event on, behind the warning if it begins a page."""
        if not self._log.hears(type(event)):
            return
        with self._lock:  # so that nobody's event comes between
            if self._left == 0:
                self._left = self._page
                self._log.observe(self._warning())
            self._left -= 1
            self._log.observe(event)

    def hears(self, kind: type[Event]) -> bool:
        """Say whether events of a class are written."""
        return self._log.hears(kind)

    def _warning(self) -> Event:
        return IsolationReduced(
            at_ms=SystemClock().utc_ms(),
            pools=("all",),
            measure="ISOLATION",
            stops="a handler that hangs, leaks, crashes or fills the memory takes "
            "jobpool dev along; limits are said, and nothing is killed",
            why="jobpool dev runs handlers in its own process, one after the other",
        )


def _page_lines() -> int:
    """Return how many events are a page: a screen of the terminal, if it is one."""
    if not sys.stderr.isatty():
        return _PAGE_LINES
    return max(shutil.get_terminal_size().lines - 2, 2)


def _await_change(
    error: AppError | ConfigError, settings: Settings, files: Sequence[str]
) -> None:
    """Say why the changed code cannot be used, and wait until it has changed again."""
    from jobpool.supervisor.dev.changes import Changes  # noqa: PLC0415 - as above

    changes = Changes(settings, files)
    if isinstance(error, AppError) and error.traceback:
        click.echo(lines(error.traceback.rstrip()), err=True)
    click.echo(f"Error: {one_line(str(error))}; waiting for a change", err=True)
    while not changes.changed():
        time.sleep(_LOOK_EVERY_S)


def _start_anew(place: str) -> NoReturn:
    """Start this process anew, as and where it was started."""
    os.environ[_AGAIN] = "1"
    os.chdir(place)
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.platform == "win32":
        raise click.exceptions.Exit(_START_ANEW)
    os.execv(sys.executable, _words())


def _again_and_again() -> int:
    """Start what runs jobs, again whenever it asks for that; return its exit code."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is the other process's to hear
    env = os.environ | {_BENEATH: "1"}
    while True:
        code = subprocess.call(_words(), env=env)
        if code != _START_ANEW:
            return code
        env[_AGAIN] = "1"


def _words() -> list[str]:
    return [sys.executable, *sys.orig_argv[1:]]
