"""What is done to a whole queue: enqueue by hand, pause, prune, reclaim, restore."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from jobpool.core.config.settings import Retention
from jobpool.core.jobs.job import Enqueued, NewJob
from jobpool.operations.action import Action, Change, Done, Step
from jobpool.operations.principal import Principal
from jobpool.store.protocol import Store

_PRUNED_AT_ONCE = 1000
_RESTORED = "restored from a backup"
_SCHEDULES = {True: "catch up", False: "skip"}


class Enqueue(Action, frozen=True, kw_only=True):
    """Enqueue jobs of one kind by hand."""

    name = "enqueue"
    kind: str
    pool: str
    batches: Iterable[Sequence[NewJob]]
    """Each is stored as a whole; taken one after the other."""
    on_stored: Callable[[Sequence[Enqueued]], None] | None = None
    """Called with what became of a batch, once it is stored."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {"kind": self.kind, "pool": self.pool}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by
        for batch in self.batches:
            stored: list[Enqueued] = []
            yield _enqueue(store, batch, stored)
            done.matched += len(stored)
            if self.on_stored is not None:
                self.on_stored(stored)


def _enqueue(store: Store, batch: Sequence[NewJob], stored: list[Enqueued]) -> Step:
    def step() -> Change:
        stored[:] = store.enqueue(batch)
        made = [one.id for one in stored if one.created]
        return Change(is_made=bool(made), jobs=len(made), ids=made)

    return step


class _Pausing(Action, frozen=True, kw_only=True):
    """A pool, a kind, a tenant, what needs a quota, or all of it."""

    pool: str | None = None
    kind: str | None = None
    tenant: str | None = None
    quota: str | None = None
    whole_store: bool = False

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return _named(**self._what(), whole_store=self.whole_store or None)

    def _what(self) -> dict[str, str | None]:
        return {
            "pool": self.pool,
            "kind": self.kind,
            "tenant": self.tenant,
            "quota": self.quota,
        }


class Pause(_Pausing, frozen=True, kw_only=True):
    """Start no more jobs of what is named, or none at all."""

    name = "pause"
    for_s: float | None = None
    """None: until it is resumed."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {**super().target(), **_named(for_s=self.for_s)}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del done
        yield lambda: Change(
            is_made=store.pause(
                **self._what(),
                whole_store=self.whole_store,
                for_s=self.for_s,
                who=by.who,
                note=self.note,
            )
        )


class Resume(_Pausing, frozen=True, kw_only=True):
    """Start jobs again of what is paused, and of a kind that crashes."""

    name = "resume"

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by, done
        yield lambda: self._resume(store)

    def _resume(self, store: Store) -> Change:
        """Undo a pause, and close the circuit breaker of a kind."""
        is_made = store.resume(**self._what(), whole_store=self.whole_store)
        broken = [one for one in store.breakers() if one.kind == self.kind]
        store.save_breakers(msgspec.structs.replace(one, crashes=0) for one in broken)
        return Change(is_made=is_made or bool(broken))


class Prune(Action, frozen=True, kw_only=True):
    """Delete finished jobs that are old enough; never what people did.

    What ends meanwhile may be left for the next time: else it would not come to an end
    beside a busy supervisor.
    """

    name = "prune"
    retention: Retention

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return _named(**msgspec.structs.asdict(self._of_jobs))

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del by
        is_full = True
        while is_full:
            before = done.jobs
            yield lambda: self._prune(store)
            is_full = done.jobs - before >= _PRUNED_AT_ONCE

    @property
    def _of_jobs(self) -> Retention:
        """The trail is pruned by age alone: nobody deletes what he did before."""
        return msgspec.structs.replace(self.retention, audit_s=None)

    def _prune(self, store: Store) -> Change:
        jobs = store.prune(self._of_jobs, _PRUNED_AT_ONCE)
        return Change(is_made=jobs > 0, jobs=jobs)


class Reclaim(Action, frozen=True, kw_only=True):
    """Take back the jobs of a run that is known to be dead."""

    name = "reclaim"
    run: str
    host: str
    take_back: Callable[[], int]
    """Takes them back in the open transaction, and returns how many; what does so
    belongs to the supervisor."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        return {"run": self.run, "host": self.host}

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del store, by, done
        yield lambda: Change(is_made=True, jobs=self.take_back())


class Restored(Action, frozen=True, kw_only=True):
    """Go on above all that was given out, take back what was leased, and pause."""

    name = "restored"
    tokens: int
    """As of `Store.begin_anew`."""
    last_id: int
    take_back: Callable[[], int]
    """Takes back what all runs held, in the open transaction, and returns how many jobs
    that were; what does so belongs to the supervisor."""
    catch_up: bool | None = None
    """As of `Store.restart_schedules`; None: there are no schedules."""

    def target(self) -> dict[str, Any]:
        """See `Action.target`."""
        choice = None if self.catch_up is None else _SCHEDULES[self.catch_up]
        return {
            "tokens": self.tokens,
            "last_id": self.last_id,
            **_named(schedules=choice),
        }

    def steps(self, store: Store, by: Principal, done: Done) -> Iterator[Step]:
        """See `Action.steps`."""
        del done
        yield lambda: self._restore(store, by)

    def _restore(self, store: Store, by: Principal) -> Change:
        store.begin_anew(tokens=self.tokens, last_id=self.last_id)
        if self.catch_up is not None:
            store.restart_schedules(catch_up=self.catch_up)
        store.pause(whole_store=True, who=by.who, note=self.note or _RESTORED)
        return Change(is_made=True, jobs=self.take_back())


def _named(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
