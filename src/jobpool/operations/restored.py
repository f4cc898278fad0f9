"""Make a store usable that was restored from a backup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jobpool.operations.action import Action, Change, Done, Step
from jobpool.operations.principal import Principal
from jobpool.store.protocol import Store

_PAUSED = "restored from a backup"


class Restored(Action, frozen=True, kw_only=True):
    """Go on above all that was given out, take back what was leased, and pause.

    What schedules and flows have missed is to be decided here too, once they exist.
    """

    name = "restored"
    tokens: int
    """As of `Store.begin_anew`."""
    last_id: int
    take_back: Callable[[], int]
    """Takes back what all runs held, in the open transaction, and returns how many jobs
    that were; what does so belongs to the supervisor."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {"tokens": self.tokens, "last_id": self.last_id}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del done
        yield lambda: self._restore(store, by)

    def _restore(self, store: Store, by: Principal) -> Change:
        store.begin_anew(tokens=self.tokens, last_id=self.last_id)
        store.pause(whole_store=True, who=by.who, note=self.note or _PAUSED)
        return Change(is_made=True, jobs=self.take_back())
