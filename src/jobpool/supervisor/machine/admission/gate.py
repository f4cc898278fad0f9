"""Gates: may this job begin now? One question, one answer, whoever asks.

Theory of operation. A leased job passes every gate before it begins. `leasing` has them
in one order, and asks them in one pass over a pool's line: the first that refuses
decides, and the ones behind it are not asked. So a gate sees only jobs to which those
before it have no objection.

There are two ways to be refused. A gate that sorts out (`sorts_out`) refuses jobs of a
kind, wherever they stand in line: they go back to the store at the end of the pass, so
that others pass them by, and `held` keeps the store from sending more of them. Any
other gate lets the first in line wait, and its pool with it: it goes back when it has
waited for too long (`keeps`).

`admit` may be asked again about the same job, and answers the same unless something has
changed. A gate that has only so many places keeps one for the job it admits, by the
job's token, until the job is settled (`Step.on_settle`): each end is, and so is each
job that is handed back. Plain successes tell nobody (`successes`), unless a gate says
that it needs them (`needs_ends`).

Nothing polls: a gate that may change its answer sees to it that a step is taken then
(`keep_time`), and names the pools to try (`pools_to_try`), or has all of them tried and
the store asked (`Step.recheck`).
"""

from __future__ import annotations

from typing import Protocol

from jobpool.supervisor.machine.state.pool import Pool
from jobpool.supervisor.machine.state.slot import Assigned, Slot


class Gate(Protocol):
    """One reason why a job may have to wait; a gate overrides what concerns it."""

    sorts_out: bool = False
    """It refuses jobs anywhere in line, and they go back; else the first waits."""

    @property
    def is_open(self) -> bool:
        """Whether it has nothing against any job now, and need not be asked."""
        return False

    @property
    def needs_ends(self) -> bool:
        """Whether `Step.on_settle` must tell of plain successes, too, for now."""
        return False

    def admit(self, job: Assigned) -> str | None:
        """Say why a job may not begin now, in the words of `show`; None: it may."""

    def admits_behind(self, job: Assigned, slot: Slot) -> bool:
        """Say whether a job in line may be sent ahead, behind what a slot runs."""
        del job, slot
        return True

    def begun(self) -> None:
        """A job that every gate has admitted was given to a slot."""
        return

    def keeps(self, job: Assigned) -> bool:
        """Say whether the first in line waits for this gate and may go on waiting."""
        del job
        return False

    def emptied(self, pool: Pool) -> None:
        """A pool has nothing in line any more."""
        del pool

    def held(self) -> frozenset[str]:
        """Return the kinds of which none is to be leased now."""
        return frozenset()

    def shuts(self, pool: Pool) -> bool:
        """Say whether nothing at all is to be leased for a pool now."""
        del pool
        return False

    def pools_to_try(self) -> list[str]:
        """Return the pools whose first in line it may admit by now."""
        return []

    def keep_time(self) -> None:
        """Do what is due, and see to it that we are woken for what is due next."""
        return
