"""Events about the memory that an attempt uses."""

from __future__ import annotations

from jobpool.core.events import Event, Level


class MemorySoftPassed(Event, frozen=True, kw_only=True):
    """An attempt is over its soft memory limit; said once of each."""

    name = "memory_soft_passed"
    level = Level.WARNING

    id: int
    kind: str
    slot: str
    attempt: int
    rss_bytes: int
    soft_bytes: int
    memory_bytes: int
    """The hard limit."""
    raised: bool
    """`SoftMemory` is raised in the handler."""
