"""How a supervisor ends: its mode, and what each request turns it into."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Mode(StrEnum):
    """What the supervisor is about."""

    RUNNING = "running"
    DRAINING = "draining"
    """Nothing new begins; what runs gets the drain window."""
    STOPPING = "stopping"
    """What runs is ended now and handed back."""


NEXT: Mapping[tuple[Mode, bool], Mode] = {
    (Mode.RUNNING, False): Mode.DRAINING,
    (Mode.RUNNING, True): Mode.STOPPING,
    (Mode.DRAINING, False): Mode.STOPPING,
    (Mode.DRAINING, True): Mode.STOPPING,
    (Mode.STOPPING, False): Mode.STOPPING,
    (Mode.STOPPING, True): Mode.STOPPING,
}
"""(mode, whether to stop at once) -> mode. A second request to drain stops."""


class Shutdown:
    """The mode, apart from the reason for it."""

    def __init__(self) -> None:
        self.mode = Mode.RUNNING
        self.finished = False
        """The end has been commanded; nothing more is."""

    def ask(self, *, stop: bool) -> Mode:
        """Take a request to drain, or to stop, and return the mode."""
        self.mode = NEXT[self.mode, stop]
        return self.mode
