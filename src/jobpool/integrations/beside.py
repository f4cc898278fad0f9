"""A supervisor beside a web process: it begins and ends with it, one for each store.

So a small application is one thing to deploy. The process may be one of several that
a server has forked: one of them has the supervisor, and another takes over when that
one is gone.

Theory of operation. Whoever holds a lock on a file, one for each store and user of a
host, runs the supervisor as a process of its own; the kernel gives the lock back when
its holder dies, however it does. The kernel also tells the supervisor then, and it
drains. A supervisor that ends by itself is started again, later each time.

Where there are no supervisors, on macOS and Windows, none is started, and a warning
says so: an application is written there as well.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from jobpool.client.gateway import find_settings
from jobpool.core.application.current import RUN_VARIABLE
from jobpool.core.units import DurationLike, duration_s
from jobpool.errors import UsageError
from jobpool.sandbox.system.platform import IS_LINUX
from jobpool.store.opening import run_root

_WITH_US = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes a command that is sent SIGTERM when this process is gone."""
_ASK_S = 1.0
"""How often it is tried to take over from another process."""
_AGAIN_S_MIN, _AGAIN_S_MAX = 1.0, 60.0
_log = logging.getLogger("jobpool")


class Beside:
    """A supervisor that begins and ends with this process, on Linux.

    Args:
        *flags: of ``jobpool run``, such as ``"--pools"`` and ``"cpu=2"``.
        app: the application; None: as configured, ``./jobs.py`` by default.
        store: its URL; None: as configured.
        patience: how long `stop` waits for it to drain; then it is killed. Longer than
            its ``drain``.

    Raises:
        ConfigError: the configuration is wrong, or *patience* is no duration.
    """

    def __init__(
        self,
        *flags: str,
        app: str | None = None,
        store: str | None = None,
        patience: DurationLike = "40s",
    ) -> None:
        self._command = [sys.executable, "-m", "jobpool", "run", *flags]
        # Not as flags: the URL may have a password, which others would see.
        named = {"JOBPOOL_APP": app, "JOBPOOL_STORE": store}
        self._env = {name: value for name, value in named.items() if value}
        self._url = find_settings(store).store
        self._patience_s = duration_s(patience, "patience")
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, or take over from another process once that one is gone.

        Raises:
            UsageError: it was started already, or this is one of jobpool's processes.
        """
        if RUN_VARIABLE in os.environ:
            raise UsageError(
                "a supervisor beside a web process was to be started in one of "
                "jobpool's own processes; do it where the server begins, not where "
                "handlers are imported. Nothing was started"
            )
        if self._thread is not None:
            raise UsageError("this supervisor was started already")
        if not IS_LINUX:
            _log.warning(
                "there are no supervisors on %s: none is started beside this process. "
                "Run `jobpool dev` in another terminal; what is enqueued waits for it",
                sys.platform,
            )
            return
        self._ending.clear()
        # Servers that have no word for their end call what is registered there.
        atexit.register(self.stop)
        self._thread = threading.Thread(target=self._stay, name="jobpool beside")
        self._thread.daemon = True
        self._thread.start()

    def stop(self) -> None:
        """Let it drain and end, and wait for that."""
        atexit.unregister(self.stop)
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _stay(self) -> None:
        """Run it, as long as this process goes on and no other one does."""
        while not self._ending.is_set():
            with _alone(self._url) as is_alone:
                if is_alone:
                    self._keep_running()
            self._ending.wait(_ASK_S)

    def _keep_running(self) -> None:
        pause_s = _AGAIN_S_MIN
        while not self._ending.is_set():
            try:
                how = f"has ended with exit code {self._run()}"
            except OSError as exc:  # no memory for a process, say
                how = f"could not be started: {exc}"
            if self._ending.is_set():
                return
            _log.warning(
                "the supervisor beside this process %s; it is started again in %.0f s. "
                "See what it said on stderr, and `jobpool check`",
                how,
                pause_s,
            )
            self._ending.wait(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_S_MAX)

    def _run(self) -> int:
        """Run it until it ends, or is to; return its exit code."""
        process = subprocess.Popen(
            [sys.executable, "-c", _WITH_US, str(os.getpid()), *self._command],
            env=os.environ | self._env,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is this process's to hear
        )
        while process.poll() is None and not self._ending.wait(_ASK_S / 10):
            pass
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            return process.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _lock_of(url: str) -> Path:
    """Return the file that is locked: beside a database's, or where runs are."""
    place = run_root(url)
    if url.startswith("sqlite:"):
        return Path(f"{str(place).removesuffix('.run')}-jobpool-beside")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = blake2b(url.encode(), digest_size=8).hexdigest()
    return place / f"beside-{name}.lock"


@contextlib.contextmanager
def _alone(url: str) -> Iterator[bool]:
    """Say whether no other process has a supervisor of this kind, and keep it so."""
    import fcntl  # noqa: PLC0415 - Windows has none

    with _lock_of(url).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
