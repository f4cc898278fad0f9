"""Supervisors that are forked from a process which has imported what they import.

Theory of operation. Half of what a supervisor's start costs is importing four hundred
modules, the same in each of hundreds of tests. So one process of this test session, the
nursery, does that once, and forks a supervisor for whoever asks. From ``jobpool``'s
``__main__`` on everything is as after an exec: arguments, environment, directory,
session, descriptors. Only what the kernel shows of an exec differs: the command line in
/proc, and the environment there. Zygotes and children are started by the supervisor, as
ever. Whoever tests a start itself starts one by its command line.

The nursery is the parent, so it holds an exit code until it is asked for it. It has no
threads, and runs nothing of jobpool's.
"""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading

ORDER_BYTES_MAX = 200_000
ANSWER_S_MAX = 60.0
_ANSWER_BYTES = 20
_FDS_MAX = 2**20


class Nursling:
    """A process of the nursery, with as much of Popen's interface as tests use."""

    def __init__(self, pid, reap):
        self.pid, self.returncode = pid, None
        self._pidfd, self._reap = os.pidfd_open(pid), reap
        self._turn = threading.Lock()

    def poll(self):
        """Return its exit code, None while it runs."""
        return self._collect(0.0)

    def wait(self, timeout=None):
        """Wait for its end and return the exit code."""
        if self._collect(timeout) is None:
            raise subprocess.TimeoutExpired("supervisor", timeout)
        return self.returncode

    def send_signal(self, signum):
        """Send it a signal, unless its end is known."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, signum)

    def kill(self):
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def _collect(self, timeout_s):
        if (
            self.returncode is None
            and select.select([self._pidfd], [], [], timeout_s)[0]
        ):
            with self._turn:
                if self.returncode is None:
                    self.returncode = self._reap(self.pid)
                    os.close(self._pidfd)
        return self.returncode


class Nursery:
    """The process, as its users see it."""

    def __init__(self):
        self._turn = threading.Lock()
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.settimeout(ANSWER_S_MAX)
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ORDER_BYTES_MAX)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for whoever started us
            )

        self._owner = os.getpid()
        atexit.register(self.close)

    def close(self):
        """Let it end; what it has started goes on."""
        if os.getpid() == self._owner:  # a forked child's exit is not the session's
            self._ours.close()
            self._process.wait()

    def bear(self, words, *, cwd, env, log):
        """Fork a supervisor; return it as a `Nursling`.

        Args:
            words: of its command line, after ``jobpool``.
            cwd: its directory.
            env: all of its environment.
            log: a file object, for what it prints.
        """
        order = json.dumps([list(words), str(cwd), dict(env)]).encode()
        with self._turn:
            socket.send_fds(self._ours, [order], [log.fileno()])
            # Nobody else reaps it, so that the number stays its own.
            return Nursling(int(self._ours.recv(_ANSWER_BYTES)), self._reap)

    def _reap(self, pid):
        with self._turn:
            self._ours.send(b"%d" % pid)
            return int(self._ours.recv(_ANSWER_BYTES))


_FIRST = threading.Lock()
"""Threads of one test may be the first ones to ask."""


def nursery():
    """Return this session's nursery; the first call starts it."""
    with _FIRST:
        return _only()


_only = functools.cache(Nursery)


def suits(env):
    """Say whether nothing in these variables is read before jobpool's own code runs."""
    return all(name.startswith("JOBPOOL_") for name in env)


def serve(fd):
    """Fork a supervisor for each order, until nobody can give one any more.

    Returns:
        In the forked process only: what its ``python -m jobpool`` is to do.
    """
    connection = socket.socket(fileno=fd)
    while True:
        data, fds, _, _ = socket.recv_fds(connection, ORDER_BYTES_MAX, 1)
        if not data:
            sys.exit()
        order = json.loads(data)
        if isinstance(order, int):
            _, status = os.waitpid(order, 0)
            connection.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if pid == 0:
            connection.detach()
            return _become(*order, log=fds[0])
        os.close(fds[0])
        connection.send(b"%d" % pid)


def _become(words, cwd, env, *, log):
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, _FDS_MAX)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = words
    sys.path[0] = cwd


if __name__ == "__main__":
    import gc
    import runpy

    import jobpool.cli.launch.launch
    import jobpool.cli.root
    import jobpool.sandbox.zygote.early
    import jobpool.store.opening
    import jobpool.store.postgres.store
    import jobpool.supervisor.serve  # noqa: F401 - to have been imported

    gc.freeze()
    serve(int(sys.argv[1]))
    runpy.run_module("jobpool", run_name="__main__", alter_sys=True)
