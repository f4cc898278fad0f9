"""A supervisor that is kept up as a service manager would keep it, and harmed."""

import os
import signal
import subprocess
import time
from typing import NamedTuple

STOP_S_MAX = 60.0
KILL_S_MAX = 30.0


class Pause(NamedTuple):
    """A supervisor that was stopped and continued: meanwhile it cannot fence itself."""

    host: str
    from_ms: int
    until_ms: int


class Service:
    """A supervisor's process, started again on request.

    Args:
        name: short and unlike others.
        words: the command.
        directory: where it runs, and where its log is.
        env: its environment.
    """

    def __init__(self, name, words, *, directory, env):
        self.name = name
        self.own_ends: list[int] = []
        """Exit codes of supervisors that ended without a request."""
        self.pauses: list[Pause] = []
        self.log = directory / f"{name}.log"
        self._directory, self._words, self._env = directory, words, env
        self._sink = self.log.open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self._paused_ms: int | None = None

    @property
    def pid(self):
        """The supervisor's process, if it lives."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self):
        """Start the supervisor; harmless if it runs. Return whether it was started."""
        if self.pid is not None:
            return False
        if self._process is not None:
            self.own_ends.append(self._process.returncode)
        self._process = None
        self._process = subprocess.Popen(
            self._words,
            cwd=self._directory,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=self._sink,
            stderr=self._sink,
            start_new_session=True,
        )
        return True

    def kill(self):
        """Kill the supervisor without a word to it, whatever it does."""
        if self.pid is not None:
            self._process.kill()
            self._process.wait(KILL_S_MAX)
            self._process = None
        self._paused_ms = None

    def pause(self):
        """Stop the supervisor's process in its tracks; its children go on."""
        self._paused_ms = now_ms()
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        """Continue it; harmless if it was not stopped."""
        if self._paused_ms is not None:
            self._process.send_signal(signal.SIGCONT)
            self.pauses.append(Pause(self.name, self._paused_ms, now_ms()))
            self._paused_ms = None

    def stop(self):
        """Let the supervisor drain; return what was wrong with its end."""
        if self.pid is None:
            return f"the supervisor of {self.name} was gone in the end"
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            return f"the supervisor of {self.name} did not end in {STOP_S_MAX:g} s"
        self._process = None
        return f"the supervisor of {self.name} ended with {code}" if code else None

    def close(self):
        """End everything at once."""
        self.kill()
        self._sink.close()


def now_ms() -> int:
    """Return the machine's time, which is also a local server's."""
    return time.time_ns() // 1_000_000


def environment(**values):
    """Return this process's environment without what is jobpool's, and with values."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("JOBPOOL_")}
    return own | values
