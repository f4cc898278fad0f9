"""Keep one PostgreSQL server for a test session, and leave nothing of it behind.

Run as a program, never imported by a test: ``postgres_server`` starts it, writes one
command a line (``start``, ``stop MODE``, ``kill``) and reads one JSON answer a line.
The server is the guardian's child. When the owner ends, however it ends, the guardian
stops the server and removes its directory; when the guardian is killed, the kernel
tells the server to quit.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
IPC_RMID = 0
START_S_MAX = 60.0
STOP_S_MAX = 60.0
POLL_S = 0.01
SIGNAL_OF_MODE = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

libc = ctypes.CDLL(None, use_errno=True)


class Guardian:
    """The server's parent: starts, stops and kills it, and cleans up at the end."""

    def __init__(self, directory: Path, binaries: Path, uid: int, gid: int) -> None:
        self._directory = directory
        self._data = directory / "data"
        self._binaries = binaries
        self._identity: dict = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._identity = {"user": uid, "group": gid, "extra_groups": []}
        self._server: subprocess.Popen | None = None

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        deadline = time.monotonic() + START_S_MAX
        while not self._try_start(deadline):
            # After a kill the backends of the old server need a short time to notice.
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server does not start:\n{self._log_end()}")
            time.sleep(POLL_S)

    def _try_start(self, deadline: float) -> bool:
        if self._server is not None and self._server.poll() is None:
            return True
        with (self._directory / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=quit_with_parent,  # noqa: PLW1509 - we have no threads
                **self._identity,
            )
        while time.monotonic() < deadline and self._server.poll() is None:
            if self._is_ready(self._server.pid):
                return True
            time.sleep(POLL_S)
        return False

    def _is_ready(self, pid: int) -> bool:
        """Read what pg_ctl reads: the server's own word in its pid file."""
        with contextlib.suppress(OSError):
            lines = (self._data / "postmaster.pid").read_text().split("\n")
            return lines[0] == str(pid) and len(lines) > 7 and "ready" in lines[7]
        return False

    def stop(self, mode: str) -> None:
        """Stop the server: smart, fast or immediate; harmless when it is stopped."""
        if self._server is None or self._server.poll() is not None:
            return
        self._server.send_signal(SIGNAL_OF_MODE[mode])
        try:
            self._server.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(
                f"the server did not stop ({mode}) within {STOP_S_MAX:g} s and was "
                f"killed:\n{self._log_end()}"
            ) from None

    def kill(self) -> None:
        """Kill the server's first process; the others end when they notice."""
        if self._server is not None and self._server.poll() is None:
            self._server.kill()
            self._server.wait()

    def clean_up(self) -> None:
        """Stop the server and remove all that it had."""
        with contextlib.suppress(RuntimeError):
            self.stop("immediate")
        self._remove_shared_memory()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _remove_shared_memory(self) -> None:
        """Remove the interlock segment that a killed server leaves in the kernel."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            lines = (self._data / "postmaster.pid").read_text().split("\n")
            libc.shmctl(int(lines[6].split()[1]), IPC_RMID, None)

    def _log_end(self) -> str:
        return (self._directory / "log").read_text(errors="replace")[-2000:]


def quit_with_parent() -> None:
    """Ask the kernel to have this process quit at once when its parent dies."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0)


def serve(guardian: Guardian, owner: int) -> None:
    """Obey the commands on stdin until the owner ends or closes it."""
    owner_fd = os.pidfd_open(owner)
    while True:
        ready, _, _ = select.select([0, owner_fd], [], [])
        if 0 not in ready:
            return
        line = os.read(0, 4096).decode()
        if not line:
            return
        answer = {}
        try:
            verb, *words = line.split()
            getattr(guardian, verb)(*words)
        except Exception as error:  # noqa: BLE001 - the owner hears of everything
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Serve one owner, then clean up whatever happened."""
    order = json.loads(sys.argv[1])
    guardian = Guardian(
        Path(order["directory"]), Path(order["binaries"]), order["uid"], order["gid"]
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(guardian, order["owner"])
    except (ProcessLookupError, BrokenPipeError):
        pass  # the owner ended before or while we spoke
    finally:
        guardian.clean_up()
        # A reader of the pipe's other end must not cause the interpreter's complaint.
        os._exit(0)


if __name__ == "__main__":
    main()
