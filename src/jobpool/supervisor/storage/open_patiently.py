"""Opening a store at the start, with patience: host and database may just have booted.

A supervisor that comes up before its database or the network, or while its disk is full
for a moment, would otherwise depend on a service manager to start it again. What
waiting cannot fix (a wrong password, a newer schema) ends the start at once; a minute
without an answer ends it as well. The store thread waits, while the main thread handles
signals.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from jobpool.core.clock import Clock
from jobpool.core.events.event import Observer
from jobpool.core.events.supervisor import StoreBack, StoreTrouble
from jobpool.errors import StoreUnavailable
from jobpool.store.protocol import Store
from jobpool.supervisor.machine import commands as cmd
from jobpool.supervisor.machine.machine import Machine
from jobpool.supervisor.reactor import Reactor

AWAIT_S = 60.0
FIRST_S, LAST_S = 0.5, 5.0
NEVER_S = float("inf")


def open_patiently(
    opener: Callable[[], Store],
    observer: Observer,
    clock: Clock,
    *,
    wait: Callable[[float], bool],
) -> Store:
    """Open the store; report once that it is away, and once that it is back.

    Args:
        opener: opens it.
        observer: gets the events.
        clock: for the times.
        wait: waits for so many seconds; True: the store is not needed any more.

    Raises:
        StoreUnavailable: it could not be reached for a minute, or in the time given.
        JobpoolError: it refused.
    """
    began_s, pause_s, away = clock.monotonic_s(), FIRST_S, False
    while True:
        try:
            store = opener()
        except StoreUnavailable as error:
            if clock.monotonic_s() - began_s >= AWAIT_S:
                raise
            if not away:
                observer.observe(
                    StoreTrouble(
                        at_ms=clock.utc_ms(), error=str(error), again_in_s=pause_s
                    )
                )
            away = True
            if wait(pause_s):
                raise
            pause_s = min(2 * pause_s, LAST_S)
            continue
        if away:
            away_s = clock.monotonic_s() - began_s
            observer.observe(StoreBack(at_ms=clock.utc_ms(), away_s=away_s))
        return store


def await_opened(
    opened: threading.Event, machine: Machine, reactor: Reactor, observer: Observer
) -> cmd.Finish | None:
    """Wait until the store is open or has failed; return a command to end before.

    Args:
        opened: set once either is known; the reactor is woken then.
        machine: decides what a signal means; it has nothing else to do yet.
        reactor: waits.
        observer: gets the events.
    """
    clock = reactor.clock
    while not opened.is_set():
        reactor.wait(NEVER_S)
        for _ in range(len(reactor)):
            event, now_s = reactor.take(), clock.monotonic_s()
            for command in machine.step(event, now_s, clock.utc_ms()):
                if isinstance(command, cmd.Observe):
                    observer.observe(command.event)
                elif isinstance(command, cmd.Finish):
                    return command
    return None
