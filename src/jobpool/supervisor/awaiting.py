"""A store that cannot be reached at the start is waited for: both may just have booted.

A host whose supervisor comes up before its database, or before the network, would else
depend on whoever starts it again. What waiting cannot mend (a wrong password, a schema
of tomorrow) ends the start at once; a minute without an answer ends it as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from jobpool.core import events as ev
from jobpool.core.clock import Clock
from jobpool.errors import StoreUnavailable
from jobpool.store.base import Store

AWAIT_S = 60.0
FIRST_S, LAST_S = 0.5, 5.0


def open_patiently(
    opener: Callable[[], Store],
    observer: ev.Observer,
    clock: Clock,
    *,
    wait: Callable[[float], object] = time.sleep,
) -> Store:
    """Open the store; say once that it is away, and once that it is back.

    Args:
        opener: opens it.
        observer: is told.
        clock: for the times.
        wait: lets so many seconds pass.

    Raises:
        StoreUnavailable: it could not be reached for a minute.
        JobpoolError: it refuses.
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
                    ev.StoreTrouble(
                        at_ms=clock.utc_ms(), error=str(error), again_in_s=pause_s
                    )
                )
            away = True
            wait(pause_s)
            pause_s = min(2 * pause_s, LAST_S)
            continue
        if away:
            away_s = clock.monotonic_s() - began_s
            observer.observe(ev.StoreBack(at_ms=clock.utc_ms(), away_s=away_s))
        return store
