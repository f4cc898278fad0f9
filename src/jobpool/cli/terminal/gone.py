"""A standard output that nobody reads any more."""

from __future__ import annotations

import os
import sys


def forget_stdout() -> None:
    """Point stdout to nowhere, so that the interpreter's last flush is quiet."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - lives to the end
