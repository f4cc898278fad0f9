"""The store is away: told without it, by each of those who watch.

All other incidents are rows in the store, so that one of many tells them. Of this one
nobody can ask who has told it, so each watcher does, by a name that is made of the last
turn it has seen: mostly the same, and whoever drops what it has seen hears it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from jobpool.core.clock import Clock
from jobpool.core.units import show_duration
from jobpool.monitoring.alerts.catalogue import STORE
from jobpool.monitoring.alerts.messages import facts_of
from jobpool.store.records.alerts import Incident

AGAIN_S = 60.0
"""The pause before what was not taken is sent again."""


class Away:
    """Whether the store is away, as one watcher sees it, and who has heard of it.

    Args:
        after_s: it must be away for so long; None: nobody is told.
        queue: the store's URL, without a password.
        host: this one's name, for people.
        receivers: their names.
        send: sends a message of a name to one of them; False: it was not taken.
        clock: for durations and the times in messages.
    """

    def __init__(
        self,
        *,
        after_s: float | None,
        queue: str,
        host: str,
        receivers: Iterable[str],
        send: Callable[[str, str, bytes], bool],
        clock: Clock,
    ) -> None:
        self._after_s = after_s
        self._queue = queue
        self._host = host
        self._receivers = tuple(receivers)
        self._send = send
        self._clock = clock
        self._since_s: float | None = None
        self._since_ms = 0
        self._name = ""
        self._heard: set[str] = set()
        """Who has been told that it is away, and not yet that it is back."""
        self._next_s = 0.0

    def failed(self, why: str, turn: int) -> None:
        """The store could not be used: tell it once that lasts.

        Args:
            why: the error.
            turn: the last one that was seen; 0: none was.
        """
        now_s = self._clock.monotonic_s()
        if self._since_s is None:
            self._since_s, self._since_ms = now_s, self._clock.utc_ms()
            if not self._heard:
                self._name = f"store-{turn or self._since_ms}"
        away_s = now_s - self._since_s
        if self._after_s is None or away_s < self._after_s or now_s < self._next_s:
            return
        text = f"for {show_duration(round(away_s))}, as seen from {self._host}: {why}"
        for who in self._receivers:
            if who not in self._heard:
                if self._tell(who, "opened", text):
                    self._heard.add(who)
                else:
                    self._next_s = now_s + AGAIN_S

    def answered(self) -> None:
        """The store answers: tell those who have heard otherwise."""
        now_s = self._clock.monotonic_s()
        if self._since_s is not None:
            self._since_s, self._next_s = None, 0.0
        if now_s < self._next_s:
            return
        for who in tuple(self._heard):
            if self._tell(who, "ended", f"again, as seen from {self._host}"):
                self._heard.discard(who)
            else:
                self._next_s = now_s + AGAIN_S

    def _tell(self, who: str, event: str, text: str) -> bool:
        over = event == "ended"
        incident = Incident(
            id=0,
            rule=STORE.name,
            subject="",
            summary="",
            opened_at_ms=self._since_ms,
            ended_at_ms=self._clock.utc_ms() if over else None,
        )
        name = f"{self._name}-{event}"
        said = (
            f"over: the store answers {text}"
            if over
            else f"the store cannot be used {text}"
        )
        told = {
            "id": name,
            "queue": self._queue,
            "event": event,
            "text": said,
            "incident": None,
            **facts_of(incident),
        }
        return self._send(who, name, msgspec.json.encode(told))
