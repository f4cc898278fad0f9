"""The command line: each command reads its arguments, makes one call, and prints.

May import: client, core, dashboard, executor, manual, monitoring, operations, sandbox,
store, supervisor, words.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence

_COMPLETION = "_JOBPOOL_COMPLETE"
"""Variable by which a shell asks click what a word may be completed to."""


def main() -> None:
    """Run the command line; the entry point of the ``jobpool`` command."""
    _fill_standard_streams()
    # Imports leave hardly any garbage, and what they make stays: to look through it
    # again and again is a tenth of what a command costs. `Root.get_command` enables it.
    gc.disable()
    if sys.platform == "linux" and _is_start(sys.argv[1:]):
        _start_zygote()
    from jobpool.cli.root import cli  # noqa: PLC0415 - importing a child pulls nothing in

    cli(prog_name="jobpool")


def _is_start(words: Sequence[str]) -> bool:
    """Say whether this is going to be a supervisor.

    If flags stand before the command it is not seen here: it only starts later.
    """
    if _COMPLETION in os.environ:
        return False  # a shell completes what is being typed
    begins = words and (words[0] == "run" or words[0].startswith("--pools"))
    return bool(begins) and not {"-h", "--help", "--version"}.intersection(words)


def _start_zygote() -> None:
    """Start the zygote first, so that it imports beside the supervisor."""
    from jobpool.sandbox.zygote.early import start_early  # noqa: PLC0415 - only a start

    # If there is no process left, the supervisor says so.
    with contextlib.suppress(OSError):
        start_early(needs=("jobpool.client.jobpool",))


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
