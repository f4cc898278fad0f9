"""The zygote: loads the application once, and forks children from itself.

Theory of operation. It is started fresh (exec), so that nothing of the supervisor's
is in it, and stays single-threaded, so that forking it is safe. For each child it
forks twice: the middle process ends at once, so that the child is reparented to the
next subreaper above, the supervisor, which then gets its exact exit status. Two orders
matter, and both were seen to fail otherwise:

1. The middle process is reaped before the supervisor is sent the child's pid;
   earlier, the child may not be the supervisor's yet.
2. The child does nothing that is tied to its parent before the supervisor's `Go`.

`forking` describes the forks. Functions that wait or close are bound here by name
before the application is imported, which may replace them for the process (`link`).

Other pools' zygotes are forked from one that has loaded, in the same way (`Branch`), so
that the application is imported once. Such a branch is the supervisor's child, has a
socket of its own and knows none of its origin's children: the death of either is
nothing to the other. What a library does after a fork may make the branch unfit to be
forked in turn; then it says so and ends.

When the supervisor dies, the zygote reads the end of its socket and kills the trees of
all its children; likewise when the supervisor is stopped for longer than their leases
hold (`fence`). When the zygote dies, its children are unharmed: they are the
supervisor's, which starts another zygote.
"""

from __future__ import annotations

import array
import contextlib
import errno
import gc
import importlib
import os
import signal
import socket
import stat
import sys
import traceback
from collections.abc import Iterable, Sequence
from select import POLLIN, poll, select
from typing import Any, NoReturn

from jobpool.core.application import current
from jobpool.core.application.app_report import AppReport
from jobpool.core.isolation.measures import Enclosure
from jobpool.errors import AppError
from jobpool.sandbox.app_loader import Application, load_application
from jobpool.sandbox.cgroups import cgroup
from jobpool.sandbox.cgroups.location import NoCgroupError
from jobpool.sandbox.child.child import ChildFds, Inheritance, child_main
from jobpool.sandbox.child.closed_channel import ClosedChannel
from jobpool.sandbox.confinement import seccomp
from jobpool.sandbox.confinement.readable_paths import needed_paths
from jobpool.sandbox.confinement.setup import close_fds, ignore_signal, read_stdin
from jobpool.sandbox.protocol.messages import (
    Branch,
    Branched,
    Decoder,
    Fork,
    Forked,
    ForkFailed,
    Guard,
    Load,
    Loaded,
    LoadFailed,
    ToZygote,
    encode,
)
from jobpool.sandbox.reset import (
    builtin_functions,
    intercepted_calls,
    native_code,
)
from jobpool.sandbox.runs.fence import Fence
from jobpool.sandbox.system.process_tree import end_with, kill_tree, outlive_parent
from jobpool.sandbox.system.procfs import process_start_time, resident_bytes
from jobpool.sandbox.zygote.fork_safety import check_fork_safety
from jobpool.sandbox.zygote.forking import fork_child, watch_hooks
from jobpool.sandbox.zygote.source_hash import source_hash

FENCE_CHECK_MIN_S = 0.05
FENCE_CHECK_MAX_S = 0.5
"""How often the fence is checked: it moves while the supervisor runs."""
_RECEIVE_BYTES = 64 * 1024
_FDS_MAX = 250
"""Just under SCM_MAX_FD: most descriptors that one message can bring."""
_CHILD_FDS = len(ChildFds._fields)
_STANDARD_FDS = (0, 1, 2)


def zygote_main(
    control: socket.socket, supervisor: int, needs: Sequence[str] = ()
) -> NoReturn:
    """Run as a zygote. Ends the process and never returns.

    Args:
        control: the socket to the supervisor; its end means the supervisor's death.
        supervisor: its pid.
        needs: modules that applications need, to be imported at once.
    """
    status = 1
    try:
        native_code.know()
        intercepted_calls.watch()
        watch_hooks()
        zygote = Zygote(control, supervisor)
        for module in needs:
            importlib.import_module(module)
        zygote.serve()
        status = 0
    except BaseException:  # noqa: BLE001 - reported, and nothing may run after it
        traceback.print_exc()
    finally:
        os._exit(status)


class Zygote:
    """This process as a pool's zygote."""

    def __init__(self, control: socket.socket, supervisor: int) -> None:
        os.setsid()  # a terminal's Ctrl-C is for the supervisor alone
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(signum, ignore_signal)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(2, 1)  # what an import prints is not the command's output
        read_stdin()
        self._control = control
        self._supervisor = supervisor
        self._ours = frozenset(_open_fds()) - frozenset(_STANDARD_FDS)
        self._load: Load | None = None
        self._loaded: Loaded | None = None
        self._fence: Fence | None = None
        self._application: Application | None = None
        self._sockets: tuple[int, ...] = ()
        self._needed: tuple[str, ...] = ()
        self._children: dict[int, int] = {}
        """Pid to pidfd, of children not known to be dead."""

    def serve(self) -> None:
        """Serve the supervisor until it dies; then end the children it leaves."""
        decoder = Decoder(ToZygote)
        while True:
            self._watch_fence()
            data, fds = self._receive()
            if not data:
                break
            for message in decoder.feed(data):
                if isinstance(message, Load):
                    if not self._load_application(message):
                        return
                elif isinstance(message, Guard):
                    self._guard(message)
                elif isinstance(message, Branch):
                    self._branch(message, fds)
                    close_fds(fds[:1])
                    del fds[:1]
                else:
                    count = _CHILD_FDS + (message.enclosure is not Enclosure.NONE)
                    self._fork(message, fds[:count])
                    del fds[:count]
            close_fds(fds)
        self._end_children()

    def _watch_fence(self) -> None:
        """Wait for a request while children live; end them once the fence passes."""
        while self._fence is not None and self._children:
            left_s = self._fence.left_s()
            if left_s <= 0:
                self._end_children()
                self._forget_dead()
            wait_s = min(max(left_s, FENCE_CHECK_MIN_S), FENCE_CHECK_MAX_S)
            if select([self._control], (), (), wait_s)[0]:
                return

    def _receive(self) -> tuple[bytes, list[int]]:
        fds = array.array("i")
        try:
            data, ancillary, _flags, _address = self._control.recvmsg(
                _RECEIVE_BYTES,
                socket.CMSG_SPACE(_FDS_MAX * fds.itemsize),
                socket.MSG_CMSG_CLOEXEC,
            )
        except ConnectionError:
            return b"", []
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        return data, fds.tolist()

    def _send(self, message: Any) -> None:
        # If the supervisor is dead, the next read finds it out.
        with contextlib.suppress(ConnectionError):
            self._control.sendall(encode(message))

    # -- the application ---------------------------------------------------------------

    def _load_application(self, load: Load) -> bool:
        """Load it and report; False: it failed, and the zygote must end."""
        self._load = load
        if load.fence:
            self._fence = Fence(load.fence)
        try:
            cgroup.join(load.cgroup)
        except NoCgroupError as exc:
            self._send(LoadFailed(str(exc), ""))
            return False
        os.chdir(load.directory)
        current.enter(ClosedChannel("the application is being imported, not run"), None)
        # It does not read its socket during the import: the kernel ends it with the
        # supervisor. Later it must live on, to end its children.
        end_with(self._supervisor)
        try:
            return self._probe(load) if not load.preload else self._preload(load)
        finally:
            outlive_parent()

    def _preload(self, load: Load) -> bool:
        loaded = self._try(load)
        if isinstance(loaded, Loaded):
            native_code.look()
            builtin_functions.take()
            gc.collect()
            gc.freeze()
            self._loaded = loaded
        self._send(loaded)
        return isinstance(loaded, Loaded)

    def _try(self, load: Load) -> Loaded | LoadFailed:
        """Load it; what it has printed is there before anybody hears how that went."""
        try:
            return self._loaded_from(load)
        finally:
            with contextlib.suppress(Exception):  # it may have replaced or closed them
                _flush()

    def _loaded_from(self, load: Load) -> Loaded | LoadFailed:
        before = set(_open_fds())
        try:
            application = load_application(load.app, load.directory, load.commands)
            handlers = application.handler_specs()
            schedules = application.declared_schedules()
            quotas = application.declared_quotas()
            store = application.named_store()
            warnings = check_fork_safety() if load.preload else []
        except AppError as exc:
            return LoadFailed(_sendable(str(exc)), _sendable(exc.traceback))
        except BaseException as exc:  # noqa: BLE001 - the user's code may raise anything
            text = f"the application could not be loaded: {type(exc).__name__}: {exc}"
            return LoadFailed(_sendable(text), _sendable(traceback.format_exc()))
        self._application = application
        self._needed = needed_paths(load.directory)
        seccomp.prepare()
        opened = set(_open_fds()) - before
        self._sockets = tuple(fd for fd in opened if _is_socket(fd))
        if self._sockets:
            warnings.append(
                f"it opened {len(self._sockets)} sockets while it was imported; "
                "children get dead ones in their place: connect in on_child_start"
            )
        return Loaded(
            AppReport(
                handlers=handlers,
                schedules=schedules,
                quotas=quotas,
                store=store,
                version=source_hash(load.app, load.directory, load.commands),
                base_rss_bytes=resident_bytes(os.getpid()),
                warnings=tuple(warnings),
            )
        )

    def _probe(self, load: Load) -> bool:
        """Load in a forked copy that ends right after its report."""
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                end_with(parent)
                loaded = self._try(load)
                self._send(loaded)
                status = 0 if isinstance(loaded, Loaded) else 2
            finally:
                os._exit(status)
        _pid, wait_status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(wait_status)
        if code not in (0, 2):
            how = f"signal {-code}" if code < 0 else f"exit status {code}"
            self._send(
                LoadFailed(f"the application ended its process on import: {how}", "")
            )
        return code == 0

    # -- other zygotes -----------------------------------------------------------------

    def _branch(self, request: Branch, fds: list[int]) -> None:
        """Fork another zygote; its socket is the first of these descriptors."""
        pid, message = 0, "its socket did not arrive: too many open files"
        try:
            if fds:
                _flush()
                pid = fork_child(lambda pipe: self._become(fds, pipe), Enclosure.NONE)
                message = ""
        except OSError as exc:
            message = f"another zygote could not be forked: {exc}"
        self._send(Branched(request.number, pid, message))

    def _become(self, fds: list[int], pipe: tuple[int, int]) -> NoReturn:
        """Be another zygote, in the copy, without what its origin answers for."""
        status = 1
        try:
            os.setsid()
            control, *others = fds
            former = self._control.detach()
            close_fds([former, *pipe, *others, *self._children.values()])
            self._children.clear()
            self._ours = (self._ours - {former}) | {control}
            self._control = socket.socket(fileno=control)
            if self._report_again():
                self.serve()
                status = 0
        except BaseException:  # noqa: BLE001 - reported, and nothing may run after it
            traceback.print_exc()
        finally:
            os._exit(status)

    def _report_again(self) -> bool:
        """Report what was loaded before the fork; False: it cannot fork any more."""
        try:
            check_fork_safety()
        except AppError as exc:
            self._send(LoadFailed(_sendable(str(exc)), ""))
            return False
        if self._loaded is None:
            self._send(LoadFailed("no application was loaded before the fork", ""))
            return False
        self._send(self._loaded)
        return True

    # -- children ----------------------------------------------------------------------

    def _fork(self, request: Fork, fds: list[int]) -> None:
        self._forget_dead()
        try:
            pid = self._fork_child(request.enclosure, fds)
        except OSError as exc:
            self._send(ForkFailed(request.slot, f"cannot fork a child: {exc}"))
        else:
            self._send(Forked(request.slot, pid))
        finally:
            close_fds(fds)

    def _fork_child(self, enclosure: Enclosure, fds: list[int]) -> int:
        """Fork a child of the supervisor.

        Raises:
            OSError: no memory, process or descriptor for it.
        """
        is_enclosed = enclosure is not Enclosure.NONE
        if self._load is None or len(fds) != _CHILD_FDS + is_enclosed:
            raise OSError(
                errno.EMFILE,
                f"only {len(fds)} descriptors arrived; the limit on open files "
                "(ulimit -n) is too low",
            )
        _flush()
        pid = fork_child(
            lambda pipe: self._run_child(fds, pipe), enclosure, relay=fds[-1]
        )
        self._adopt(pid)
        return pid

    def _run_child(self, fds: list[int], pipe: tuple[int, int]) -> NoReturn:
        if self._load is None:
            os._exit(1)
        # The control socket is closed by its number with the rest of ours.
        self._control.detach()
        child_main(
            ChildFds(*fds[:_CHILD_FDS]),
            Inheritance(
                load=self._load,
                application=self._application,
                ours=(
                    *self._ours,
                    *self._children.values(),
                    *fds[_CHILD_FDS:],
                    *pipe,
                    *((self._fence.fileno(),) if self._fence else ()),
                ),
                sockets=self._sockets,
                needed=self._needed,
            ),
        )

    def _adopt(self, pid: int) -> None:
        """Remember a child, to end it if the supervisor dies."""
        try:
            self._children[pid] = os.pidfd_open(pid)
        except OSError:
            # Without a descriptor we could not prove later that the pid was not
            # recycled. If the supervisor dies, its successor finds this child by its
            # marker.
            return

    def _guard(self, message: Guard) -> None:
        """Adopt children of a former zygote that are still the same processes."""
        for pid, start_time in message.members:
            self._adopt(pid)  # it may be gone by now
            if pid in self._children and process_start_time(pid) != start_time:
                os.close(self._children.pop(pid))

    def _forget_dead(self) -> None:
        poller = poll()
        for pidfd in self._children.values():
            poller.register(pidfd, POLLIN)
        dead = {fd for fd, _events in poller.poll(0)}
        for pid, pidfd in list(self._children.items()):
            if pidfd in dead:
                os.close(self._children.pop(pid))

    def _end_children(self) -> None:
        self._forget_dead()
        for pid, pidfd in self._children.items():
            kill_tree(pid, pidfd)


def _flush() -> None:
    """Write what is buffered, which a copy would write again."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _open_fds() -> Iterable[int]:
    """Yield the open descriptors, except the listing's own."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are what we want
        fd = int(name)
        try:
            os.fstat(fd)
        except OSError:
            continue
        yield fd


def _is_socket(fd: int) -> bool:
    return stat.S_ISSOCK(os.fstat(fd).st_mode)


def _sendable(text: str) -> str:
    return text[:100_000].encode("utf-8", "replace").decode()
