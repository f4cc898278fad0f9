"""What is done to many jobs at once, on threads of its own, for as long as it takes.

Theory of operation. A bulk with a rate or with canaries takes minutes or hours: no
request waits for that. It goes on in this process while nobody looks, and its page says
how far it is. Each step is committed with its row in the audit trail, so that one which
ends early, be it by a kill, has done what the trail says and nothing else.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jobpool.core.clock import SystemClock
from jobpool.errors import JobpoolError, UsageError
from jobpool.operations.action import Action, Done
from jobpool.operations.operate import operate
from jobpool.operations.principal import Principal
from jobpool.store.protocol import Store

AT_ONCE = 4
"""More would only wait for each other's writes. A slow one hardly writes: it must not
hold up others, so that whoever has none under way may begin one all the same."""
AT_ONCE_MAX = 16
"""Each has a thread and a connection: not even then are there more."""
KEPT = 50
"""So many that are over are remembered."""
_CLOSE_S = 5.0
_NAME_BYTES = 9


@dataclass
class Bulk:
    """One action on many jobs, under way or over."""

    name: str
    """In its address."""
    action: Action
    words: str
    """Which jobs are meant."""
    who: str
    began_ms: int
    once: str = ""
    """Of the form that has asked for it; "": of none."""
    done: Done = field(default_factory=Done)
    error: str = ""
    """Why it ended early; "": it did not."""
    ended_ms: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether it does nothing more."""
        return self.ended_ms is not None

    def stop(self) -> None:
        """Let it end before its next step."""
        self.done.is_unwanted = True


class Bulks:
    """All of them.

    Args:
        opener: opens the store for one of them; called in its thread.
    """

    def __init__(self, opener: Callable[[], Store]) -> None:
        self._opener = opener
        self._known: dict[str, Bulk] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()

    def begin(
        self, principal: Principal, action: Action, words: str, once: str = ""
    ) -> Bulk:
        """Begin one; or return the one that the same form has begun before.

        Args:
            principal: who asks for it.
            action: what is done.
            words: which jobs are meant, for people.
            once: of the form: one that is sent twice, as by two clicks, begins one.

        Raises:
            UsageError: too many are under way; nothing was begun.
        """
        bulk = Bulk(
            name=secrets.token_urlsafe(_NAME_BYTES),
            action=action,
            words=words,
            who=principal.who,
            began_ms=SystemClock().utc_ms(),
            once=once,
        )
        thread = threading.Thread(
            target=self._carry_out,
            args=(bulk, principal),
            name="jobpool-bulk",
            daemon=True,
        )
        with self._lock:
            for known in self._known.values() if once else ():
                if known.once == once:
                    return known
            under_way = [one for one in self._known.values() if not one.is_over]
            own = sum(one.who == bulk.who for one in under_way)
            if len(under_way) >= (AT_ONCE if own else AT_ONCE_MAX):
                raise UsageError(
                    f"{len(under_way)} such actions are under way in this dashboard, "
                    f"{own} of them yours, and no more are begun; nothing was changed: "
                    "wait for one to end, or stop one"
                )
            over = [name for name, one in self._known.items() if one.is_over]
            for name in over[: max(0, len(over) - KEPT + 1)]:
                del self._known[name]
            self._known[bulk.name] = bulk
            self._threads[bulk.name] = thread
        thread.start()
        return bulk

    def get(self, name: str) -> Bulk | None:
        """Return one by its name; None: there is none in this process."""
        return self._known.get(name)

    def newest_first(self) -> Sequence[Bulk]:
        """Return all that are known."""
        with self._lock:
            return list(self._known.values())[::-1]

    def close(self) -> None:
        """Let each end before its next step, and wait for that for a while."""
        with self._lock:
            threads = list(self._threads.values())
            for one in self._known.values():
                one.stop()
        for thread in threads:
            thread.join(_CLOSE_S)

    def _carry_out(self, bulk: Bulk, principal: Principal) -> None:
        try:
            store = self._opener()
            try:
                operate(store, principal, bulk.action, bulk.done)
            finally:
                store.close()
        except JobpoolError as error:
            bulk.error = str(error)
        except BaseException as error:
            bulk.error = f"a bug ended it ({type(error).__name__}); please report it"
            raise
        finally:
            bulk.ended_ms = SystemClock().utc_ms()
            with self._lock:
                self._threads.pop(bulk.name, None)
