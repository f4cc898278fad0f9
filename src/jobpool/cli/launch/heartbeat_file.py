"""The sign of life: a small file in the run directory that says the loop turns.

Theory of operation. ``<run directory>/alive`` holds one line: how far the supervisor
is, and when its loop last turned, in seconds of CLOCK_MONOTONIC, which no clock jump
moves. The loop only notes the moment; a thread writes it, because the loop must not
wait for a disk. When the loop stands still the thread has nothing new to write, and
when the interpreter's lock is never given back it cannot: either way the line grows
old. Its reader is `jobpool alive`, which thereby needs neither the store nor a port.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from enum import Enum
from pathlib import Path

import msgspec

from jobpool.core.events.event import Event
from jobpool.core.events.supervisor import (
    LeaseFenced,
    LeaseRegained,
    StoreBack,
    StoreTrouble,
    SupervisorDraining,
    SupervisorReady,
    SupervisorStopped,
)
from jobpool.errors import ConfigError

FILE = "alive"
EVERY_S = 1.0
_OVER_WITH: dict[type[Event], type[Event]] = {
    StoreTrouble: StoreBack,
    LeaseFenced: LeaseRegained,
}
"""What keeps jobs from beginning, and what is said once it is over."""
_BEGUN_BY = {over: begun for begun, over in _OVER_WITH.items()}
_ENDS: tuple[type[Event], ...] = (SupervisorDraining, SupervisorStopped)
_HEARD = frozenset((SupervisorReady, *_ENDS, *_OVER_WITH, *_BEGUN_BY))
_LINE_BYTES = 40
"""All lines are equally long, so that a later one covers an earlier one."""
_CLOSE_S = 1.0


class Stage(Enum):
    """How far a supervisor is."""

    LOADING = "loading"
    READY = "ready"
    WAITING = "waiting"
    """It was ready, and no job can begin until its store can be used again."""
    ENDING = "ending"


class Sign(msgspec.Struct, frozen=True):
    """What the file says."""

    stage: Stage
    turned_s: float
    """When the loop last turned: seconds of CLOCK_MONOTONIC."""


class LifeSign:
    """Writes the file: an observer of events, and told of every turn by the loop."""

    def __init__(self) -> None:
        self._stage = Stage.LOADING
        self._troubles: set[type[Event]] = set()
        self._turned_s: float | None = None
        self._fd = -1
        self._something = threading.Event()
        self._closing = False
        self._thread = threading.Thread(
            target=self._write_all, name="jobpool-alive", daemon=True
        )

    def begin(self, directory: Path) -> None:
        """Make the file; nothing is in it until the loop turns.

        Args:
            directory: this supervisor's run directory.

        Raises:
            ConfigError: it cannot be made.
        """
        path = directory / FILE
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o600)
        except OSError as exc:
            raise ConfigError(
                f"cannot make the file {path}: {exc.strerror}; jobpool needs to write "
                "to its run directory"
            ) from exc
        self._thread.start()

    def turned(self, now_s: float) -> float:
        """Note that the loop turns, and return when it is to say so again."""
        self._turned_s = now_s
        self._something.set()
        return now_s + EVERY_S

    def hears(self, kind: type[Event]) -> bool:
        """Say whether an event of this class says how far the supervisor is."""
        return kind in _HEARD

    def observe(self, event: Event) -> None:
        """Note how far the supervisor is."""
        kind: type[Event] = type(event)
        if kind not in _HEARD:
            return
        if kind in _OVER_WITH:
            self._troubles.add(kind)
        elif kind in _BEGUN_BY:
            self._troubles.discard(_BEGUN_BY[kind])
        if kind in _ENDS:
            self._stage = Stage.ENDING
        elif self._stage is not Stage.ENDING and (
            kind is SupervisorReady or self._stage is not Stage.LOADING
        ):
            self._stage = Stage.WAITING if self._troubles else Stage.READY
        self._something.set()

    def close(self) -> None:
        """Write no more; a disk that stands still is not waited for."""
        self._closing = True
        self._something.set()
        if self._thread.ident is None:
            return
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            os.close(self._fd)

    def _write_all(self) -> None:
        while not self._closing:
            self._something.wait()
            self._something.clear()
            if self._turned_s is not None:
                line = f"{self._stage.value} {self._turned_s:.3f}"
                # A line that cannot be written grows old, and that is what it is for.
                with suppress(OSError):
                    os.pwrite(self._fd, f"{line:<{_LINE_BYTES - 1}}\n".encode(), 0)


def read_sign(directory: Path) -> Sign | None:
    """Return a run's sign of life; None when it has given none yet.

    Args:
        directory: the run directory.

    Raises:
        OSError: there is no such file, or it cannot be read.
        ValueError: it holds something else.
    """
    text = (directory / FILE).read_text(encoding="ascii")
    if not text:
        return None
    stage, turned_s = text.split()
    return Sign(Stage(stage), float(turned_s))
