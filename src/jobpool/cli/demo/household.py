"""The demo's supervisor: a process of its own, as a user would start it.

Theory of operation. It has its own session, so that Ctrl-C reaches the demo alone,
which then asks it to drain. Should the demo be killed, the kernel sends the
supervisor SIGTERM (parent-death signal), and it drains by itself. Its environment
holds no ``JOBPOOL_`` variable of the caller's: the demo is the same everywhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import psutil

from jobpool.cli.demo.leftovers import MARKER
from jobpool.cli.demo.setting import LOG, store_url
from jobpool.sandbox.libc import prctl
from jobpool.sandbox.procfs import kib_bytes, read

_PR_SET_PDEATHSIG = 1
_APP = "jobpool.cli.demo.app"
_END_S = 40.0
"""A drain takes up to 25 s."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Resident memory, as of now and at its peak."""

    supervisor_bytes: int = 0
    supervisor_peak_bytes: int = 0
    """The kernel's own figure."""
    family: int = 0
    """Processes below the supervisor: zygotes, children and what these started."""
    family_bytes: int = 0
    """Their sum; pages that they share count several times."""
    family_peak_bytes: int = 0
    """The largest sum that was seen."""


class Household:
    """A running supervisor with its family; a context manager that ends it.

    Args:
        directory: the demo's.
        pools: as for ``--pools``.
    """

    def __init__(self, directory: Path, pools: str) -> None:
        self._log = directory / LOG
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command_line(directory, pools),
                cwd=directory,
                env=environment(os.environ, directory),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_drain_with_parent,  # noqa: PLW1509 - one thread so far
            )
        self._peak = Memory()

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        return self._process.pid

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it now, if nobody has ended it before."""
        self._end(signal.SIGQUIT)

    def exit_code(self) -> int | None:
        """Return how it ended, negative for a signal; None: it runs."""
        return self._process.poll()

    def drain(self) -> int:
        """Let it finish what runs, and return how it ended."""
        return self._end(signal.SIGTERM)

    def stop(self) -> int:
        """Let it end now, and return how it ended."""
        return self._end(signal.SIGQUIT)

    def last_lines(self, count: int = 8) -> str:
        """Return the end of its log, for somebody who must find out."""
        return "\n".join(self._log.read_text("utf-8", "replace").splitlines()[-count:])

    def memory(self) -> Memory:
        """Look at the memory of all of its processes."""
        sizes = []
        own = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            supervisor = psutil.Process(self.pid)
            own = supervisor.memory_info().rss
            for process in supervisor.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    sizes.append(process.memory_info().rss)
        peak = self._peak
        self._peak = Memory(
            supervisor_bytes=own,
            supervisor_peak_bytes=max(peak.supervisor_peak_bytes, _peak(self.pid)),
            family=len(sizes),
            family_bytes=sum(sizes),
            family_peak_bytes=max(peak.family_peak_bytes, sum(sizes)),
        )
        return self._peak

    def _end(self, signum: signal.Signals) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signum)
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def command_line(directory: Path, pools: str) -> list[str]:
    """Return the command that starts the supervisor, as anybody could type it."""
    url = store_url(directory)
    launch = ["--pools", pools, "--app", _APP, "--store", url, "--log-format", "human"]
    return [sys.executable, "-m", "jobpool", *launch]


def environment(ours: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the supervisor's environment: ours without jobpool's own variables."""
    kept = {key: text for key, text in ours.items() if not key.startswith("JOBPOOL_")}
    return {**kept, MARKER: str(directory)}


def _drain_with_parent() -> None:
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _peak(pid: int) -> int:
    """Return the most memory that a process ever had; 0 when it is gone."""
    return kib_bytes(read(f"/proc/{pid}/status"), (b"VmHWM:",))
