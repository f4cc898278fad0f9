"""Events of pools and of the children in them."""

from __future__ import annotations

from collections.abc import Mapping

from jobpool.core.events.event import Event, Level


class ZygoteFailed(Event, frozen=True, kw_only=True):
    """A pool's zygote ended or could not start."""

    name = "zygote_failed"
    level = Level.ERROR

    pool: str
    reason: str
    again_in_s: float | None = None


class ImportNotShared(Event, frozen=True, kw_only=True):
    """A pool's zygote imports the application itself, beside another pool's."""

    name = "import_not_shared"

    pool: str
    reason: str


class PoolResized(Event, frozen=True, kw_only=True):
    """A pool with a size range grew or shrank."""

    name = "pool_resized"

    pool: str
    size_from: int
    size_to: int
    reason: str


class MemoryAwaited(Event, frozen=True, kw_only=True):
    """A job waits because running jobs are counted with the whole memory budget."""

    name = "memory_awaited"
    level = Level.WARNING

    pool: str
    id: int
    kind: str
    memory_bytes: int
    """What counts of the job: its limit, or what its kind was seen to use."""
    used_bytes: int
    """What counts of the running jobs."""
    budget_bytes: int


class SlotsBeyondMemory(Event, frozen=True, kw_only=True):
    """By their limits, not all slots can be used at once within the memory budget."""

    name = "slots_beyond_memory"

    slots: int
    usable: int
    budget_bytes: int
    until: str
    """Until when that holds."""


class HostMemoryShort(Event, frozen=True, kw_only=True):
    """The host is short of memory: nothing begins beside what runs."""

    name = "host_memory_short"
    level = Level.WARNING

    available_bytes: int
    reserve_bytes: int
    pressure: float | None = None
    """Share of the time in which programs wait for memory, in percent."""


class PoolReloaded(Event, frozen=True, kw_only=True):
    """A pool has reloaded the application and its limits."""

    name = "pool_reloaded"

    pool: str


class PoolsLeft(Event, frozen=True, kw_only=True):
    """The application has kinds in pools that this supervisor does not serve."""

    name = "pools_left"

    pools: Mapping[str, int]
    """The number of kinds in each."""


class PoolUnused(Event, frozen=True, kw_only=True):
    """This supervisor serves a pool that no kind of the application uses."""

    name = "pool_unused"
    level = Level.WARNING

    pool: str
    hint: str


class ChildStarted(Event, frozen=True, kw_only=True):
    """A child was forked; it sets itself up next."""

    name = "child_started"
    level = Level.DEBUG

    slot: str
    pid: int


class ChildEnded(Event, frozen=True, kw_only=True):
    """A child has ended and was reaped."""

    name = "child_ended"
    level = Level.DEBUG

    slot: str
    pid: int
    jobs: int
    reason: str
