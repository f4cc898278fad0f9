"""Events and commands of the watch over children; part of `messages`."""

from __future__ import annotations

import msgspec


class OverMemory(msgspec.Struct, frozen=True):
    """A busy child's tree is over its memory limit, or the soft one, confirmed."""

    slot: int
    seq: int
    """The attempt that was looked at."""
    rss_bytes: int
    soft: bool = False


class OverProcesses(msgspec.Struct, frozen=True):
    """A busy child's tree has more processes and threads than it may."""

    slot: int
    seq: int
    """The attempt that was looked at."""
    count: int
    """At least so many."""
    most: int


class Seen(msgspec.Struct, frozen=True):
    """What a busy child's tree shows of itself, for people, if that has changed."""

    slot: int
    seq: int
    """The attempt that was looked at."""
    rss_bytes: int
    output: bytes | None
    """The tail of what it has written; None: no more than at the last look."""


class Restless(msgspec.Struct, frozen=True):
    """A child without a job does what no child at rest does."""

    slot: int
    said: str


class Overfull(msgspec.Struct, frozen=True):
    """A child came to rest with more memory than any of its attempts might have."""

    slot: int


class Watch(msgspec.Struct, frozen=True):
    """An attempt begins: hold its child's tree to this memory limit."""

    slot: int
    seq: int
    memory_bytes: int
    memory_soft_bytes: int | None = None


class Unwatch(msgspec.Struct, frozen=True):
    """No attempt runs in the slot any more: look whether its child rests."""

    slot: int
    allowed_bytes: int
    """The highest memory limit among the attempts that have ended in it."""
