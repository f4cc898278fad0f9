"""The demo's dashboard: a process of its own, as a user would start it.

It writes the link that opens it, and another once that was used. It is none of the
supervisor's processes, and is not counted among those that may be left behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from jobpool.cli.demo.supervisor import end_with_parent
from jobpool.cli.demo.workspace import store_url
from jobpool.errors import JobpoolError

_LISTEN = "127.0.0.1:0"
"""Any free port."""


@contextmanager
def shown(directory: Path, screen: Console) -> Iterator[None]:
    """Show a demo's store in a browser meanwhile.

    On a terminal it goes on when the demo is over, until Enter is pressed: its deaths
    are there to be read.

    Args:
        directory: the demo's.
        screen: where its links are printed.

    Raises:
        JobpoolError: it has not begun; it has said why.
    """
    words = ["dashboard", "--store", store_url(directory), "--listen", _LISTEN]
    env = {key: text for key, text in os.environ.items() if "JOBPOOL" not in key}
    with subprocess.Popen(
        [sys.executable, "-m", "jobpool", *words],
        cwd=directory,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - one thread so far
    ) as process:
        try:
            link = _link(process)
            if not link:
                raise JobpoolError(
                    f"the dashboard has ended with {process.wait()}; start the demo "
                    "without --dashboard"
                )
            screen.print(f"watch it at {link}", soft_wrap=True)
            yield
            if sys.stdin.isatty():
                click.prompt(
                    "Enter ends the dashboard", default="", show_default=False, err=True
                )
        finally:
            process.terminate()


def _link(process: subprocess.Popen[str]) -> str:
    """Return the link that it prints once it listens; "": it has ended."""
    return process.stdout.readline().strip() if process.stdout else ""
