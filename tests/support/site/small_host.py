"""A supervisor that sees a host with little memory left, less what its children use.

Run as a program, with a folder, the memory that is left, and a command line of jobpool
(its first words, the interpreter and ``-m jobpool``, are passed over). The children's
memory is what the kernel says; only the host is smaller. Whenever less is left than
ever before, the file ``left`` in the folder is written; the file ``looks`` grows by a
byte with each look.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

from jobpool.cli import main
from jobpool.sandbox.cgroups.memory_left import Left
from jobpool.sandbox.system.procfs import descendants_of, kib_bytes, read

TOTAL_BYTES = 4 * 2**30
"""Most of it is in use by other programs; 5 % of it is the reserve."""


class SmallHost:
    """A host with so much left for supervisor and children."""

    def __init__(self, folder: Path, left_bytes: int) -> None:
        self._folder = folder
        self._left_bytes = self._lowest_bytes = left_bytes
        self._looks = (folder / "looks").open("ab", buffering=0)

    def look(self) -> Left:
        """Return what is left."""
        used_bytes = sum(map(own_bytes, descendants_of(os.getpid())))
        left_bytes = self._left_bytes - used_bytes
        if left_bytes < self._lowest_bytes:
            self._lowest_bytes = left_bytes
            new = self._folder / "left.new"
            new.write_text(f"{left_bytes}")
            new.replace(self._folder / "left")
        self._looks.write(b".")
        return Left(max(0, left_bytes), TOTAL_BYTES)


def own_bytes(pid: int) -> int:
    """Return a process's anonymous memory; 0 when it is gone."""
    return kib_bytes(read(f"/proc/{pid}/status"), (b"RssAnon:",))


def lowest_bytes(folder: Path) -> int:
    """Return the least that was left at any look."""
    return int((folder / "left").read_text())


if __name__ == "__main__":
    host = SmallHost(Path(sys.argv[1]), int(sys.argv[2]))
    serving = import_module("jobpool.supervisor.serve")
    serving.serve = partial(serving.serve, memory=host.look)
    sys.argv = ["jobpool", *sys.argv[6:]]
    main()
