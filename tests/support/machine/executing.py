"""Executors of real processes: whom they belong to, and programs that use them."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from support.site.supervising import is_alive
from support.waiting import wait_until

PATIENCE_S = 90.0
MARKER = "JOBPOOL_TEST_EXECUTOR"
GET_CHILD_SUBREAPER, SET_CHILD_SUBREAPER = 37, 36  # of prctl(2)
STOOD_STILL = "has not begun what it was sent; it is replaced"
"""What a host says of an idle child that a busy machine let do nothing for a second."""
PRELUDE = """
import os, signal, sys, time
import jobpool

def hold(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(0.01)
"""


def marked(marker):
    """Return the living processes that inherited a marker, without this one."""
    wanted = f"{MARKER}={marker}".encode()
    found = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdigit() and wanted in (path / "environ").read_bytes().split(
                b"\0"
            ):
                found.append(int(path.name))
    return [pid for pid in found if pid != os.getpid() and is_alive(pid)]


def wait_nobody(marker):
    wait_until(lambda: not marked(marker), PATIENCE_S, "the end of all processes")


def host_of(executor):
    """Return the host's pid, once it has reported it."""
    client = executor._own._client
    return wait_until(lambda: client._host, PATIENCE_S, "the host's hello").pid


def script(text, *arguments, check=True, **options):
    """Run a program to its end."""
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + text, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=check,
        **options,
    )
