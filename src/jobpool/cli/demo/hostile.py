"""The demo's hostile handlers. Each does what it says, for real, to its own child.

Theory of operation. None of them spares its process: the segmentation fault is the
kernel's, the regular expression holds the interpreter's lock inside C, and the
daemons have left their session and their parent. Each daemon writes its process id
and start time to a file, so that the demo can prove at its end that it is gone.
"""

from __future__ import annotations

import ctypes
import lzma
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

from jobpool.sandbox.procfs import process_start_time

BOMB = "bomb.xz"
_BOMB_STREAM_BYTES = 64 * 2**20
_BOMB_STREAMS = 256
DAEMONS = "daemons"
"""One line per daemon: process id and start time."""
_DAEMON_LIFE_S = 600.0
_NOISE_LINE = "x" * 99 + "\n"


def write_bomb(directory: Path) -> None:
    """Write a small file that decompresses to 16 GiB of zeros."""
    stream = lzma.compress(bytes(_BOMB_STREAM_BYTES), preset=1)
    (directory / BOMB).write_bytes(stream * _BOMB_STREAMS)


def bomb(path: str) -> int:
    """Decompress a whole file at once, as careless code does."""
    return len(lzma.decompress(Path(path).read_bytes()))


def regex(text: str) -> bool:
    """Match an expression that backtracks for longer than the sun will shine."""
    return re.fullmatch(r"(a+)+b", text) is not None


def null_pointer() -> bytes:
    """Read from address zero."""
    return ctypes.string_at(0)


def daemons(count: int) -> int:
    """Leave daemons behind, each in a session of its own, and return."""
    reading, writing = os.pipe()
    for _ in range(count):
        middle = os.fork()
        if middle == 0:
            _become_daemon(writing)
        os.waitpid(middle, 0)
    # Succeed only once all of them live and have said who they are.
    for _ in range(count):
        os.read(reading, 1)
    os.close(reading)
    os.close(writing)
    return count


def _become_daemon(ready: int) -> NoReturn:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pid = os.getpid()
    fd = os.open(DAEMONS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{pid} {process_start_time(pid)}\n".encode())
    os.write(ready, b".")
    time.sleep(_DAEMON_LIFE_S)
    os._exit(0)


def noise(megabytes: int) -> int:
    """Print far more than anybody will read."""
    for _ in range(megabytes * 10_000):
        sys.stdout.write(_NOISE_LINE)
    return megabytes


def exit_zero() -> None:
    """End the process as if all were well, without a result."""
    os._exit(0)


def deaf() -> None:
    """Ignore every polite request to end, and do nothing for long."""
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    while True:
        time.sleep(60)


def recursion(depth: int = 0) -> int:
    """Call itself without end."""
    return recursion(depth + 1)
