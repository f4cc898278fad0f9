"""One host of many: a network, a run directory, and a supervisor for a while."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from many_hosts_history import Pause

from cutting_proxy import CuttingProxy

APP = Path(__file__).with_name("many_hosts_app.py")
STOP_S_MAX = 60.0


def now_ms() -> int:
    """Return the machine's time, which is also the server's."""
    return time.time_ns() // 1_000_000


class Host:
    """A real supervisor, alone in its run directory, behind a proxy of its own.

    Args:
        name: short and unlike others; the handlers write it down.
        directory: for its log and its run directory.
        port: the server's.
        url: the store.
        ttl: of leases, as the command line wants it.
    """

    def __init__(
        self, name: str, directory: Path, port: int, url: str, ttl: str
    ) -> None:
        self.name = name
        self.proxy = CuttingProxy(port)
        self.own_ends: list[int] = []
        """Exit codes of supervisors that ended although nobody had told them to."""
        self.pauses: list[Pause] = []
        self._directory = directory
        self._log = (directory / f"{name}.log").open("ab")
        self._flags = ["--pools", "cpu=4", "--app", str(APP), "--lease-ttl", ttl]
        self._flags += ["--log-format", "json", "--drain", "10s"]
        self._env = os.environ | {
            "JOBPOOL_STORE": self.proxy.url(url),
            "JOBPOOL_RUN_DIR": str(directory / f"run-{name}"),
            "MANY_HOSTS_HOST": name,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._paused_ms: int | None = None

    @property
    def pid(self) -> int | None:
        """The supervisor's process, if it lives."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        """Start the supervisor, as a service manager would; harmless if it runs."""
        if self.pid is not None:
            return
        if self._process is not None:
            self.own_ends.append(self._process.returncode)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jobpool", *self._flags],
            cwd=self._directory,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill the supervisor without a word to it, whatever it does."""
        if self.pid is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._paused_ms = None

    def pause(self) -> None:
        """Stop the supervisor's process in its tracks; its children go on."""
        self._paused_ms = now_ms()
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it; harmless if it was not stopped."""
        if self._paused_ms is not None:
            self._process.send_signal(signal.SIGCONT)
            self.pauses.append(Pause(self.name, self._paused_ms, now_ms()))
            self._paused_ms = None

    def stop(self) -> str | None:
        """Let the supervisor drain; return what was wrong with its end."""
        self.proxy.heal()
        if self.pid is None:
            return f"the supervisor of {self.name} was gone in the end"
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            return f"the supervisor of {self.name} did not end in {STOP_S_MAX:g} s"
        self._process = None
        return f"the supervisor of {self.name} ended with {code}" if code else None

    def close(self) -> None:
        """End everything at once."""
        self.kill()
        self._log.close()
        self.proxy.close()
