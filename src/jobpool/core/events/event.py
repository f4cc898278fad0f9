"""What every event has, and the interface of those who observe them.

An event is data with its time; `core.event_lines` formats it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Protocol

import msgspec


class Level(IntEnum):
    """Severity of an event; numbers as in the standard library's logging."""

    NOTSET = 0
    """For observers that count: in no log."""
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened; a subclass's `name` is its name in logs."""

    name: ClassVar[str] = "event"
    level: ClassVar[Level] = Level.INFO

    at_ms: int
    """Milliseconds since 1970, UTC."""


class Observer(Protocol):
    """Receives events."""

    def observe(self, event: Event) -> None:
        """Handle *event*; must not block, may be called from any thread."""
        ...

    def hears(self, kind: type[Event]) -> bool:
        """Return whether it uses events of this class at all."""
        ...
