"""The supervisor's handle of a zygote: starts it, requests children, sees its end.

Theory of operation. The zygote is started by exec (`fresh`), unless one was started
(`early`) or forked (`prefork`) before there was a supervisor. Its environment is that
of the children, with the run's marker, by which a later supervisor finds whatever is
left of this run.

The zygote's end is seen on its socket or on a pidfd, whichever is first: its socket
does not end while a process that it has forked holds it, which may be for ever (a
daemon of the application's). `fileno` covers both. The number of requests in flight
is limited: the descriptors sent with them count against this process until received.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from jobpool.core.application.command import Command
from jobpool.core.application.current import RUN_VARIABLE
from jobpool.core.isolation.measures import Enclosure
from jobpool.sandbox.protocol.messages import (
    Branch,
    Decoder,
    Fork,
    Forked,
    ForkFailed,
    FrameError,
    FromZygote,
    Guard,
    Load,
    encode,
)
from jobpool.sandbox.system.platform import require_linux
from jobpool.sandbox.system.process_tree import become_subreaper, send_signal
from jobpool.sandbox.system.procfs import (
    process_start_time,
    resident_bytes,
)
from jobpool.sandbox.zygote import early
from jobpool.sandbox.zygote.fresh import start_fresh
from jobpool.sandbox.zygote.prefork import take
from jobpool.sandbox.zygote.process import ZygoteProcess

IN_FLIGHT_MAX = 16
ENDING_MS = 1000
"""Longest wait for one whose socket has ended: a busy machine lets it wait to die."""
_RECEIVE_BYTES = 256 * 1024


class Zygote:
    """A running zygote. Nothing here blocks.

    Attributes:
        pool: the pool that it forks for.
        pid: its process id.
        start_time: its start, in clock ticks since boot.
        sentinel: a pidfd; readable when it has ended.
    """

    def __init__(self, pool: str, process: ZygoteProcess) -> None:
        self.pool = pool
        self.pid = process.pid
        self._process = process
        self._socket = process.control
        self._either = select.epoll()
        self._end = select.poll()
        self.sentinel = os.pidfd_open(self.pid)
        try:
            for one in (self._socket.fileno(), self.sentinel):
                self._either.register(one, select.EPOLLIN)
            self.start_time = process_start_time(self.pid) or 0
        except OSError:
            os.close(self.sentinel)
            raise
        self._end.register(self.sentinel, select.POLLIN)
        self._decoder = Decoder(FromZygote)
        self._waiting: deque[tuple[Fork, list[int]]] = deque()
        self._in_flight = 0
        self._is_ours_to_kill = False

    @classmethod
    def start(
        cls,
        pool: str,
        run_id: str,
        *,
        app: str,
        directory: str,
        preload: bool,
        env: tuple[str, ...] | None = None,
        fence: str = "",
        cgroup: str = "",
        commands: tuple[Command, ...] = (),
    ) -> Zygote:
        """Start a zygote and have it load the application.

        Its answer (`Loaded` or `LoadFailed`) arrives through `receive`. This process
        adopts orphans from now on.

        Args:
            pool: the pool that it forks for.
            run_id: the supervisor's run.
            app: the application, as `load_application` takes it.
            directory: absolute; its working directory.
            preload: False: each child loads the application itself.
            env: names of the environment variables that it keeps, in which a * matches
                any text; None: all.
            fence: path of the fence's file; "": there is none.
            cgroup: the cgroup that it enters; "": none.
            commands: handlers beside those of the application.

        Raises:
            JobpoolError: the platform lacks something; nothing was started.
            OSError: no process, memory or descriptor; nothing was started.
        """
        require_linux()
        become_subreaper()
        environment = environment_of(run_id, env)
        process = (
            _preforked(environment)
            or early.take(environment)
            or start_fresh(environment)
        )
        try:
            process.control.setblocking(False)
            zygote = cls(pool, process)
            load = Load(app, directory, preload, fence, cgroup, commands)
            zygote._socket.send(encode(load))
        except BaseException:
            process.control.close()
            raise
        return zygote

    @classmethod
    def adopt(cls, pool: str, pid: int, control: socket.socket) -> Zygote:
        """Take a zygote that another one has forked (`branch`).

        It reports on its socket, as one that was started does.

        Args:
            pool: the pool that it forks for.
            pid: its process id; it is a child of this process, not reaped.
            control: our end of the socket that was sent to it; closed on error.

        Raises:
            OSError: no descriptor; its socket is closed, so it ends.
        """
        try:
            control.setblocking(False)
            return cls(pool, ZygoteProcess(pid, control))
        except BaseException:
            control.close()
            raise

    def fileno(self) -> int:
        """Return a descriptor that is readable at its messages and at its end."""
        return self._either.fileno()

    def fork(
        self, slot: int, fds: Sequence[int], enclosure: Enclosure = Enclosure.NONE
    ) -> None:
        """Request a child; `Forked` or `ForkFailed` follows through `receive`.

        Args:
            slot: returned with the answer.
            fds: the child's descriptors, as `ChildProcess.fds_for_child` gives them;
                the caller may close them afterwards.
            enclosure: the namespaces that the child gets.

        Raises:
            OSError: no descriptor to keep them meanwhile; nothing was requested.
        """
        free = self._in_flight < IN_FLIGHT_MAX and not self._waiting
        request = Fork(slot, enclosure)
        if free and self._request(request, fds):
            return
        self._waiting.append((request, _duplicates(fds)))

    def branch(self, number: int) -> socket.socket:
        """Request another zygote; `Branched` follows through `receive`.

        Returns:
            Our end of its socket.

        Raises:
            OSError: it takes no message now, or no descriptor was left.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(
                    self._socket, [encode(Branch(number))], [theirs.fileno()]
                )
            except BaseException:
                ours.close()
                raise
        return ours

    def guard(self, members: Sequence[tuple[int, int]]) -> None:
        """Have it end these too if this process dies: pids and start times."""
        with contextlib.suppress(OSError):  # it is gone: `receive` reports it
            self._socket.send(encode(Guard(list(members))))

    def receive(self) -> list[FromZygote] | None:
        """Return the zygote's messages; None: it is gone or sent garbage."""
        has_ended = bool(self._end.poll(0))  # first: then its last messages are here
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
            messages = list(self._decoder.feed(data))
        except BlockingIOError:
            return None if has_ended else []
        except OSError:
            return None
        except FrameError:
            self._is_ours_to_kill = True
            self.kill()
            return None
        if not data:
            return None
        for message in messages:
            if isinstance(message, Forked | ForkFailed):
                self._in_flight -= 1
        self._ask_more()
        return messages

    def was_killed(self) -> bool:
        """Say whether it was killed from outside, once `receive` has returned None.

        Its socket ends a moment before its process, which is waited for.
        """
        self._end.poll(ENDING_MS)
        return self.exit_status() == -signal.SIGKILL and not self._is_ours_to_kill

    def exit_status(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def rss_bytes(self) -> int:
        """Return its resident memory; 0 when it is gone."""
        return resident_bytes(self.pid)

    def kill(self) -> None:
        """Kill it; its children are unharmed."""
        send_signal(self.sentinel, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, also after `close`: until it is reaped, its pid is its own."""
        if self.exit_status() is None:
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close its socket: if it lives, it kills its children's trees and ends."""
        if self.sentinel < 0:
            return
        self._either.close()
        self._socket.close()
        os.close(self.sentinel)
        self.sentinel = -1
        while self._waiting:
            _close_all(self._waiting.popleft()[1])

    def _ask_more(self) -> None:
        while self._waiting and self._in_flight < IN_FLIGHT_MAX:
            request, fds = self._waiting[0]
            if not self._request(request, fds):
                return
            self._waiting.popleft()
            _close_all(fds)

    def _request(self, request: Fork, fds: Sequence[int]) -> bool:
        """Send one request; False: not now, or it is gone (`receive` reports it)."""
        try:
            socket.send_fds(self._socket, [encode(request)], list(fds))
        except OSError:
            return False
        self._in_flight += 1
        return True


def _preforked(environment: Mapping[bytes, bytes]) -> ZygoteProcess | None:
    """Make the preforked process a zygote; None: there is none."""
    process = take()
    if process is None:
        return None
    try:
        process.begin(environment)
    except OSError:
        process.control.close()
        return None  # it was killed
    return process


def environment_of(run_id: str, names: tuple[str, ...] | None) -> dict[bytes, bytes]:
    """Return a zygote's environment: our variables of these names, and the marker."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if names is None or any(fnmatchcase(name, one) for one in names)
    }
    kept[RUN_VARIABLE] = run_id
    return {os.fsencode(name): os.fsencode(value) for name, value in kept.items()}


def _duplicates(fds: Sequence[int]) -> list[int]:
    """Return a duplicate of each descriptor.

    Raises:
        OSError: the limit is reached; none is left open.
    """
    made: list[int] = []
    with contextlib.ExitStack() as undo:
        for fd in fds:
            made.append(os.dup(fd))
            undo.callback(os.close, made[-1])
        undo.pop_all()
    return made


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
