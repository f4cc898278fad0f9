"""The demo's handlers: honest ones on real files, and hostile ones.

Theory of operation. They run in the demo's directory, so relative names lead there.
None of the hostile ones spares its process: the segmentation fault is the kernel's,
the regular expression holds the interpreter's lock inside C, and the daemons have left
their session and their parent. Each daemon writes its process id and start time to a
file, so that the demo can prove at its end that it is gone.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import lzma
import os
import re
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import NoReturn

import msgspec

from jobpool.sandbox.system.procfs import process_start_time

BOMB = "bomb.xz"
_BOMB_STREAM_BYTES = 64 * 2**20
_BOMB_STREAMS = 256
DAEMONS = "daemons"
"""One line per daemon: process id and start time."""
_DAEMON_LIFE_S = 600.0
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of modules: of one, or the sums of many."""

    files: int = 1
    bytes: int
    lines: int
    compressed_bytes: int
    """After lzma."""
    functions: int = 0
    classes: int = 0
    not_python: int = 0
    """Files that Python itself refuses to parse; its library keeps some as tests."""


class Hashed(msgspec.Struct, frozen=True, kw_only=True):
    """Checksums of some files."""

    bytes: int
    lines: str
    """As ``sha256sum`` prints them: checksum, two spaces, path."""


def parse(path: str) -> Module:
    """Parse one module and measure it."""
    source = Path(path).read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        nodes = []
    return Module(
        bytes=len(source),
        lines=source.count(b"\n"),
        compressed_bytes=len(lzma.compress(source)),
        functions=sum(isinstance(node, _FUNCTIONS) for node in nodes),
        classes=sum(isinstance(node, ast.ClassDef) for node in nodes),
        not_python=int(not nodes),
    )


def hash_files(paths: list[str]) -> Hashed:
    """Read and hash files."""
    lines = []
    size_bytes = 0
    for path in paths:
        with Path(path).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size_bytes += file.tell()
        lines.append(f"{digest}  {path}\n")
    return Hashed(bytes=size_bytes, lines="".join(lines))


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
    # Succeed only once all of them live and are on record.
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
        sys.stdout.write("x" * 99 + "\n")
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
