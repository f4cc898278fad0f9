"""The progress bar of `--burst` on a terminal; log lines scroll above it."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from jobpool.core.events.event import Event
from jobpool.core.events.jobs import JobEnded, JobSucceeded
from jobpool.core.jobs.job import FINISHED


class _Above:
    """A stream whose lines appear above the bar."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> int:
        """Print *text*, which holds whole lines with their own colours."""
        self._console.print(Text.from_ansi(text.removesuffix("\n")), soft_wrap=True)
        return len(text)

    def flush(self) -> None:
        """Do nothing: the console has no buffer of its own."""


class BurstBar:
    """Counts ended jobs; an observer and a context manager.

    Args:
        waiting: jobs that wait at the start; the total grows if there are more.
    """

    def __init__(self, waiting: int) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("jobs", total=waiting)
        self._waiting = waiting
        self._done = 0
        self._lock = threading.Lock()
        self.stream = cast("TextIO", _Above(console))

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        self._progress.stop()

    def hears(self, kind: type[Event]) -> bool:
        """Say whether events of this class are counted."""
        return kind in {JobEnded, JobSucceeded}

    def observe(self, event: Event) -> None:
        """Count a job that has ended, or that this burst will not try again."""
        if isinstance(event, JobEnded):
            if event.state not in FINISHED and not event.delay_s:
                return
        elif not isinstance(event, JobSucceeded):
            return
        with self._lock:
            self._done += 1
            total = max(self._waiting, self._done)
            self._progress.update(self._task, completed=self._done, total=total)
