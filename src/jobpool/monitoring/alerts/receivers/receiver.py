"""What a receiver is."""

from __future__ import annotations

from typing import Protocol


class NotTaken(Exception):
    """A receiver does not have a message, as far as is known; says why."""


class Receiver(Protocol):
    """Takes messages."""

    @property
    def place(self) -> str:
        """Where they go, for people; without what may be a secret."""
        ...

    def send(self, name: str, body: bytes) -> str:
        """Send a message; return what was said.

        Args:
            name: the same if it is sent again.
            body: JSON object.

        Raises:
            NotTaken: it was not taken.
        """
        ...
