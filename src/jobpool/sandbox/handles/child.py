"""The supervisor's handle of a child. Nothing here blocks or decodes a payload.

Theory of operation. The handle exists before the process: it makes the child's
descriptors, the zygote forks with them, and `attach` binds the pid. From then on the
child is signalled only through its pidfd, so that a recycled pid is never hit, and its
memory is read through a descriptor of its statm, which ends with it.

An enclosed child is two processes: its init, which is the supervisor's own child, and
below it the job's process, which is signalled, measured and killed. The init's end is
the end of everything in its namespaces; it writes to the relay how the job's process
ended.

The supervisor keeps the child's end of the ticket socket as well: what it reads there
(`recall`), the child can never begin; what is left there when the child is dead never
began. It is a socket pair, since a pipe could be reopened for writing (through /proc):
a handler could put its ticket back and seem never to have begun.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterable
from typing import Any

from jobpool.core.isolation.measures import Enclosure, Lockdown
from jobpool.sandbox.cgroups.cgroup import ChildGroup
from jobpool.sandbox.child.link import TICKET_BYTES
from jobpool.sandbox.confinement.data_limit import bound_data
from jobpool.sandbox.confinement.namespaces import Ending, pin_job, read_ending
from jobpool.sandbox.protocol.messages import Decoder, FromChild, encode
from jobpool.sandbox.protocol.verdict import Exit
from jobpool.sandbox.runs.marks import open_marks
from jobpool.sandbox.system.capture import (
    STACK_MAX_BYTES,
    create_capture,
    read_tail,
    trim,
)
from jobpool.sandbox.system.process_tree import kill_tree, send_signal
from jobpool.sandbox.system.procfs import (
    catches,
    descendants_in_words,
    process_start_time,
    statm_bytes,
)

TICKETS_AT_ONCE = 512
"""How many tickets are sent at once: the socket accepts a page as a whole."""
DYING_NICE = -10
"""The priority of a dying child: the loop's own (`supervisor.os_priority`)."""
_TICKETS_READ_BYTES = 64 * 1024
_STATM_BYTES = 128
_KIB = 1024


class ChildProcess:
    """One child of a slot, from before its fork until after its death.

    Args:
        slot: the slot's number.
        slot_name: the slot's name, such as ``cpu/0``.
        mark_path: the slot's mark file; created if it is missing, and kept.
        lockdown: how the child is going to restrict itself.

    Attributes:
        lockdown, mark_path: as given.
        pid: 0 until `attach`; its init's, if it is enclosed.
        job_pid: 0 until `attach`; that of the process that runs jobs.
        pidfd: -1 until `attach`; readable when the child has ended.
        start_time: its start, in clock ticks since boot.
        group: its own cgroup, if it has one; `close` removes it.
        below: descriptions of the processes below it at the last `dump_stack`.

    Raises:
        OSError: no descriptor, memory or disk space; nothing is left open.
    """

    def __init__(
        self,
        slot: int,
        slot_name: str,
        mark_path: str,
        lockdown: Lockdown = Lockdown(),  # noqa: B008 - frozen
    ) -> None:
        self.slot = slot
        self.slot_name = slot_name
        self.lockdown, self.mark_path = lockdown, mark_path
        self.pid = self.job_pid = 0
        self.pidfd = self._job_pidfd = -1
        self._relay_read = self._relay_write = -1
        self.start_time = 0
        self.group: ChildGroup | None = None
        self.below: tuple[str, ...] = ()
        self._statm = -1
        self._data_limit_bytes = 0
        self._out = bytearray()
        self._has_more = False
        self._decoder = Decoder(FromChild)
        with contextlib.ExitStack() as undo:
            self._socket, self._child_socket = socket.socketpair()
            undo.callback(self._socket.close)
            undo.callback(self._child_socket.close)
            self._tickets, self._child_tickets = socket.socketpair()
            undo.callback(self._tickets.close)
            undo.callback(self._child_tickets.close)
            self._child_tickets.shutdown(socket.SHUT_WR)
            self._child_tickets.setblocking(False)
            self._output = create_capture(f"jobpool output of {slot_name}")
            undo.callback(os.close, self._output)
            self._stack = create_capture(f"jobpool stacks of {slot_name}")
            undo.callback(os.close, self._stack)
            if self.is_enclosed:
                self._relay_read, self._relay_write = os.pipe2(
                    os.O_CLOEXEC | os.O_NONBLOCK
                )
                undo.callback(os.close, self._relay_read)
                undo.callback(os.close, self._relay_write)
            self._mark = open_marks(mark_path)
            undo.pop_all()
        self._socket.setblocking(False)

    # -- birth and death -----------------------------------------------------------

    @property
    def is_enclosed(self) -> bool:
        """Whether it has an init, in namespaces of its own."""
        return self.lockdown.enclosure is not Enclosure.NONE

    @property
    def fds_for_child(self) -> tuple[int, ...]:
        """The child's descriptors, in the order of `Fork`."""
        return (
            self._child_socket.fileno(),
            self._child_tickets.fileno(),
            self._mark,
            self._output,
            self._stack,
            *((self._relay_write,) if self.is_enclosed else ()),
        )

    def close_child_ends(self) -> None:
        """Close what only the child needs, after the zygote was asked to fork."""
        self._child_socket.close()
        for fd in (self._mark, self._relay_write):
            if fd >= 0:
                os.close(fd)
        self._mark = self._relay_write = -1

    def attach(self, pid: int) -> None:
        """Bind the handle to the process that the zygote has forked.

        Raises:
            OSError: no descriptor is left; the handle stays unbound.
        """
        with contextlib.ExitStack() as undo:
            pidfd = job_pidfd = os.pidfd_open(pid)
            undo.callback(os.close, pidfd)
            job_pid = pid
            if self.is_enclosed:
                job_pid, job_pidfd = pin_job(pid)
                undo.callback(os.close, job_pidfd)
            statm = os.open(f"/proc/{job_pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
            undo.pop_all()
        self.pid, self.pidfd = pid, pidfd
        self.job_pid, self._job_pidfd = job_pid, job_pidfd
        self._statm = statm
        self.start_time = process_start_time(pid) or 0

    def reap(self) -> Exit | None:
        """Return how the process ended; None while it runs.

        Whatever is left in its cgroup is killed as well.
        """
        try:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            return Exit()
        if pid == 0:
            return None
        ending = Ending(status, usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
        if self.is_enclosed:
            ending = read_ending(self._relay_read) or ending
        events = self.group.memory_events() if self.group else None
        if self.group:
            self.group.kill()
        code = os.waitstatus_to_exitcode(ending.status)
        return Exit(
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            max_rss_bytes=ending.max_rss_kib * _KIB,
            cpu_s=ending.user_s + ending.system_s,
            memory_events=events,
        )

    def kill_tree(self) -> int:
        """Kill the process and its descendants; return how many of these there were.

        Orphans of a child that died by itself are not below it any more
        (`process_tree.sweep_orphans`). The cgroup is killed last: it misses none. An
        enclosed child's init lives on for a moment, to report how its job's process
        ended; its own end is the end of anything left.
        """
        if self._job_pidfd < 0:
            return 0
        self._raise_priority()
        below = kill_tree(self.job_pid, self._job_pidfd)
        if self.group:
            self.group.kill()
        if self.is_enclosed:
            send_signal(self.pidfd, signal.SIGCONT)  # it may have been stopped
        return below

    @property
    def is_populated(self) -> bool:
        """Whether a living process is in its cgroup."""
        return self.group is not None and self.group.is_populated()

    def close(self) -> None:
        """Close every descriptor; the process, if alive, sees its socket end."""
        self.close_child_ends()
        for end in (self._socket, self._tickets, self._child_tickets):
            end.close()
        for fd in (
            self._output,
            self._stack,
            self._statm,
            self._relay_read,
            self.pidfd,
            self._job_pidfd if self.is_enclosed else -1,
        ):
            if fd >= 0:
                os.close(fd)
        self._relay_read = self._job_pidfd = -1
        self._output = self._stack = self._statm = self.pidfd = -1
        if self.group:
            self.group.remove()

    # -- messages ------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the socket to wait on for `receive` and, if needed, `flush`."""
        return self._socket.fileno()

    @property
    def wants_write(self) -> bool:
        """Whether something waits for room in the socket."""
        return bool(self._out)

    def is_congested(self) -> bool:
        """Say whether messages have waited for room since the last call."""
        has_more, self._has_more = self._has_more, False
        return has_more or self.wants_write

    def send(self, *messages: Any) -> None:
        """Send messages; what the socket does not accept now waits for `flush`.

        Nothing is sent to a child that is gone: its pidfd reports its end.

        Raises:
            FrameError: a message is too long; none was sent.
        """
        for frame in [encode(message) for message in messages]:
            self._out += frame
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        while self._out:
            try:
                sent = self._socket.send(self._out)
            except BlockingIOError:
                return
            except OSError:
                self._out.clear()
                return
            del self._out[:sent]

    def receive(self) -> list[FromChild] | None:
        """Return the messages that have arrived; None: there will be no more.

        Raises:
            FrameError: the child sent something other than our messages.
        """
        try:
            wanted_bytes = self._decoder.wanted_bytes
            data = self._socket.recv(wanted_bytes)
        except BlockingIOError:
            return []
        except OSError:
            return None
        self._has_more |= len(data) == wanted_bytes
        return list(self._decoder.feed(data)) if data else None

    # -- tickets -------------------------------------------------------------------

    def issue_tickets(self, seqs: Iterable[int]) -> None:
        """Allow the child to begin these jobs, which were already sent, in order.

        Raises:
            OSError: hundreds are unread, or a handler has shut down the socket.
        """
        tickets = [seq.to_bytes(TICKET_BYTES, "little") for seq in seqs]
        for first in range(0, len(tickets), TICKETS_AT_ONCE):
            part = tickets[first : first + TICKETS_AT_ONCE]
            self._tickets.send(b"".join(part), socket.MSG_DONTWAIT)

    def recall(self) -> list[int]:
        """Take back every job that has not begun; it cannot begin in this child."""
        seqs: list[int] = []
        while True:
            try:
                # Never wait, whatever the child has done to the flags of its end.
                tickets = self._child_tickets.recv(
                    _TICKETS_READ_BYTES, socket.MSG_DONTWAIT
                )
            except BlockingIOError:
                return seqs
            if not tickets:
                return seqs  # a handler has shut it down
            seqs += (
                int.from_bytes(tickets[at : at + TICKET_BYTES], "little")
                for at in range(0, len(tickets), TICKET_BYTES)
            )

    # -- memory --------------------------------------------------------------------

    def rss_bytes(self) -> int:
        """Return the process's resident memory; 0 when it is gone."""
        if self._statm < 0:
            return 0
        try:
            return statm_bytes(os.pread(self._statm, _STATM_BYTES, 0))
        except ProcessLookupError:
            return 0

    def bound_memory(self, limit_bytes: int) -> None:
        """Set the kernel's bounds above a memory limit, if it changed.

        An allocation far beyond the limit then fails at once with a MemoryError
        (RLIMIT_DATA), instead of being killed when it is already too large; what
        metering misses or sees too late ends at its cgroup's memory.max.
        """
        if limit_bytes == self._data_limit_bytes or self._statm < 0:
            return
        if self.group:
            with contextlib.suppress(OSError):  # the former bound holds, or it is gone
                self.group.bound(limit_bytes)
        self._data_limit_bytes = limit_bytes
        with contextlib.suppress(ProcessLookupError):
            bound_data(self.job_pid, self._statm, limit_bytes)

    # -- signals and captures ------------------------------------------------------

    def dump_stack(self, *, dying: bool) -> None:
        """Ask its fault handler for the Python stacks; `stack_text` returns them.

        A child that is *dying* will be killed whatever it does now.
        """
        self.below = descendants_in_words(self.job_pid)
        if dying:
            self._raise_priority()
        # If the handler has called exec, the new program would die of the signal.
        if catches(self.job_pid, signal.SIGUSR2):
            self._signal(signal.SIGUSR2)

    def soft_timeout(self) -> None:
        """Raise `SoftTimeout` in the handler that is running."""
        self._signal(signal.SIGUSR1)

    def soft_memory(self) -> None:
        """Raise `SoftMemory` in the handler, if its attempt is over that limit."""
        self._signal(signal.SIGURG)

    def output_bytes(self) -> int:
        """Return how much the present attempt has written."""
        return os.fstat(self._output).st_size

    def output_tail(self, max_bytes: int) -> bytes:
        """Return the tail of what the present attempt wrote, marked when cut."""
        return read_tail(self._output, max_bytes)

    def trim_output(self, keep_bytes: int, over_bytes: int) -> bool:
        """Free the memory of old output, once it is over *over_bytes*."""
        return trim(self._output, keep_bytes, over_bytes)

    def stack_text(self) -> str:
        """Return the last stacks that its fault handler wrote."""
        return read_tail(self._stack, STACK_MAX_BYTES).decode("utf-8", "replace")

    def _raise_priority(self) -> None:
        """Raise its priority where that is allowed: even dying takes a core.

        Until we have reaped it, its pid is its own; an init ends after its job.
        """
        for pid in {self.pid, self.job_pid} if self.pidfd >= 0 else ():
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, pid, DYING_NICE)

    def _signal(self, signum: int) -> None:
        if self._job_pidfd >= 0:
            send_signal(self._job_pidfd, signum)
