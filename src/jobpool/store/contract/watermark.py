"""What a supervisor knows to be in its store: one that holds less went back in time.

Someone has put a backup in its place, or a server that had not received everything took
over. Whatever this supervisor then writes may meet jobs that others hold, under tokens
that are given out again. So it compares at every renewal, and before it writes again
after trouble with the store; it must not go on.

Two threads share what is known: one renews, one leases. So an answer is compared with
what was known before the store was asked: the other thread may have learned more since.

Renewals and leases are counted, because a clock may be set back, and a renewal's answer
may be lost: then the store holds more than is known, and never less.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple, NoReturn

from jobpool.core.jobs.job import Lease
from jobpool.errors import StoreWentBack

_token_of = attrgetter("token")


class RunPosition(NamedTuple):
    """How far a store has come, as one of its runs sees it."""

    renewals: int
    """How often it was renewed."""
    token: int
    """The store has given out no higher token."""
    restores: int
    """How often it was restored."""


class Watermark:
    """The highest position that a supervisor has seen. May be used by several threads.

    Args:
        run_id: the supervisor's run.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.renewals = 0
        self.token = 0
        self.restores: int | None = None
        """None: it has not compared yet."""

    @property
    def is_set(self) -> bool:
        """Whether the run is in the store, and was seen there."""
        return self.restores is not None

    def granted(self, leases: Iterable[Lease]) -> None:
        """Note leases whose commit is known."""
        self.token = max(self.token, max(map(_token_of, leases), default=0))

    def mark(self) -> Mark:
        """Return what is known, before the store is asked for its position."""
        return Mark(self, self.renewals, self.token)

    def refuse(self, place: str, what: str) -> NoReturn:
        """Raise the error for a store that went back.

        Raises:
            StoreWentBack: always.
        """
        raise StoreWentBack(
            f"the store {place} went back in time while run {self.run_id} worked with "
            f"it: {what}. Its jobs were ended, and it writes nothing more. Stop all "
            "supervisors, run `jobpool restored`, then start them again (see: jobpool "
            "manual backup)"
        )


class Mark(NamedTuple):
    """What a store that is asked from now on must hold at least."""

    known: Watermark
    renewals: int
    token: int

    def compare(self, found: RunPosition | None, place: str) -> None:
        """Compare with what the store has answered.

        Args:
            found: None: the run is unknown there.
            place: the store, for the message.

        Raises:
            StoreWentBack: the store holds less than it did.
        """
        if found is not None and self.known.restores is None:
            self.known.restores = found.restores
        if what := self._missing(found):
            self.known.refuse(place, what)

    def _missing(self, found: RunPosition | None) -> str:
        if found is None:
            return "it does not know this run any more"
        if found.restores != self.known.restores:
            return "it was restored from a backup"
        if lost := max(0, self.renewals - found.renewals):
            return f"it has lost the newest {lost} of this run's renewals"
        if found.token < self.token:
            return "it does not know leases any more that this run got"
        return ""
