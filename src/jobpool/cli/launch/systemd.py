"""What systemd is told: ready, reloading, stopping, a line of status, the watchdog.

Theory of operation. systemd names a datagram socket in ``NOTIFY_SOCKET``; each
message is a few ``NAME=value`` lines. Nothing is ever waited for and no error gets
out: a message that does not fit at the moment is kept, in order, and sent with the
loop's next turn. The watchdog is fed by the loop's own turns and by nothing else, so
that a loop that stands still is what systemd sees.

Source: sd_notify(3), sd_watchdog_enabled(3), systemd.service(5).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import MutableMapping
from contextlib import suppress

from jobpool.core.config.store_url import without_password
from jobpool.core.events.event import Event
from jobpool.core.events.pools import PoolReloaded
from jobpool.core.events.supervisor import (
    Alarm,
    StoreBack,
    StoreTrouble,
    SupervisorDraining,
    SupervisorReady,
    SupervisorStopped,
)
from jobpool.core.safe_text import one_line

EVERY_S = 1.0
"""Unsent messages are tried again after so long."""
WATCHDOG = "WATCHDOG=1"
_TOLD = frozenset(
    (
        SupervisorReady,
        SupervisorDraining,
        SupervisorStopped,
        StoreTrouble,
        StoreBack,
        PoolReloaded,
        Alarm,
    )
)
_STATUS_MAX = 400
_UNSENT_MAX = 32
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceManager:
    """Tells systemd how the supervisor is; an observer of its events.

    Args:
        address: of the socket; an abstract one begins with ``@``. "": nobody listens,
            and nothing is sent.
        watchdog_s: systemd restarts the service when it hears nothing for so long;
            None: it does not.
    """

    def __init__(self, address: str, watchdog_s: float | None = None) -> None:
        self._address = address
        self._watch_every_s = None if watchdog_s is None else watchdog_s / 2
        self._watch_next_s = 0.0
        self._socket: socket.socket | None = None
        self._unsent: deque[str] = deque(maxlen=_UNSENT_MAX)
        self._flushing = threading.Lock()
        self._status = ""
        """Of a supervisor that is ready and lacks nothing."""
        self._pools: frozenset[str] = frozenset()
        self._reloading: set[str] = set()
        """Pools that a reload has yet to reach."""
        self._ending = False
        if address.startswith(("/", "@")):
            with suppress(OSError):
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)

    @classmethod
    def from_environment(cls, env: MutableMapping[str, str]) -> ServiceManager:
        """Make one from what systemd has put there, and take it out.

        Children inherit the environment, and must not speak for the supervisor.

        Args:
            env: the environment.
        """
        address, usec, pid = (env.pop(name, "") for name in _VARIABLES)
        watchdog_s = None
        if usec.isdecimal() and int(usec) > 0 and pid in {"", str(os.getpid())}:
            watchdog_s = int(usec) / 1_000_000
        return cls(address, watchdog_s)

    # -- what happens --------------------------------------------------------------

    def observe(self, event: Event) -> None:
        """Send what systemd should know of an event."""
        if type(event) not in _TOLD:
            return  # nearly all of them
        match event:
            case SupervisorReady():
                self._pools = frozenset(event.pools)
                store = without_password(event.store)
                self._status = f"runs {event.app} from {store}"
                self._enter("READY=1", self._status)
            case SupervisorDraining():
                self._ending = True
                running = f"{event.running} running, up to {event.drain_s:g} s"
                self._enter("STOPPING=1", f"draining ({event.reason}): {running}")
            case SupervisorStopped():
                self._ending = True
                self._enter("STOPPING=1", event.how)
            case StoreTrouble():
                self._send_status(f"the store cannot be used: {event.error}")
            case StoreBack():
                self._send_status(self._status)
            case PoolReloaded() if self._reloading:
                self._reloading.discard(event.pool)
                if not self._reloading:
                    self._enter("READY=1", self._status)
            case Alarm() if self._reloading:
                # One of them says that there is no reload; any other one only makes
                # the service ready again a little early.
                self._reloading.clear()
                self._enter("READY=1", event.text)

    def hears(self, kind: type[Event]) -> bool:
        """Say whether systemd may be told of such events."""
        return kind in _TOLD

    def reloading(self) -> None:
        """Say that SIGHUP has arrived; `observe` sees how it ends."""
        if not self._pools or self._ending:
            return
        self._reloading = set(self._pools)
        usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._enter(f"RELOADING=1\nMONOTONIC_USEC={usec}", "reloading")

    def turned(self, now_s: float) -> float:
        """Feed the watchdog when it is time, and return when to be called again.

        Args:
            now_s: seconds of CLOCK_MONOTONIC.
        """
        if self._unsent:
            self._flush()
        every_s = EVERY_S
        if self._watch_every_s is not None:
            every_s = min(every_s, self._watch_every_s)
            if now_s >= self._watch_next_s:
                self._watch_next_s = now_s + self._watch_every_s
                self._put(WATCHDOG)
        return now_s + every_s

    def close(self) -> None:
        """Send what is left, if it goes at once."""
        self._flush()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- the socket ----------------------------------------------------------------

    def _enter(self, state: str, status: str) -> None:
        """Send a new state, now or as soon as it goes."""
        if state != "STOPPING=1" and self._ending:
            return
        self._unsent.append(f"{state}\n{_status(status)}")
        self._flush()

    def _send_status(self, status: str) -> None:
        """Send a status; nothing is lost if it does not go, the log has it too."""
        if not self._ending:
            self._put(_status(status))

    def _flush(self) -> None:
        with self._flushing:
            while self._unsent and self._put(self._unsent[0]):
                self._unsent.popleft()

    def _put(self, message: str) -> bool:
        """Send a message; False: not now. Where nobody listens it counts as sent."""
        if self._socket is None:
            return True
        path = self._address
        address = f"\0{path[1:]}" if path.startswith("@") else path
        try:
            self._socket.sendto(message.encode(), address)
        except BlockingIOError:
            return False
        except (OSError, ValueError):
            return True
        return True


def _status(text: str) -> str:
    return f"STATUS={one_line(text, _STATUS_MAX)}"
