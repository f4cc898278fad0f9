"""The command line: each command reads its arguments, makes one call, and prints.

May import: client, core, manual, monitoring, operations, sandbox, store, supervisor.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line; the entry point of the ``jobpool`` command."""
    _fill_standard_streams()
    # Imports leave hardly any garbage, and what they make stays: to look through it
    # again and again is a tenth of what a command costs. `Root.get_command` enables it.
    gc.disable()
    from jobpool.cli.root import cli  # noqa: PLC0415 - importing a child pulls nothing in

    cli(prog_name="jobpool")


def _fill_standard_streams() -> None:
    """Open what a caller has closed of 0, 1 and 2, so that no file of ours lands there.

    A database that became descriptor 2 would receive somebody's error messages.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            stream = open(os.devnull, "r+")  # noqa: PTH123, SIM115 - lives to the end
            setattr(sys, name, stream)
