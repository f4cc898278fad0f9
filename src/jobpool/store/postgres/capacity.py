"""What a PostgreSQL server still has room for: connections, memory, locks, latency."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from jobpool.core.units import show_duration, show_size
from jobpool.errors import StoreUnavailable
from jobpool.store.postgres.connection.database import Database
from jobpool.store.postgres.connection.session import Session
from jobpool.store.records.runs import CapacityFact

OF_SUPERVISOR = 2
"""Connections that a supervisor uses: one to write, one to listen and renew."""
FREE_SHARE_MIN = 0.1
"""Of the connections that may be used: room for clients, and for a rolling deploy."""
HIT_SHARE_MIN = 0.95
BLOCKS_MIN = 10_000
"""With fewer blocks read, the share of hits says nothing."""
WAIT_S_MAX = 1.0
ROUND_TRIPS = 10
ROUND_TRIP_S_MAX = 0.01
LOOK_S_MAX = 0.05
_SHOWN = 5


def capacity(server: Database, look: Callable[[], object]) -> Iterator[CapacityFact]:
    """Yield what the server has room for.

    Args:
        server: outside of a transaction.
        look: asks the store what is due, as a supervisor does.
    """
    with server.reading() as session:
        yield _connections(session, server.set_now_ms)
        yield _lock_waits(session)
        yield _cache(session)
    yield from _relations(server)
    with server.reading() as session:
        yield _latency(session, look)
    yield _room(server)


def _relations(server: Database) -> Iterator[CapacityFact]:
    """Yield the sizes; in a transaction, whose lock timeout is short."""
    try:
        with server.writing() as session:
            tables = session.rows("table_sizes", schema=session.schema)
            indexes = session.rows("index_sizes", schema=session.schema)
    except StoreUnavailable as error:
        yield CapacityFact(name="tables", seen=f"unknown: {error}")
        return
    for name, sizes in (("tables", tables), ("indexes", indexes)):
        figures: dict[str, float] = dict(sizes)
        yield CapacityFact(name=name, seen=_sizes(sizes), figures=figures)


def _connections(session: Session, now_ms: int | None) -> CapacityFact:
    found = session.rows("connections", now_ms=now_ms)
    ((most, of_role, of_database, used, ours, runs),) = found
    limits = [limit for limit in (most, of_role, of_database) if limit >= 0]
    may = min(limits)
    needed = used - ours + max(ours, OF_SUPERVISOR * runs)
    left, wanted = may - needed, round(FREE_SHARE_MIN * may)
    seen = (
        f"{used} of {may} used, {ours} by jobpool; {runs} live supervisors need "
        f"{OF_SUPERVISOR * runs}, which leaves {left}"
    )
    limit = "max_connections" if may == most else "the role's or database's limit"
    return CapacityFact(
        name="connections",
        seen=seen,
        concern=f"expected at least {wanted} left for clients (one for each process "
        f"that enqueues) and for a rolling deploy; raise {limit}, or let clients "
        "connect through a pooler"
        if left < wanted
        else None,
        figures={
            "usable": may,
            "used": used,
            "used_by_jobpool": ours,
            "supervisors": runs,
            "left": left,
        },
    )


def _sizes(sizes: Sequence[Sequence[object]]) -> str:
    """Format the largest, and how many more there are."""
    shown = [f"{name} {show_size(int(str(size)))}" for name, size in sizes[:_SHOWN]]
    rest = sum(int(str(size)) for _, size in sizes[_SHOWN:])
    if rest:
        shown.append(f"{len(sizes) - _SHOWN} others {show_size(rest)}")
    return ", ".join(shown)


def _cache(session: Session) -> CapacityFact:
    ((hit, read, buffers),) = session.rows("cache_hits", schema=session.schema)
    share = hit / (hit + read) if hit + read else 1.0
    is_low = read >= BLOCKS_MIN and share < HIT_SHARE_MIN
    return CapacityFact(
        name="cache_hits",
        seen=f"{share:.1%} of {hit + read:,} blocks; shared_buffers "
        f"{show_size(buffers)}",
        concern=f"expected at least {HIT_SHARE_MIN:.0%}: raise shared_buffers, or keep "
        "fewer finished jobs ([retention])"
        if is_low
        else None,
        figures={"hit_blocks": hit, "read_blocks": read, "buffer_bytes": buffers},
    )


def _lock_waits(session: Session) -> CapacityFact:
    waits = session.rows("lock_waits")
    deadlocks = session.value("deadlocks")
    longest_s = max((waited_s for _, _, waited_s, _ in waits), default=0.0)
    seen = f"{len(waits)} now, {deadlocks:,} deadlocks so far in this database"
    concern = None
    if longest_s > WAIT_S_MAX:
        pid, name, _, holder = waits[0]
        concern = (
            f"pid {pid} ({name or 'no application name'}) has waited for "
            f"{show_duration(longest_s)}, expected at most "
            f"{show_duration(WAIT_S_MAX)}; see what pid {holder} does, and end it: "
            f"SELECT pg_terminate_backend({holder})"
        )
    return CapacityFact(
        name="lock_waits",
        seen=seen,
        concern=concern,
        figures={
            "waiting": len(waits),
            "longest_s": longest_s,
            "deadlocks": deadlocks,
        },
    )


def _latency(session: Session, look: Callable[[], object]) -> CapacityFact:
    look()  # The first one is planned.
    trips_s = [_timed_s(lambda: session.value("now")) for _ in range(ROUND_TRIPS)]
    trip_s, look_s = statistics.median(trips_s), _timed_s(look)
    concern = None
    if trip_s > ROUND_TRIP_S_MAX:
        concern = (
            f"expected at most {_ms(ROUND_TRIP_S_MAX)} a round trip; run supervisors "
            "nearer to the server"
        )
    elif look_s > LOOK_S_MAX:
        concern = (
            f"expected at most {_ms(LOOK_S_MAX)} for a look; see dead_rows, cache_hits "
            "and lock_waits"
        )
    return CapacityFact(
        name="latency",
        seen=f"a round trip {_ms(trip_s)} (at worst {_ms(max(trips_s))}), a look at "
        f"what is due {_ms(look_s)}",
        concern=concern,
        figures={
            "round_trip_s": trip_s,
            "round_trip_max_s": max(trips_s),
            "look_s": look_s,
        },
    )


def _room(server: Database) -> CapacityFact:
    """Have the server write a file of its own, which is gone afterwards.

    On a full disk rows that fit into their pages still change: heartbeats go on while
    no job can be stored.

    Raises:
        StoreFull: it cannot.
    """
    with server.writing() as session:
        session.run("little_work_mem")
        size = session.value("spill")
    return CapacityFact(
        name="room", seen=f"a file of {show_size(size)} fits on the server's disk"
    )


def _timed_s(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}ms"
