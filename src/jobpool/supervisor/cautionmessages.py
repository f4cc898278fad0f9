"""Events and commands about suspects and kinds that crash; part of `messages`."""

from __future__ import annotations

import msgspec

from jobpool.core.breaker import Saved


class HostKilled(msgspec.Struct, frozen=True):
    """A suspect of this kind took another supervisor along while it was alone."""

    kind: str
    id: int


class BreakersSeen(msgspec.Struct, frozen=True):
    """What the store knows of kinds that crash in a row."""

    rows: tuple[Saved, ...]
    saves: int
    """So many of our `SaveBreaker` were in it."""


class Clear(msgspec.Struct, frozen=True):
    """A suspect has run for long enough: clear it in the store."""

    id: int
    token: int


class SaveBreaker(msgspec.Struct, frozen=True):
    """Keep what is known of a kind."""

    saved: Saved


class Leaving(msgspec.Struct, frozen=True):
    """Note in the store that the supervisor drains or stops."""


Caution = Clear | SaveBreaker | Leaving
