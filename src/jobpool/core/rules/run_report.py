"""What a supervisor reports of itself: its pools, how its jobs end, its bottlenecks.

A report is written only when it differs from the one before, and figures of a host
never stand still: they count as different once they would change what people do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

ENDS_WITHIN_S = 60.0
"""Ends are counted over so many last seconds."""
CPU_STEP = 0.2
PRESSURE_STEP = 10.0
MEMORY_STEP = 0.25
COMMIT_TIMES = 2.0
COMMIT_LEAST_MS = 5.0
"""A host or store is as before if no figure has changed by more than these."""


class PoolReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pool, as its supervisor sees it."""

    size: int
    busy: int = 0
    wanted: int = 0
    """The size that it would have if nothing kept it from growing."""
    why: str = ""
    """Why it has its size."""
    holds: str = ""
    """What keeps all of its leased jobs from beginning here; "": nothing."""
    own_import: str = ""
    """Why the application was imported once more for it; "": it was not."""
    memory_max_bytes: int | None = None
    """Most memory that a job may be given in it; None: nobody has said."""


class KindReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How jobs of a kind have ended here in the last minute."""

    ends_per_s: float = 0.0
    """Attempts, however they ended."""
    timeouts: int = 0
    """Of them: those that reached their time limit."""
    throttled: int = 0
    """Of them: those that a service refused for now."""
    out_of_memory: int = 0
    grown_bytes: int = 0
    """What a job of it leaves behind in its child, on average, once that has run some;
    0: nothing worth telling, or too few have ended."""
    holds: str = ""
    """What keeps its jobs from beginning here; "": nothing."""


class HostReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A host's processors and memory."""

    cpu_busy: float = 0.0
    """Share of the processors."""
    cpu_pressure: float | None = None
    """Share of the last 10 s in which some program waited for a processor, in percent;
    None: the kernel does not tell."""
    memory_pressure: float | None = None
    """The same for memory."""
    io_pressure: float | None = None
    """The same for disks."""
    available_bytes: int = 0
    swap_used_bytes: int = 0
    swapping: bool = False
    """Memory goes to the disk or comes from there."""


class StoreReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The store, as seen from a supervisor."""

    commit_p50_ms: float | None = None
    """Of the last commits that wrote something; None: there were none lately."""
    commit_p99_ms: float | None = None
    lock_waits: int | None = None
    """Sessions that wait for a lock; None: this kind of store does not tell."""
    connections: int | None = None
    connections_max: int | None = None


class MemoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Not all slots can be used at once within the memory budget."""

    slots: int
    usable: int
    """At least, where every pool runs its kind that counts with most."""
    budget_bytes: int
    kind: str
    """The kind that counts with most; "": a pool's limit, without a kind."""
    bytes: int
    """With what it counts."""
    is_limit: bool = False
    """That is its limit: too little is known of what it uses."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a supervisor reports."""

    pools: Mapping[str, PoolReport] = {}
    kinds: Mapping[str, KindReport] = {}
    host: HostReport = HostReport()
    store: StoreReport = StoreReport()
    memory: MemoryReport | None = None
    """None: all slots can be used at once."""
    fixed_memory: tuple[str, ...] = ()
    """Kinds whose memory limit the configuration says: their jobs' own do not count."""

    def differs(self, before: RunReport | None) -> bool:
        """Say whether it tells anything that the one before did not."""
        return (
            before is None
            or self.pools != before.pools
            or self.kinds != before.kinds
            or self.memory != before.memory
            or self.fixed_memory != before.fixed_memory
            or _host_differs(self.host, before.host)
            or _store_differs(self.store, before.store)
        )


class ReportRow(NamedTuple):
    """The newest report of an open run."""

    run_id: str
    host: str
    pid: int
    at_ms: int
    report: RunReport


def memory_max_bytes(reports: Iterable[RunReport], pool: str) -> int | None:
    """Return the most memory that a job may be given in a pool of some supervisor.

    None: none of them has said.
    """
    pools = (report.pools.get(pool) for report in reports)
    told = [one.memory_max_bytes for one in pools if one and one.memory_max_bytes]
    return max(told, default=None)


def _host_differs(one: HostReport, other: HostReport) -> bool:
    return (
        one.swapping != other.swapping
        or abs(one.cpu_busy - other.cpu_busy) > CPU_STEP
        or any(
            abs((now or 0.0) - (then or 0.0)) > PRESSURE_STEP
            for now, then in (
                (one.cpu_pressure, other.cpu_pressure),
                (one.memory_pressure, other.memory_pressure),
                (one.io_pressure, other.io_pressure),
            )
        )
        or abs(one.available_bytes - other.available_bytes)
        > MEMORY_STEP * max(one.available_bytes, other.available_bytes)
    )


def _store_differs(one: StoreReport, other: StoreReport) -> bool:
    now_ms, then_ms = one.commit_p99_ms or 0.0, other.commit_p99_ms or 0.0
    return max(now_ms, then_ms) > COMMIT_TIMES * min(
        now_ms, then_ms
    ) + COMMIT_LEAST_MS or bool(one.lock_waits) != bool(other.lock_waits)
