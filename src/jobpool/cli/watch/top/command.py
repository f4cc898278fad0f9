"""`jobpool top`: what runs, what waits and what died, as it happens."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import click
import msgspec

from jobpool.cli.context import now_ms, opened, own_sources
from jobpool.cli.flags import store_flags
from jobpool.cli.jobs.show.command import print_seen
from jobpool.cli.output import console
from jobpool.cli.terminal.again import need_terminal
from jobpool.cli.terminal.keys import Terminal
from jobpool.cli.terminal.repaint import Canvas, drawn_line
from jobpool.cli.watch.top.frame import LEAST_HEIGHT, LEAST_WIDTH, frame
from jobpool.cli.watch.top.view import Open, Quit, View, press
from jobpool.cli.watch.top.watcher import Watcher
from jobpool.core.units import duration_s
from jobpool.monitoring.glance.reading import Reader, count
from jobpool.monitoring.looking.reading import Seen

_EVERY_MIN_S = 0.1
_MOVE_S = 1.0
"""Figures that are moving by themselves are drawn anew so often."""
_USUAL_SIZE = 120, 40
"""Of a picture where there is no terminal."""


@click.command()
@click.option(
    "--every",
    default="1s",
    metavar="TIME",
    show_default=True,
    help="How often to read the store.",
)
@click.option(
    "--only",
    default="",
    metavar="TEXT",
    help="Show only rows with this text in kind, pool, slot, host or id.",
)
@click.option("--once", is_flag=True, help="Print one picture, and end.")
@store_flags
def top(
    *, every: str, only: str, once: bool, store: str | None, config: str | None
) -> None:
    """Watch what runs, what waits and what died.

    Each slot is a block that is as full as its child, up to its memory limit. Keys
    sort, filter, open, cancel and pause: ? lists them.
    """
    every_s = max(_EVERY_MIN_S, duration_s(every, "--every"))
    sources = own_sources(store, config)
    view = View(wanted=only)
    if once:
        with opened(sources) as found:
            glance = Reader(found).read(count(found))
        screen = console()
        width, height = screen.size if screen.is_terminal else _USUAL_SIZE
        lines = frame(
            glance,
            view,
            width=max(width, LEAST_WIDTH),
            height=max(height - 1, LEAST_HEIGHT),
            now_ms=now_ms(),
            has_keys=False,
            ascii_only=screen.options.ascii_only,
        )
        for line in lines:
            line.rstrip()
            if line.plain:
                click.echo(drawn_line(screen, line))
        return
    need_terminal(
        instead="--once prints one picture, and `jobpool status --json` the figures"
    )
    with Terminal() as terminal:
        watcher = Watcher(lambda: opened(sources), every_s=every_s, wake=terminal.wake)
        watcher.start()
        try:
            _Screen(terminal, watcher, view).run()
        finally:
            watcher.close()


class _Screen:
    """Draws what is new, and passes keys on, until one of them ends it."""

    def __init__(self, terminal: Terminal, watcher: Watcher, view: View) -> None:
        self._terminal = terminal
        self._watcher = watcher
        self._view = view
        self._canvas = Canvas(terminal)
        self._answered = 0

    def run(self) -> None:
        """Run until the end is asked for.

        Raises:
            BaseException: what has ended the thread that reads.
        """
        while not self._terminal.is_ended:
            if self._watcher.failure is not None:
                raise self._watcher.failure
            self._take_news()
            self._draw()
            for key in self._terminal.keys(_MOVE_S):
                if self._press(key):
                    return

    def _take_news(self) -> None:
        latest = self._watcher.latest
        if latest.requests != self._answered:
            self._answered = latest.requests
            if latest.said:
                self._change(said=latest.said)
        if self._view.opened_id is None:
            return
        if latest.job is not None and latest.job.job.id == self._view.opened_id:
            self._change(opened=tuple(_lines(latest.job)))

    def _change(self, **news: object) -> None:
        self._view = msgspec.structs.replace(self._view, **news)

    def _press(self, key: str) -> bool:
        """Do what a key says; True: end."""
        glance, was_open = self._watcher.latest.glance, self._view.opened_id
        if glance is None:
            return key == "q"
        self._view, request = press(key, self._view, glance)
        match request:
            case None:
                pass
            case Quit():
                return True
            case Open(job_id):
                self._change(opened_id=job_id, opened=("reading",), top=0)
                self._watcher.ask(job_id)
            case _:
                self._watcher.ask(request)
        if was_open is not None and self._view.opened_id is None:
            self._watcher.ask(None)
        return False

    def _draw(self) -> None:
        width, height = self._canvas.size
        latest = self._watcher.latest
        self._canvas.paint(
            frame(
                latest.glance,
                self._view,
                width=width,
                height=height,
                now_ms=now_ms(),
                error=latest.error,
                ascii_only=self._canvas.console.options.ascii_only,
            )
        )


def _lines(seen: Seen) -> list[str]:
    """Return what `jobpool show` prints of a job."""
    with redirect_stdout(io.StringIO()) as told:
        print_seen(seen)
    return told.getvalue().splitlines()
