"""Shows again and again what a command prints.

It imports what paints only where that is wanted: rich is a sixth of a command's cost.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click


def again(show: Callable[[], None], every_s: float, *, paint: bool) -> None:
    """Print something again and again, until it is interrupted.

    Args:
        show: prints it.
        every_s: how long to wait between two times.
        paint: each in the place of the one before, on a terminal; else one after the
            other, for programs.

    Raises:
        UsageError: it is to be painted, and there is no terminal.
    """
    if paint:
        from jobpool.cli.terminal.repaint import repaint  # noqa: PLC0415 - see above

        need_terminal("--json prints a line each time, for programs")
        repaint(show, every_s)
        return
    while True:
        show()
        sys.stdout.flush()
        time.sleep(every_s)


def need_terminal(instead: str) -> None:
    """Refuse to paint where nobody can see it.

    Args:
        instead: what to do where there is no terminal.

    Raises:
        UsageError: standard input or output is no terminal, or one of Windows.
    """
    if sys.platform == "win32":
        raise click.UsageError(
            f"a moving picture needs a terminal of Linux or macOS; {instead}"
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            f"a moving picture needs a terminal, as input and output; {instead}"
        )
